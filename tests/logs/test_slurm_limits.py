"""What `sacctmgr -P show qos` and `show assoc` print becomes limits."""

import json
import math
from pathlib import Path

import pytest

from rtsched.errors import InputError
from rtsched.logs.cluster_files import read_cluster
from rtsched.logs.slurm_limits import read_limits
from rtsched.model.cluster import NodeState
from rtsched.model.limits import Association, LimitSet, Qos

QOS_COLUMNS = """
Name Priority GraceTime Preempt PreemptExemptTime PreemptMode Flags UsageThres UsageFactor
LimitFactor GrpTRES GrpTRESMins GrpTRESRunMins GrpJobs GrpSubmit GrpWall MaxTRES MaxTRESPerNode
MaxTRESMins MaxWall MaxTRESPU MaxJobsPU MaxSubmitPU MaxTRESPA MaxTRESRunMinsPA MaxTRESRunMinsPU
MaxJobsPA MaxSubmitPA MinTRES
"""
ASSOCIATION_COLUMNS = """
Cluster Account User Partition Share Priority GrpJobs GrpTRES GrpSubmit GrpWall GrpTRESMins MaxJobs
MaxTRES MaxTRESPerNode MaxSubmit MaxWall MaxTRESMins QOS DefQOS GrpTRESRunMins
"""


def printed(columns: str, *rows: dict[str, str]) -> str:
    """Return a table as sacctmgr prints it."""
    names = columns.split()
    lines = [names, *([row.get(name, "") for name in names] for row in rows)]
    return "".join("|".join(line) + "\n" for line in lines).replace("DefQOS", "Def QOS")


QOS = printed(
    QOS_COLUMNS,
    {"Name": "normal", "Priority": "0", "GraceTime": "00:00:00", "UsageFactor": "1.000000"},
    {
        "Name": "gpu",
        "Flags": "DenyOnLimit,NoDecay,OverPartQOS",
        "LimitFactor": "2.500000",
        "GrpTRES": "cpu=1K,gres/gpu:a100=8,mem=2T",
        "GrpTRESMins": "cpu=90000,mem=9000000T",
        "GrpTRESRunMins": "gres/gpu=600",
        "GrpWall": "2-00:00:00",
        "MaxTRESRunMinsPU": "cpu=5",
        "MaxTRESRunMinsPA": "node=7",
        "GrpJobs": "40",
        "MaxTRES": "gres/gpu=4",
        "MaxTRESMins": "cpu=600",
        "MaxWall": "1-12:00:00",
        "MaxTRESPU": "cpu=64,mem=1000",
        "MaxJobsPU": "3",
        "MaxSubmitPU": "100",
        "MaxTRESPA": "node=6",
        "MaxJobsPA": "5",
        "MinTRES": "cpu=1",
    },
)
ASSOCIATIONS = printed(
    ASSOCIATION_COLUMNS,
    {"Cluster": "c1", "Account": "root", "Share": "1", "QOS": "normal"},
    {"Cluster": "c1", "Account": " root", "User": "root"},
    {
        "Cluster": "c1",
        "Account": " science",
        "GrpJobs": "100",
        "GrpTRES": "cpu=500",
        "GrpTRESRunMins": "cpu=1000",
        "MaxJobs": "9",
    },
    {"Cluster": "c1", "Account": "  physics", "GrpTRES": "cpu=200,license/matlab=3"},
    {
        "Cluster": "c1",
        "Account": "   physics",
        "User": "alice",
        "MaxJobs": "2",
        "MaxSubmit": "50",
        "MaxWall": "08:00:00",
        "QOS": "gpu,normal",
    },
    {
        "Cluster": "c1",
        "Account": "   physics",
        "User": "alice",
        "Partition": "debug",
        "MaxJobs": "-1",
        "MaxTRESMins": "cpu=60",
    },
    {"Cluster": "c1", "Account": " arts"},
)


def files(tmp_path: Path, **texts: str) -> dict[str, Path]:
    """Write files and return their paths."""
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    return {name: tmp_path / name for name in texts}


def qos(tmp_path: Path, text: str) -> dict[str, Qos]:
    """Return what a file of QOS says."""
    found = read_limits(files(tmp_path, qos=text)["qos"], None).qos
    assert found is not None
    return dict(found)


def associations(tmp_path: Path, text: str) -> tuple[Association, ...]:
    """Return what a file of associations says."""
    found = read_limits(None, files(tmp_path, assoc=text)["assoc"]).associations
    assert found is not None
    return found


def test_a_qos(tmp_path: Path) -> None:
    """Amounts of all jobs, of each user, each account and each job; memory in bytes, times in s."""
    found = qos(tmp_path, QOS)
    assert found["normal"] == Qos()
    assert found["gpu"] == Qos(
        LimitSet(
            group={"cpu": 1024, "gres/gpu:a100": 8, "mem": 2 * 2**40, "jobs": 40},
            user={"cpu": 64, "mem": 1000 * 2**20, "jobs": 3},
            account={"node": 6, "jobs": 5},
            job={"gres/gpu": 4},
            job_seconds={"cpu": 36000},
            seconds={
                "GrpTRESMins": {"cpu": 5400000, "mem": 540000000 * 2**40},
                "GrpTRESRunMins": {"gres/gpu": 36000},
                "GrpWall": {"jobs": 172800},
                "MaxTRESRunMinsPU": {"cpu": 300},
                "MaxTRESRunMinsPA": {"node": 420},
            },
            least={"cpu": 1},
            submits={"MaxSubmitPU": 100},
            wall=129600.0,
            others=("MaxSubmitPU",),
        ),
        over_partition=True,
        factor=2.5,
        decays=False,
    )


def test_associations_of_a_tree(tmp_path: Path) -> None:
    """Indented accounts stand below those before them; `-1` sets no limit."""
    root, root_user, science, physics, alice, in_debug, arts = associations(tmp_path, ASSOCIATIONS)
    assert (root.parent, science.parent, physics.parent, arts.parent) == (
        "",
        "root",
        "science",
        "root",
    )
    assert root_user == Association("root", "root")
    assert science.limits == LimitSet(
        group={"cpu": 500, "jobs": 100},
        user={"jobs": 9},
        seconds={"GrpTRESRunMins": {"cpu": 60000}},
    )
    assert physics.limits.group == {"cpu": 200, "license/matlab": 3}
    assert alice == Association(
        "physics",
        "alice",
        limits=LimitSet(
            user={"jobs": 2}, submits={"MaxSubmit": 50}, wall=28800.0, others=("MaxSubmit",)
        ),
        qos=("gpu", "normal"),
    )
    assert in_debug == Association(
        "physics", "alice", "debug", limits=LimitSet(job_seconds={"cpu": 3600})
    )


def test_accounts_above_by_name(tmp_path: Path) -> None:
    """The column ParentName says it too; columns stand in any order."""
    text = "User|ParentName|Account\n||root\n|root|a\n|a|b\nbob||b\n"
    assert [one.parent for one in associations(tmp_path, text)] == ["", "root", "a", ""]


def test_accounts_that_are_not_told_stand_below_the_root(tmp_path: Path) -> None:
    """And that is said."""
    text = "Account|User|GrpJobs\nroot||\na||\nb||\n"
    found = read_limits(None, files(tmp_path, assoc=text)["assoc"])
    assert found.associations is not None
    assert [one.parent for one in found.associations] == ["", "root", "root"]
    assert found.assumptions == (
        "The associations do not tell which account is below which (`tree`, or the column "
        "ParentName): all accounts are below the root.",
    )


def test_partitions_have_a_qos(tmp_path: Path) -> None:
    """It is read from a slurm.conf, or from `scontrol show partition`; else it is not known."""
    conf = (
        "NodeName=n[1-2] CPUs=4\nPartitionName=DEFAULT QoS=part\n"
        "PartitionName=a Nodes=n1\nPartitionName=b Nodes=n2 QOS=other\n"
    )
    node = "NodeName=n1 Arch=x86_64\n   CPUAlloc=0 CPUEfctv=4 CPUTot=4\n   State=DOWN\n\n"
    shown = (
        f"{node}PartitionName=a\n   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n"
        "   AllocNodes=ALL Default=NO QoS=part\n   State=UP TotalCPUs=4 TotalNodes=1\n\n"
        "PartitionName=b AllowGroups=ALL AllowQos=x QoS=N/A State=UP\n"
    )
    paths = files(tmp_path, conf=conf, shown=shown, nodes=node, qos="Name\nx\n")
    told = read_limits(paths["qos"], None, paths["conf"])
    assert (told.partition_qos, told.assumptions) == ({"a": "part", "b": "other"}, ())
    told = read_limits(paths["qos"], None, paths["shown"])
    assert (told.partition_qos, told.assumptions) == ({"a": "part"}, ())
    for machine in (paths["nodes"], None):
        told = read_limits(paths["qos"], None, machine)
        assert told.partition_qos == {}
        assert told.assumptions == (
            "The QOS of partitions is not known, and taken to be none: a slurm.conf tells it, or "
            "the output of `scontrol show partition` behind that of `scontrol show nodes`.",
        )
    # The machine is the same with and without its partitions.
    for name in ("nodes", "shown"):
        found, _ = read_cluster(paths[name])
        assert (len(found), found.nodes.state.tolist()) == (4, [NodeState.DOWN] * 4)


@pytest.mark.parametrize(
    ("conf", "safe", "half_life"),
    [
        ("AccountingStorageEnforce=associations,limits\n", False, 604800.0),
        ("AccountingStorageEnforce=limits,Safe\nPriorityDecayHalfLife=14-0\n", True, 1209600.0),
        ("AccountingStorageEnforce=all\nPriorityDecayHalfLife=0\n", True, math.inf),
    ],
)
def test_how_used_time_counts(tmp_path: Path, conf: str, safe: bool, half_life: float) -> None:
    """A slurm.conf says it; where it does not, Slurm's defaults hold."""
    paths = files(tmp_path, conf=f"NodeName=n1 CPUs=4\n{conf}", qos="Name\nx\n")
    told = read_limits(paths["qos"], None, paths["conf"])
    assert (told.safe, told.half_life) == (safe, half_life)
    paths = files(tmp_path, conf="\nPriorityDecayHalfLife=soon\n")
    with pytest.raises(InputError, match="conf:2: PriorityDecayHalfLife=soon is not a time"):
        read_limits(tmp_path / "qos", None, paths["conf"])


def test_output_with_a_delimiter_at_the_end(tmp_path: Path) -> None:
    """`sacctmgr -p` prints one; empty lines do not count."""
    found = qos(tmp_path, "Name|MaxJobsPU|MaxWall|\n\nx|2|UNLIMITED|\n")
    assert found["x"].limits == LimitSet(user={"jobs": 2}, wall=math.inf)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "qos: the file is empty; write it with `sacctmgr -P show qos`"),
        (
            "normal|0|||\n",
            "qos:1: no header line with Name; write the file with `sacctmgr -P show qos`, "
            "without -n",
        ),
        (
            "Name|GrpTRES\nx|cpu=many\n",
            "qos:2: GrpTRES has 'cpu=many', which is not NAME=COUNT; write the file again with "
            "`sacctmgr -P show qos`",
        ),
        ("Name|MaxTRESPU\nx|cpu=1,mem\n", "qos:2: MaxTRESPU has 'mem', which is not NAME=COUNT"),
        ("Name|MaxTRES\nx|cpu=-5\n", "qos:2: MaxTRES has 'cpu=-5', which is not NAME=COUNT"),
        ("Name|MaxTRES\nx|mem=9999999E\n", "qos:2: MaxTRES has 'mem=9999999E', which is not"),
        ("Name|MaxJobsPU\nx|two\n", "qos:2: MaxJobsPU is 'two', which is not a limit"),
        ("Name|MaxWall\nx|soon\n", "qos:2: MaxWall is 'soon', which is not a limit"),
        ("Name|GrpWall\nx|soon\n", "qos:2: GrpWall is 'soon', which is not a limit"),
        ("Name|GrpTRESMins\nx|cpu\n", "qos:2: GrpTRESMins has 'cpu', which is not NAME=COUNT"),
        ("Name|LimitFactor\nx|big\n", "qos:2: LimitFactor is 'big', which is not a limit"),
        ("Name|GrpJobs\nx|1\ny|1|2\n", "qos:3: 3 fields, where the header has 2; write the file"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    """One sentence says where and what to do."""
    with pytest.raises(InputError) as caught:
        qos(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


def test_messages_before_the_header(tmp_path: Path) -> None:
    """Of a shell; a line keeps its number. Lines of a table are none."""
    noise = "[ann@login ~]$ sacctmgr -P show qos\n\nLoading slurm/24\n"
    assert qos(tmp_path, noise + "Name|MaxJobsPU\nx|2\n")["x"].limits.user == {"jobs": 2}
    with pytest.raises(InputError, match="qos:5: MaxJobsPU is 'two'"):
        qos(tmp_path, noise + "Name|MaxJobsPU\nx|two\n")
    with pytest.raises(InputError, match="qos:1: no header line with Name"):
        qos(tmp_path, "y|3\nName|MaxJobsPU\nx|2\n")


def test_bad_associations(tmp_path: Path) -> None:
    """A file of QOS is none of associations; those of several clusters are mixed up."""
    with pytest.raises(InputError, match=r"assoc:1: no header line with Account and User; write"):
        associations(tmp_path, QOS)
    text = "Cluster|Account|User\na|root|\nb|root|\n"
    with pytest.raises(InputError, match=r"several clusters \(a, b\); write those of one with"):
        associations(tmp_path, text)
    with pytest.raises(InputError, match="there is no such file"):
        read_limits(tmp_path / "none", None)


def number(value: float | None) -> dict[str, object]:
    """Return a number as Slurm's JSON has it."""
    return {"set": value is not None, "infinite": value is None, "number": value or 0}


def amounts(text: str) -> list[dict[str, object]]:
    """Return amounts as Slurm's JSON has them."""
    pairs = [pair.split("=") for pair in text.split(",") if pair]
    kinds = [(*kind.partition("/"), int(count)) for kind, count in pairs]
    return [{"type": kind, "name": name, "id": 1, "count": n} for kind, _, name, n in kinds]


def shown(name: str, given: dict[str, str], flags: list[str]) -> dict[str, object]:
    """Return a QOS of `sacctmgr --json show qos`, with what its text has in these columns."""

    def count(column: str) -> dict[str, object]:
        return number(float(given[column]) if column in given else None)

    def of(**columns: str) -> dict[str, object]:
        return {key: amounts(given.get(column, "")) for key, column in columns.items()}

    minutes = {
        "total": amounts(given.get("GrpTRESMins", "")),
        "per": of(
            qos="GrpTRESRunMins",
            job="MaxTRESMins",
            account="MaxTRESRunMinsPA",
            user="MaxTRESRunMinsPU",
        ),
    }
    most = {
        "active_jobs": {"accruing": number(None), "count": count("GrpJobs")},
        "jobs": {
            "count": count("GrpSubmit"),
            "active_jobs": {"per": {"account": count("MaxJobsPA"), "user": count("MaxJobsPU")}},
            "per": {"account": count("MaxSubmitPA"), "user": count("MaxSubmitPU")},
        },
        "tres": {
            "total": amounts(given.get("GrpTRES", "")),
            "minutes": minutes,
            "per": of(account="MaxTRESPA", job="MaxTRES", node="MaxTRESPerNode", user="MaxTRESPU"),
        },
        "wall_clock": {"per": {"qos": count("GrpWall"), "job": count("MaxWall")}},
    }
    return {
        "name": name,
        "flags": flags,
        "limits": {
            "grace_time": int(given.get("GraceTime", 0)) * 60,
            "max": most,
            "factor": count("LimitFactor"),
            "min": {"tres": {"per": of(job="MinTRES")}},
        },
        "preempt": {
            "list": given.get("Preempt", "").split(",") if "Preempt" in given else [],
            "mode": [given.get("PreemptMode", "disabled").upper()],
            "exempt_time": number(None),
        },
        "priority": count("Priority"),
        "usage_factor": count("UsageFactor"),
    }


def test_json_of_qos_says_what_text_says(tmp_path: Path) -> None:
    """Each limit is in the place that Slurm 23.11 and later give it; times are in minutes."""
    both = [{"Name": "low", "Priority": "3"}, {"Name": "high"}]
    columns = QOS_COLUMNS.split()
    for at, column in enumerate(columns):
        if "TRES" in column:
            both[1][column] = f"cpu={at},gres/gpu:a100=2,mem=1000"
        elif column.startswith(("Grp", "Max")) or column in {"GraceTime", "LimitFactor"}:
            both[1][column] = str(at)
    both[1] |= {"Preempt": "low", "PreemptMode": "requeue", "UsageFactor": "0.5"}
    text, js = tmp_path / "text", tmp_path / "json"
    text.write_text(printed(QOS_COLUMNS, both[0], both[1] | {"Flags": "OverPartQOS,NoDecay"}))
    flags = ["OVERRIDE_PARTITION_QOS", "NO_DECAY"]
    js.write_text(
        json.dumps({"qos": [shown("low", both[0], []), shown("high", both[1], flags)], "meta": {}})
    )
    found = read_limits(js, None).qos
    assert found == read_limits(text, None).qos
    assert found is not None
    assert found["high"].limits.wall == 60 * columns.index("MaxWall")


@pytest.mark.parametrize("content", ["{", "{}", '{"qos": [{"name": "a"}]}', '{"qos": 7}'])
def test_json_of_other_releases_is_refused(tmp_path: Path, content: str) -> None:
    """A limit is never taken to be missing because it lies elsewhere."""
    (tmp_path / "qos").write_text(content)
    with pytest.raises(InputError, match="write the file with `sacctmgr -P show qos`"):
        read_limits(tmp_path / "qos", None)


def test_json_of_associations_says_what_text_says(tmp_path: Path) -> None:
    """Each limit is in the place that Slurm 23.11 and later give it."""
    rows = [
        {"Account": "root", "User": ""},
        {"Account": "physics", "User": "", "ParentName": "root", "GrpJobs": "8"},
        {"Account": "physics", "User": "ann", "Partition": "p", "QOS": "a,b", "DefQOS": "a"},
    ]
    columns = (ASSOCIATION_COLUMNS + " ParentName").split()
    limits = [name for name in columns if name.startswith(("Grp", "Max"))]
    for at, column in enumerate(limits, 2):
        rows[2][column] = f"cpu={at},mem=1000" if "TRES" in column else str(at)
    objects = []
    for row in rows:

        def count(column: str, row: dict[str, str] = row) -> dict[str, object]:
            return number(float(row[column]) if column in row else None)

        def tres(column: str, row: dict[str, str] = row) -> list[dict[str, object]]:
            return amounts(row.get(column, ""))

        jobs = {
            "per": {
                "count": count("GrpJobs"),
                "submitted": count("GrpSubmit"),
                "wall_clock": count("MaxWall"),
            },
            "active": count("MaxJobs"),
            "total": count("MaxSubmit"),
        }
        amounts_of = {
            "total": tres("GrpTRES"),
            "group": {"minutes": tres("GrpTRESMins"), "active": tres("GrpTRESRunMins")},
            "minutes": {"total": [], "per": {"job": tres("MaxTRESMins")}},
            "per": {"job": tres("MaxTRES"), "node": tres("MaxTRESPerNode")},
        }
        wall = {"account": {"wall_clock": count("GrpWall")}}
        objects.append(
            {
                "account": row["Account"],
                "cluster": "c",
                "user": row["User"],
                "partition": row.get("Partition", ""),
                "parent_account": row.get("ParentName", ""),
                "qos": row["QOS"].split(",") if "QOS" in row else [],
                "default": {"qos": row.get("DefQOS", "")},
                "max": {"jobs": jobs, "tres": amounts_of, "per": wall},
            }
        )
    text, js = tmp_path / "text", tmp_path / "json"
    text.write_text(printed(" ".join(columns), *rows))
    js.write_text(json.dumps({"associations": objects}))
    found = read_limits(None, js).associations
    assert found == read_limits(None, text).associations
    assert found is not None
    assert found[1].parent == "root"
    js.write_text('{"associations": [{"account": "a"}]}')
    with pytest.raises(InputError, match="write the file with `sacctmgr -P show assoc tree`"):
        read_limits(None, js)


def test_associations_without_a_limit(tmp_path: Path) -> None:
    """A file of something else, such as the log, is none that keeps limits; that is said."""
    for columns, said in (("Account|User|Share", True), ("Account|User|MaxJobs", False)):
        path = files(tmp_path, assoc=f"{columns}\nroot||1\n")["assoc"]
        notes = read_limits(None, path).assumptions
        assert any("has no column of limits, such as GrpTRES" in note for note in notes) == said

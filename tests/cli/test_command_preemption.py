"""`rtsched replay` of a site that preempts jobs: by QOS, by partition, and what is refused."""

import csv
import json

import pytest

from rtsched.report.store import read

T0 = 1_767_225_600.0
"""2026-01-01T00:00:00 UTC."""
LOG = """JobID|User|Account|Partition|QOS|Submit|Start|End|TimelimitRaw|ReqCPUS|NNodes|State
1|ann|a|slow|low|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|60|2|1|COMPLETED
2|bob|b|slow|low|2026-01-01T00:01:00|2026-01-01T00:01:00|2026-01-01T00:31:00|30|2|1|COMPLETED
3|eve|b|fast|high|2026-01-01T00:10:00|2026-01-01T00:31:00|2026-01-01T00:51:00|20|2|1|COMPLETED
4|eve|b|fast|low|2026-01-01T00:12:00|2026-01-01T00:51:00|2026-01-01T00:56:00|5|2|1|PREEMPTED
"""
NODES = "NodeName=n[1-2] CPUs=2\n"
PARTITIONS = """PartitionName=slow Nodes=ALL PriorityTier=1
PartitionName=fast Nodes=ALL PriorityTier=5 PreemptMode=OFF
"""
BY_QOS = "PreemptType=preempt/qos\nPreemptMode=REQUEUE\n"
BY_TIER = "PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n"
QOS = "Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode\n"
QOS += "low|0|00:00:00|||cluster\nhigh|10|00:00:00|low||cluster\n"
RESERVED = """ReservationName=maint StartTime=2026-01-01T00:25:00 EndTime=2026-01-01T01:00:00
   Duration=00:35:00
   Nodes=n1 NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=slow Flags=MAINT,SPEC_NODES
   TRES=cpu=2
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)

"""


@pytest.fixture
def arguments(tmp_path):
    """Return the arguments of a replay of four jobs on two nodes; the files are for it."""
    for name, text in (
        ("log.txt", LOG),
        ("slurm.conf", BY_QOS + NODES + PARTITIONS),
        ("tiers.conf", BY_TIER + NODES + PARTITIONS),
        ("plain.conf", NODES + PARTITIONS),
        ("qos.txt", QOS),
    ):
        (tmp_path / name).write_text(text)
    words = ["replay", tmp_path / "log.txt", "--timezone", "UTC", "--deadline-rule", "none"]
    words += ["--table-format", "csv", "--no-report", "--out", tmp_path / "out"]
    return [*words, "--policy", "easy", "--qos", tmp_path / "qos.txt"]


def starts(tmp_path, policy="easy"):
    """Return the starts of the jobs, in minutes since T0."""
    with (tmp_path / "out" / policy / "jobs.csv").open() as table:
        return [(float(row["start_s"]) - T0) / 60 for row in csv.DictReader(table)]


def test_results_have_it_by_job(run, arguments, tmp_path):
    """How often, and the node-seconds; they are read again."""
    result = run(*arguments, "--cluster", tmp_path / "slurm.conf", "--unit", "node")
    assert result.exit_code == 0, result.stderr
    with (tmp_path / "out" / "easy" / "jobs.csv").open() as table:
        found = [(row["preempted"], row["lost_node_s"]) for row in csv.DictReader(table)]
    assert found == [("0", "0"), ("1", "540"), ("0", "0"), ("0", "0")]
    kept = read(tmp_path / "out").run("easy").results
    assert kept.preempted.tolist() == [0, 1, 0, 0]
    assert kept.lost.tolist() == [0.0, 540.0, 0.0, 0.0]


def measures(result, policy="easy"):
    """Return the measures of a policy."""
    return json.loads(result.stdout)["policies"][policy]


@pytest.mark.parametrize("unit", ["core", "node", "resources"])
@pytest.mark.parametrize("policy", ["fcfs", "easy", "multifactor"])
def test_by_qos_as_slurm_conf_says(run, arguments, tmp_path, unit, policy):
    """Job 3 takes the node of job 2, the younger one, at minute 10.

    That begins again at minute 30 and has lost 9 minutes of 2 cores; job 4 comes behind it.
    """
    given = [*arguments, "--cluster", tmp_path / "slurm.conf", "--unit", unit, "--policy", policy]
    result = run(*given, "--json")
    assert result.exit_code == 0, result.stderr
    assert starts(tmp_path, policy) == [0.0, 30.0, 10.0, 60.0]
    found = measures(result, policy)
    assert found["preempted"] == 1
    assert found["preempted_core_h"] == pytest.approx(2 * 9 / 60)
    assert found["max_wait_s"] == 48 * 60
    assumptions = json.loads(result.stdout)["assumptions"]
    assert assumptions["preemption"] == (
        "1 job may preempt 3 others by QOS (then requeued, to begin again: 3; cancelled: 0): on "
        "machine 'exclusive' with loop 'fcfs' or 'easy', and no promised job is preempted."
    )
    assert assumptions["other_preemption"].startswith("1 job preempted in the log: each runs in")


def test_the_table_shows_it(run, arguments, tmp_path):
    """Jobs and core-hours; without preemption there is no such line."""
    result = run(*arguments, "--cluster", tmp_path / "slurm.conf")
    assert "preempted jobs" in result.stdout
    assert "preempted core-h" in result.stdout
    result = run(*arguments, "--cluster", tmp_path / "plain.conf")
    assert "preempted core-h" not in result.stdout
    assert "1 job preempted in the log: preemption is not replayed" in " ".join(
        result.stdout.split()
    )
    assert starts(tmp_path) == [0.0, 1.0, 31.0, 51.0]


def test_by_partition(run, arguments, tmp_path):
    """Jobs of `fast` preempt those of `slow`, which are cancelled; job 4 is one of `fast`."""
    result = run(*arguments, "--cluster", tmp_path / "tiers.conf", "--json")
    assert result.exit_code == 0, result.stderr
    assert starts(tmp_path) == [0.0, 1.0, 10.0, 12.0]
    found = measures(result)
    assert found["preempted"] == found["unfinished"] == 2
    assert found["preempted_core_h"] == pytest.approx(2 * (9 + 12) / 60)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["--preempt-type", "qos"], [0.0, 30.0, 10.0, 60.0]),
        (["--preempt-type", "qos", "--preempt-mode", "cancel"], [0.0, 1.0, 10.0, 30.0]),
        (["--preempt-type", "qos", "--preempt-mode", "off"], [0.0, 1.0, 31.0, 51.0]),
        (["--preempt-type", "partition_prio"], [17.0, 30.0, 10.0, 12.0]),
        (["--preempt-type", "none"], [0.0, 1.0, 31.0, 51.0]),
    ],
)
def test_settings_say_it_where_no_slurm_conf_does(run, arguments, tmp_path, settings, expected):
    """Requeued where nothing else is said; with PriorityTier job 1 begins again at minute 17."""
    result = run(*arguments, "--cluster", tmp_path / "plain.conf", *settings)
    assert result.exit_code == 0, result.stderr
    assert starts(tmp_path) == expected


def test_who_preempts_whom_must_be_known(run, arguments, tmp_path):
    """Without the QOS nothing is preempted, and that is said."""
    given = [*arguments[:-2], "--cluster", tmp_path / "slurm.conf"]
    result = run(*given)
    assert result.exit_code == 0, result.stderr
    assert "Preemption by QOS is not replayed: `--qos` tells" in " ".join(result.stdout.split())
    assert starts(tmp_path) == [0.0, 1.0, 31.0, 51.0]


@pytest.mark.parametrize("policy", ["conservative", "negotiator"])
def test_a_loop_that_preempts_nobody_is_refused(run, arguments, tmp_path, policy):
    """In one sentence that says what to do; without preemption it is replayed."""
    given = [*arguments, "--cluster", tmp_path / "slurm.conf", "--policy", policy]
    result = run(*given)
    assert result.exit_code == 2
    assert f"preemption: loop '{policy}' preempts no jobs; use loop fcfs or easy, or" in (
        " ".join(result.stderr.split())
    )
    assert run(*given, "--preempt-type", "none").exit_code == 0


@pytest.mark.parametrize("unit", ["core", "node", "resources"])
@pytest.mark.parametrize("policy", ["mcdf", "portfolio", "edf-mn"])
def test_promised_jobs_are_not_preempted(run, arguments, tmp_path, policy, unit):
    """Job 2 has a deadline at minute 121 and is promised that: job 3 takes the node of job 1."""
    text = LOG.replace("|State", "|State|Comment").replace("COMPLETED", "COMPLETED|")
    text = text.replace("PREEMPTED", "COMPLETED|")
    lines = text.splitlines()
    lines[2] += "deadline=2026-01-01T02:01:00"
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    given = [*arguments, "--cluster", tmp_path / "slurm.conf", "--unit", unit]
    result = run(*given, "--policy", policy, "--json")
    assert result.exit_code == 0, result.stderr
    found = measures(result, policy)
    assert found["promises"] == found["promises_kept"] == 1
    assert found["preempted"] == 1
    assert starts(tmp_path, policy) == [30.0, 1.0, 10.0, 31.0]


@pytest.mark.parametrize("unit", ["core", "node", "resources"])
def test_beside_a_reservation(run, arguments, tmp_path, unit):
    """n1 is set aside from minute 25 to 60: job 3, of 20 minutes, takes n2 from job 1 instead.

    Job 4 is done on n1 before; job 2 of 30 minutes has n1 from 60 on, as job 1 has n2 from 30 on.
    """
    (tmp_path / "reserved.txt").write_text(RESERVED)
    given = [*arguments, "--cluster", tmp_path / "slurm.conf", "--unit", unit]
    result = run(*given, "--reservations", tmp_path / "reserved.txt", "--json")
    assert result.exit_code == 0, result.stderr
    assert starts(tmp_path) == [30.0, 60.0, 10.0, 12.0]
    assert measures(result)["preempted"] == 1


def test_explain_says_that_a_job_was_preempted(run, arguments, tmp_path):
    """By the reason's sentence."""
    assert run(*arguments, "--cluster", tmp_path / "slurm.conf").exit_code == 0
    result = run("explain", "2", "--from", tmp_path / "out", "--policy", "easy")
    assert result.exit_code == 0, result.stderr
    assert "1 of its runs was ended by jobs that may preempt it" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("slurm.conf", "preempt/qos", "preempt/luck", "slurm.conf:1: PreemptType=preempt/luck"),
        (
            "slurm.conf",
            "=REQUEUE",
            "=EAT",
            "slurm.conf:2: PreemptMode=EAT is not known (known: OFF",
        ),
        ("slurm.conf", "Tier=5", "Tier=five", "slurm.conf:5: PriorityTier=five is not known"),
        ("qos.txt", "low||cluster", "low||sometimes", "qos.txt:3: PreemptMode is 'sometimes'"),
        ("qos.txt", "low||cluster", "low|soon|cluster", "PreemptExemptTime is 'soon'"),
        ("qos.txt", "00:00|||", "00:00|high||", "qos.txt:2: Preempt of low leads back to low"),
    ],
)
def test_what_slurm_does_not_say(run, arguments, tmp_path, name, old, new, words):
    """One sentence with the file and the line."""
    path = tmp_path / name
    path.write_text(path.read_text().replace(old, new))
    result = run(*arguments, "--cluster", tmp_path / "slurm.conf")
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())

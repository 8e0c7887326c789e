"""History of HTCondor in its forms."""

import json
import math
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rtsched.logs import read_logs
from rtsched.logs.classads import Expression, number, parse_value
from rtsched.model.jobs import Kind
from rtsched.model.log import Ending, Log
from rtsched.model.resources import MEMORY

Read = Callable[..., Log]


LOGS = Path(__file__).parents[1] / "data" / "logs"
USUAL = {
    "ClusterId": "7",
    "ProcId": "0",
    "QDate": "1000",
    "Owner": '"ann"',
    "JobStatus": "4",
    "ExitCode": "0",
    "JobUniverse": "5",
    "RequestCpus": "2",
    "RequestMemory": "512",
    "JobStartDate": "1010",
    "JobCurrentStartDate": "1010",
    "CompletionDate": "1050",
    "RemoteWallClockTime": "40.0",
    "NumJobStarts": "1",
}


def ad(**changed: str) -> str:
    """Return a record of `-long`."""
    return "".join(f"{name} = {value}\n" for name, value in {**USUAL, **changed}.items())


def test_raw_history() -> None:
    """Our own run of HTCondor 25.14: records end with a line of stars."""
    log = read_logs([LOGS / "history_25.14.raw"])
    jobs, outcomes = log.jobs, log.outcomes
    assert (log.format, log.skipped.count.total()) == ("condor-history", 0)
    assert jobs.labels() == ["41.0", "41.1", "43.0", "43.6", "44.0", "43.5"]
    assert outcomes.ending.tolist() == [Ending.CANCELLED] * 2 + [Ending.COMPLETED] * 4
    assert np.isnan(outcomes.start[:2]).all()
    assert outcomes.size.tolist() == [0, 0, 1, 1, 1, 1]
    assert jobs.deadline[2] - jobs.submit[2] == 120
    assert np.isinf(jobs.deadline[:2]).all()
    assert jobs.texts("account")[2] == "group_be"
    assert jobs.memory[0] == 128 << 20


def test_procs_of_a_cluster_are_an_array(read: Read) -> None:
    """They have a key in common, the id of the first; a proc by itself has none."""
    procs = (("7", "0"), ("8", "0"), ("7", "1"), ("9", "3"), ("9", "4"))
    jobs = read("\n".join(ad(ClusterId=c, ProcId=p) for c, p in procs)).jobs
    of = dict(zip(jobs.labels(), jobs.array.tolist(), strict=True))
    ids = dict(zip(jobs.labels(), jobs.id.tolist(), strict=True))
    assert of["8.0"] == -1
    assert of["7.0"] == of["7.1"] == ids["7.0"]
    assert of["9.3"] == of["9.4"] == ids["9.3"]


def test_long_and_json_agree() -> None:
    """Both forms of one history give the same jobs."""
    one, two = (read_logs([LOGS / f"history_25.14.{form}"]) for form in ("long", "json"))
    assert one.jobs.labels() == two.jobs.labels()
    assert len(one.jobs) == 7
    for column in ("id", "submit", "size", "memory", "deadline", "nice"):
        np.testing.assert_array_equal(one.jobs.column(column), two.jobs.column(column), column)
    for column in ("start", "end", "run_time", "size", "ending", "restarts"):
        np.testing.assert_array_equal(one.outcomes.column(column), two.outcomes.column(column))
    assert one.outcomes.texts("nodes") == two.outcomes.texts("nodes")
    assert one.jobs.texts("user") == two.jobs.texts("user")


def test_all_forms_merge() -> None:
    """A job that several files have counts once."""
    paths = [LOGS / f"history_25.14.{form}" for form in ("raw", "long", "json")]
    log = read_logs(paths)
    assert len(set(log.jobs.labels())) == len(log.jobs)
    assert log.skipped.count["the log has the job twice"] == 6 + 7 + 7 - len(log.jobs)


@pytest.mark.parametrize("form", ["long", "raw", "json", "jsonl", "jobs"])
def test_every_form(read: Read, form: str) -> None:
    """One small history, written in five ways."""
    ads = [{**USUAL, "ProcId": str(i), "RtDeadline": "QDate + 60"} for i in range(3)]
    if form == "long":
        text = "\n".join(ad(**one) for one in ads)
    elif form == "raw":
        text = "".join(ad(**one) + "*** Offset = 1 ClusterId = 7\n" for one in ads)
    else:
        values = [{name: json_value(value) for name, value in one.items()} for one in ads]
        lines = [json.dumps(one) for one in values]
        text = "\n".join(lines) if form == "jsonl" else "[\n" + ",\n".join(lines) + "\n]\n"
        text = f'{{"jobs": {text}}}' if form == "jobs" else text
    log = read(text)
    assert log.jobs.labels() == ["7.0", "7.1", "7.2"]
    assert log.jobs.deadline.tolist() == [1060.0] * 3
    assert log.jobs.texts("user") == ["ann"] * 3


def json_value(text: str) -> object:
    """Return a value as `-json` writes it."""
    value = parse_value(text)
    return f"/Expr({value})/" if isinstance(value, Expression) else value


def test_expressions_as_processors(read: Read) -> None:
    """Where RequestCpus cannot be worked out, CpusProvisioned counts, and that is said."""
    log = read(
        "\n".join(
            [
                ad(RequestCpus="ifThenElse(true, 4, 2)", CpusProvisioned="3"),
                ad(ProcId="1", RequestCpus="2 * 3"),
                ad(ProcId="2", RequestCpus="undefined"),
                ad(ProcId="3", RequestCpus="ifThenElse(true, 4, 2)"),
            ]
        )
    )
    assert log.jobs.size.tolist() == [3, 6, 1, 1]
    assert "RequestCpus is an expression: 1 is assumed (1 job)" in log.assumptions
    assert any("CpusProvisioned" in notes for notes in log.assumptions)
    assert any("1 is assumed" in notes for notes in log.assumptions)


def test_expressions_as_memory_disk_and_gpus(read: Read) -> None:
    """What the slot had counts, else what the job used at most, and each is said."""
    unclear = dict.fromkeys(("RequestMemory", "RequestDisk", "RequestGPUs"), "ifThenElse(x, 4, 2)")
    slot = {"MemoryProvisioned": "1024", "DiskProvisioned": "2048", "GPUsProvisioned": "2"}
    used = {"ResidentSetSize": "511001", "DiskUsage": "1025"}
    told = {"MemoryUsage": "(ResidentSetSize + 1023) / 1024"}
    jobs = (unclear | slot | used | told, unclear | used, unclear | used | told, unclear)
    log = read("\n".join(ad(ProcId=str(i), **job) for i, job in enumerate(jobs)), resources=True)
    megabyte = 1 << 20
    assert log.jobs.demand[:, 1:].tolist() == [
        [1024 * megabyte, 2, 2 * megabyte],
        *[[500 * megabyte, 0, 2 * megabyte]] * 2,
        [0, 0, 0],
    ]
    used = ", the most that the job used; it may have asked for more"
    assert set(log.assumptions) >= {
        "RequestMemory is an expression: MemoryProvisioned is taken (1 job)",
        f"RequestMemory is an expression: MemoryUsage is taken{used} (2 jobs)",
        "RequestMemory is an expression that does not tell how much: none is assumed (1 job)",
        f"RequestDisk is an expression: DiskUsage is taken{used} (2 jobs)",
        "RequestGPUs is an expression that does not tell how much: none is assumed (3 jobs)",
    }


def test_memory_that_processors_do_not_divide(read: Read) -> None:
    """A job that asks for 512 MiB and 3 processors takes 512 MiB."""
    log = read(ad(RequestCpus="3"), resources=True)
    assert log.jobs.demand[0, log.jobs.names("demand").index(MEMORY)] == 512 << 20


def test_parallel_jobs(read: Read) -> None:
    """Hosts count in the parallel universe only; a range of them is moldable."""
    log = read(
        "\n".join(
            [
                ad(JobUniverse="11", MinHosts="2", MaxHosts="4"),
                ad(ProcId="1", JobUniverse="11", MinHosts="3", MaxHosts="3"),
                ad(ProcId="2", MinHosts="1", MaxHosts="9"),
            ]
        )
    )
    assert log.jobs.size.tolist() == [8, 6, 2]
    assert log.jobs.size_min.tolist() == [4, -1, -1]
    assert log.jobs.size_max.tolist() == [8, -1, -1]
    assert log.jobs.kind.tolist() == [Kind.MOLDABLE, Kind.RIGID, Kind.RIGID]


def test_several_schedds(read: Read) -> None:
    """Equal numbers of several schedds are told apart."""
    log = read(ad(GlobalJobId='"a#7.0#1"') + "\n" + ad(GlobalJobId='"b#7.0#1"'))
    assert log.jobs.labels() == ["a#7.0", "b#7.0"]
    assert len(set(log.jobs.id.tolist())) == 2


@pytest.mark.parametrize("name", [{}, {"GlobalJobId": '"a#7.0#1"'}])
@pytest.mark.parametrize("ended_first", [False, True])
def test_a_job_of_condor_q_and_of_the_history_counts_once(
    read: Read, name: dict[str, str], ended_first: bool
) -> None:
    """As the history has it, in whichever order; of the records of condor_q the latest start."""
    idle = ad(JobStatus="1", JobStartDate="undefined", JobCurrentStartDate="undefined", **name)
    queue = [idle, ad(JobStatus="2", CompletionDate="0", **name), idle]
    ended = ad(JobCurrentStartDate="1030", CompletionDate="1090", **name)
    log = read("\n".join([ended, *queue] if ended_first else [*queue, ended]))
    assert log.outcomes.ending.tolist() == [Ending.COMPLETED]
    assert log.outcomes.end.tolist() == [1090.0]
    assert log.skipped.count == {"the log has the job twice": 3}
    log = read("\n".join([*queue, ad(ProcId="1")]))
    assert log.outcomes.ending.tolist() == [Ending.RUNNING, Ending.COMPLETED]
    assert log.jobs.labels() == ["7.0", "7.1"]


def test_jobs_of_several_schedds_without_their_names(read: Read) -> None:
    """Two that ended at other times are two, though number, owner and QDate are the same."""
    log = read("\n".join([ad(), ad(CompletionDate="1060"), ad()]))
    assert log.outcomes.end.tolist() == [1050.0, 1060.0]


def test_restarted_jobs(read: Read) -> None:
    """The last run counts."""
    log = read(
        ad(JobCurrentStartDate="1030", NumJobStarts="3", RemoteWallClockTime="38.0", JobPrio="5")
    )
    assert log.outcomes.start.tolist() == [1030.0]
    assert log.outcomes.run_time.tolist() == [20.0]
    assert log.outcomes.restarts.tolist() == [2]
    assert log.jobs.nice.tolist() == [-5.0]


def test_run_time_limit(read: Read) -> None:
    """AllowedExecuteDuration is a requested time, and so is the run time that rtsched is told."""
    assert read(ad(AllowedExecuteDuration="600")).jobs.wall_time.tolist() == [600.0]
    both = ad(AllowedExecuteDuration="600", RtRunTime="300")
    assert read(both).jobs.wall_time.tolist() == [300.0]


@pytest.mark.parametrize(
    ("changed", "ending"),
    [
        ({"ExitCode": "1"}, Ending.FAILED),
        ({"ExitBySignal": "true", "ExitCode": "undefined"}, Ending.FAILED),
        ({"JobStatus": "3", "CompletionDate": "-1"}, Ending.CANCELLED),
        ({"JobStatus": "2"}, Ending.RUNNING),
        ({"JobStatus": "5"}, Ending.CANCELLED),
        ({"JobStatus": "1"}, Ending.PREEMPTED),
        ({"JobStatus": "5", "RemoteWallClockTime": "0.0"}, Ending.PENDING),
        ({"JobStatus": "99"}, Ending.UNKNOWN),
    ],
)
def test_endings(read: Read, changed: dict[str, str], ending: Ending) -> None:
    """JobStatus and the exit tell how a job ended."""
    log = read(ad(EnteredCurrentStatus="1050", **changed))
    assert log.outcomes.ending.tolist() == [ending]


@pytest.mark.parametrize("universe", ["7", "9", "12"])
def test_what_takes_no_slot_is_left_out(read: Read, universe: str) -> None:
    """A DAGMan manager, a local job and one that was sent on ran beside the pool, not in it."""
    manager = ad(ClusterId="6", JobUniverse=universe, CompletionDate="2000")
    log = read(manager + "\n" + ad(DAGManJobId="6", DAGNodeName='"A"'))
    assert log.jobs.labels() == ["7.0"]
    (reason,) = log.skipped.count
    assert "takes no slot of the pool" in reason


@pytest.mark.parametrize(
    ("changed", "begin"),
    [
        ({"DeferralTime": "2000"}, 1700.0),  # HTCondor prepares it 300 s before
        ({"DeferralTime": "QDate + 500", "DeferralPrepTime": "60"}, 1440.0),
        ({"DeferralTime": "2000", "JobCurrentStartDate": "1650"}, 1650.0),  # it was matched earlier
        ({"DeferralTime": "1200"}, -math.inf),
    ],
)
def test_a_deferred_job_starts_no_earlier(
    read: Read, changed: dict[str, str], begin: float
) -> None:
    """It takes its slot a while before its DeferralTime, however many slots are free before."""
    later = {"JobCurrentStartDate": "1700", "CompletionDate": "2050", **changed}
    log = read(ad(**later))
    assert log.jobs.begin.tolist() == [begin]
    told = "a job with a DeferralTime takes its slot DeferralPrepTime before it (1 job)"
    assert (told in log.assumptions) is (begin > 0)


def test_no_more_procs_than_are_made_at_a_time(read: Read) -> None:
    """`max_materialize = 2` limits a cluster as `%2` does an array of Slurm."""
    procs = [ad(ProcId=str(proc), JobMaterializeLimit="2") for proc in range(3)]
    jobs = read("\n".join([*procs, ad(ClusterId="8", JobMaterializeLimit="2")])).jobs
    assert jobs.array_limit.tolist() == [2, 2, 2, 0]


def test_what_is_not_replayed_is_told(read: Read) -> None:
    """Lost runs, suspensions and limits that the pool sets; of a job that waits, limits only."""
    again = {"NumJobStarts": "2", "CumulativeSuspensionTime": "5", "ConcurrencyLimits": '"sw:2"'}
    waits = {**again, "JobStatus": "1", "JobStartDate": "0", "JobCurrentStartDate": "0"}
    log = read("\n".join([ad(**again), ad(ProcId="1", CompletionDate="0", **waits)]))
    assert set(log.assumptions) == {
        "of a job that started more than once what it lost is not replayed (1 job)",
        "the time for which a job was suspended is not replayed (1 job)",
        "ConcurrencyLimits are not replayed, as no log tells how many the pool has (2 jobs)",
        "the log has no requested times",
    }


def test_a_held_job_counts_with_the_run_it_had(read: Read) -> None:
    """It held a slot for 40 s, and its hold came later than its first start."""
    held = {"JobStatus": "5", "CompletionDate": "0", "CommittedTime": "0"}
    once = ad(EnteredCurrentStatus="1050", **held)
    twice = ad(ProcId="1", NumJobStarts="2", LastVacateTime="1030", **held)
    unknown = ad(ProcId="2", NumJobStarts="2", **held)
    log = read("\n".join([once, twice, unknown]))
    assert log.outcomes.run_time[:2].tolist() == [40.0, 20.0]
    assert log.outcomes.end[:2].tolist() == [1050.0, 1030.0]
    assert log.outcomes.ending.tolist() == [Ending.CANCELLED] * 2 + [Ending.PENDING]
    notes = "of a job that ran and is held, or waits again, the last run counts (2 jobs)"
    assert notes in log.assumptions


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ClusterId": '"x"'}, "it has no ClusterId or ProcId"),
        ({"QDate": "-5"}, "its QDate is missing, or no number of seconds since 1970"),
        ({"RequestCpus": "0"}, "it asks for no processors, or for impossibly many"),
        ({"CompletionDate": "1005"}, "it ends before it starts"),
    ],
)
def test_bad_records_are_counted(read: Read, changed: dict[str, str], reason: str) -> None:
    """One bad record does not spoil the others."""
    log = read(
        "\n".join([ad(), ad(ProcId="1") + "".join(f"{k} = {v}\n" for k, v in changed.items())])
    )
    assert log.jobs.labels() == ["7.0"]
    assert log.skipped.count == {reason: 1}
    assert log.skipped.first[reason].endswith(f":{len(USUAL) + 2}")


def test_truncated_raw_history(read: Read) -> None:
    """A record without its line of stars is cut short."""
    log = read(ad() + "*** Offset = 0\n" + ad(ProcId="1")[:60])
    assert log.jobs.labels() == ["7.0"]
    assert log.skipped.count == {"the file ends inside the record": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("QDate - -2", 1002),
        ("MY.QDate / 4", 250),
        ("7 / 0", np.nan),
        ("1 +", np.nan),
        ("MAX({1, 2})", np.nan),
        ("Loop", np.nan),
        ("Nothing + 1", np.nan),
        ("9" * 400, np.nan),
        ("(" * 150 + "1", np.nan),
        ("true", 1),
    ],
)
def test_arithmetic(text: str, value: float) -> None:
    """Plain arithmetic is worked out, anything else is not known."""
    values = {"qdate": parse_value("1000"), "loop": Expression("Loop + 1")}
    found = number({**values, "x": parse_value(text)}, "x")
    np.testing.assert_array_equal(found, value)


def test_strings() -> None:
    """Strings lose their quotes and escapes."""
    assert parse_value(r'"a \"b\" \\c"') == r'a "b" \c'
    assert parse_value("UNDEFINED") is None


def test_expressions_that_name_each_other_cost_little() -> None:
    """Each attribute is worked out once, however many times expressions name it."""
    ad = {name: Expression("+".join([other] * 99)) for name, other in pairwise("abcdefg")}
    begun = time.process_time()
    assert math.isnan(number(ad, "a"))
    assert number(ad | {"d": 1.0}, "a") == 99.0**3
    assert time.process_time() - begun < 1.0


def test_jobs_of_a_dag_wait_for_their_parents(read: Read) -> None:
    """Node B waits for A, node C for all jobs of B; other DAGs have nodes of the same name."""

    def node(cluster: int, name: str, parents: str = "", dag: str = "5", proc: int = 0) -> str:
        asked = {"DAGManJobId": dag, "DAGNodeName": f'"{name}"'}
        more = {"DAGParentNodeNames": f'"{parents}"'} if parents else {}
        return ad(ClusterId=str(cluster), ProcId=str(proc), **asked, **more)

    log = read(
        "\n".join(
            [
                node(10, "A"),
                node(11, "B", "A"),
                node(11, "B", "A", proc=1),
                node(12, "C", "A, B,Unknown"),
                node(13, "B", "A", dag="6"),
                ad(ClusterId="14"),
            ]
        )
    )
    a, b, b1, c, other, alone = log.jobs.id.tolist()
    assert log.jobs.array.tolist() == [a, b, b, c, other, -1]
    found = zip(log.edges.before, log.edges.after, log.edges.whole_array, strict=True)
    assert list(found) == [(a, b, False), (a, b1, False), (a, c, False), (b, c, True)]
    assert "a job of a DAG waits for its parents (3 jobs)" in log.assumptions
    assert alone > c


def as_xml(text: str) -> str:
    """Return records of `-long` as `-xml` prints them."""
    out = ['<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n<classads>\n']
    for record in text.strip().split("\n\n"):
        out.append("\n<c>\n")
        for line in record.splitlines():
            name, _, value = line.partition(" = ")
            tag = "s" if value.startswith('"') else "r" if "." in value else "i"
            tag = tag if value[:1] in '"0123456789' else "e"
            plain = value.strip('"').replace("&", "&amp;").replace("<", "&lt;")
            shown = "<un/>" if value == "undefined" else f"<{tag}>{plain}</{tag}>"
            shown = f'<b v="{value[0]}"/>' if value in {"true", "false"} else shown
            out.append(f'    <a n="{name}">{shown}</a>\n')
        out.append('    <a n="Inner"><c><a n="ProcId"><i>99</i></a></c></a>\n')
        out.append('    <a n="QDate"><l><i>1</i></l></a>\n' if "list" in record else "")
        out.append("</c>\n")
    return "".join([*out, "\n</classads>\n"])


def as_table(text: str, form: str) -> str:
    """Return records of `-long` as `-af:h` prints them, with this between the columns."""
    ads = [
        dict(line.split(" = ") for line in record.splitlines())
        for record in text.strip().split("\n\n")
    ]
    names = list(ads[0])
    plain = [[each.get(name, "undefined") for name in names] for each in ads]
    if form != "V":
        plain = [[cell.strip('"') for cell in row] for row in plain]
    at = {"t": "\t", ",": ", "}.get(form, " ")
    return "".join(
        f"{at.join(f'{c:9}' for c in row).rstrip()}{' ' * len(at)}\n" for row in [names, *plain]
    )


RECORDS = "\n".join(
    [
        ad(ExitBySignal="false", RequestGPUs="undefined", Owner='"ann"'),
        ad(ProcId="1", RtDeadline="2000", RequestCpus="(2+1)", ExitCode="3", Owner='"b<&b"'),
        ad(ProcId="2", RequestGPUs="2", JobStatus="3"),
    ]
)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_xml_says_what_the_long_form_says(read: Read, end: str) -> None:
    """Nested ads and lists say nothing."""
    same(read(as_xml(RECORDS).replace("\n", end), resources=True), read(RECORDS, resources=True))


@pytest.mark.parametrize("form", ["", "t", ",", "V"])
@pytest.mark.parametrize("number", ["", "ID "])
def test_tables_say_what_the_long_form_says(read: Read, form: str, number: str) -> None:
    """`-af:h` with the attributes that are read; `:j` puts the job's id before."""
    records = "\n".join([ad(RequestGPUs="1"), ad(ProcId="1", RequestGPUs="undefined")])
    table = as_table(records, form)
    if number and form != "t" and form != ",":
        head, *rows = table.splitlines()
        table = "\n".join([f" ID {head}", *(f"7.{i} {row}" for i, row in enumerate(rows)), ""])
    log = read(table, resources=True)
    same(log, read(records, resources=True))
    assert log.format == "condor-history"


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("mark", [",", ";", "|"])
def test_tables_as_pandas_and_r_write_them(
    read: Read, quote: str, numbered: bool, mark: str
) -> None:
    """CSV, with quotes or a column of numbers without a name."""
    records = "\n".join([ad(RequestGPUs="1"), ad(ProcId="1", RequestGPUs="undefined")])
    head, *rows = as_table(records, ",").splitlines()
    lines = [[cell.strip() for cell in line.split(",")] for line in (head, *rows)]
    if numbered:
        lines = [["" if i == 0 else str(i), *line] for i, line in enumerate(lines)]
    text = "\n".join(mark.join(f"{quote}{cell}{quote}" for cell in line) for line in lines)
    same(read(text, resources=True), read(records, resources=True))


def test_records_that_run_together_are_counted(read: Read) -> None:
    """`-af:ln` puts no blank line between them."""
    log = read(ad() + ad(ProcId="1") + ad(ProcId="2"))
    assert log.jobs.labels() == ["7.2"]
    assert list(log.skipped.count.values()) == [2]


def same(one: Log, other: Log) -> None:
    """Compare what is known of two logs' jobs."""
    assert one.jobs.labels() == other.jobs.labels()
    assert one.jobs.texts("user") == other.jobs.texts("user")
    for name in ("submit", "size", "memory", "deadline", "demand"):
        mine, its = getattr(one.jobs, name), getattr(other.jobs, name)
        np.testing.assert_array_equal(mine, its, name)
    for name in ("start", "end", "run_time", "ending"):
        mine, its = getattr(one.outcomes, name), getattr(other.outcomes, name)
        np.testing.assert_array_equal(mine, its, name)


@pytest.mark.parametrize("head", ['<?xml version="1.0"?>\n', ""])
def test_xml_behind_xml(read: Read, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of two exports in one file, wherever blocks end; other text behind them counts once."""
    first, second = (as_xml(ad(ProcId=proc)) for proc in "01")
    body = second[second.index("<classads>") :]
    text = f"{first}\n{head}{body}"
    monkeypatch.setattr("rtsched.logs.source.BLOCK", 7)
    for size in range(len(first) - 9, len(first) + len(head) + 20):
        monkeypatch.setattr("rtsched.logs.source.HEAD", size)
        assert read(text).jobs.labels() == ["7.0", "7.1"]
    log = read(f"{text}\nand more")
    assert log.jobs.labels() == ["7.0", "7.1"]
    assert log.skipped.count.total() == 1


def test_xml_that_is_cut_short(read: Read) -> None:
    """What was whole is read; the rest is counted once."""
    text = as_xml(RECORDS)
    log = read(text[: text.rindex("\n<c>\n") + 300])
    assert len(log.jobs) == 2
    assert dict(log.skipped.count) == {"the record is no XML, or cut short": 1}


def test_lines_of_a_table_with_blanks_in_a_field(read: Read) -> None:
    """They cannot be told apart, and are counted."""
    log = read(as_table(RECORDS, "") + "7 9 a b c d e f g h i j k l m n o p q r s t\n")
    assert log.jobs.labels() == ["7.0", "7.1", "7.2"]
    assert log.skipped.count.total() == 1


def test_a_job_that_is_there_twice_without_its_global_name(read: Read) -> None:
    """As in exports of columns that overlap; another schedd's jobs have other times or users."""
    names = "ClusterId ProcId Owner QDate JobStatus JobCurrentStartDate CompletionDate RequestCpus"
    rows = [
        "7 0 ann 1000 4 1010 1050 1",
        "7 0 ann 1000 4 1010 1060 1",
        "7 0 bob 1000 4 1010 1050 1",
    ]
    log = read("\n".join([names, *rows, *rows[:2], ""]))
    assert len(log.jobs) == 3
    assert log.skipped.count == {"the log has the job twice": 2}

"""`rtsched replay --reservations`: what waits for a reservation, and who keeps none."""

import csv

import pytest

T0 = 1_767_225_600.0
"""2026-01-01T00:00:00 UTC."""
LOG = """JobID|JobIDRaw|User|Account|Partition|Submit|Start|End|TimelimitRaw|ReqCPUS|NNodes|State
1|1|ann|a|p|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:10:00|20|1|1|COMPLETED
2|2|bob|b|p|2026-01-01T00:01:00|2026-01-01T00:10:00|2026-01-01T00:15:00|10|2|2|COMPLETED
3|3|eve|b|p|2026-01-01T00:02:00|2026-01-01T00:10:00|2026-01-01T00:15:00|10|1|1|COMPLETED
"""
MACHINE = "NodeName=n[1-2] CPUs=1\nPartitionName=p Nodes=ALL Default=YES\n"
SHOWN = """ReservationName=maint StartTime=2026-01-01T00:15:00 EndTime=2026-01-01T01:00:00
   Duration=00:45:00
   Nodes=n[1,9] NodeCnt=1 CoreCnt=1 Features=(null) PartitionName=p Flags=MAINT,SPEC_NODES
   TRES=cpu=1
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)

"""


@pytest.fixture
def arguments(tmp_path):
    """Return the arguments of a replay of three jobs on two nodes, one of them reserved."""
    for name, text in (("log.txt", LOG), ("slurm.conf", MACHINE), ("reserved.txt", SHOWN)):
        (tmp_path / name).write_text(text)
    words = ["replay", tmp_path / "log.txt", "--cluster", tmp_path / "slurm.conf"]
    words += ["--timezone", "UTC", "--deadline-rule", "none", "--table-format", "csv"]
    words += ["--no-report", "--out", tmp_path / "out"]
    return [*words, "--reservations", tmp_path / "reserved.txt"]


def starts(tmp_path, policy):
    """Return the starts of the jobs, in minutes since T0."""
    with (tmp_path / "out" / policy / "jobs.csv").open() as table:
        return [(float(row["start_s"]) - T0) / 60 for row in csv.DictReader(table)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", [0.0, 60.0, 65.0]),
        ("easy", [0.0, 60.0, 2.0]),
        ("conservative", [0.0, 60.0, 2.0]),
        ("multifactor", [0.0, 60.0, 2.0]),
    ],
)
def test_no_job_runs_into_a_reservation(run, arguments, tmp_path, policy, expected):
    """n1 is set aside from minute 15 to 60.

    Job 1 asks for 20 minutes and takes n2, for n1 is too short. Job 2 asks for 10 minutes of both,
    at minute 10 that would run into it: it starts at 60. Job 3 asks for 10 minutes: on n1 from
    minute 2 it is done in time, which only backfilling finds.
    """
    result = run(*arguments, "--policy", policy)
    assert result.exit_code == 0, result.stderr
    assert "Reservations replayed: 1, of 1 node." in " ".join(result.stdout.split())
    assert starts(tmp_path, policy) == expected


def test_jobs_that_ran_in_a_reservation(run, arguments, tmp_path):
    """It is omitted, and the others start as if it was not in the log."""
    header, *jobs = LOG.splitlines()
    times = "2026-01-01T00:02:00|2026-01-01T00:20:00|2026-01-01T00:30:00"
    inside = f"4|4|eve|b|p|{times}|10|1|1|COMPLETED|maint"
    lines = [f"{header}|Reservation", *(f"{job}|" for job in jobs), inside]
    (tmp_path / "log.txt").write_text("\n".join(lines))
    result = run(*arguments, "--policy", "fcfs")
    assert result.exit_code == 0, result.stderr
    told = " ".join(result.stdout.split())
    assert "ran in a reservation, whose nodes are set aside" in told
    assert "does not show which jobs" not in told
    assert starts(tmp_path, "fcfs") == [0.0, 60.0, 65.0]


PART = SHOWN.replace("n[1,9]", "n1").replace(
    "TRES=cpu=1", "  NodeName=n1 CoreIDs=0-2\n   TRES=cpu=3"
)
ACCOUNTED = """Name|TimeStart|TimeEnd|NodeName|Flags|TRES
maint|2026-01-01T00:15:00|2026-01-01T01:00:00|n1|MAINT|cpu=3
"""


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", [0.0, 60.0, 60.0]),
        ("easy", [0.0, 60.0, 2.0]),
        ("conservative", [0.0, 60.0, 2.0]),
        ("multifactor", [0.0, 60.0, 2.0]),
    ],
)
@pytest.mark.parametrize("unit", ["core", "resources"])
@pytest.mark.parametrize("shown", [PART, ACCOUNTED])
def test_some_cores_of_a_node(run, arguments, tmp_path, shown, unit, policy, expected):
    """3 of the 4 cores of n1 are set aside from minute 15 to 60.

    Job 1 asks for 20 minutes of the core that is left. Job 2 asks for 20 minutes of two: it starts
    at 60. Job 3 asks for 10 minutes of one: from minute 2 it is done in time.
    """
    (tmp_path / "log.txt").write_text(LOG.replace("|10|2|2|", "|20|2|1|"))
    (tmp_path / "slurm.conf").write_text(MACHINE.replace("n[1-2] CPUs=1", "n1 CPUs=4"))
    (tmp_path / "reserved.txt").write_text(shown)
    result = run(*arguments, "--unit", unit, "--policy", policy)
    assert result.exit_code == 0, result.stderr
    assert "Reservations replayed: 1, of 1 node." in " ".join(result.stdout.split())
    assert starts(tmp_path, policy) == expected


def test_some_cores_where_nodes_are_whole(run, arguments, tmp_path):
    """The reservation is left out, and that is said."""
    (tmp_path / "slurm.conf").write_text(MACHINE.replace("CPUs=1", "CPUs=4"))
    (tmp_path / "reserved.txt").write_text(PART)
    result = run(*arguments, "--unit", "node", "--policy", "fcfs")
    assert "holds some cores of its nodes, which are whole here: 1." in " ".join(
        result.stdout.split()
    )


def test_a_machine_that_cannot_keep_nodes_free(run, arguments):
    """It is said so, and nothing is replayed."""
    result = run(*arguments, "--policy", "rr")
    assert result.exit_code
    assert "machine 'sliced' cannot keep nodes free" in result.stderr


def test_a_loop_that_cannot_keep_nodes_free(run, arguments):
    """HTCondor's matchmaking knows no reservations: that is said in one sentence."""
    result = run(*arguments, "--policy", "negotiator")
    assert result.exit_code
    assert "loop 'negotiator' does not keep nodes free; use fcfs, easy or conservative" in (
        result.stderr
    )


@pytest.mark.parametrize("limit", ["UNLIMITED", "5"])
@pytest.mark.parametrize(("end", "expected"), [("10", 0.0), ("20", 60.0)])
def test_jobs_without_a_limit_or_past_it(run, arguments, tmp_path, limit, end, expected):
    """Their run time is used for it: 10 minutes end before minute 15, 20 minutes do not."""
    log = LOG.replace("T00:10:00|20|1|1", f"T00:{end}:00|{limit}|1|1")
    (tmp_path / "log.txt").write_text(log)
    (tmp_path / "reserved.txt").write_text(SHOWN.replace("n[1,9]", "n[1-2]"))
    result = run(*arguments, "--policy", "fcfs")
    assert result.exit_code == 0, result.stderr
    assert starts(tmp_path, "fcfs")[0] == expected


@pytest.mark.parametrize("unit", ["node", "resources"])
@pytest.mark.parametrize("policy", ["mcdf", "portfolio", "spare-rf"])
def test_promises_leave_a_reservation_its_time(run, arguments, tmp_path, policy, unit):
    """n1 is set aside from minute 15 to 60; jobs are due 4 times their limit after they come.

    Job 1, of 20 minutes, is promised n2. Job 2, of 10 minutes on both nodes, could end at minute 70
    and is due at 41: rejected. Job 3, of 10 minutes, has n1 from minute 2 on.
    """
    words = [word if word != "none" else "slowdown:4" for word in arguments]
    result = run(*words, "--unit", unit, "--policy", policy)
    assert result.exit_code == 0, result.stderr
    with (tmp_path / "out" / policy / "jobs.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [row["start_s"] and (float(row["start_s"]) - T0) / 60 for row in rows] == [0.0, "", 2.0]
    assert (float(rows[1]["offer_s"]) - T0) / 60 == 70.0


def test_a_planner_that_knows_no_reservations_is_refused(run, arguments, tmp_path):
    """It would promise nodes that are set aside; the sentence names those that would not."""
    plugin = "plugin = [{ name = 'mcdf', settings = { rounds = 2 } }]"
    (tmp_path / "site.toml").write_text(f"[policy.own]\nplanner = 'mcdf'\n{plugin}\n")
    result = run(*arguments, "--config", str(tmp_path / "site.toml"), "--policy", "own")
    assert result.exit_code
    assert "planner: 'mcdf' as configured would promise nodes that are set aside" in result.stderr
    assert "use 'spare' in form 'gaps'" in result.stderr


@pytest.mark.parametrize("unit", ["node", "resources"])
@pytest.mark.parametrize("policy", ["easy", "mcdf"])
def test_a_node_that_is_out_of_service_meanwhile(run, arguments, tmp_path, policy, unit):
    """n1 is set aside from minute 15 to 60, and down from 10 to 70: job 2 of both starts at 70.

    It is due at 81; mcdf plans it at 60 first, and anew when the node dies.
    """
    (tmp_path / "events.txt").write_text(
        "NodeName|TimeStart|TimeEnd|State\nn1|2026-01-01T00:10:00|2026-01-01T01:10:00|DOWN\n"
    )
    words = [word if word != "none" else "slowdown:8" for word in arguments]
    words += ["--outages", tmp_path / "events.txt", "--unit", unit]
    result = run(*words, "--policy", policy)
    assert result.exit_code == 0, result.stderr
    told = " ".join(result.stdout.split())
    assert "Reservations replayed: 1, of 1 node." in told
    assert "Outages replayed: 1, of 1 node." in told
    assert starts(tmp_path, policy)[1] == 70.0

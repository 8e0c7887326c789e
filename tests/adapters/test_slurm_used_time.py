"""What accounts, users and QOS have used, as scontrol tells it."""

import pytest
from slurm_printed import job_rows, printed

from rtsched.adapters.slurm.accounts import (
    default_accounts_in,
    limits_of,
    used_in,
    used_time,
    with_ended,
)
from rtsched.adapters.slurm.facts import calc_period_of, used_time_rules
from rtsched.model.limits import UsedTime

MIB = 2**20
SHOWN = """\
Current Association Manager state
Association Records
ClusterName=c Account=root UserName= Partition= Priority=0 ID=1 \
SharesRaw/Norm/Level/Factor=1/0.0/1/0.00 UsageRaw/Norm/Efctv=0.00/0.00/0.00 ParentAccount= \
Lineage=/ DefAssoc=No GrpJobs=N(0) GrpWall=N(0.00) GrpTRES=cpu=N(0),mem=N(0) \
GrpTRESMins=cpu=N(9),mem=N(0) GrpTRESRunMins=cpu=N(0),mem=N(0) MaxTRESMinsPJ= MinPrioThresh= \
Comment=(null)
ClusterName=c Account=physics UserName= Partition= Priority=0 ID=2 GrpJobs=N(1) \
GrpSubmitJobs=N(2) GrpWall=60(2.25) GrpTRES=cpu=N(4),mem=N(400),gres/gpu:A=N(1) \
GrpTRESMins=cpu=100(9),mem=N(900),gres/gpu:A=N(2) \
GrpTRESRunMins=cpu=N(16),mem=N(1600),gres/gpu:A=N(4) MaxJobs= Comment=of GrpTRESMins=cpu=9(9)
ClusterName=c Account=physics UserName=ann(1000) Partition=quick Priority=0 ID=3 GrpWall=N(1.00) \
GrpTRES=cpu=N(0) GrpTRESMins=cpu=N(3) GrpTRESRunMins=cpu=N(0) Comment=

QOS Records
QOS=normal(1) UsageRaw=540.000000 GrpJobs=N(0) GrpWall=N(9.00) GrpTRES=cpu=N(0) \
GrpTRESMins=cpu=N(9) GrpTRESRunMins=cpu=N(7) MaxWallPJ= Account Limits physics={MaxJobsPA=N(0) \
MaxTRESRunMinsPA=cpu=N(5)}
"""
QOS = "Name|GrpWall\nnormal|\n"
ASSOCIATIONS = """\
Cluster|Account|User|GrpWall|QOS|Def QOS
c|root||||
c| physics||01:00:00||
c|  physics|ann|||
"""


def test_default_accounts() -> None:
    """They are the users' own ones, whatever the order of accounts; some users have none."""
    shown = """\
Current Association Manager state
User Records
UserName=ann(1000) DefAccount=physics DefWckey= AdminLevel=None
UserName=bob.b(1001) DefAccount=arts DefWckey=(null) AdminLevel=Operator
UserName=carol(1002) DefAccount=(null) DefWckey= AdminLevel=None
UserName=dave(1003) DefAccount= DefWckey= AdminLevel=None
"""
    assert default_accounts_in(shown) == {"ann": "physics", "bob.b": "arts"}
    assert default_accounts_in("slurm_load_assoc_mgr_info error: ...") == {}


def test_what_was_used_and_may_be_used_yet() -> None:
    """The minutes of both in brackets, memory in MiB; of wall time what was used."""
    found = used_in(SHOWN)
    assert found["account root", "cpu"] == 540.0
    assert {
        thing: amount for (group, thing), amount in found.items() if group == "account physics"
    } == {"jobs": 135.0, "cpu": 25 * 60.0, "mem": 2500 * 60.0 * MIB, "gres/gpu:a": 360.0}
    assert found["user ann of account physics in partition quick", "cpu"] == 180.0
    assert (found["QOS normal", "cpu"], found["QOS normal", "jobs"]) == (960.0, 540.0)
    assert len({group for group, _ in found}) == 4


def test_wall_time_that_running_jobs_may_use() -> None:
    """Job 12 began 1000 s ago and has 2000 s; Slurm counted it within the last 300 s."""
    # So 1300 s are not counted yet. Of job 13, which began a moment ago, all of its 600 s are not;
    # job 14 of another account does not count, nor 15, which waits.
    now = 10_000
    jobs = [
        (12, 9000, "00:33:20", "RUNNING", "physics"),
        (13, 9990, "00:10:00", "RUNNING", "physics"),
    ]
    jobs += [
        (14, 9990, "00:10:00", "RUNNING", "arts"),
        (15, 9990, "00:10:00", "PENDING", "physics"),
    ]
    rows = job_rows(
        printed(
            *(
                {
                    "jobid": str(job),
                    "jobarrayid": str(job),
                    "starttime": str(start),
                    "timelimit": limit,
                    "state": state,
                    "account": account,
                    "partition": "all",
                }
                for job, start, limit, state, account in jobs
            )
        )
    )
    rules = limits_of(QOS, ASSOCIATIONS, {})
    assert rules is not None
    found = used_time(SHOWN, rows, rules, now)
    assert found.at == now
    assert found.seconds["account physics", "jobs"] == 135.0 + 1300.0 + 600.0
    assert found.seconds["QOS normal", "jobs"] == 540.0 + 1300.0 + 600.0 + 600.0
    assert found.seconds["account physics", "cpu"] == 25 * 60.0


def test_what_jobs_used_that_ended_since() -> None:
    """Job 12 had 8 processors and 2 nodes for 30 s; 13 was in the reading, and is counted there."""
    now = 10_000
    jobs = ((12, now + 5, now + 35), (13, now - 500, now + 35))
    ended = {"account": "physics", "partition": "all", "state": "COMPLETED"}
    rows = job_rows(
        printed(
            *(
                {"jobid": f"{job}", "jobarrayid": f"{job}", "starttime": f"{start}", **ended}
                | {"endtime": f"{end}"}
                for job, start, end in jobs
            )
        )
    )
    rules = limits_of(QOS, ASSOCIATIONS, {})
    assert rules is not None
    found = with_ended(UsedTime(now, {("account physics", "cpu"): 60.0}), rows, rules)
    assert found.seconds["account physics", "cpu"] == 60.0 + 8 * 30.0
    assert found.seconds["account physics", "jobs"] == 30.0
    assert found.seconds["QOS normal", "node"] == 60.0
    assert found.seconds["QOS normal", "mem"] == 8 * 2**30 * 30.0
    assert found.seconds["QOS normal", "billing"] == 8 * 30.0


@pytest.mark.parametrize("text", ["", "slurm_load_assoc_mgr_info error\n", "QOS=\nClusterName=\n"])
def test_other_words_are_passed_over(text: str) -> None:
    """Nothing is used then."""
    assert used_in(text) == {}


def test_how_often_slurm_counts() -> None:
    """Five minutes where it is not said."""
    assert calc_period_of({"PriorityCalcPeriod": "00:01:00"}) == 60.0
    assert calc_period_of({}) == 300.0


@pytest.mark.parametrize(
    ("enforced", "half_life", "expected"),
    [
        ("associations,limits,safe", "7-00:00:00", (True, 604_800.0)),
        ("all", "00:30:00", (True, 1800.0)),
        ("associations,limits", "00:00:00", (False, float("inf"))),
        ("limits", "", (False, 604_800.0)),
    ],
)
def test_how_used_time_counts(enforced: str, half_life: str, expected: tuple[bool, float]) -> None:
    """`safe` asks for the whole time limit; a half-life of 0 is none, and a week if not shown."""
    config = {"AccountingStorageEnforce": enforced, "PriorityDecayHalfLife": half_life}
    assert used_time_rules(config) == expected

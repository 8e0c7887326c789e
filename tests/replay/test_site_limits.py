"""Which limits of QOS and associations hold for the jobs of a log."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rtsched.kernels.machine_limits import ALLOTTED, NO_LIMIT, REMAINING, USED, USED_AND_ASKED
from rtsched.model.jobs import Jobs
from rtsched.model.limits import Association, Limits, LimitSet, Qos, SiteLimits
from rtsched.replay.limits import JobAmounts, limits_of_jobs

RESOURCES = ("cpu", "mem", "gres/gpu")


def jobs(n: int, **columns: Any) -> Jobs:
    """Return jobs of alice in account physics, QOS normal, of 4 cores on one node for an hour."""
    usual: dict[str, Any] = {
        "id": np.arange(n),
        "submit": np.zeros(n),
        "wall_time": np.full(n, 3600.0),
        "size": np.full(n, 4, np.int32),
        "node_count": np.ones(n, np.int32),
        "user": ["alice"] * n,
        "account": ["physics"] * n,
        "qos": ["normal"] * n,
        "partition": ["all"] * n,
    }
    return Jobs.build(n, **{**usual, **columns})


def limits(
    table: Jobs, site: SiteLimits, whole: bool = False
) -> tuple[dict[int, dict[str, dict[str, int]]], list[str], Limits | None]:
    """Return per job the limits of each group that it counts in, and what was said."""
    notes: list[str] = []
    made = limits_of_jobs(JobAmounts(table, np.full(len(table), whole), 16), site, notes)
    found: dict[int, dict[str, dict[str, int]]] = {}
    for row in range(len(table)) if made is not None else ():
        places = range(*made.groups.offsets[made.kind[row] : made.kind[row] + 2].tolist())
        found[row] = {
            made.names[made.groups.values[at]]: {
                thing: most
                for thing, most in zip(made.things, made.most[at].tolist(), strict=True)
                if most < NO_LIMIT
            }
            for at in places
        }
    return found, notes, made


def of_qos(**sets: LimitSet) -> SiteLimits:
    """Return a site with QOS of these limits."""
    return SiteLimits(qos={name: Qos(some) for name, some in sets.items()})


def test_memory_of_jobs_at_a_limit() -> None:
    """A job of 3 processors may have all the memory that a limit allows, to the byte."""
    table = jobs(1, size=np.array([3], np.int32), memory=[-(-(8000 << 20) // 3)])
    _, _, made = limits(table, of_qos(normal=LimitSet(user={"mem": 8000 << 20})))
    assert made is not None
    assert made.asked.tolist() == [[8000 << 20]]


def test_groups_of_a_qos() -> None:
    """All its jobs, those of each user in it, and of each account."""
    normal = LimitSet(group={"cpu": 100}, user={"jobs": 3, "cpu": 8}, account={"cpu": 20})
    found, notes, _ = limits(jobs(2, user=["alice", "bob"]), of_qos(normal=normal))
    assert found[0] == {
        "QOS normal": {"cpu": 100},
        "user alice in QOS normal": {"jobs": 3, "cpu": 8},
        "account physics in QOS normal": {"cpu": 20},
    }
    assert list(found[1]) == [
        "QOS normal",
        "user bob in QOS normal",
        "account physics in QOS normal",
    ]
    assert notes == [
        "2 jobs of accounts, users or QOS with limits of what runs at a time: a job over a limit "
        "waits, and holds up nobody (machine 'exclusive' but for its loop 'negotiator'; planners "
        "do not know limits)."
    ]


@pytest.mark.parametrize("over", [False, True])
def test_the_qos_of_the_partition_comes_first(over: bool) -> None:
    """For what it defines; what only the job's QOS defines holds as well; jobs count in both."""
    site = SiteLimits(
        qos={
            "part": Qos(LimitSet(group={"cpu": 50}, user={"jobs": 9})),
            "normal": Qos(LimitSet(group={"cpu": 10, "jobs": 7}, user={"jobs": 2}), over),
        },
        partition_qos={"all": "part"},
    )
    table = jobs(2, partition=["all", "other"])
    found, _, _ = limits(table, site)
    first = {
        "QOS part": {"cpu": 50},
        "user alice in QOS part": {"jobs": 9},
        "QOS normal": {"jobs": 7},
        "user alice in QOS normal": {},
    }
    second = {"QOS normal": {"cpu": 10, "jobs": 7}, "user alice in QOS normal": {"jobs": 2}}
    assert found[0] == (second if over else first)
    assert found[1] == second


TREE = (
    Association("root", limits=LimitSet(group={"cpu": 1000})),
    Association("physics", parent="root", limits=LimitSet(group={"cpu": 100}, user={"jobs": 6})),
    Association("physics", "alice", limits=LimitSet(group={"cpu": 30, "jobs": 20})),
    Association("physics", "bob", limits=LimitSet(user={"jobs": 2})),
    Association("physics", "bob", "debug", limits=LimitSet(user={"jobs": 1})),
)
ALICE, BOB = "user alice of account physics", "user bob of account physics"


def test_associations_hold_at_each_level() -> None:
    """MaxJobs of the account is that of each user who has none; partitions have their own."""
    table = jobs(3, user=["alice", "bob", "bob"], partition=["all", "all", "debug"])
    found, _, _ = limits(table, SiteLimits(associations=TREE))
    above = {"account physics": {"cpu": 100}, "account root": {"cpu": 1000}}
    assert found[0] == {ALICE: {"cpu": 30, "jobs": 6}, **above}
    assert found[1] == {BOB: {"jobs": 2}, **above}
    assert found[2] == {f"{BOB} in partition debug": {"jobs": 1}, **above}


def test_a_qos_comes_before_associations() -> None:
    """GrpTRES of cores as the QOS says, at no account; MaxJobs as its MaxJobsPA says."""
    normal = Qos(LimitSet(group={"cpu": 5}, account={"jobs": 4}))
    found, _, _ = limits(jobs(1), SiteLimits(qos={"normal": normal}, associations=TREE))
    assert found[0] == {
        "QOS normal": {"cpu": 5},
        "account physics in QOS normal": {"jobs": 4},
        ALICE: {"jobs": 20},
    }


def test_limit_factor_is_of_resources_of_associations() -> None:
    """Twice the cores, as many jobs."""
    site = SiteLimits(qos={"normal": Qos(factor=2.0)}, associations=TREE)
    found, _, _ = limits(jobs(1), site)
    assert found[0] == {
        ALICE: {"cpu": 60, "jobs": 6},
        "account physics": {"cpu": 200},
        "account root": {"cpu": 2000},
    }


def test_what_jobs_count_for() -> None:
    """Cores in all; memory and GPUs of all nodes; whole nodes with all their cores."""
    table = jobs(
        2,
        size=np.array([8, 20], np.int32),
        node_count=np.array([2, -1], np.int32),
        demand=np.array([[4, 2**30, 3], [0, 0, 0]]),
        memory=np.array([-1, 2**20]),
        names={"demand": RESOURCES},
    )
    group = {"cpu": 99, "mem": 2**50, "gres/gpu": 9, "jobs": 9, "node": 9}
    _, notes, made = limits(table, of_qos(normal=LimitSet(group=group)))
    assert made.things == ("cpu", "mem", "gres/gpu", "jobs")
    assert made.asked.tolist() == [[8, 2**31, 6, 1], [20, 20 * 2**20, 0, 1]]
    assert (
        "2 jobs of accounts or QOS with GrpTRES=node, which does not hold them up in the replay."
        in notes
    )
    _, notes, made = limits(table, of_qos(normal=LimitSet(group=group)), whole=True)
    assert made.asked[:, [0, 4]].tolist() == [[32, 2], [32, 2]]
    assert len(notes) == 1


def test_jobs_beyond_a_limit_by_themselves_are_told() -> None:
    """Of 4 cores for an hour: more than MaxTRES, MaxWall, MaxTRESMins, or the group may have."""
    normal = LimitSet(
        group={"cpu": 2, "jobs": 0},
        user={"cpu": 4},
        job={"cpu": 3},
        job_seconds={"cpu": 14399},
        wall=3599.0,
    )
    end = "by themselves: Slurm would not start them, but they ran, so it does not hold them up."
    _, notes, _ = limits(jobs(2), of_qos(normal=normal))
    assert notes[1:] == [
        f"2 jobs beyond {name} {end}"
        for name in ("GrpJobs", "GrpTRES", "MaxTRES", "MaxTRESMins", "MaxWall")
    ]
    free = LimitSet(job={"cpu": 4}, job_seconds={"cpu": 14400}, wall=3600.0)
    assert limits(jobs(2), of_qos(normal=free)) == ({}, [], None)


def test_limits_of_jobs_by_the_first_that_defines_them() -> None:
    """The QOS allows 2 h; the association's hour would be too short for nobody then."""
    own = Association("physics", "alice", limits=LimitSet(job={"cpu": 1}, wall=60.0))
    site = SiteLimits(
        qos={"normal": Qos(LimitSet(job={"cpu": 8}, wall=7200.0))}, associations=(own,)
    )
    assert limits(jobs(1), site)[1] == []
    assert len(limits(jobs(1), SiteLimits(associations=(own,)))[1]) == 2


def test_what_sets_no_limits_is_told() -> None:
    """Unknown QOS, users without association, limits of submissions and of what is not known."""
    site = SiteLimits(
        qos={
            "normal": Qos(
                LimitSet(
                    group={"billing": 5},
                    seconds={"GrpTRESMins": {"energy": 60}},
                    others=("MaxSubmitPU",),
                )
            )
        },
        associations=TREE,
        assumptions=("Something was assumed.",),
    )
    table = jobs(3, qos=["normal", "other", None], user=["alice", "carol", None])
    _, notes, _ = limits(table, site)
    assert notes[0] == "Something was assumed."
    assert notes[2:] == [
        "1 job of accounts or QOS with GrpTRES=billing, which does not hold them up in the replay.",
        "1 job of accounts or QOS with GrpTRESMins=energy, which does not hold them up in the "
        "replay.",
        "1 job of accounts or QOS with MaxSubmitPU, which does not hold them up in the replay.",
        "2 jobs with a QOS that is not among those given, or not in the log: it sets no limits.",
        "2 jobs with an account and user that are not among the associations given: these set no "
        "limits.",
    ]


MINUTES = LimitSet(
    seconds={
        "GrpTRESMins": {"cpu": 36000},
        "GrpTRESRunMins": {"cpu": 18000},
        "GrpWall": {"jobs": 7200},
        "MaxTRESRunMinsPU": {"cpu": 15000},
    }
)


@pytest.mark.parametrize("safe", [False, True])
def test_limits_that_count_time(safe: bool) -> None:
    """What each of them compares, of which group; of the account what the QOS leaves open."""
    own = LimitSet(seconds={"GrpTRESMins": {"cpu": 9, "node": 60}, "GrpTRESRunMins": {"mem": 60}})
    site = SiteLimits(
        qos={"normal": Qos(MINUTES, decays=False)},
        associations=(Association("physics", limits=own), Association("physics", "alice")),
        safe=safe,
        half_life=1000.0,
    )
    _, notes, made = limits(jobs(1), site)
    used, wall = (ALLOTTED, USED_AND_ASKED) if safe else (USED, USED)
    found = {
        (made.names[group], thing, basis): made.most[at, column]
        for at, group in enumerate(made.groups.values.tolist())
        for column, (thing, basis) in enumerate(zip(made.things, made.basis, strict=True))
        if made.most[at, column] < NO_LIMIT
    }
    assert found == {
        ("QOS normal", "cpu", used): 36000.0,
        ("QOS normal", "cpu", REMAINING): 18000.0,
        ("QOS normal", "jobs", wall): 7200.0,
        ("user alice in QOS normal", "cpu", REMAINING): 15000.0,
        ("account physics", "node", used): 60.0,
        ("account physics", "mem", REMAINING): 60.0,
    }
    half_lives = dict(zip(made.names, made.half_life.tolist(), strict=True))
    assert half_lives == {
        "QOS normal": np.inf,
        "user alice in QOS normal": 1000.0,
        "account physics": 1000.0,
    }
    start = (
        "starts if enough is left for its time limit (AccountingStorageEnforce with"
        if safe
        else "starts while some is left, and is not ended when none is (AccountingStorageEnforce "
        "without"
    )
    assert notes[1] == (
        "1 job of accounts or QOS with limits of used time (GrpTRESMins, GrpWall): none is used "
        "when the log begins, it decays to the half in 00:16:40, but where a QOS has NoDecay "
        f"(PriorityDecayHalfLife), and a job {start} 'safe')."
    )


def test_jobs_beyond_limits_that_count_time_are_told() -> None:
    """4 cores for an hour are 14400 core-seconds; MinTRES asks for 5 cores and a GPU."""
    end = "Slurm would not start them, but they ran, so it does not hold them up."
    seconds = {
        "GrpTRESMins": {"cpu": 14399},
        "GrpTRESRunMins": {"cpu": 14399},
        "GrpWall": {"jobs": 3599},
        "MaxTRESRunMinsPA": {"cpu": 14400},
    }
    normal = LimitSet(seconds=seconds, least={"cpu": 5, "gres/gpu": 1, "jobs": 1})
    both = of_qos(normal=normal)
    _, notes, _ = limits(jobs(2, size=np.array([4, 3], np.int32)), replace(both, safe=True))
    assert notes[2:] == [
        f"2 jobs below MinTRES: {end}",
        f"1 job beyond GrpTRESMins by themselves: {end}",
        f"1 job beyond GrpTRESRunMins by themselves: {end}",
        f"2 jobs beyond GrpWall by themselves: {end}",
    ]
    # Without safe the job starts as long as some time is left.
    _, notes, _ = limits(jobs(2, size=np.array([4, 3], np.int32)), both)
    assert notes[2:] == [
        f"2 jobs below MinTRES: {end}",
        f"1 job beyond GrpTRESRunMins by themselves: {end}",
    ]


def test_accounts_that_stand_below_each_other() -> None:
    """Such a file is no tree; each account counts once."""
    circle = (
        Association("a", parent="b", limits=LimitSet(group={"cpu": 9})),
        Association("b", parent="a", limits=LimitSet(group={"cpu": 9})),
        Association("a", "alice"),
    )
    found, _, _ = limits(jobs(1, account=["A"]), SiteLimits(associations=circle))
    assert found[0] == {"account a": {"cpu": 9}, "account b": {"cpu": 9}}

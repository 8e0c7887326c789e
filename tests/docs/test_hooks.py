"""One test per hook, named after it: who is asked with what, and what comes of the answers."""

import numpy as np
import pytest

from rtsched.core.chain import Chain, Member, Stage
from rtsched.core.decision import admission_actions, judge, observe, steer
from rtsched.core.hookspecs import hookimpl
from rtsched.model.actions import Admit, Place, Reject, SetPriority
from rtsched.model.snapshot import Accounts
from rtsched.model.state import EventKind, State
from rtsched.model.verdicts import DelayClasses, Placement, Reason, Terms, Verdict, Verdicts
from rtsched.testing import make_cluster, make_events, make_jobs, make_snapshot


def chain(*plugins, **options):
    """Return a chain of plug-ins, named by their classes."""
    return Chain([Member(type(plugin).__name__, plugin) for plugin in plugins], **options)


class Slow:
    """Say that the second node is slow."""

    @hookimpl
    def rtsched_delay_class(self, cluster):
        """Factor 2 on row 1."""
        factor = np.ones(len(cluster))
        factor[1] = 2.0
        return DelayClasses(factor, np.array([1.0, 2.0]))


class Picky:
    """Reject every job where a node is slow, and remember the factors it was shown."""

    reason = Reason("picky.slow", "would run {times} times as long")

    @hookimpl
    def rtsched_admit(self, jobs, classes):
        """Reject by the delay classes."""
        worst = 1.0 if classes is None else float(classes.factor.max())
        return Verdicts.reject_where(np.full(len(jobs), worst > 1.0), self.reason, times=worst)


def test_rtsched_delay_class_is_asked_before_admission():
    """What it answers is shown to the admission hook; without it there are no classes."""
    jobs, snapshot = make_jobs(2), make_snapshot(cluster=make_cluster(3))
    assert chain(Slow()).delay_class(jobs, snapshot).factor.tolist() == [1.0, 2.0, 1.0]
    assert chain(Picky()).delay_class(jobs, snapshot) is None
    (rejected,) = admission_actions(jobs, judge(snapshot, chain(Picky(), Slow()), jobs).verdicts)
    assert isinstance(rejected, Reject)
    assert rejected.text == ("would run 2 times as long",) * 2
    (admitted,) = admission_actions(jobs, judge(snapshot, chain(Picky()), jobs).verdicts)
    assert isinstance(admitted, Admit)


class Wide:
    """Reject or defer jobs of more than one node."""

    def __init__(self, verdict):
        self.verdict = verdict

    @hookimpl
    def rtsched_admit(self, jobs):
        """Judge by size."""
        return Verdicts.build(np.where(jobs.size > 1, self.verdict, Verdict.ADMIT))


@pytest.mark.parametrize("order", [1, -1])
def test_rtsched_admit_takes_the_strictest(order):
    """Whoever is asked first, the rejection wins."""
    members = [
        Member("holds", Wide(Verdict.DEFER)),
        Member("rejects", Wide(Verdict.REJECT)),
    ]
    verdicts = Chain(members[::order]).admit(make_jobs(size=[1, 2]), make_snapshot()).verdicts
    assert verdicts.code.tolist() == [Verdict.ADMIT, Verdict.REJECT]


class Favours:
    """Give one account the higher term."""

    @hookimpl
    def rtsched_fair_share(self, accounts):
        """Terms per account."""
        return Terms({"share": np.linspace(0.0, 1.0, len(accounts))}, per_account=True)


def test_rtsched_fair_share_becomes_priorities():
    """A term per account is weighted and handed to the batch system per job."""
    jobs = make_jobs(association=[1, 0, -1])
    accounts = Accounts.build(2, name=["physics", "biology"])
    asked = Chain([Member("favours", Favours(), weight=3.0)])
    (action,) = steer(make_snapshot(jobs, accounts=accounts), asked).actions
    assert isinstance(action, SetPriority)
    assert action.value.tolist() == [3.0, 0.0, 0.0]


class Pairs:
    """Give every job the last two nodes."""

    @hookimpl
    def rtsched_partition(self, jobs, cluster):
        """One node set for all."""
        last = np.array([len(cluster) - 2, len(cluster) - 1], np.int32)
        none = np.zeros(len(jobs), np.int32)
        return Placement(none, none.copy(), (last,))


def test_rtsched_partition_becomes_node_sets():
    """It is static, as it names jobs and cluster only, and its answer is an action."""
    asked = chain(Pairs())
    assert asked.asks("partition", Stage.STATIC) == ("Pairs",)
    (action,) = steer(make_snapshot(make_jobs(2), make_cluster(4)), asked).actions
    assert isinstance(action, Place)
    assert [nodes.tolist() for nodes in action.placement.node_sets] == [[2, 3]]
    assert action.placement.node_set.tolist() == [0, 0]


class Count(State, frozen=True):
    """How many jobs started."""

    started: int = 0


class Counts:
    """Count starts."""

    @hookimpl
    def rtsched_observe(self, events, state):
        """Add the starts."""
        starts = int(np.count_nonzero(events.rows.kind == EventKind.STARTED))
        return Count((state.started if state else 0) + starts)


def test_rtsched_observe_keeps_the_state_in_the_snapshot():
    """Each answer is the plug-in's next state, and is there when it is asked again."""
    jobs, asked = make_jobs(2), chain(Counts())
    snapshot = make_snapshot()
    for rows in ([0], [0, 1]):
        told = make_events(jobs, [(60.0, EventKind.STARTED, row) for row in rows])
        snapshot, _ = observe(snapshot, asked, told)
    assert snapshot.states["Counts"] == Count(3)

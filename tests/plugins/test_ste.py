"""Fair share by service-time error: values by hand, sums of errors, admission by ideal finish."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.core.decision import observe
from rtsched.kernels.compiling import plain
from rtsched.kernels.service_error import fill
from rtsched.model.snapshot import Accounts
from rtsched.model.state import EventKind, EventRows, Events
from rtsched.model.verdicts import Verdict, Verdicts
from rtsched.testing import (
    make_cluster,
    make_events,
    make_jobs,
    make_snapshot,
)
from rtsched.testing.strategies import scenes
from rtsched_plugins.kernels import ste as kernel
from rtsched_plugins.ste import Ste

ARRIVED, STARTED, ENDED = EventKind.ARRIVED, EventKind.STARTED, EventKind.ENDED


def chain_of(**config: Any) -> Chain:
    """Return a chain of the plug-in alone."""
    return Chain([Member("ste", Ste(Ste.Config(**config)))])


def errors_after(
    accounts: Accounts,
    jobs: Any,
    events: list[tuple[float, EventKind, int]],
    now: float,
    **config: Any,
) -> Any:
    """Return the errors of the rows of `accounts` at `now`, node-seconds."""
    chain = chain_of(**config)
    snapshot = make_snapshot(jobs, now=now, accounts=accounts)
    snapshot, states = observe(snapshot, chain, make_events(jobs, events))
    half_life, kept = config.get("half_life", 0.0), states["ste"].kept
    found = [kernel.error_at(row, now, half_life, kept) for row in range(1, len(accounts) + 1)]
    shown = chain.fair_share(jobs, snapshot).answers[0].value.service_error
    assert shown.tolist() == pytest.approx(found, rel=1e-12, abs=1e-12), "what people read"
    return found


TWO = Accounts.build(2, name=["ann", "bob"], shares=[2.0, 1.0], is_user=[True, True])


def test_one_node_is_the_papers_server() -> None:
    """Shares 2 and 1 on one node, the first served for 1 s: errors 1 - 2/3 and -1/3."""
    jobs = make_jobs(submit=0.0, association=np.array([0, 1], np.int32))
    events = [(0.0, ARRIVED, 0), (0.0, ARRIVED, 1), (0.0, STARTED, 0)]
    assert errors_after(TWO, jobs, events, 1.0) == pytest.approx([1 / 3, -1 / 3], abs=1e-15)


def test_what_one_cannot_use_goes_to_the_others() -> None:
    """12 nodes served; bob's jobs could use 2: he is entitled to these, ann to the other 10.

    Ann holds 12, so after 10 s she is 20 node-seconds ahead and bob as much behind.
    """
    jobs = make_jobs(submit=0.0, association=np.array([0, 0, 1], np.int32), size=[12, 30, 2])
    events = [(0.0, ARRIVED, row) for row in range(3)] + [(0.0, STARTED, 0)]
    assert errors_after(TWO, jobs, events, 10.0) == [20.0, -20.0]


def test_nobody_waits_nobody_falls_behind() -> None:
    """Where all jobs run, everybody has what they can use, whatever the shares."""
    jobs = make_jobs(submit=0.0, association=np.array([0, 1], np.int32), size=[3, 13])
    events = [(0.0, kind, row) for kind in (ARRIVED, STARTED) for row in range(2)]
    assert errors_after(TWO, jobs, events, 1000.0) == [0.0, 0.0]


def test_billed_jobs_are_served_what_they_are_billed_for() -> None:
    """A job of 2 nodes is billed for 3, one that waits for 1, which is all that it is owed of 3.

    After 4 s the first has 4 node-seconds too much. With both running no error changes.
    """
    columns = {"association": np.array([0, 1], np.int32), "size": [2, 2]}
    jobs = make_jobs(submit=0.0, billed=[3.0, 1.0], **columns)
    alone = [(0.0, ARRIVED, 0), (0.0, ARRIVED, 1), (0.0, STARTED, 0), (4.0, ENDED, 0)]
    assert errors_after(TWO, jobs, alone, 4.0) == [4.0, -4.0]
    begun = [(0.0, kind, row) for kind in (ARRIVED, STARTED) for row in (0, 1)]
    both = [*begun, (4.0, ENDED, 0), (4.0, ENDED, 1)]
    assert errors_after(TWO, jobs, both, 4.0) == [0.0, 0.0]


def test_half_life() -> None:
    """An error of 8 that was made long ago is 4 after one half-life and 2 after two."""
    jobs = make_jobs(submit=0.0, association=np.array([0, 1], np.int32), size=[12, 12])
    begun = [(0.0, ARRIVED, 0), (0.0, ARRIVED, 1), (0.0, STARTED, 0)]
    ended = [(3.0, ENDED, 0), (3.0, EventKind.REJECTED, 1)]
    at_end, later, latest = (
        errors_after(TWO, jobs, begun + ended, 3.0 + wait, half_life=60.0)[0]
        for wait in (0.0, 60.0, 120.0)
    )
    assert at_end == pytest.approx(4 * 60 / np.log(2) * (1 - 2 ** (-3 / 60)))
    assert (later, latest) == (at_end / 2, at_end / 4)


def test_less_served_goes_first_account_before_user() -> None:
    """Terms fall with the error; the account's weight decides before the user's."""
    accounts = Accounts.build(
        5,
        name=["P", "Q", "ann", "bob", "cyd"],
        parent=[-1, -1, 0, 0, 1],
        is_user=[False, False, True, True, True],
    )
    jobs = make_jobs(submit=0.0, association=np.array([2, 3, 4, 2, -1], np.int32), size=16)
    chain, snapshot = chain_of(scale=16.0), make_snapshot(jobs, now=2.0, accounts=accounts)
    events = [(0.0, ARRIVED, row) for row in range(4)] + [(0.0, STARTED, 0)]
    snapshot, _ = observe(snapshot, chain, make_events(jobs, events))
    answer = chain.fair_share(jobs, snapshot).answers[0].value
    # ann got 32 node-seconds: P is 16 ahead of its half, ann another 16 ahead of hers
    assert answer.values["user"].tolist() == [0.25, 0.75, 0.5, 0.25, 0.5]
    assert answer.values["account"].tolist() == [0.25, 0.25, 0.75, 0.25, 0.5]
    assert answer.service_error.tolist() == [16.0, -16.0, 16.0, -16.0, 0.0]
    order = np.argsort(-chain.fair_share(jobs, snapshot).value, kind="stable")
    assert order.tolist() == [2, 4, 1, 0, 3]


@given(scenes())
@settings(max_examples=60, deadline=None)
def test_errors_of_siblings_add_up_to_nothing(scene: Any) -> None:
    """What is handed out is what is served: at each level the errors cancel out; alone it is 0."""
    accounts, events = scene.snapshot.accounts, scene.events
    if not (events.jobs.association >= 0).any():
        return
    _, states = observe(scene.snapshot, chain_of(), events)
    now = scene.snapshot.now
    error = np.array(
        [kernel.error_at(row, now, 0.0, states["ste"].kept) for row in range(len(accounts) + 1)]
    )[1:]
    seen = max(1.0, float(np.abs(error).max()))
    for parent in range(-1, len(accounts)):
        siblings = np.flatnonzero(accounts.parent == parent)
        assert abs(error[siblings].sum()) <= 1e-9 * seen
        if len(siblings) == 1:
            assert error[siblings[0]] == 0.0


shares = st.integers(1, 6).map(Fraction)
caps = st.integers(0, 8).map(Fraction)


@given(st.lists(st.tuples(shares, caps), min_size=1, max_size=6), st.integers(0, 30))
def test_ideal_rates_are_the_only_fair_ones(users: list[tuple[Any, Any]], capacity: int) -> None:
    """They use up what can be used, nobody has more than the cap, and who has less has the level.

    Exact on fractions; that fixes max-min fairness by shares, and so each rate.
    """
    share, cap = (np.array(values, object) for values in zip(*users, strict=True))
    rate = np.zeros(len(users), object)
    plain(fill)(Fraction(capacity), share, cap, rate)
    assert sum(rate) == min(capacity, sum(cap))
    assert all(0 <= r <= c for r, c in zip(rate, cap, strict=True))
    level = max(r / s for r, s in zip(rate, share, strict=True))
    assert all(r == c or r / s == level for r, s, c in zip(rate, share, cap, strict=True))
    floats = np.zeros(len(users))
    fill(float(capacity), share.astype(float), cap.astype(float), floats)
    assert floats == pytest.approx(rate.astype(float))


def test_several_servers_are_one_that_nobody_fills_alone() -> None:
    """Two elements, shares 6, 1, 1: min(1, 2 S / sum S), and the surplus to the others."""
    rate = np.zeros(3)
    fill(2.0, np.array([6.0, 1.0, 1.0]), np.ones(3), rate)
    assert rate.tolist() == [1.0, 0.5, 0.5]


def judge(jobs: Any, **others: Any) -> Any:
    """Return the verdicts on jobs by their ideal finish on 12 nodes."""
    chain = chain_of(admission="ideal-finish")
    snapshot = make_snapshot(cluster=make_cluster(12), accounts=TWO, **others)
    judgement = chain.admit(jobs, snapshot)
    assert not judgement.answers[0].error
    return judgement.verdicts


def test_ideal_finish_by_hand() -> None:
    """Ann's 16 running nodes against bob's new 12: he is entitled to 4 of 12, a third.

    So his hour takes three. The offer is accepted, a second less is not.
    """
    ann = make_jobs(1, id=np.array([7]), association=np.array([0], np.int32), size=16)
    running = {"running": ann, "nodes": [range(12)]}
    bob = {"id": np.array([1]), "association": np.array([1], np.int32), "size": 12, "submit": 0.0}
    for deadline, code in [(10800.0, Verdict.ADMIT), (10799.0, Verdict.REJECT)]:
        verdicts = judge(make_jobs(1, deadline=deadline, **bob), **running)
        assert verdicts.code.tolist() == [code]
        assert np.isinf(verdicts.promise).all()
    assert verdicts.offer.tolist() == [10800.0]
    text = "with its share of 4 of 12 nodes it would end 1 s after its deadline"
    assert verdicts.findings[0].reason.code == "ste.too-late"
    assert verdicts.findings[0].text(0) == text


def test_fewer_nodes_are_offered() -> None:
    """Of 12 asked 11 end a second sooner: 3600 s x 11 / 4; with one node more it is rejected."""
    ann = make_jobs(1, id=np.array([7]), association=np.array([0], np.int32), size=16)
    bob = {"id": np.array([1]), "association": np.array([1], np.int32), "submit": 0.0}
    found = judge(
        make_jobs(1, deadline=10799.0, size=12, **bob), running=ann, nodes=[range(12)]
    ).findings[1]
    assert found.reason.code == "ste.fewer-nodes"
    text = "the same deadline would be accepted with 11 nodes instead of 12 and the same run time"
    assert found.text(0) == text


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 16), min_size=2, max_size=2), st.integers(2, 12), st.integers(1, 99))
def test_no_more_nodes_would_do(held: list[int], size: int, hundreds: int) -> None:
    """What is offered is accepted, and nothing between that and what was asked is."""
    others = make_jobs(
        2, id=np.array([7, 8]), association=np.array([0, 1], np.int32), size=np.array(held)
    )

    def verdicts(nodes: int) -> Verdicts:
        job = {"id": np.array([1]), "association": np.array([1], np.int32), "submit": 0.0}
        jobs = make_jobs(1, deadline=100.0 * hundreds, size=nodes, **job)
        return judge(jobs, running=others, nodes=[range(6), range(6, 12)])

    asked = verdicts(size)
    if asked.code[0] == Verdict.REJECT:
        offers = [f for f in asked.findings if f.reason.code == "ste.fewer-nodes"]
        most = int(offers[0].numbers["nodes"][0]) if offers else 0
        codes = [int(verdicts(nodes).code[0]) for nodes in range(1, size)]
        assert codes == [
            int(Verdict.ADMIT if nodes <= most else Verdict.REJECT) for nodes in range(1, size)
        ]


def test_jobs_of_one_batch_count_each_other() -> None:
    """The second of two like jobs of one user halves what both get; without limit it never ends."""
    columns = {"association": np.array([1, 1, 1, -1], np.int32), "size": 12, "submit": 0.0}
    jobs = make_jobs(deadline=[3600.0, 3600.0, 7200.0, 1.0], **columns)
    assert judge(jobs).code.tolist() == [Verdict.ADMIT, Verdict.REJECT, Verdict.ADMIT, 0]
    endless = make_jobs(1, deadline=9.0, wall_time=np.inf, association=np.array([0], np.int32))
    verdicts = judge(endless)
    assert verdicts.findings[0].reason.code == "ste.endless"
    assert np.isinf(verdicts.offer[0])


def test_without_admission_it_is_not_asked() -> None:
    """A replay does not stop at arrivals for a policy that only orders the queue."""
    assert chain_of().asks("admit") == ()
    assert chain_of(admission="ideal-finish").asks("admit") == ("ste",)


def test_a_share_of_zero_is_refused() -> None:
    """It is the plug-in's error, with the account's name, instead of a division by 0."""
    jobs = make_jobs(association=np.array([0, 1], np.int32))
    none = TWO.replace(shares=[0.0, 1.0])
    answer = chain_of().fair_share(jobs, make_snapshot(jobs, accounts=none)).answers[0]
    assert answer.error == "the share of 'ann' is not above 0"


def test_suspended_jobs_are_entitled_but_not_served() -> None:
    """A job that stands still has a share of what serves the others."""
    jobs = make_jobs(submit=0.0, association=np.array([0, 1], np.int32), size=4)
    rows = np.array([0, 1, 0, 0, 1, 1])
    kinds = [ARRIVED, ARRIVED, STARTED, EventKind.SUSPENDED, STARTED, EventKind.SUSPENDED]
    times = [0.0, 0.0, 0.0, 3.0, 3.0, 6.0]
    table = EventRows.build(6, time=times, kind=np.array(kinds, np.int8), size=np.int32(4))
    events = Events(table, jobs.take(rows))
    _, states = observe(make_snapshot(jobs, now=9.0, accounts=TWO), chain_of(), events)
    # 6 s of 4 nodes, 12 each, where 2/3 were due to ann
    assert states["ste"].kept[kernel.ERROR, 1:].tolist() == [-4.0, 4.0]

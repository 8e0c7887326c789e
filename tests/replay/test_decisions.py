"""Findings are kept once, with how often and when they were made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.core.chain import Answer, Judgement
from rtsched.model.verdicts import Finding, Reason, Verdict, Verdicts
from rtsched.replay.decisions import Decisions

if TYPE_CHECKING:
    from rtsched.core.config import Mode

BUSY = Reason("test.busy", "{free} nodes are free")
CLOSED = Reason("test.closed", "the site is closed")


def judgement(
    code: Any, *findings: Finding, plugin: str = "p", mode: Mode = "enforce", **more: Any
) -> Judgement:
    """Return what one plug-in said."""
    verdicts = Verdicts.build(code, findings=findings, **more)
    return Judgement(verdicts, (Answer(plugin, mode, verdicts),))


def busy(code: Any, free: Any, **more: Any) -> Judgement:
    """Return a finding with a number on all jobs."""
    return judgement(code, Finding.where(np.ones(len(code), np.bool_), BUSY, free=free), **more)


def rows(*of: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return rows of the workload."""
    return np.array(of, np.int64)


def test_equal_findings_of_a_job_are_counted() -> None:
    """A deferral at every instant is one record per job, with its first and last time."""
    decisions = Decisions()
    for now in range(1000):
        decisions.add(busy([Verdict.DEFER] * 3, [1, 2, np.nan]), rows(4, 0, 2), float(now))
    assert len(decisions) == 3
    kept = list(decisions)
    assert [record["job"] for record in kept] == [4, 0, 2]
    assert kept[0] == {
        "job": 4,
        "plugin": "p",
        "mode": "enforce",
        "verdict": "defer",
        "reason": "test.busy",
        "text": "1 nodes are free",
        "numbers": {"free": 1.0},
        "offer_s": None,
        "times": 1000,
        "first_s": 0.0,
        "last_s": 999.0,
    }


def test_what_differs_is_kept_apart() -> None:
    """Other numbers, verdicts, offers, modes, plug-ins or reasons are records of their own."""
    decisions = Decisions()
    said = [
        busy([Verdict.DEFER], 1),
        busy([Verdict.DEFER], 2),
        busy([Verdict.DEFER], 2, offer=9.0),
        busy([Verdict.REJECT], 2, offer=9.0),
        busy([Verdict.REJECT], 2, offer=9.0, plugin="q"),
        busy([Verdict.REJECT], 2, offer=9.0, plugin="q", mode="shadow"),
        judgement([Verdict.REJECT], Finding.where(np.array([True]), CLOSED)),
    ]
    for now, one in enumerate(said):
        for _ in range(2):
            decisions.add(one, rows(0), float(now))
    kept = list(decisions)
    assert [record["times"] for record in kept] == [2] * len(said)
    assert [record["first_s"] for record in kept] == [*range(len(said))]
    assert [record["offer_s"] for record in kept] == [None, None, 9.0, 9.0, 9.0, 9.0, None]


def test_a_finding_before_the_run_has_no_time() -> None:
    """What was known before the run holds for good."""
    decisions = Decisions()
    decisions.add(busy([Verdict.REJECT], 1), rows(0))
    (record,) = decisions
    assert (record["times"], record["first_s"], record["last_s"]) == (1, None, None)


def test_the_reason_is_that_of_the_first_rejection_else_deferral() -> None:
    """Shadows decide nothing, and a rejection counts before an earlier deferral."""
    decisions = Decisions()
    closed = Finding.where(np.array([True, True]), CLOSED)
    decisions.add(judgement([Verdict.REJECT] * 2, closed, mode="shadow"), rows(0, 3))
    decisions.add(busy([Verdict.DEFER] * 3, 0), rows(0, 1, 2))
    decisions.add(judgement([Verdict.REJECT, Verdict.DEFER], closed), rows(1, 2))
    codes, names = decisions.reasons(4)
    assert [names[code] if code >= 0 else None for code in codes] == [
        "test.busy", "test.closed", "test.busy", None,
    ]  # fmt: skip
    assert Decisions().reasons(2)[0].tolist() == [-1, -1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([BUSY, CLOSED]),
            st.lists(
                st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(2, 3)), max_size=4
            ),
        ),
        max_size=12,
    )
)
def test_counts_agree_with_a_plain_loop(
    said: list[tuple[Reason, list[tuple[int, int, int]]]],
) -> None:
    """On any sequence the records are those that folding one by one gives."""
    decisions = Decisions()
    expected: list[list[Any]] = []
    latest: dict[tuple[str, int], list[Any]] = {}
    for now, (reason, batch) in enumerate(said):
        of = list({row: entry for entry in batch if (row := entry[0]) >= 0}.values())
        number = np.array([free for _, free, _ in of], float)
        numbers = {"free": number} if reason is BUSY else {}
        finding = Finding(reason, np.arange(len(of)), numbers)
        code = np.array([verdict for _, _, verdict in of], np.int8)
        decisions.add(judgement(code, finding), rows(*(row for row, _, _ in of)), float(now))
        for row, free, verdict in of:
            what = (row, reason.code, verdict, free if reason is BUSY else None)
            last = latest.get((reason.code, row))
            if last is not None and last[0] == what:
                last[1], last[3] = last[1] + 1, now
            else:
                latest[reason.code, row] = [what, 1, now, now]
                expected.append(latest[reason.code, row])
    found = [
        [
            (
                record["job"],
                record["reason"],
                Verdict[str(record["verdict"]).upper()],
                record["numbers"].get("free"),  # type: ignore[attr-defined]
            ),
            record["times"],
            record["first_s"],
            record["last_s"],
        ]
        for record in decisions
    ]
    assert found == expected

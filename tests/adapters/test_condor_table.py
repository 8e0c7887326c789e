"""What is kept of slots for planned starts, and the file that says so."""

from __future__ import annotations

import math
import stat
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor.pool_state import Slots
from rtsched.adapters.condor.table import (
    WORST,
    SlotTable,
    delays_of,
    kept_of,
    lacking_of,
    slots_in,
)
from rtsched.adapters.files import replace_file
from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.model.schedule import Schedule

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000.0
STATIC = Slots.build(2, name=["slot1@a", "slot1@b"], cpus=np.array([1, 4], np.int32))
PARTED = Slots.build(3, name=["slot1@a"] * 3, cpus=np.array([2, 2, 2], np.int32))


def plan_of(*entries: tuple[int, float, list[int]]) -> Schedule:
    """Return a plan of (job, start after now, rows), all of 60 s."""
    sizes = [len(rows) for _, _, rows in entries]
    start = np.array([NOW + start for _, start, _ in entries])
    return Schedule.build(
        np.array([job for job, _, _ in entries], np.int64),
        start,
        start + 60.0,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array([row for _, _, rows in entries for row in rows], np.int32),
    )


def kept(
    plan: Schedule,
    slots: Slots,
    lead: float = 0.0,
    horizon: float = 1e6,
    bound: tuple[int, ...] = (),
    fixed: float = np.inf,
) -> dict[str, Any]:
    """Return what is kept, in seconds after now."""
    rows = np.array(bound, np.int32)
    needed = np.full(len(slots), NOW + fixed)
    found = kept_of(plan, slots, rows, needed, lead=lead, horizon=NOW + horizon)
    return {name: [(at - NOW, cpus) for at, cpus in steps] for name, steps in found.items()}


def test_a_static_slot_is_kept_from_its_first_start_on() -> None:
    """Later starts on it need no protection of their own."""
    plan = plan_of((7, 100, [0, 1]), (8, 50, [0]), (FIRST_OWN_ID, 200, [1]))
    assert kept(plan, STATIC) == {"slot1@a": [(50, 1)], "slot1@b": [(100, 4)]}


def test_a_start_is_published_earlier_by_the_margin() -> None:
    """A best-effort job that ends by its stated run time may still be there a margin later."""
    assert kept(plan_of((7, 100.5, [0])), STATIC, lead=20) == {"slot1@a": [(80, 1)]}


def test_recurring_work_keeps_slots_as_planned_starts_do() -> None:
    """What comes first on a row counts; nobody plans into an occurrence."""
    plan = plan_of((7, 100, [0]))
    assert kept(plan, STATIC, fixed=80, lead=10) == {"slot1@a": [(70, 1)], "slot1@b": [(70, 4)]}


def test_a_partitionable_slot_keeps_more_with_every_start() -> None:
    """What ends after the second start must leave the CPUs of both."""
    plan = plan_of((7, 100, [0]), (8, 50, [2]), (9, 100, [1]))
    assert kept(plan, PARTED) == {"slot1@a": [(50, 2), (100, 6)]}


def test_slots_of_jobs_that_are_about_to_start_are_kept_at_once() -> None:
    """Nobody else may start there meanwhile, for however short a time."""
    plan = plan_of((7, 100, [0]), (8, 50, [2]))
    assert kept(plan, PARTED, lead=20, bound=(1,)) == {"slot1@a": [(-NOW, 2), (30, 4), (80, 6)]}


def test_starts_beyond_the_horizon_keep_nothing() -> None:
    """The site says how far ahead slots are kept."""
    assert kept(plan_of((7, 100, [0])), STATIC, horizon=99) == {}
    assert kept(plan_of(), STATIC) == {}


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.lists(st.integers(0, 7), min_size=1, unique=True)),
        max_size=8,
    ),
    st.lists(st.integers(0, 2), min_size=8, max_size=8),
    st.integers(0, 400),
)
def test_kept_as_counted_by_hand(
    entries: list[tuple[int, list[int]]], owner: list[int], end: int
) -> None:
    """A job that ends at some moment leaves the CPUs of all rows with an earlier start."""
    plan = plan_of(*((at + 1, start, rows) for at, (start, rows) in enumerate(entries)))
    cpus = np.arange(1, 9, dtype=np.int32)
    slots = Slots.build(8, name=[f"slot{at}" for at in owner], cpus=cpus)
    found = kept(plan, slots)
    for slot in set(owner):
        due = [
            int(cpus[row])
            for row in range(8)
            if owner[row] == slot
            and min((start for start, rows in entries if row in rows), default=end) < end
        ]
        steps = found.get(f"slot{slot}", [])
        assert [c for _, c in steps] == sorted(c for _, c in steps)
        assert [at for at, _ in steps] == sorted({at for at, _ in steps})
        assert max((c for at, c in steps if at < end), default=0) == sum(due)


def test_delays_are_those_of_the_best_row() -> None:
    """A slot without a row to use has the worst factor that can be written."""
    slots = Slots.build(4, name=["s1", "s1", "s2", "s3"])
    found = delays_of(slots, np.array([2.0, 1.5, np.inf, np.nan]))
    assert found == {"s1": 1.5, "s2": WORST, "s3": WORST}


def test_the_text_of_the_table() -> None:
    """One line of the table's own, then one per slot."""
    table = SlotTable({"s1": ((100, 2), (200, 4))}, {"s1": 1.0, "s2": 2.5})
    assert table.text(50.4, 900.0).split("\n") == [
        "rtsched-slots 1 50 900",
        "s1\t1\t100:2,200:4",
        "s2\t2.5\t-",
        "",
    ]


def test_dynamic_slots_that_are_used_again() -> None:
    """They may be until the first step for which there is not enough left; read as no slots."""
    kept = {"s1@a": ((100, 2, 10), (200, 4, 10)), "s2@a": ((100, 1, 1),), "s3": ((50, 1, 1),)}
    lacking = lacking_of(kept, {"s1@a": (3.0, 20.0), "s2@a": (1.0, 1.0), "s3": (1.0, 0.0)})
    assert lacking == {"s1@a": 200.0, "s2@a": math.inf, "s3": 50.0}
    lines = SlotTable({}, {"s1@a": 1.0}, lacking).text(50.0, 900.0).split("\n")
    assert lines[2:] == ["s1_@a\t1\t200:1", "s2_@a\t1\t-", "s3_\t1\t50:1", ""]


def test_slots_of_a_table(tmp_path: Path) -> None:
    """Those that it names, each once."""
    path = tmp_path / "slots"
    table = SlotTable({"s1@a": ((1, 1),)}, {"s1@a": 1.0, "s2@a": 1.0}, {"s1@a": math.inf})
    path.write_text(table.text(5.0, 9.0))
    assert slots_in(str(path)) == {"s1@a", "s2@a"}


def test_the_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Readable for whom it is meant; nothing else is left in the directory."""
    path = tmp_path / "slots"
    for text in ("one", "two"):
        replace_file(path, text, 0o644)
        assert path.read_text() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is told, and no part of a new file stays behind."""
    path = tmp_path / "slots"
    replace_file(path, "one")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fchmod", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "two")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["one"]


def test_a_missing_directory_is_told(tmp_path: Path) -> None:
    """Nobody makes it on the way: it belongs to the installation."""
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "none" / "slots", "one")

"""From the ads of slots to rows of a cluster, who occupies them, and what is kept of them."""

import math
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from condor_views import plan_of
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor.pool_state import Slots
from rtsched.adapters.condor.requirements import Size
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.slots import (
    FORGET_S,
    Occupant,
    PoolLayout,
    Slot,
    SlotAssignment,
    SlotInventory,
    claims_of,
    layout_of,
    parent_of,
    row_names,
    slots_of,
)
from rtsched.adapters.condor.table import WORST, SlotTable, delays_of, kept_of, lacking_of, slots_in
from rtsched.adapters.files import replace_file
from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.logs.classads import Record
from rtsched.model.cluster import NodeState
from rtsched.model.schedule import Schedule

MB = 1 << 20
NOW = 1_800_000_000.0
PARENT = {"cpus": 8, "memory": 4000, "totalslotcpus": 8, "totalslotmemory": 4000}


def static(name: str = "slot1@a", **said: Any) -> Record:
    """Return the ad of a static slot that nobody has."""
    plain = {"name": name, "machine": name.partition("@")[2], "cpus": 1, "memory": 512}
    return {**plain, "state": "Unclaimed", "activity": "Idle", "slottype": "Static", **said}


def partitionable(name: str = "slot1@a", **said: Any) -> Record:
    """Return the ad of a partitionable slot of 8 CPUs and 4000 MB."""
    return static(name, slottype="Partitionable", partitionableslot=True, **(PARENT | said))


def dynamic(name: str = "slot1_1@a", **said: Any) -> Record:
    """Return the ad of a dynamic slot that a schedd `here` has."""
    plain = {"slottype": "Dynamic", "dynamicslot": True, "state": "Claimed", "activity": "Busy"}
    return static(name, **(plain | {"remotescheddname": "here"} | said))


def slots(*ads: Record, **settings: Any) -> list[Slot]:
    """Return the slots of ads."""
    return slots_of(ads, CondorSettings(**settings))[0]


def machine(*ads: Record, **settings: Any) -> PoolLayout:
    """Return the machine of ads, in the order of a first poll."""
    return layout_of(SlotInventory().update(slots(*ads, **settings), NOW, forgetful=False))


def test_a_static_slot_is_one_row_of_its_name() -> None:
    """Rows are in the natural order of machines and slots, whatever the collector's order."""
    names = ["slot10@b", "slot2@b", "slot1@n10", "slot1@n9"]
    rows = machine(*map(static, names))
    nodes = rows.nodes
    assert nodes.texts("name") == ["slot2@b", "slot10@b", "slot1@n9", "slot1@n10"]
    assert nodes.texts("host") == rows.slots.texts("machine") == ["b", "b", "n9", "n10"]
    assert set(nodes.cores) == {1}
    assert set(nodes.memory) == {512 * MB}
    assert rows.first == {name: row for row, name in enumerate(nodes.names("name"))}


def test_a_partitionable_slot_is_as_many_rows_as_it_has_units() -> None:
    """What does not fill a unit is left over; memory is divided in whole steps of 128 MB."""
    rows = machine(partitionable(cpus=1, memory=100), static("slot2@a"), unit_cpus=3)
    assert rows.nodes.texts("name") == ["slot1@a#0", "slot1@a#1", "slot2@a"]
    assert rows.slots.texts("name") == ["slot1@a", "slot1@a", "slot2@a"]
    assert rows.nodes.cores.tolist() == rows.slots.cpus.tolist() == [3, 3, 1]
    assert rows.nodes.memory.tolist() == [1920 * MB, 1920 * MB, 512 * MB]
    assert rows.first == {"slot1@a": 0, "slot2@a": 2}
    assert slots_of([partitionable()], CondorSettings(unit_cpus=9)) == ([], 1)


def test_dynamic_and_backfill_slots_have_no_rows() -> None:
    """Their CPUs are those of other slots."""
    ads = [partitionable(), dynamic(), static("slot9@a", backfillslot=True), {"machine": "a"}]
    assert [slot.name for slot in slots(*ads)] == ["slot1@a"]


def test_classes_make_partitions() -> None:
    """A slot's RtClass and its sizes say in which partitions it is."""
    rows = machine(static("slot1@a", rtclass="fast"), static("slot2@a", cpus=2))
    assert rows.masks[rows.parts.of("fast", 1, 0)].tolist() == [True, False]
    assert rows.masks[rows.parts.of("", 1, 0)].tolist() == [True, True]
    assert rows.masks[rows.parts.of("", 2, 0)].tolist() == [False, True]


def test_a_speed_goes_by_name_machine_class_and_attribute() -> None:
    """The first of them that says a speed counts; nonsense is 1."""
    speeds = {"slot1@a": 5.0, "b": 4.0, "fast": 3.0}
    ads = [
        static("slot1@a", rtclass="fast", rtspeed=2.0),
        static("slot1@b", rtclass="fast"),
        static("slot1@c", rtclass="fast"),
        static("slot1@d", rtspeed=2),
        static("slot1@e", rtspeed=-1.0),
        static("slot1@f", rtspeed="quick"),
    ]
    made = machine(*ads, speeds=speeds)
    assert made.nodes.speed.tolist() == [5.0, 4.0, 3.0, 2.0, 1.0, 1.0]
    assert made.cluster(np.empty(0, np.int64), 1).pace.tolist() == [1.0] * 6, "by the clock"


def test_who_takes_no_jobs_is_drained() -> None:
    """Owner is what HTCondor calls a slot whose START is false for every job."""
    away = [
        static(state="Owner"),
        static(state="Drained"),
        static(state="Claimed", activity="Retiring"),
        static(offline=True),
        static(slotbrokenreason="a disk died"),
    ]
    assert {slot.state for slot in slots(*away)} == {NodeState.DRAINED}
    up = [static(state=state) for state in ("Unclaimed", "Claimed", "Matched", "Preempting")]
    assert {slot.state for slot in slots(*up)} == {NodeState.UP}


def test_a_slot_that_is_gone_is_down_and_then_forgotten() -> None:
    """A machine that comes back finds its row in place."""
    inventory = SlotInventory()
    both, one = slots(static("slot1@a"), static("slot1@b")), slots(static("slot1@b"))
    states = [
        [(slot.name, slot.state) for slot in inventory.update(shown, NOW + at, forgetful=False)]
        for shown, at in ((both, 0), (one, 10), (both, 20), (one, 20 + FORGET_S), (one, 2000))
    ]
    up = [("slot1@a", NodeState.UP), ("slot1@b", NodeState.UP)]
    down = [("slot1@a", NodeState.DOWN), up[1]]
    assert states == [up, down, up, down, up[1:]]


def test_a_slot_that_was_lost_a_moment_ago() -> None:
    """It may come back at once; one that stays away, or never took jobs, is nothing new."""
    inventory = SlotInventory()
    both = slots(static("slot1@a"), static("slot1@b", offline=True))
    inventory.update(both, NOW, forgetful=False)
    assert inventory.flapping(NOW) == []
    for later, names in ((1.0, ["slot1@a"]), (50.0, ["slot1@a"]), (62.0, [])):
        inventory.update([], NOW + later, forgetful=False)
        assert inventory.flapping(NOW + later) == names
    inventory.update(both, NOW + 70.0, forgetful=False)
    inventory.update(slots(static("slot1@a", state="Owner")), NOW + 80.0, forgetful=False)
    assert inventory.flapping(NOW + 80.0) == ["slot1@a"]


def test_a_slot_that_is_drained_resumes_soon_or_not() -> None:
    """Somebody decided that: it is not waited for as long as for one that is lost."""
    inventory = SlotInventory()
    inventory.update(slots(static(), static(name="slot2@a")), NOW, forgetful=False)
    gone = (static(state="Drained"), static(name="slot2@a", state="Owner"))
    inventory.update(slots(*gone), NOW + 5, forgetful=False)
    assert inventory.flapping(NOW + 6) == ["slot1@a", "slot2@a"]
    assert inventory.flapping(NOW + 26) == ["slot2@a"]


def test_a_collector_that_has_just_started_makes_nothing_down() -> None:
    """It has not heard of all slots yet; they stay as they were."""
    inventory = SlotInventory()
    both = inventory.update(
        slots(static("slot1@a"), static("slot2@a", offline=True)), 0.0, forgetful=False
    )
    assert inventory.update([], 100.0, forgetful=True) == both
    assert inventory.update([], 100.0 + FORGET_S, forgetful=True) == both
    gone = inventory.update([], 110.0 + FORGET_S, forgetful=False)
    assert {slot.state for slot in gone} == {NodeState.DOWN}


def test_claims_say_who_has_what() -> None:
    """Dynamic slots count for their parents; what nobody has is no claim."""
    ads = [
        partitionable(state="Claimed"),
        dynamic("slot1_12@a", cpus=2, memory=100),
        static("slot2@a", state="Preempting", globaljobid="there#12.0#5"),
        static("slot3@a"),
        static("slot4@a", state="Claimed"),
    ]
    found = [(claim.name, claim.slot, claim.size.cpus, claim.schedd) for claim in claims_of(ads)]
    assert found == [
        ("slot1_12@a", "slot1@a", 2, "here"),
        ("slot2@a", "slot2@a", 1, "there"),
        ("slot4@a", "slot4@a", 1, ""),
    ]


def test_names_of_parents() -> None:
    """Names that a site gives its startds and its kinds of slots stay."""
    assert parent_of("slot1_2@host_3.org") == "slot1@host_3.org"
    assert parent_of("big1_10@x@host") == "big1@x@host"
    assert parent_of("slot1@host") == "slot1@host"


def test_rows_of_others_are_drained() -> None:
    """The machine's own states stay; a row that is down is not made better."""
    rows = machine(static("slot1@a"), static("slot2@a", state="Owner"), static("slot3@a"))
    cluster = rows.cluster(np.array([0]), 7)
    assert cluster.nodes.state.tolist() == [NodeState.DRAINED, NodeState.DRAINED, NodeState.UP]
    assert rows.nodes.state.tolist() == [NodeState.UP, NodeState.DRAINED, NodeState.UP]
    assert cluster.version == 7


ROWS = {"p": Slot("p", "a", cpus=2, memory=1000, units=4), "s": Slot("s", "a")}


def assigned(assignment: SlotAssignment, *occupants: Occupant) -> list[tuple[int, ...]]:
    """Return the rows that occupants get."""
    taken = assignment.taken(occupants, ROWS)
    return [taken[occupant.key][1] for occupant in occupants]


def occupant(number: int, cpus: int = 2, memory: int = -1, *, first: bool = False) -> Occupant:
    """Return somebody on the partitionable slot."""
    return Occupant((number, ""), "p", Size(cpus, memory, 0, 0), first)


def test_jobs_keep_their_rows() -> None:
    """Whoever comes, goes or grows beside them; promised jobs come first, others last."""
    assignment = SlotAssignment()
    assert assigned(assignment, occupant(1), occupant(2, first=True)) == [(3,), (0,)]
    assert assigned(assignment, occupant(3, 4), occupant(2, 6, first=True), occupant(1)) == [
        (1, 2),
        (0,),
        (3,),
    ]
    assert assigned(assignment, occupant(4, 4, first=True), occupant(1)) == [(0, 1), (3,)]


def test_small_jobs_share_a_row() -> None:
    """One of 1 CPU leaves room for another on a row of 2, but not for a third."""
    assignment = SlotAssignment()
    assert assigned(assignment, occupant(1, 1), occupant(2, 1), occupant(3, 1)) == [
        (3,),
        (3,),
        (2,),
    ]
    assert assigned(assignment, occupant(2, 1), occupant(4, 1), occupant(5, 2)) == [
        (3,),
        (3,),
        (2,),
    ]


def test_memory_takes_rows_too() -> None:
    """A job of 1 CPU and the memory of two rows leaves only two others."""
    assert assigned(SlotAssignment(), occupant(1, 1, 2000), occupant(2, 4)) == [(2, 3), (0, 1)]


def test_static_and_unknown_slots() -> None:
    """A static slot is one row for whomever; occupants of slots that are not known have none."""
    taken = SlotAssignment().taken(
        [
            Occupant((1, ""), "s", Size(5, -1, 0, 0)),
            Occupant((2, ""), "gone", Size(1, -1, 0, 0)),
        ],
        ROWS,
    )
    assert taken == {(1, ""): ("s", (0,))}


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20), st.integers(-1, 9000))),
        max_size=5,
    )
)
def test_any_crowd_finds_rows(polls: Sequence[Sequence[tuple[int, int, int]]]) -> None:
    """Everybody has at least one row, all of them exist, and nobody moves from poll to poll."""
    assignment = SlotAssignment()
    before: dict[int, tuple[int, ...]] = {}
    for poll in polls:
        people = {number: occupant(number, cpus, memory) for number, cpus, memory in poll}
        rows = dict(zip(people, assigned(assignment, *people.values()), strict=True))
        for number, some in rows.items():
            assert some
            assert set(some) <= set(range(4))
            assert before.get(number, some) == some
        before = rows


ATTRIBUTES = (
    *("name", "machine", "cpus", "memory", "totalslotcpus", "totalslotmemory", "state"),
    *("partitionableslot", "dynamicslot", "rtspeed", "rtclass", "offline"),
)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(ATTRIBUTES),
            st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
        )
    )
)
def test_no_ad_breaks_the_reading(ads: list[Record]) -> None:
    """Whatever a startd advertises, the rest is read."""
    found = SlotInventory().update(slots(*ads), NOW, forgetful=False)
    claims_of(ads)
    assert len(row_names(Slot("x", "y", units=3))) == 3
    if sum(slot.rows for slot in found) < 1000:
        layout_of(found)


STATIC = Slots.build(2, name=["slot1@a", "slot1@b"], cpus=np.array([1, 4], np.int32))
PARTED = Slots.build(3, name=["slot1@a"] * 3, cpus=np.array([2, 2, 2], np.int32))


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

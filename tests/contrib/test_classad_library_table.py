"""The ClassAd library's table of slots: delay factors, and processors kept for promised starts."""

import os
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from classad_workshop import Library, Workshop
from filter_sources import ADDRESSES, THREADS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DELAY = 'eval rtschedDelay("slot1@a")'
KEPT = 'eval rtschedKept("slot1@a", 5000)'
MISSING = [1.0, 0.0]
GOOD = "slot1@a\t2\t1000:1\n"


def head(age: float = 0, valid: int = 300) -> str:
    """Return the first line of a table written `age` seconds ago."""
    return f"rtsched-slots 1 {int(time.time() - age)} {valid}\n"


def write(library: Library, text: str) -> None:
    """Replace the table as the daemon does."""
    fresh = library.table.with_name("fresh")
    fresh.write_text(text)
    fresh.rename(library.table)


def found(library: Library, *commands: str) -> list[float]:
    """Return what the functions say about slot1@a, or what other commands print."""
    return [float(line) for line in library.run(*(commands or (DELAY, KEPT)))]


def test_slots_are_looked_up(library: Library) -> None:
    """A slot has the delay factor and the steps of its line; others have the defaults."""
    write(library, head() + "slot1@a\t2.5\t1000:1,4999:3,5000:4\nslot2@a\t1e-3\t-\n")
    delays = [f'eval rtschedDelay("{slot}"{more})' for slot in "ab" for more in ("", ", 7")]
    asked = [line.replace('"a"', '"slot1@a"') for line in delays]
    assert found(library, *asked) == [2.5, 2.5, 1.0, 7.0]
    assert found(library, DELAY.replace("1@", "2@"), KEPT.replace("1@", "2@")) == [0.001, 0.0]


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        ("1000", 0),
        ("1000.5", 1),
        ("1001", 1),
        ("5000", 3),
        ("5001", 4),
        ("-5", 0),
        ("1e300", 4),
        ("undefined", 4),
        ("error", 4),
        ('"soon"', 4),
        ("time() + undefined", 4),
    ],
)
def test_what_is_kept_is_of_the_last_step_before_the_end(
    library: Library, end: str, kept: int
) -> None:
    """A start at the very end does not count, and without an end all starts do."""
    write(library, head() + "slot1@a\t1\t1000:1,4999:3,5000:4\n")
    assert found(library, f'eval rtschedKept("slot1@a", {end})') == [kept]


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        (1000, [0, 0, 0, 0]),
        (1001, [1, 2048, 0, 7]),
        (5000, [1, 2048, 0, 7]),
        (5001, [3, 4096, 2, 1 << 40]),
    ],
)
def test_memory_gpus_and_disk_are_kept_too(library: Library, end: int, kept: list[int]) -> None:
    """Where a step names them, each is that of the last step before the end."""
    write(library, head() + "slot1@a\t1\t1000:1:2048:0:7,5000:3:4096:2:1099511627776\n")
    names = ("CPUs", "memory", "GPUs", "Disk")
    asked = (f'eval rtschedKept("slot1@a", {end}, "{name}")' for name in names)
    assert found(library, *asked) == kept


def test_a_step_may_name_processors_only(library: Library) -> None:
    """Nothing is known of memory and GPUs then; before it, nothing of them is kept."""
    write(library, head() + "slot1@a\t1\t1000:1,2000:1:512:0\n")
    asked = [f'eval rtschedKept("slot1@a", {end}, "memory")' for end in (1000, 1500, 2500)]
    assert library.run(*asked) == ["0", "undefined", "512"]


def test_a_table_of_an_earlier_release_names_no_disk(library: Library) -> None:
    """Nothing is known of it then, and all else counts; a step that names it may follow."""
    write(library, head() + "slot1@a\t1\t1000:1:512:0,2000:2:512:0,3000:2:512:0:9\n")
    asked = [f'eval rtschedKept("slot1@a", {end}, "disk")' for end in (1000, 2500, 3500)]
    assert library.run(*asked) == ["0", "undefined", "9"]
    assert library.run('eval rtschedKept("slot1@a", 2500, "memory")') == ["512"]


@pytest.mark.parametrize("more", ['"licences"', "1", "undefined", '"cpus", 1'])
def test_what_is_no_resource_is_an_error(library: Library, more: str) -> None:
    """START then takes the slot for one of which nothing is known."""
    write(library, head() + GOOD)
    assert library.run(f'eval rtschedKept("slot1@a", 5000, {more})') == ["error"]


@pytest.mark.parametrize("slot", ["undefined", "error", "5", '"slot9@a"', '""', '"SLOT1@A"'])
def test_a_slot_that_is_not_known_has_the_defaults(library: Library, slot: str) -> None:
    """What is no name of a slot in the table is neither delayed nor kept."""
    write(library, head() + GOOD)
    asked = (f"eval rtschedDelay({slot})", f"eval rtschedKept({slot}, 5000)")
    assert found(library, *asked) == MISSING


@pytest.mark.parametrize("age", [400, -400])
def test_a_table_of_another_time_is_none(library: Library, age: float) -> None:
    """A table that is older than it holds is void, as is one that was written in the future."""
    write(library, head(age) + GOOD)
    assert found(library) == MISSING
    assert "slots: " not in library.log


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "rtsched-slots 1 5\n" + GOOD,
        "rtsched-slots 2 HEAD" + GOOD,
        "HEAD" + GOOD.strip(),
        "HEAD" + GOOD + "\n",
        "HEAD" + GOOD + GOOD,
        "HEADslot1@a\t2\n",
        "HEADslot1@a 2 1000:1\n",
        "HEADslot1@a\tnan\t1000:1\n",
        "HEADslot1@a\tinf\t1000:1\n",
        "HEADslot1@a\t2s\t1000:1\n",
        "HEADslot1@a\t2\t1000\n",
        "HEADslot1@a\t2\t1000:-1\n",
        "HEADslot1@a\t2\t1000:2,2000:1\n",
        "HEADslot1@a\t2\t2000:1,1000:2\n",
        "HEADslot1@a\t2\t1000:1;\n",
        "HEADslot1@a\t2\t1000:1:2\n",
        "HEADslot1@a\t2\t1000:1:2:3:4:5\n",
        "HEADslot1@a\t2\t1000:1:2:3:-4\n",
        "HEADslot1@a\t2\t1000:1:2:3:4,2000:1:2:3:3\n",
        "HEADslot1@a\t2\t1000:1:2:3:4,2000:1:2:3\n",
        "HEADslot1@a\t2\t1000:1:-2:3\n",
        "HEADslot1@a\t2\t1000:1:2:\n",
        "HEADslot1@a\t2\t1000:1:2:3,2000:1:1:3\n",
        "HEADslot1@a\t2\t1000:1:2:3,2000:1:2:2\n",
        "HEADslot1@a\t2\t1000:1:2:3,2000:4\n",
        "HEAD\t2\t1000:1\n",
    ],
)
def test_a_malformed_table_is_none(library: Library, text: str) -> None:
    """One bad line makes the whole table void, and the log says so."""
    write(library, text.replace("HEAD", head()))
    assert found(library) == MISSING
    assert f"{library.place}/slots: " in library.log


def test_the_log_names_the_line(library: Library) -> None:
    """An admin reads which line of which file is wrong, once for a file."""
    write(library, head() + "a\t1\t-\nb\t1\n")
    library.run(DELAY, "sleep 1100", DELAY, "sleep 1100", DELAY)
    said = "slots: line 3 is malformed, or names a slot again; no slot is reserved"
    assert library.log.count(said) == 1


def test_a_table_that_is_not_there_is_no_error(library: Library) -> None:
    """Execute machines have none, and nothing is logged."""
    assert found(library) == MISSING
    assert "slots" not in library.log


def test_only_the_daemons_table_is_taken(library: Library) -> None:
    """A file of another user than daemon_user or root is none."""
    write(library, head() + GOOD)
    os.chown(library.table, 4711, 4711)
    assert found(library) == [2, 1]
    os.chown(library.table, 4712, 4711)
    assert found(library) == MISSING
    assert "it belongs neither to daemon_user nor to root" in library.log


def test_what_is_no_file_is_not_waited_for(library: Library) -> None:
    """A pipe or a directory in the table's place holds nobody up."""
    os.mkfifo(library.table)
    assert found(library) == MISSING
    library.table.unlink()
    library.table.mkdir()
    assert found(library) == MISSING
    assert "it is not a regular file" in library.log


def changing(library: Library, *texts: str | None) -> list[list[float]]:
    """Return what one process finds after each change of the table."""
    rows = []
    with library.workshop.popen(
        [library.program],
        stdin=-1,
        env={"RTSCHED_SUBMIT_CONF": f"{library.place}/submit.conf"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in texts:
            if text is None:
                library.table.unlink()
            else:
                write(library, text)
            process.stdin.write(f"sleep 1100\n{DELAY}\n{KEPT}\n")
            process.stdin.flush()
            rows.append([float(process.stdout.readline()) for _ in range(2)])
        process.communicate()
    return rows


def test_a_new_table_is_seen_within_a_second(library: Library) -> None:
    """A table that was replaced, removed or spoilt is noticed; one that comes back, too."""
    first, second = (head() + f"slot1@a\t{i}\t1000:{i}\n" for i in (2, 3))
    assert changing(library, first, second, None, second, "spoilt\n", first) == [
        [2, 2],
        [3, 3],
        MISSING,
        [3, 3],
        MISSING,
        [2, 2],
    ]


def test_a_table_lapses_while_nobody_replaces_it(library: Library) -> None:
    """When the daemon has died, what it kept is kept no longer than it said."""
    write(library, head(valid=2) + GOOD)
    assert found(library, DELAY, "sleep 3100", DELAY) == [2, 1]


STEPS = st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**31 - 1)), max_size=20)
SLOTS = st.dictionaries(
    st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=20),
    st.tuples(st.floats(allow_nan=False, allow_infinity=False), STEPS),
    max_size=10,
)


@given(SLOTS, st.integers(-(2**62), 2**62))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_table_is_read_as_it_was_written(
    library: Library, slots: dict[str, tuple[float, list[tuple[int, int]]]], end: int
) -> None:
    """Every delay factor comes back, and what is kept is of the last step before an end."""
    lines, asked, expected = [], [], []
    for name, (delay, steps) in slots.items():
        starts, cpus = (
            (sorted(values) for values in zip(*steps, strict=True)) if steps else ([], [])
        )
        said = ",".join(f"{start}:{count}" for start, count in zip(starts, cpus, strict=True))
        lines.append(f"{name}\t{delay!r}\t{said or '-'}\n")
        text = name.replace("\\", "\\\\").replace('"', '\\"')
        asked += [f'eval rtschedDelay("{text}") is {delay!r}', f'eval rtschedKept("{text}", {end})']
        before = [c for s, c in zip(starts, cpus, strict=True) if float(s) < float(end)]
        expected += ["true", str(before[-1] if before else 0)]
    write(library, head() + "".join(lines))
    assert library.run(*asked) == expected


@pytest.mark.parametrize("flags", [ADDRESSES, THREADS], ids=["addresses", "threads"])
def test_threads_look_while_the_table_is_replaced(
    workshop: Workshop, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """The negotiator may look from several threads; each sees a whole table."""
    library = Library(workshop, workshop.build("harness", flags), f"/srv/{tmp_path.name}")
    write(library, head() + "slot1@a\t1\t0:0\n")
    done = threading.Event()

    def replace() -> None:
        for number in range(10_000):
            write(library, head() + f"slot1@a\t{number}\t0:{number}\n")
            if done.wait(0.05):
                return

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        same = 'threads 8 20000 rtschedKept("slot1@a", 5) >= 0 && rtschedDelay("slot1@a") >= 0'
        values = library.run(*[same, "sleep 1100"] * 4)
    finally:
        done.set()
        thread.join()
    assert values == ["true"] * 32


def test_steps_never_fall(library: Library) -> None:
    """What is kept before a later end is never less."""
    write(library, head() + "slot1@a\t1\t10:1,20:1,30:5,40:9\n")
    kept = found(library, *(f'eval rtschedKept("slot1@a", {end})' for end in range(5, 50)))
    assert all(one <= other for one, other in pairwise(kept))
    assert (kept[0], kept[-1]) == (0, 9)

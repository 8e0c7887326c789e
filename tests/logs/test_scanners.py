"""Compiled scanners give what their plain forms give."""

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.kernels import text as kernels
from rtsched.kernels.compiling import COMPILING, plain
from rtsched.logs import cells as reading
from rtsched.logs.cells import Cells, Interner, Meanings
from rtsched.logs.sacct_lines import split_lines, split_plainly
from rtsched.logs.source import Source, json_objects
from rtsched.logs.swf import parse_lines, scan_lines

pytestmark = pytest.mark.skipif(not COMPILING, reason="nothing is compiled in this process")

NUMBERS = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.floats(allow_nan=True).map(str),
    st.decimals(-(10**6), 10**6, places=2).map(str),
    st.sampled_from(["-", "-1", "+5", "5.", ".5", ".", "1e3", "1_0", "0x1", "007", "-0", ";"]),
)
GAPS = st.sampled_from([" ", "  ", "\t", " \r", "\x0b"])


@st.composite
def swf_lines(draw: st.DrawFn) -> bytes:
    """Return lines of about 18 numbers."""
    lines = []
    for _ in range(draw(st.integers(0, 4))):
        count = draw(st.sampled_from([18, 18, 18, 17, 19, 0, 1]))
        fields = draw(st.lists(NUMBERS, min_size=count, max_size=count))
        lines.append(draw(st.sampled_from(["", " "])) + draw(GAPS).join(fields))
    return ("\n".join(lines) + draw(st.sampled_from(["", "\n"]))).encode()


@given(swf_lines())
def test_numbers_are_those_of_split_and_float(block: bytes) -> None:
    """The compiled scanner finds the same numbers, rows and odd lines as `line.split`."""
    if not block:
        return
    ours, theirs = scan_lines(block), parse_lines(block)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])
    assert ours[2:] == theirs[2:]


@given(swf_lines())
@settings(max_examples=40)
def test_number_scanner_is_its_own_reference(block: bytes) -> None:
    """Compiled and interpreted, the number scanner does the same."""
    results = []
    for kernel in (kernels.scan_numbers, plain(kernels.scan_numbers)):
        out, line_of = np.zeros((18, 9)), np.zeros(9, np.int64)
        odd = np.zeros((9, 3), np.int64)
        buffer = np.frombuffer(block, np.uint8)
        with np.errstate(over="ignore"):
            counts = kernel(buffer, out, line_of, odd)
        results.append((counts, out[:, : counts[0]], line_of[: counts[0]], odd[: counts[1]]))
    assert results[0][0] == results[1][0]
    for ours, theirs in zip(results[0][1:], results[1][1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@given(
    st.lists(st.text("ab.|;^\r", max_size=9), max_size=6).map("\n".join),
    st.sampled_from(["|", ";", "|^", "^^^"]),
    st.booleans(),
)
def test_fields_are_those_of_split(text: str, delimiter: str, end: bool) -> None:
    """The compiled field scanner finds the same fields as `line.split`."""
    block = (text + "\n" * end).encode()
    slots = np.array([1, -1, 0], np.int64)
    ours = split_lines(block, delimiter.encode(), slots, 0, 2)
    theirs = split_plainly(block, delimiter.encode(), slots, 0, 2)
    assert ours[4] == theirs[4]
    for mine, other in zip(ours[:4], theirs[:4], strict=True):
        np.testing.assert_array_equal(mine, other)


def as_cells(texts: list[bytes]) -> Cells:
    """Return texts as one column."""
    ends = np.cumsum([len(text) for text in texts] or [0], dtype=np.int32)[: len(texts)]
    starts = ends - np.array([len(text) for text in texts], np.int32)
    return Cells(b"".join(texts), starts, ends)


TIMES = st.one_of(
    st.datetimes(datetime(1969, 1, 1), datetime(2600, 1, 1)).map(
        lambda moment: moment.replace(microsecond=0).isoformat().encode()
    ),
    st.sampled_from(
        [
            *(b"", b"Unknown", b"None", b"0", b"1795226195", b"12345678", b"123456789012"),
            *(b"2026-02-29T00:00:00", b"2028-02-29T23:59:59", b"2026-11-21T24:00:00"),
            *(b"2026-11-21 01:56:35", b"2026-11-21T01:56:35+02:00", b"20261121T015635"),
            b"\xff" * 19,
        ]
    ),
)
IDS = st.one_of(
    st.from_regex(rb"[0-9]{1,17}([_+][0-9]{0,3})?", fullmatch=True),
    st.sampled_from([b"", b"7_[1-3%2]", b"7+0", b"7_", b"_7", b"x", b"7_1_2", b"7+1_2"]),
)


@pytest.mark.parametrize("kind", ["times", "ids", "integers", "codes", "words"])
@given(data=st.data())
@settings(max_examples=60)
def test_cells_mean_the_same(kind: str, data: st.DataObject) -> None:
    """Compiled and in plain Python, a column of cells means the same."""
    choices = {"times": TIMES, "ids": IDS}.get(kind, st.binary(max_size=4) | IDS)
    column = as_cells(data.draw(st.lists(choices, max_size=8)))
    zone = ZoneInfo("Europe/Berlin")
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for compiling in (True, False):
            patch.setattr(reading, "COMPILING", compiling)
            if kind == "times":
                found.append(reading.times(column, zone))
            elif kind == "ids":
                found.append(reading.job_ids(column))
            elif kind == "integers":
                found.append((reading.integers(column),))
            elif kind == "words":
                found.append((reading.marked(column, b"1", b"+0"),))
            else:
                interner = Interner()
                twice = [interner.codes(column), interner.codes(column)]
                found.append((*twice, np.array(interner.texts(), object)))
    for ours, theirs in zip(found[0], found[1], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_many_texts_keep_their_codes() -> None:
    """Codes stay in order of first appearance while the table grows."""
    texts = [f"name-{i % 3000}".encode() for i in range(9000)]
    interner = Interner()
    codes = np.concatenate(
        [interner.codes(as_cells(texts[i : i + 500])) for i in range(0, 9000, 500)]
    )
    np.testing.assert_array_equal(codes, np.arange(9000) % 3000)
    assert interner.texts() == texts[:3000]
    lengths = Meanings(len)
    np.testing.assert_array_equal(lengths(as_cells(texts[:50]))[0], [len(t) for t in texts[:50]])


def test_hash_kernels_are_their_own_reference() -> None:
    """Compiled and interpreted, hashing and interning do the same."""
    column = as_cells([b"a", b"b", b"a", b"", b"c"])
    for kernel in (kernels.intern_cells, plain(kernels.intern_cells)):
        codes = np.full(5, 9, np.int32)
        slots = np.full(16, -1, np.int32)
        table = (np.empty(2, np.uint64), np.zeros(3, np.int64), np.empty(9, np.uint8))
        with np.errstate(over="ignore"):
            row, count = kernel(
                column.buffer, column.starts, column.ends, 0, codes, 0, slots, *table
            )
        assert (row, count) == (4, 2)  # there is no room for a third
        assert codes.tolist() == [0, 1, 0, -1, 9]


JSON = st.recursive(
    st.none() | st.integers() | st.text('a"\\{}[]', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab{", max_size=2), inner),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.text("abc", max_size=2), JSON, max_size=3), max_size=5),
    JSON,
    st.integers(1, 40),
)
def test_objects_are_those_of_json(jobs: list[object], other: object, block: int) -> None:
    """The object scanner cuts out the list's objects, wherever the blocks end."""
    text = json.dumps({"meta": {"x": [other]}, "jobs": jobs, "errors": [{}]}).encode()
    flat = "\n".join(json.dumps(job) for job in jobs).encode()
    for kernel in (kernels.scan_objects, plain(kernels.scan_objects)):
        for data, level, key in (
            (text, 2, "jobs"),
            (json.dumps(jobs).encode(), 1, ""),
            (flat, 0, ""),
        ):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("rtsched.kernels.text.scan_objects", kernel)
                source = Pieces(data, block)
                found = [json.loads(part) for _, part in json_objects(source, level, key)]
            assert found == jobs


class Pieces(Source):
    """A text given in pieces of a few bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self.path = "pieces"
        self.head = data
        self._size = size

    def blocks(self):  # type: ignore[no-untyped-def]
        """Yield the pieces."""
        for at in range(0, len(self.head), self._size):
            yield self.head[at : at + self._size]

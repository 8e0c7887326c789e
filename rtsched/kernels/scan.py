"""Byte scanners: where the lines, fields, numbers and objects of a text block are.

They look at a block of bytes once and make no Python object per line. What they cannot take in
at a glance (a comment, a line with too many fields, `1e5`) they hand back as an *odd* line, and
the caller treats it the slow way. A scanner is thus never wrong, only sometimes of no help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAB, NEWLINE, RETURN, SPACE = 9, 10, 13, 32
QUOTE, PLUS, MINUS, DOT, BACKSLASH = 34, 43, 45, 46, 92
ZERO, NINE, UNDERSCORE = 48, 57, 95
OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT = 91, 93, 123, 125

EXACT_DIGITS = 15
"""So many decimal digits fit a float64 exactly, and so does 10 to that power."""

POWERS = 10.0 ** np.arange(EXACT_DIGITS + 1)


@compiled
def count_lines(buffer: NDArray[np.uint8]) -> int:
    """Return how many lines there are at most: newlines, and one more."""
    lines = 1
    for byte in buffer:
        lines += byte == NEWLINE
    return lines


@compiled
def scan_numbers(
    buffer: NDArray[np.uint8],
    out: NDArray[np.float64],
    line_of: NDArray[np.int64],
    odd: NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Read lines that begin with as many plain numbers as `out` has rows, separated by white space.

    Plain is `-?DIGITS[.DIGITS]` with at most 15 digits: the result is then the float64 nearest
    to it. The steps are written out in one loop, which is three times as fast as small functions.

    Parameters
    ----------
    buffer : uint8[b]
        Whole lines.
    out : float64[fields, lines]
        Is given the numbers of one good line per column. `lines` is at least the number of lines.
    line_of : int64[lines]
        Is given the line, from 0, of each column of `out`.
    odd : int64[lines, 3]
        Is given start, end and line of every other line that is not blank.

    Returns
    -------
    rows, odd lines, lines, longer : int
        How many there are of each; `longer` are good lines with more behind the numbers, which is
        passed over.
    """
    fields, end = out.shape[0], len(buffer)
    rows, odds, lines, longer, pos = 0, 0, 0, 0, 0
    while pos < end:
        start, field, good = pos, 0, True
        while True:
            byte = np.int64(buffer[pos]) if pos < end else NEWLINE
            if byte in (SPACE, TAB) or NEWLINE < byte <= RETURN:
                pos += 1
                continue
            if byte == NEWLINE:
                break
            if field == fields:
                longer += 1
                break
            negative = byte == MINUS
            if negative:
                pos += 1
                byte = np.int64(buffer[pos]) if pos < end else NEWLINE
            first, mantissa = pos, np.int64(0)
            while ZERO <= byte <= NINE:
                mantissa = mantissa * 10 + (byte - ZERO)
                pos += 1
                byte = np.int64(buffer[pos]) if pos < end else NEWLINE
            digits, decimals = pos - first, 0
            if byte == DOT:
                pos += 1
                byte = np.int64(buffer[pos]) if pos < end else NEWLINE
                first = pos
                while ZERO <= byte <= NINE:
                    mantissa = mantissa * 10 + (byte - ZERO)
                    pos += 1
                    byte = np.int64(buffer[pos]) if pos < end else NEWLINE
                decimals = pos - first
                digits += decimals
            blank = byte == SPACE or TAB <= byte <= RETURN
            if not blank or digits == 0 or digits > EXACT_DIGITS:
                good = False
                break
            value = np.float64(mantissa)
            if decimals:
                value /= POWERS[decimals]
            out[field, rows] = -value if negative else value
            field += 1
        while pos < end and buffer[pos] != NEWLINE:
            pos += 1
        if good and field == fields:
            line_of[rows] = lines
            rows += 1
        elif field > 0 or not good:
            odd[odds, 0], odd[odds, 1], odd[odds, 2] = start, pos, lines
            odds += 1
        lines += 1
        pos += 1
    return rows, odds, lines, longer


@compiled
def scan_fields(
    buffer: NDArray[np.uint8],
    delimiter: NDArray[np.uint8],
    slot: NDArray[np.int64],
    key: int,
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    line_of: NDArray[np.int64],
    odd: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Find the wanted fields of delimited lines; lines whose key has a dot are left out.

    Parameters
    ----------
    buffer : uint8[b]
        Whole lines; a carriage return at a line's end is no part of it.
    delimiter : uint8[d]
        What separates fields.
    slot : int64[fields]
        For each field of a line the row of `starts` it goes to, -1 if it is not wanted.
    key : int
        The field in which a dot marks a line to leave out (a job's step), -1 for none.
    starts, ends : int32[slots, lines]
        Are given where the fields of each good line lie.
    line_of : int64[lines]
        Is given the line, from 0, of each column of `starts`.
    odd : int64[lines, 3]
        Is given start, end and line of each line with too few or too many fields.

    Returns
    -------
    rows, odd lines, lines : int
    """
    fields, end, width = len(slot), len(buffer), len(delimiter)
    first = delimiter[0]
    rows, odds, lines, pos = 0, 0, 0, 0
    while pos < end:
        start, begin, field, step = pos, pos, 0, False
        stop = pos
        while True:
            while pos < end and buffer[pos] != first and buffer[pos] != NEWLINE:
                pos += 1
            at_end = pos >= end or buffer[pos] == NEWLINE
            if not at_end and width > 1:
                same = pos + width <= end
                for i in range(1, width):
                    same = same and buffer[pos + i] == delimiter[i]
                if not same:
                    pos += 1
                    continue
            stop = pos
            if at_end and stop > start and buffer[stop - 1] == RETURN:
                stop -= 1
            if field < fields:
                if field == key:
                    for i in range(begin, stop):
                        step = step or buffer[i] == DOT
                if slot[field] >= 0:
                    starts[slot[field], rows] = begin
                    ends[slot[field], rows] = max(begin, stop)
            field += 1
            if at_end:
                break
            pos += width
            begin = pos
        if stop == start and field == 1:
            pass  # a blank line
        elif field != fields:
            odd[odds, 0], odd[odds, 1], odd[odds, 2] = start, stop, lines
            odds += 1
        elif not step:
            line_of[rows] = lines
            rows += 1
        lines += 1
        pos += 1
    return rows, odds, lines


@compiled
def scan_objects(
    buffer: NDArray[np.uint8],
    level: int,
    key: NDArray[np.uint8],
    state: NDArray[np.int64],
    spans: NDArray[np.int64],
) -> int:
    """Find the JSON objects that are nested in `level` containers.

    Parameters
    ----------
    buffer : uint8[b]
        Text that goes on from where `state` says.
    level : int
        How many lists and objects are open around a wanted object.
    key : uint8[k]
        If not empty: the quoted name, in the outermost object, of the list that holds them.
    state : int64[6]
        Where to go on (0), open containers there (1), whether the wanted list is open (2), start
        of the object being read or -1 (3), newlines before position 0 (4), newlines before the
        object being read (5). Starts as [0, 0, 0, -1, 0, 0] and is changed.
    spans : int64[m, 3]
        Is given start, end and line (from 0) of each object.

    Returns
    -------
    int
        How many objects were found; stops early when `spans` is full.
    """
    end, found, pos = len(buffer), 0, state[0]
    named = len(key) == 0
    while pos < end and found < len(spans):
        byte = buffer[pos]
        if byte == QUOTE:
            stop = pos + 1
            while stop < end and buffer[stop] != QUOTE:
                stop += 2 if buffer[stop] == BACKSLASH else 1
            if stop >= end:
                break  # the string goes on in the next block
            if state[1] == 1 and not named:
                same = stop + 1 - pos == len(key)
                for i in range(len(key)):
                    same = same and buffer[pos + i] == key[i]
                state[2] = same
            pos = stop
        elif byte == NEWLINE:
            state[4] += 1
        elif byte in (OPEN_OBJECT, OPEN_LIST):
            wanted = named or state[2] != 0
            if state[1] == level and byte == OPEN_OBJECT and wanted and state[3] < 0:
                state[3], state[5] = pos, state[4]
            state[1] += 1
        elif byte in (CLOSE_OBJECT, CLOSE_LIST):
            state[1] -= 1
            if state[1] == level and state[3] >= 0:
                spans[found, 0], spans[found, 1], spans[found, 2] = state[3], pos + 1, state[5]
                found += 1
                state[3] = -1
        pos += 1
    state[0] = pos
    return found

"""Meaning of text cells: numbers, times, job ids, and texts as codes.

A *cell* is a span of a byte buffer. Each kernel takes the spans of one column and says per cell
whether it understood it; the caller looks at the others one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.scan import MINUS, NINE, PLUS, UNDERSCORE, ZERO

if TYPE_CHECKING:
    from numpy.typing import NDArray

MISSING, LOCAL, EPOCH, ODD = 0, 1, 2, 3
"""What a time cell holds: nothing, a local time, seconds since the epoch, something else."""

SINGLE, ARRAY, HET, PENDING_ARRAY, NO_ID = 0, 1, 2, 3, 4
"""What a job id stands for: one job, an array's task, a het job's part, tasks still to come."""

LONG_NUMBER = 15
EPOCH_DIGITS = (9, 11)
"""Seconds since the epoch have so many digits, from 1973 on."""

DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365])
YEARS = (1970, 2500)
"""First year of a time, and the one past the last."""

FNV_START = np.uint64(14695981039346656037)
FNV_PRIME = np.uint64(1099511628211)


@compiled
def digits(buffer: NDArray[np.uint8], start: int, end: int) -> int:
    """Return the number that decimal digits stand for, -1 if there is anything else."""
    if not 0 < end - start <= LONG_NUMBER:
        return -1
    value = np.int64(0)
    for i in range(start, end):
        if not ZERO <= buffer[i] <= NINE:
            return -1
        value = value * 10 + np.int64(buffer[i]) - ZERO
    return int(value)


@compiled
def read_integers(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    out: NDArray[np.float64],
    odd: NDArray[np.bool_],
) -> None:
    """Read whole numbers >= 0; an empty cell is nan, any other is marked in `odd`."""
    for row in range(len(starts)):
        out[row] = np.nan
        odd[row] = False
        if ends[row] > starts[row]:
            value = digits(buffer, starts[row], ends[row])
            if value >= 0:
                out[row] = value
            else:
                odd[row] = True


@compiled
def civil_seconds(year: int, month: int, day: int) -> int:
    """Return the seconds from 1970-01-01 to a date of the Gregorian calendar, -1 if it is none."""
    if not (YEARS[0] <= year < YEARS[1] and 1 <= month <= 12 and 1 <= day <= 31):
        return -1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = DAYS_BEFORE[month] - DAYS_BEFORE[month - 1]
    if month == 2 and leap:
        length += 1
    if day > length:
        return -1
    before = year - 1
    days = (year - 1970) * 365 + (before // 4 - before // 100 + before // 400 - 477)
    days += DAYS_BEFORE[month - 1] + day - 1
    if leap and month > 2:
        days += 1
    return int(days) * 86400


@compiled
def read_times(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    out: NDArray[np.int64],
    meaning: NDArray[np.int8],
) -> None:
    """Read `YYYY-MM-DDTHH:MM:SS` and seconds since the epoch.

    Parameters
    ----------
    buffer, starts, ends
        The cells.
    out : int64[n]
        Is given the seconds since 1970-01-01 on the local clock, or since the epoch.
    meaning : int8[n]
        Is given which of them it is: `MISSING`, `LOCAL`, `EPOCH`, `ODD`.
    """
    for row in range(len(starts)):
        start, end = starts[row], ends[row]
        out[row] = 0
        if end == start:
            meaning[row] = MISSING
            continue
        meaning[row] = ODD
        if end - start != 19:
            value = digits(buffer, start, end)
            if value >= 0 and EPOCH_DIGITS[0] <= end - start <= EPOCH_DIGITS[1]:
                out[row] = value
                meaning[row] = EPOCH
            continue
        marks = (
            buffer[start + 4] == MINUS
            and buffer[start + 7] == MINUS
            and buffer[start + 10] == 84
            and buffer[start + 13] == 58
            and buffer[start + 16] == 58
        )
        date = civil_seconds(
            digits(buffer, start, start + 4),
            digits(buffer, start + 5, start + 7),
            digits(buffer, start + 8, start + 10),
        )
        hour = digits(buffer, start + 11, start + 13)
        minute = digits(buffer, start + 14, start + 16)
        second = digits(buffer, start + 17, start + 19)
        if marks and date >= 0 and 0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60:
            out[row] = date + hour * 3600 + minute * 60 + second
            meaning[row] = LOCAL


@compiled
def read_job_ids(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    base: NDArray[np.int64],
    part: NDArray[np.int64],
    meaning: NDArray[np.int8],
) -> None:
    """Read Slurm's job ids `123`, `123_4`, `123+0`, `123_[5-9%2]` (manual page sacct, JobID).

    `base` is given the number, `part` the task or component, `meaning` which of them it is.
    """
    for row in range(len(starts)):
        start, end = starts[row], ends[row]
        cut = start
        while cut < end and ZERO <= buffer[cut] <= NINE:
            cut += 1
        base[row] = digits(buffer, start, cut)
        part[row] = 0
        meaning[row] = NO_ID
        if base[row] < 0:
            continue
        if cut == end:
            meaning[row] = SINGLE
        elif buffer[cut] == UNDERSCORE and cut + 1 < end and buffer[cut + 1] == 91:
            meaning[row] = PENDING_ARRAY
        elif buffer[cut] == UNDERSCORE or buffer[cut] == PLUS:
            part[row] = digits(buffer, cut + 1, end)
            if part[row] >= 0:
                meaning[row] = ARRAY if buffer[cut] == UNDERSCORE else HET


@compiled
def hash_bytes(buffer: NDArray[np.uint8], start: int, end: int) -> np.uint64:
    """Return the FNV-1a hash of some bytes (public-domain algorithm of Fowler, Noll and Vo)."""
    value = FNV_START
    for i in range(start, end):
        value = (value ^ np.uint64(buffer[i])) * FNV_PRIME
    return value


@compiled
def intern_cells(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    row: int,
    codes: NDArray[np.int32],
    count: int,
    slots: NDArray[np.int32],
    hashes: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    arena: NDArray[np.uint8],
) -> tuple[int, int]:
    """Give equal texts equal codes, in order of first appearance; -1 where a cell is empty.

    Parameters
    ----------
    buffer, starts, ends
        The cells.
    row : int
        The first cell to look at.
    codes : int32[n]
        Is given the codes.
    count : int
        Texts known so far.
    slots : int32[2**k]
        A hash table of codes, -1 where it is free; at least twice as long as `hashes`.
    hashes : uint64[m], offsets : int64[m + 1], arena : uint8[a]
        Hash of each known text and, end to end, their bytes.

    Returns
    -------
    row, count : int
        The cell at which `hashes` or `arena` was full (or n), and the texts known then.
    """
    mask = np.uint64(len(slots) - 1)
    while row < len(starts):
        start, end = starts[row], ends[row]
        if end <= start:
            codes[row] = -1
            row += 1
            continue
        value = hash_bytes(buffer, start, end)
        place = value & mask
        code = slots[place]
        while code >= 0:
            same = hashes[code] == value and offsets[code + 1] - offsets[code] == end - start
            if same:
                at = offsets[code]
                for i in range(end - start):
                    if arena[at + i] != buffer[start + i]:
                        same = False
                        break
            if same:
                break
            place = (place + np.uint64(1)) & mask
            code = slots[place]
        if code < 0:
            at = offsets[count]
            if count == len(hashes) or at + end - start > len(arena):
                return row, count
            for i in range(end - start):
                arena[at + i] = buffer[start + i]
            offsets[count + 1] = at + end - start
            hashes[count] = value
            slots[place] = count
            code = count
            count += 1
        codes[row] = code
        row += 1
    return row, count


@compiled
def place_codes(hashes: NDArray[np.uint64], slots: NDArray[np.int32]) -> None:
    """Fill a free hash table `slots` (int32[2**k], all -1) with the codes 0, 1, ... of `hashes`."""
    mask = np.uint64(len(slots) - 1)
    for code in range(len(hashes)):
        place = hashes[code] & mask
        while slots[place] >= 0:
            place = (place + np.uint64(1)) & mask
        slots[place] = code


@compiled
def has_word(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    word: NDArray[np.uint8],
    out: NDArray[np.bool_],
) -> None:
    """Set `out` where a cell holds `word`; leaves the rest of `out` as it is."""
    width = len(word)
    for row in range(len(starts)):
        for pos in range(starts[row], ends[row] - width + 1):
            if buffer[pos] == word[0]:
                same = True
                for i in range(1, width):
                    same = same and buffer[pos + i] == word[i]
                if same:
                    out[row] = True
                    break


NOT_TOLD, TOLD, TOLD_WITH_COMMA, TOLD_WITH_PERCENT = 0, 1, 2, 3
"""Whether an option's value is wanted: always, or where it holds a comma or a percent sign."""

_WANTED = {
    TOLD: ("C", "L", "d", "w", "x", "con", "dea", "dep", "exc", "lic", "nod"),
    TOLD_WITH_COMMA: ("p", "par"),
    TOLD_WITH_PERCENT: ("a", "arr"),
}
LETTERS = np.zeros(256, np.int8)
"""What a short option is, by its letter."""
WORDS = np.zeros(32768, np.int8)
"""What a long option is, by its first three letters: the last five bits of each."""


def word_code(first: int, second: int, third: int) -> int:
    """Return the place in `WORDS` of a long option that begins with three letters."""
    return (first & 31) << 10 | (second & 31) << 5 | (third & 31)


for _kind, _names in _WANTED.items():
    for _name in _names:
        if len(_name) == 1:
            LETTERS[ord(_name)] = _kind
        else:
            WORDS[word_code(*_name.encode())] = _kind


@compiled
def has_option(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    letters: NDArray[np.int8],
    words: NDArray[np.int8],
    out: NDArray[np.bool_],
) -> None:
    """Set `out` where a submit line may hold an option that `letters` and `words` tell.

    It may be wrong in saying yes, never in saying no.
    """
    for row in range(len(starts)):
        end = ends[row]
        pos = starts[row]
        while pos + 1 < end and not out[row]:
            if buffer[pos] != MINUS or (pos > starts[row] and buffer[pos - 1] > 32):
                pos += 1
                continue
            at = pos + 2
            kind = letters[buffer[pos + 1]]
            if buffer[pos + 1] == MINUS:
                kind = NOT_TOLD
                if pos + 4 < end:
                    letter = buffer[pos + 2] & 31, buffer[pos + 3] & 31, buffer[pos + 4] & 31
                    kind = words[(letter[0] << 10) | (letter[1] << 5) | letter[2]]
                while at < end and buffer[at] != 61 and buffer[at] > 32:
                    at += 1
            while at < end and (buffer[at] == 61 or buffer[at] <= 32):
                at += 1
            out[row] = kind == TOLD
            while kind > TOLD and at < end and buffer[at] > 32:
                mark = 44 if kind == TOLD_WITH_COMMA else 37
                out[row] = out[row] or buffer[at] == mark
                at += 1
            pos += 1


@compiled
def has_node_range(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    out: NDArray[np.bool_],
) -> None:
    """Set `out` where a cell has `-N` or `--nodes`, then digits, a minus and a digit.

    It may be wrong in saying yes, never in saying no, of `-N 2-4`, `-N2-4`, `--nodes=2-4`.
    """
    for row in range(len(starts)):
        end = ends[row]
        for pos in range(starts[row], end - 3):
            # "N" after "-", or the "des" of "--nodes"
            short = buffer[pos] == MINUS and buffer[pos + 1] == 78
            long = buffer[pos] == 100 and buffer[pos + 1] == 101 and buffer[pos + 2] == 115
            if not short and not long:
                continue
            at = pos + (2 if short else 3)
            while at < end and (buffer[at] == 32 or buffer[at] == 61):
                at += 1
            first = at
            while at < end and (ZERO <= buffer[at] <= NINE or buffer[at] == 107):
                at += 1
            if at > first and at + 1 < end and buffer[at] == MINUS:
                out[row] = ZERO <= buffer[at + 1] <= NINE or out[row]

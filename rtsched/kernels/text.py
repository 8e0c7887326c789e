"""Text of logs as bytes: where its lines, fields and objects are, and what its cells mean.

Scanners look at a block of bytes once and make no Python object per line. What they cannot take in
at a glance (a comment, a line with too many fields, `1e5`) they hand back as an *odd* line, and
the caller treats it the slow way. A scanner is thus never wrong, only sometimes of no help.

A *cell* is a span of a byte buffer. Each kernel of cells takes the spans of one column and says per
cell whether it understood it (numbers, times, job ids, texts as codes); the caller looks at the
others one by one.
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


UNWANTED, WANTED, WANTED_WITH_COMMA, WANTED_WITH_PERCENT = 0, 1, 2, 3
"""Whether an option's value is wanted: always, or where it holds a comma or a percent sign."""

_OPTIONS = {
    WANTED: ("C", "L", "d", "w", "x", "con", "dea", "dep", "exc", "lic", "nod"),
    WANTED_WITH_COMMA: ("p", "par"),
    WANTED_WITH_PERCENT: ("a", "arr"),
}
LETTERS = np.zeros(256, np.int8)
"""What a short option is, by its letter."""
WORDS = np.zeros(32768, np.int8)
"""What a long option is, by its first three letters: the last five bits of each."""


def word_code(first: int, second: int, third: int) -> int:
    """Return the place in `WORDS` of a long option that begins with three letters."""
    return (first & 31) << 10 | (second & 31) << 5 | (third & 31)


for _kind, _names in _OPTIONS.items():
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
    """Set `out` where a submit line may hold an option that `letters` and `words` name.

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
                kind = UNWANTED
                if pos + 4 < end:
                    letter = buffer[pos + 2] & 31, buffer[pos + 3] & 31, buffer[pos + 4] & 31
                    kind = words[(letter[0] << 10) | (letter[1] << 5) | letter[2]]
                while at < end and buffer[at] != 61 and buffer[at] > 32:
                    at += 1
            while at < end and (buffer[at] == 61 or buffer[at] <= 32):
                at += 1
            out[row] = kind == WANTED
            while kind > WANTED and at < end and buffer[at] > 32:
                mark = 44 if kind == WANTED_WITH_COMMA else 37
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

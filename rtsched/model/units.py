"""The only converters between a batch system's units and ours: seconds, bytes, epoch."""

from __future__ import annotations

import math
import re
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from rtsched.errors import ConfigError

if TYPE_CHECKING:
    from datetime import tzinfo

    from numpy.typing import NDArray

MINUTE, HOUR, DAY, WEEK = 60.0, 3600.0, 86400.0, 604800.0
"""Seconds of each."""

PERIODS = {DAY: "day", WEEK: "week", 30 * DAY: "month"}
"""The last day, week and month, for which figures are shown, by their seconds."""

_DURATION = re.compile(r"(?:(\d+)(?:-| days? ))?(\d+)(?::(\d+))?(?::(\d+))?(?:\.(\d+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTPE]?)(?:i?B)?[cn]?", re.IGNORECASE)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def slurm_duration(text: str) -> float:
    """Return the seconds of a Slurm duration, +inf for `UNLIMITED`, nan if it is none.

    Slurm writes and reads `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`,
    `days-hours:minutes` and `days-hours:minutes:seconds` (manual page sbatch, `--time`); pandas
    writes the last as `1 days 02:03:04`.
    """
    text = text.strip()
    if text.upper() in {"UNLIMITED", "INFINITE"}:
        return math.inf
    match = _DURATION.fullmatch(text) if len(text) < 40 else None
    if match is None:
        return math.nan
    days, first, second, third, fraction = match.groups()
    numbers = [int(first), int(second or 0), int(third or 0)]
    if days is not None or third is not None:
        hours, minutes, seconds = numbers
    else:
        hours, minutes, seconds = 0, numbers[0], numbers[1]
    whole = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    return whole + (float(f"0.{fraction}") if fraction else 0.0)


def slurm_time(seconds: float) -> str:
    """Return a duration as Slurm shows it, such as `1-12:00:00`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hour:02}:{minute:02}:{second:02}"


def size_bytes(text: str, default_unit: str = "") -> float:
    """Return the bytes of `4G`, `50M`, `2048` (in `default_unit`), nan if it is no size.

    Slurm counts in powers of 1024 (manual page sbatch, `--mem`); a trailing `c` or `n` (per core,
    per node, as old sacct wrote it) is left to the caller.
    """
    match = _SIZE.fullmatch(text.strip()) if len(text) < 40 else None
    if match is None:
        return math.nan
    number, unit = match.groups()
    return float(number) * 1024.0 ** _POWER[(unit or default_unit).upper()]


def known_zone(name: str | None) -> tzinfo | None:
    """Return the time zone `Region/City`; None, which stands for the machine's own, for None.

    Raises
    ------
    ConfigError
        If there is no such zone.
    """
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            [
                f"unknown time zone {name!r}: give a name such as Europe/Berlin or UTC "
                "(the names are those of the system's tzdata)"
            ]
        ) from error


@lru_cache(maxsize=65536)
def zone_offset(local: int, zone: tzinfo | None, fold: int = 0) -> int:
    """Return local minus universal time, seconds, when the clock shows `local`.

    Parameters
    ----------
    local : int
        Seconds from 1970-01-01T00:00:00 to the clock's time.
    zone : tzinfo or None
        None: the machine's own zone.
    fold : int
        Which of two equal clock times: 0 the first, 1 the second.
    """
    clock = datetime(1970, 1, 1) + timedelta(seconds=local)
    if zone is None:
        offset = clock.replace(fold=fold).astimezone().utcoffset()
    else:
        offset = clock.replace(tzinfo=zone, fold=fold).utcoffset()
    return round(offset.total_seconds()) if offset is not None else 0


def epoch_seconds(
    local: NDArray[np.int64], zone: tzinfo | None, after: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return seconds since the epoch for times on a local clock.

    When the clock is set back, some times occur twice; the first is meant, unless it is before
    `after`. A time that the clock jumps over is read with the offset in force before.

    Parameters
    ----------
    local : int64[n]
        Seconds from 1970-01-01T00:00:00 to what the clock showed.
    zone : tzinfo or None
        The clock's zone; None: the machine's own.
    after : float64[n], optional
        Seconds since the epoch that the result is not before; nan where nothing is known.
    """
    if len(local) == 0:
        return np.empty(0)
    day = local // 86400
    first = int(day.min())
    offset = np.zeros(int(day.max()) - first + 1)
    for i in np.flatnonzero(np.bincount(day - first)).tolist():
        here, there = ((first + i + j) * 86400 for j in (0, 1))
        early, late = zone_offset(here, zone), zone_offset(there, zone)
        offset[i] = early if early == late else np.nan
    result = local - offset[day - first]
    changing = np.flatnonzero(np.isnan(result))  # days on which the clock is set
    for row in changing.tolist():
        # Clocks are set at full quarters of an hour.
        clock = int(local[row])
        quarter = clock // 900 * 900
        result[row] = clock - zone_offset(quarter, zone)
        if after is not None and result[row] < after[row]:
            second = zone_offset(quarter, zone, 1)
            if second < zone_offset(quarter, zone):
                result[row] = clock - second
    return result


def until_repeated(seconds: NDArray[np.float64], zone: tzinfo | None) -> NDArray[np.float64]:
    """Return after how many seconds a clock that is set back shows the time of an instant again.

    Parameters
    ----------
    seconds : float64[n]
        Seconds since the epoch.
    zone : tzinfo or None
        The clock's zone; None: the machine's own.

    Returns
    -------
    float64[n]
        0 where it does not show it again.
    """
    quarters, place = np.unique(seconds // 900, return_inverse=True)
    after = np.zeros(len(quarters))
    for at, quarter in enumerate(quarters.tolist()):
        first = datetime.fromtimestamp(quarter * 900, zone)
        after[at] = first.replace(fold=1).timestamp() - quarter * 900
    return after[place.ravel()]


_LONG_UNITS = ("seconds", "minutes", "hours", "days", "weeks")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_NOW = re.compile(r"now(?:\+(\d{1,9})([a-z]*))?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?(am|pm)?")
_ISO = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[t-](.+))?")
_DATE = re.compile(
    r"(?:(\d{2})(\d{2})(\d{2})?|(\d{1,2})/(\d{1,2})(?:/(\d{2}))?|(\d{1,2})\.(\d{1,2})(?:\.(\d{2}))?)"
    r"(?:-(.+))?"
)
_CLOCK_NAMES = {
    "midnight": (0, 0, 0),
    "noon": (12, 0, 0),
    "fika": (15, 0, 0),
    "teatime": (16, 0, 0),
}


def slurm_moment(text: str, now: float, zone: tzinfo | None) -> float:
    """Return the seconds since the epoch that `text` means when said at `now`; nan for none.

    Takes the forms of the manual page sbatch (`--deadline`, `--begin`): `now+1hour`, `HH:MM[:SS]`
    with AM or PM, `MMDD[YY]`, `MM/DD[/YY]`, `MM.DD[.YY]`, `MM/DD[/YY]-HH:MM[:SS]`,
    `YYYY-MM-DD[THH:MM[:SS]]`, `noon`, `midnight`, `fika`, `teatime`, `today`, `tomorrow`; and
    seconds since the epoch, alone or as `uts1795282800`. A clock time that is over is tomorrow's, a
    date that is over next year's.
    """
    text = "".join(text.lower().split())
    epoch = text.removeprefix("uts")
    if epoch.isascii() and epoch.isdigit() and 9 <= len(epoch) <= 11:
        return float(epoch)
    if text.startswith("now"):
        return now + _from_now(text)
    try:
        local = datetime.fromtimestamp(now, zone).replace(tzinfo=None)
        clock = _slurm_clock(text, local)
        seconds = (clock - datetime(1970, 1, 1)) // timedelta(seconds=1)
        return float(epoch_seconds(np.array([seconds]), zone)[0])
    except (ValueError, OverflowError, OSError):
        return math.nan


@lru_cache(maxsize=4096)
def _from_now(text: str) -> float:
    """Return the seconds of `now+1hour`; nan if it is none."""
    match = _NOW.fullmatch(text)
    unit = (match[2] if match else "") or "s"
    if match is None or not any(word.startswith(unit) for word in _LONG_UNITS):
        return math.nan
    return float(int(match[1] or 0) * _UNITS[unit[0]])


def _slurm_clock(text: str, now: datetime) -> datetime:
    """Return the local time that `text` means; ValueError if it means none."""
    today = datetime(now.year, now.month, now.day)
    if text in {"today", "tomorrow"}:
        return today + timedelta(days=text == "tomorrow")
    if text in _CLOCK_NAMES or _CLOCK.fullmatch(text):
        then = datetime.combine(today, _clock(text))
        return then if then > now else then + timedelta(days=1)
    match = _ISO.fullmatch(text)
    if match is not None:
        year, month, day, rest = match.groups()
        return datetime.combine(datetime(int(year), int(month), int(day)), _clock(rest))
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    fields = match.groups()
    month, day, short = next(fields[i : i + 3] for i in (0, 3, 6) if fields[i] is not None)
    clock = _clock(fields[-1])
    year = 2000 + int(short) if short else now.year
    then = datetime.combine(datetime(year, int(month), int(day)), clock)
    if not short and then <= now:
        then = then.replace(year=year + 1)
    return then


def _clock(text: str | None) -> time:
    """Return a time of day from `HH:MM[:SS][AM|PM]` or a name; midnight for None."""
    if text is None:
        return time()
    if text in _CLOCK_NAMES:
        return time(*_CLOCK_NAMES[text])
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(text)
    hour, minute, second, half = match.groups()
    hours = int(hour)
    if half is not None:
        if not 1 <= hours <= 12:
            raise ValueError(text)
        hours = hours % 12 + 12 * (half == "pm")
    return time(hours, int(minute), int(second or 0))

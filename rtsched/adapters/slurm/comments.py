"""Comment and Extra of a job: what users ask for there, and what rtsched writes there.

Users write `rtsched:sigma=400,cms=1,cps=100` in Extra or Comment. In Comment there are then the
record of a promise that TaskProlog reads, what the job's user was told last, and the user's own
words, in this order; each may be missing:

    rtsched:promise deadline=1767225600 nodes=1 ... rtsched: promised to end by ... -- my own words
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rtsched.adapters.requirements import (
    CHOICES,
    ODDS,
    UNPROMISED,
    is_odds,
    notify_choice,
    shortened,
)
from rtsched.model.jobs import MOST_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

WORD = re.compile(r"(?:(?<=\s)|^)rtsched:(\S*)")
"""A word for rtsched, or the beginning of what rtsched tells a user, where nothing follows."""
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{0,18})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_ROUNDS = re.compile(r"[1-9]\d?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}", re.ASCII)
_CHOICES = {"speedup": ("linear", "none"), "checkpoint": ("yes", "no"), "else": UNPROMISED}
_POSITIVE = ("sigma", "cps")
_NUMBERS = ("sigma", "cms", "cps", "setup_link", "setup_node", "message_time")
KEYS = (*_NUMBERS, "rounds", "dag", *_CHOICES, "notify", "odds")
"""Everything a user may say."""


@dataclass(frozen=True)
class CommentOptions:
    """What a user asked for beside Slurm's own options.

    Attributes
    ----------
    present : bool
        Whether there is any word of ours.
    numbers : dict of str to float
        sigma (data units), cms, cps (seconds per unit), setup_link, setup_node, message_time
        (seconds), as far as given.
    rounds : int
        Most rounds in which the job takes its load.
    dag : str
        Name of the task graph; empty: none.
    speedup : str
        `linear`, `none`, or empty.
    checkpoint : bool
        Whether the job may be requeued while it runs.
    notify : str
        Of what the user wants to be notified, as in `notify_choice`; empty: not said.
    odds : float
        Least odds, 0 to 1, of a likely promise; nan: a guarantee is wanted.
    otherwise : str
        What becomes of the job if its deadline cannot be promised: one of `UNPROMISED`, or empty:
        what the site says.
    problem : str
        What is wrong, one sentence; empty: nothing.
    """

    present: bool = False
    numbers: dict[str, float] = field(default_factory=dict)
    rounds: int = 1
    dag: str = ""
    speedup: str = ""
    checkpoint: bool = False
    notify: str = ""
    odds: float = math.nan
    otherwise: str = ""
    problem: str = ""

    @property
    def divisible(self) -> bool:
        """Whether the job is a divisible load."""
        return "sigma" in self.numbers


NOTHING = CommentOptions()


def options_in(*texts: str) -> CommentOptions:
    """Return what the words of ours in some texts say; the first problem ends it."""
    pairs: dict[str, str] = {}
    found = False
    for text in texts:
        if "rtsched:" not in text:
            continue
        for word in WORD.findall(text):
            if word == "promise" or not word:
                continue
            found = True
            problem = _gather(word, pairs)
            if problem:
                return CommentOptions(True, problem=problem)
    return _checked(pairs) if found else NOTHING


def _gather(word: str, pairs: dict[str, str]) -> str:
    """Add the pairs of one word; return what is wrong with it."""
    if not word.isprintable():
        return "rtsched: words must not contain control characters"
    for part in word.split(","):
        key, given, value = part.partition("=")
        if not given or key not in KEYS:
            return (
                f"rtsched: {shortened(part)} is unknown; use key=value with one of the keys "
                f"{', '.join(KEYS)}"
            )
        if key in pairs:
            return f"rtsched: {key} is given twice"
        problem = _problem(key, value)
        if problem:
            return problem
        pairs[key] = value
    return ""


def _problem(key: str, value: str) -> str:
    """Return what is wrong with one value."""
    given = f"rtsched: {key}={shortened(value)}"
    if key in _CHOICES:
        if value not in _CHOICES[key]:
            return f"{given} must be {' or '.join(_CHOICES[key])}"
    elif key == "notify":
        if not notify_choice(value):
            return f"{given} must be {CHOICES}"
    elif key == "odds":
        if not _NUMBER.fullmatch(value) or not is_odds(float(value)):
            return f"{given} must be {ODDS}"
    elif key == "dag":
        if not _NAME.fullmatch(value):
            return f"{given} must be 1 to 64 letters, digits or any of '_.+-'"
    elif key == "rounds":
        if not _ROUNDS.fullmatch(value) or int(value) > MOST_ROUNDS:
            return f"{given} must be a whole number from 1 to {MOST_ROUNDS}"
    elif not _NUMBER.fullmatch(value) or not math.isfinite(float(value)):
        return f"{given} must be a number such as 12.5"
    elif key in _POSITIVE and float(value) <= 0:
        return f"{given} must be above 0"
    return ""


def _checked(pairs: dict[str, str]) -> CommentOptions:
    """Return the spec of pairs that are right each by themselves; with a problem, no numbers."""
    numbers = {key: float(pairs[key]) for key in _NUMBERS if key in pairs}
    spec = CommentOptions(
        True,
        numbers,
        int(pairs.get("rounds", "1")),
        pairs.get("dag", ""),
        pairs.get("speedup", ""),
        pairs.get("checkpoint") == "yes",
        notify_choice(pairs.get("notify", "")),
        float(pairs.get("odds", "nan")) / 100.0,
        pairs.get("else", ""),
    )
    load, problem = {"sigma", "cms", "cps"} & numbers.keys(), ""
    if load and len(load) < 3:
        problem = "sigma, cms and cps describe a divisible load together; give all three"
    elif not load and {"setup_link", "setup_node", "rounds"} & pairs.keys():
        problem = "setup_link, setup_node and rounds need sigma, cms and cps"
    elif load and spec.speedup:
        problem = "speedup cannot be combined with a divisible load"
    elif "message_time" in numbers and not spec.dag:
        problem = "message_time needs dag"
    return CommentOptions(True, problem=f"rtsched: {problem}") if problem else spec


LONGEST = 4096
"""Characters of a user's own comment that are kept; of a longer one the words for rtsched are."""

MOST = 1024
"""Bytes of a comment that Slurm takes (`MAX_COMMENT_LEN`)."""

RECORD = "rtsched:promise"
"""How the record of a promise begins."""

_RECORD = re.compile(
    rf"^\s*{RECORD}(?!\S)(?: deadline=\S*)?(?: nodes=\S*)?(?: fractions=\S*)?"
    r"(?: rounds=\S*)?(?: on=\S*)?"
)
_PREFIX = "rtsched: "
"""How what a user was told begins."""
_END = " -- "
"""Where it ends."""


class Comment(NamedTuple):
    """The parts of a comment.

    Attributes
    ----------
    record : str
        `record_of` a promise.
    message : str
        What the user was told; begins with `rtsched: `.
    own : str
        What the user wrote.
    """

    record: str
    message: str
    own: str

    def __str__(self) -> str:
        """Return the comment as it stands in Slurm."""
        written = _END.join(filter(None, (self.message, self.own)))
        return " ".join(filter(None, (self.record, written)))


def parts_of(comment: str) -> Comment:
    """Return the parts of a comment.

    A user's comment that begins as what we tell users is taken for that; words for rtsched in it
    count as the user's all the same.
    """
    found = _RECORD.match(comment)
    record = found[0].strip() if found else ""
    rest = comment[found.end() if found else 0 :].strip()
    message = ""
    while rest.startswith(_PREFIX):
        reply, _, rest = rest.partition(_END)
        rest = " ".join(filter(None, (*_words(reply), rest.strip())))
        message = message or _message(WORD.sub(lambda word: "" if word[1] else word[0], reply))
    return Comment(record, message, rest if len(rest) <= LONGEST else " ".join(_words(rest)))


def record_of(
    deadline: float,
    names: Sequence[str],
    shares: Sequence[float],
    rounds: Sequence[float] = (),
    *,
    short: bool = False,
) -> str:
    """Return the record of a promise (contrib/slurm/task_prolog.sh).

    Parameters
    ----------
    deadline : float
        Seconds since the epoch; inf: none is said.
    names, shares : sequence of str, of float
        The nodes in sending order, and the fraction of the load on each.
    rounds : sequence of float
        The share of its part that each node takes in each round; empty: all at once.
    short : bool
        With four digits of each number.
    """
    number = _short if short else "{:.9f}".format
    words = [RECORD]
    if math.isfinite(deadline):
        words.append(f"deadline={deadline:.0f}")
    words.append(f"nodes={len(names)}")
    words.append("fractions=" + ":".join(map(number, shares)))
    if rounds:
        words.append("rounds=" + ":".join(map(number, rounds)))
    words.append("on=" + ":".join(names))
    return " ".join(words)


def _short(share: float) -> str:
    """Return four digits of a number, such as `1667e-5`, as TaskProlog reads it."""
    digits, _, power = f"{share:.3e}".partition("e")
    return f"{digits.replace('.', '')}e{int(power) - 3}"


def fitting_record(
    comment: str,
    deadline: float,
    names: Sequence[str],
    shares: Sequence[float],
    rounds: Sequence[float],
) -> str:
    """Return the record of a promise, as in `record_of`, that Slurm takes in a job's comment.

    Where it does not fit, with fewer digits; then without nodes and shares, of which `rtsched chunk
    JOB` asks the daemon; empty where there is no room at all.
    """
    forms = (
        record_of(deadline, names, shares, rounds),
        record_of(deadline, names, shares, rounds, short=True),
        record_of(deadline, names, ()).partition(" fractions=")[0],
        "",
    )
    return next(each for each in forms if _fits(with_record(comment, each)) or not each)


def _fits(comment: str) -> bool:
    return len(comment.encode()) <= MOST


def with_record(comment: str, record: str) -> str:
    """Return a comment with this record of a promise; empty: with none."""
    return str(parts_of(comment)._replace(record=record))


def with_message(comment: str, message: str) -> str:
    """Return a comment with this as what its user was told last, on one line, as far as it fits."""
    parts = parts_of(comment)._replace(message=_message(message))
    over = len(str(parts).encode()) - MOST
    if over > 0 and len(parts.message) > over + len(_PREFIX):
        parts = parts._replace(message=f"{parts.message[: -over - 4].rstrip()} ...")
    return str(parts)


def _message(message: str) -> str:
    """Return a message as it stands in a comment: it holds no word for rtsched and no end mark."""
    reply = message.strip().removeprefix(_PREFIX.strip())
    words = reply.replace("rtsched:", "rtsched: ").split()
    reply = " ".join("-" if word == _END.strip() else word for word in words)[:LONGEST].strip()
    return f"{_PREFIX}{reply}" if reply else ""


def _words(text: str) -> list[str]:
    """Return the words of a text that are for rtsched."""
    return [found[0] for found in WORD.finditer(text) if found[1] not in {"", "promise"}]

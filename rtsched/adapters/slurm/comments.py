"""What stands in a job's Comment.

The record of a promise that TaskProlog reads, what the job's user was told last, and the user's own
words, in this order; each may be missing:

    rtsched:promise deadline=1767225600 nodes=1 ... rtsched: promised to end by ... -- my own words
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from rtsched.adapters.slurm.spec import WORD

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        said = _END.join(filter(None, (self.message, self.own)))
        return " ".join(filter(None, (self.record, said)))


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
        said, _, rest = rest.partition(_END)
        rest = " ".join(filter(None, (*_words(said), rest.strip())))
        message = message or _message(WORD.sub(lambda word: "" if word[1] else word[0], said))
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
    said = message.strip().removeprefix(_PREFIX.strip())
    words = said.replace("rtsched:", "rtsched: ").split()
    said = " ".join("-" if word == _END.strip() else word for word in words)[:LONGEST].strip()
    return f"{_PREFIX}{said}" if said else ""


def _words(text: str) -> list[str]:
    """Return the words of a text that are for rtsched."""
    return [found[0] for found in WORD.finditer(text) if found[1] not in {"", "promise"}]

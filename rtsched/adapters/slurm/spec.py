"""What users say beside Slurm's own options: `rtsched:sigma=400,cms=1,cps=100` in Extra or Comment.

A word that begins with `rtsched:` may stand anywhere between white space. `rtsched:promise` is the
record that rtsched itself writes into Comment, and no request.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from rtsched.adapters.notifications import CHOICES, notify_choice
from rtsched.adapters.requirements import ODDS, UNPROMISED, is_odds, shortened
from rtsched.model.jobs import MOST_ROUNDS

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
class Spec:
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


NOTHING = Spec()


def spec_of(*texts: str) -> Spec:
    """Return what the words of ours in some texts say; the first problem ends it."""
    pairs: dict[str, str] = {}
    said = False
    for text in texts:
        if "rtsched:" not in text:
            continue
        for word in WORD.findall(text):
            if word == "promise" or not word:
                continue
            said = True
            problem = _gather(word, pairs)
            if problem:
                return Spec(True, problem=problem)
    return _checked(pairs) if said else NOTHING


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


def _checked(pairs: dict[str, str]) -> Spec:
    """Return the spec of pairs that are right each by themselves; with a problem, no numbers."""
    numbers = {key: float(pairs[key]) for key in _NUMBERS if key in pairs}
    spec = Spec(
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
    load = {"sigma", "cms", "cps"} & numbers.keys()
    if load and len(load) < 3:
        return Spec(
            True,
            problem="rtsched: sigma, cms and cps describe a divisible load together; "
            "give all three",
        )
    if not load and {"setup_link", "setup_node", "rounds"} & pairs.keys():
        text = "rtsched: setup_link, setup_node and rounds need sigma, cms and cps"
        return Spec(True, problem=text)
    if load and spec.speedup:
        return Spec(True, problem="rtsched: speedup cannot be combined with a divisible load")
    if "message_time" in numbers and not spec.dag:
        return Spec(True, problem="rtsched: message_time needs dag")
    return spec

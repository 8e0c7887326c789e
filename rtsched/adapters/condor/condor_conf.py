"""The configuration that HTCondor is given: our files, and what a site chooses in them; pure.

The first part of each file sets macros named RTSCHED_...: the site's choices. They are filled in
from the settings; what somebody wrote there who had no setting for it stays.

References
----------
HTCondor's manual, "Introduction to Configuration": a macro's last definition counts; files of a
LOCAL_CONFIG_DIR are read in the order of their names, except those that
LOCAL_CONFIG_DIR_EXCLUDE_REGEXP describes, such as names that end in `~`.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.adapters.condor.settings import CondorSettings

ACCESS = "50-rtsched.conf"
EXECUTE = "51-rtsched-execute.conf"
SCRIPT = "slots.sh"

_CHOICES = re.compile(r"^# --- What a site chooses -*\n(.*?)^# --- ", re.MULTILINE | re.DOTALL)
_CHOICE = re.compile(r"^(RTSCHED_\w+) *= *(.*?) *$", re.MULTILINE)


def shipped(name: str) -> str:
    """Return one of our files as it is shipped."""
    return (files("rtsched.adapters.condor") / "config" / name).read_text("utf-8")


def choices(text: str) -> dict[str, str]:
    """Return what a file of ours says in its first part, by macro."""
    part = _CHOICES.search(text)
    return dict(_CHOICE.findall(part[1])) if part else {}


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a file with other choices; macros that it has not are left out."""
    part = _CHOICES.search(text)
    if part is None:
        return text

    def value(match: re.Match[str]) -> str:
        return f"{match[1]} = {values.get(match[1], match[2])}"

    return text[: part.start(1)] + _CHOICE.sub(value, part[1]) + text[part.end(1) :]


def wanted(name: str, present: str, values: Mapping[str, str]) -> str:
    """Return what a file of ours should hold.

    Parameters
    ----------
    name : str
        The file's name.
    present : str
        What it holds; empty: it is not there. Its choices stay where `values` has none.
    values : mapping of str to str
        The settings' choices, by macro.
    """
    return filled(shipped(name), choices(present) | dict(values))


def from_settings(settings: CondorSettings) -> dict[str, str]:
    """Return the choices that follow from the `[condor]` table, by macro."""
    return {
        "RTSCHED_USER": settings.user,
        "RTSCHED_RUN_TIME": _number(settings.run_time_s),
        "RTSCHED_OVERRUNS": settings.overruns,
        "RTSCHED_OVERRUN": str(max(1, int(settings.overrun_s))),
        "RTSCHED_VACATE_TIME": str(int(settings.completing_s)),
        "RTSCHED_TABLE": settings.table,
    }


def _number(value: float | None) -> str:
    """Return a number as a ClassAd literal; None: undefined."""
    if value is None:
        return "undefined"
    return str(int(value)) if value == int(value) else repr(value)


def is_native(text: str) -> bool:
    """Return whether a file of ours chooses the ClassAd library."""
    return choices(text).get("RTSCHED_NATIVE", "True").lower() != "false"

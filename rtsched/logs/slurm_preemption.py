"""How Slurm preempts jobs, by a slurm.conf or what `scontrol show partition` prints.

References
----------
Slurm manual pages slurm.conf and sacctmgr: PreemptType, PreemptMode, PreemptExemptTime,
PriorityTier; Slurm manual, "Preemption".
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from rtsched.errors import InputError
from rtsched.logs.sacctmgr import text_of
from rtsched.logs.slurm_cluster import conf_lines, pairs_of, partition_settings
from rtsched.logs.slurm_partitions_json import with_partitions_as_text
from rtsched.model.preemption import CANCEL, NONE, OFF, REQUEUE, SUSPEND, SitePreemption
from rtsched.model.units import slurm_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODES = (OFF, CANCEL, REQUEUE, SUSPEND)
_TYPES = {"preempt/none": NONE, "preempt/qos": "qos", "preempt/partition_prio": "partition_prio"}


def mode_of(text: str) -> str | None:
    """Return what a PreemptMode does with a preempted job, None if it is none.

    Of `SUSPEND,GANG` the first counts; `GANG` alone preempts nobody, and `WITHIN` says among whom.
    """
    words = [word.strip().lower() for word in text.split(",")]
    found = [word for word in words if word not in {"gang", "within"}]
    if not found:
        return OFF
    return found[0] if len(found) == 1 and found[0] in _MODES else None


def read_preemption(cluster: str | Path) -> SitePreemption:
    """Return how jobs preempt others.

    Parameters
    ----------
    cluster : path
        A slurm.conf, or the output of `scontrol show nodes`, perhaps with that of `scontrol show
        partition` behind it, which tells of partitions alone. Other files tell nothing.

    Raises
    ------
    InputError
        If the file cannot be read, or a setting has a value that Slurm does not know.
    """
    path, text = text_of(cluster)
    text = with_partitions_as_text(path, text)
    if not any(word in text.lower() for word in ("preempt", "prioritytier", "include")):
        return SitePreemption()
    lines = conf_lines(Path(path), text, [])
    whole: dict[str, tuple[int, str]] = {}
    for number, line in lines:
        pairs = pairs_of(line)
        name = next(iter(pairs), "")
        whole[name] = number, pairs.get(name, "")
    by, mode, exempt = NONE, OFF, 0.0
    if "preempttype" in whole:
        number, value = whole["preempttype"]
        by = _TYPES.get(value.lower(), "")
        if not by:
            raise _wrong(path, number, "PreemptType", value, ", ".join(_TYPES))
    if "preemptmode" in whole:
        number, value = whole["preemptmode"]
        mode = _mode(path, number, value)
    if "preemptexempttime" in whole:
        number, value = whole["preemptexempttime"]
        exempt = 0.0 if value == "-1" else slurm_duration(value)
        if math.isnan(exempt):
            raise _wrong(path, number, "PreemptExemptTime", value, "times such as 00:10:00, and -1")
    return SitePreemption(
        by,
        mode,
        exempt,
        {
            name: _tier(path, *said)
            for name, said in _set(partition_settings(lines, "prioritytier")).items()
        },
        {
            name: _mode(path, *said)
            for name, said in _set(partition_settings(lines, "preemptmode")).items()
        },
    )


def _set(found: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    """Return the partitions that a setting is there for."""
    return {name: said for name, said in found.items() if said[1]}


def _mode(path: str, number: int, text: str) -> str:
    mode = mode_of(text)
    if mode is None:
        raise _wrong(path, number, "PreemptMode", text, ", ".join(_MODES).upper())
    return mode


def _tier(path: str, number: int, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _wrong(path, number, "PriorityTier", text, "numbers from 0 to 65533")
    return int(text)


def _wrong(path: str, number: int, name: str, text: str, known: str) -> InputError:
    return InputError(
        path, f"{name}={text} is not known (known: {known}); put it right", line=number
    )

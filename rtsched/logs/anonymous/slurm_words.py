"""Words of Slurm's logs without names: by forms that are known, nothing else.

Each function returns what a reader of logs makes of a text, written anew. A word of an unknown form
is not passed on.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from rtsched.logs.hostlist import expand
from rtsched.logs.slurm_text import (
    ENDINGS,
    SubmitLine,
    deadline_in,
    generic_column,
    licenses_in,
    submit_line,
)
from rtsched.model.resources import GRES, LICENSE
from rtsched.model.units import slurm_moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.logs.anonymous.pseudonyms import Pseudonyms

UNREADABLE = "unreadable"
"""Stands where a reader finds nothing that it can use, and counts that."""

_JOB_ID = re.compile(r"(\d{1,18})(?:([_+])(?:(\d{1,18})|\[.*))?", re.ASCII | re.DOTALL)
_CONDITION = re.compile(
    r"(?:after(?:any|ok|notok|corr|burstbuffer)?:)?\d[\d_*+:]*|singleton", re.ASCII
)
_FEATURE = re.compile(r"[^&|()\[\]*,\s]+")
_GENERIC = re.compile(r"([^:]+(?::(?!\d+$)[^:]+)?)(?::(\d{1,9}))?", re.ASCII)
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_TRES = re.compile(r"([^=,\s]+)=(\d{1,15}(?:\.\d{1,9})?[KMGTPEkmgtpe]?)", re.ASCII)
_PLAIN_TRES = frozenset(("billing", "cpu", "energy", "fs/disk", "mem", "node", "pages", "vmem"))
_PLAIN_GRES = frozenset(("gpu", "mps", "shard"))
_NO_NODES = frozenset(("None assigned", "(null)"))
_HUGE = 999_999_999
_LEAP_YEAR = 946_684_800.0


def job_id(text: str) -> str:
    """Return a job id; empty if it is none. Which tasks of an array are pending is left out."""
    match = _JOB_ID.fullmatch(text)
    if match is None:
        return ""
    number, mark, part = match.groups()
    return number if mark is None else f"{number}{mark}{part or '[0]'}"


def state(text: str) -> str:
    """Return a state, without who cancelled the job."""
    word = (text.upper().split() or [""])[0].rstrip("+")
    return word if word in ENDINGS else ""


def moment(text: str) -> str:
    """Return a time as users may state it, `now+2hours`; `UNREADABLE` for anything else."""
    known = slurm_moment(text, _LEAP_YEAR, None)
    return text if known == known else UNREADABLE


class SlurmWords:
    """Writes texts of Slurm anew, with pseudonyms."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names
        cached: Callable[..., Callable[[str], str]] = lru_cache(maxsize=8192)
        self.submit_line = cached(self._submit_line)
        self.resources = cached(self._resources)
        self.nodes = cached(self._nodes)

    def name(self, kind: str, text: str) -> str:
        """Return what stands for a name that may have any letters."""
        kept = kind in self._names.kept and not re.fullmatch(r"[\w.+@:/-]{1,80}", text, re.ASCII)
        return "" if kept else self._names.of(kind, text)

    def features(self, text: str) -> str:
        """Return `gpu&(fast|slow)` with other features."""

        def other(word: re.Match[str]) -> str:
            return word[0] if _COUNT.fullmatch(word[0]) else self.name("feature", word[0])

        return _FEATURE.sub(other, text)

    def partitions(self, text: str) -> str:
        """Return `long,short` with other partitions."""
        return ",".join(self.name("partition", name) for name in text.split(","))

    def _nodes(self, text: str) -> str:
        """Return a list with the node it names, or of as many nodes as it names."""
        if not text or text in _NO_NODES:
            return text
        try:
            hosts = list(dict.fromkeys(expand(text)))
        except ValueError:
            return self._names.unlisted("nodes", text)
        if "node" in self._names.kept and all(re.fullmatch(r"[\w.-]+", host) for host in hosts):
            return text
        if len(hosts) == 1:
            return self._names.of("node", hosts[0])
        return f"{self._names.unlisted('nodes', text)}-[1-{len(hosts)}]"

    def _resources(self, text: str) -> str:
        """Return `cpu=4,gres/gpu:a100=2,license/matlab=1` with other names."""
        pairs = (_TRES.fullmatch(pair) for pair in text.split(","))
        known = ((self.resource(pair[1]), pair[2]) for pair in pairs if pair is not None)
        return ",".join(f"{name}={amount}" for name, amount in known if name)

    def resource(self, name: str) -> str:
        """Return what stands for a trackable resource; empty if its kind is not known."""
        if name in _PLAIN_TRES:
            return name
        kind, _, rest = name.partition("/")
        if kind == LICENSE.rstrip("/"):
            return f"{LICENSE}{self.name('license', rest)}"
        if kind == "bb":
            return f"bb/{self.name('burst-buffer', rest)}"
        if kind != "gres":
            return ""
        generic, colon, model = rest.partition(":")
        generic = generic if generic in _PLAIN_GRES else self.name("gres", generic)
        return f"gres/{generic}{colon}{self.name('gres', model)}"

    def comment(self, *texts: str) -> str:
        """Return the deadline in free texts; nothing else of them."""
        due = deadline_in(*texts)
        return f"deadline={moment(due)}" if due else ""

    def _submit_line(self, text: str) -> str:
        """Return a submit line with what a reader reads of it; empty if that is nothing."""
        asked = submit_line(text)
        return "" if asked == SubmitLine() else " ".join(["sbatch", *self._options(asked)])

    def _options(self, asked: SubmitLine) -> list[str]:
        options = [*self._times(asked), *self._node_options(asked)]
        if asked.exclusive:
            options.append("--exclusive")
        if asked.nodes is not None:
            least, most = (min(count, _HUGE) for count in asked.nodes)
            options.append(f"--nodes={least}-{most}")
            options.append(f"--cpus-per-task={min(asked.per_node, _HUGE)}")
        if asked.array_limit:
            options.append(f"--array=0%{asked.array_limit}")
        if asked.dependency:
            parts = re.split("([,?])", asked.dependency)
            known = (
                part if i % 2 or _CONDITION.fullmatch(part) else UNREADABLE
                for i, part in enumerate(parts)
            )
            options.append(f"--dependency={''.join(known)}")
        if asked.job_name:
            options.append(f"--job-name={self.name('job', asked.job_name)}")
        if asked.constraint:
            options.append(f"--constraint={self.features(asked.constraint)}")
        if asked.gres:
            options.append(f"--gres={self._generic(asked.gres)}")
        if asked.gpus:
            kinds = (each.removeprefix("gpu:") for each in self._generic(asked.gpus).split(","))
            options.append(f"--gpus={','.join(kinds)}")
        licenses = licenses_in(asked.licenses)
        if licenses:
            listed = (
                f"{self.name('license', name.removeprefix(LICENSE))}:{amount}"
                for name, amount in licenses.items()
            )
            options.append(f"--licenses={','.join(listed)}")
        return options

    def generic_column(self, text: str) -> str:
        """Return ReqGRES or AllocGRES with other names."""
        node, _, job = generic_column(text).partition(";")
        each = (f"PER_NODE:{part}" for part in self._generic(node).split(",") if part)
        return ",".join([*each, *filter(None, [self._generic(job)])])

    def _generic(self, text: str) -> str:
        """Return `gpu:a100:2,shard:1` with other names."""
        parts = (_GENERIC.fullmatch(part) for part in text.split(","))
        return ",".join(
            f"{self.resource(GRES + part[1]).removeprefix(GRES)}:{part[2] or 1}"
            for part in parts
            if part is not None
        )

    def _times(self, asked: SubmitLine) -> list[str]:
        times = {"deadline": asked.deadline, "begin": asked.begin}
        return [f"--{name}={moment(text)}" for name, text in times.items() if text]

    def _node_options(self, asked: SubmitLine) -> list[str]:
        options = []
        for word in asked.node_options.split(" --"):
            name, equals, value = word.removeprefix("--").partition("=")
            if equals:
                write = self.partitions if name == "partition" else self.nodes
                options.append(f"--{name}={write(value)}")
        return options

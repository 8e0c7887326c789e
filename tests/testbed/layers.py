"""Layers: directories that sandboxes are stacked of, made once and kept between runs.

A layer is made in a directory of another name and renamed when it is complete; a file beside it
says what it holds. Its name contains a hash of how it is made and of what lies below, so that a
changed recipe makes a new layer and never touches an old one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def cache() -> Path:
    """Return the directory of all that is kept: $RTSCHED_TESTBED, or one below /var/cache."""
    return Path(os.environ.get("RTSCHED_TESTBED") or "/var/cache/rtsched-testbed")


def boxes() -> Path:
    """Return the directory where running sandboxes write."""
    return cache() / "boxes"


@dataclass(frozen=True)
class Layer:
    """A directory, and how it is made.

    Attributes
    ----------
    name : str
        What it is to people.
    recipe : str
        All that decides what it holds: another text makes another layer.
    make : callable
        Fills an empty directory over the layers below (uppermost first); returns what the file
        beside it shall say.
    below : Layer, optional
        What it lies upon.
    """

    name: str
    recipe: str
    make: Callable[[Path, list[Path]], Mapping[str, object]]
    below: Layer | None = None

    @property
    def key(self) -> str:
        """A hash of how it and all below are made."""
        below = self.below.key if self.below else ""
        return hashlib.sha256(f"{self.recipe}\0{below}".encode()).hexdigest()[:12]

    @property
    def directory(self) -> Path:
        """Where it is, or will be."""
        return cache() / f"{self.name}-{self.key}"

    @property
    def _facts(self) -> Path:
        return self.directory.with_name(self.directory.name + ".json")

    @property
    def complete(self) -> bool:
        """Whether it is there."""
        return self._facts.exists()

    def ready(self) -> list[Path]:
        """Return it and the layers below, uppermost first; what is missing is made."""
        below = self.below.ready() if self.below else []
        if not self.complete:
            with _locked(self.directory.name):
                if not self.complete:
                    self._fill(below)
        os.utime(self._facts)
        return [self.directory, *below]

    def _fill(self, below: list[Path]) -> None:
        began = time.monotonic()
        unfinished = self.directory.with_name("." + self.directory.name)
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        unfinished.mkdir(parents=True)
        unfinished.chmod(0o755)
        try:
            facts = dict(self.make(unfinished, below))
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        unfinished.rename(self.directory)
        facts |= {"recipe": self.recipe, "seconds": round(time.monotonic() - began, 1)}
        draft = self._facts.with_suffix(".tmp")
        draft.write_text(json.dumps(facts, indent=1) + "\n")
        draft.rename(self._facts)


def forget(layer: Layer, unused_days: float) -> None:
    """Remove other layers of the same names, here and below, that nobody used for so long."""
    own = layer._facts
    for facts in cache().glob(f"{layer.name}-????????????.json"):
        if facts != own and facts.stat().st_mtime < time.time() - unused_days * 86400:
            facts.unlink()
            shutil.rmtree(facts.with_suffix(""), ignore_errors=True)
    if layer.below is not None:
        forget(layer.below, unused_days)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""Readers of accounting logs and of machine descriptions, and the writer of SWF."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtsched.logs.cluster_files import read_cluster
    from rtsched.logs.readers import FORMATS, READERS, Reader, ReadOptions, read_logs

__all__ = ["FORMATS", "READERS", "ReadOptions", "Reader", "read_cluster", "read_logs"]


def __getattr__(name: str) -> object:
    """Import the readers when one is asked for: they compile, and a user's question needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "cluster_files" if name == "read_cluster" else "readers"
    return getattr(import_module(f"{__name__}.{home}"), name)

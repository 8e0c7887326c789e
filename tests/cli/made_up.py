"""Plug-ins made up for the tests of the command line."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rtsched.core.hookspecs import hookimpl
from rtsched.core.plugins import Found
from rtsched.model.verdicts import Reason, Verdicts


class Width:
    """Turn away jobs wider than the site allows."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        nodes: Annotated[int, Meta(gt=0, description="Widest job admitted.")]
        unit: Annotated[Literal["node", "core"], Meta(description="What is counted.")] = "node"
        queues: Annotated[list[str], Meta(description="Partitions it holds for.")] = []

    too_wide = Reason("width.too-wide", "requests {asked:node}, the limit is {limit}")

    def __init__(self, config: Config) -> None:
        self.config = config

    @hookimpl
    def rtsched_admit(self, jobs):
        """Judge by size."""
        wide = jobs.size > self.config.nodes
        return Verdicts.reject_where(wide, self.too_wide, asked=jobs.size, limit=self.config.nodes)


class Raises:
    """Fail at every question."""

    @hookimpl
    def rtsched_admit(self, jobs):
        """Fail."""
        raise RuntimeError("licence server\nis down")

    def __init__(self, config: object) -> None:
        self.config = config


class Unmade:
    """Fail when it is made."""

    def __init__(self, config: object) -> None:
        raise OSError("no such table")


class Odd:
    """Have settings that are none."""

    Config = 3

    def __init__(self, config: object) -> None:
        self.config = config


def missing() -> type:
    """Fail as an import does."""
    raise ModuleNotFoundError("No module 'x'")


MADE_UP = {
    "width": Found("width", "site-plugins", "1.2", lambda: Width),
    "raises": Found("raises", "site-plugins", "1.2", lambda: Raises),
    "unmade": Found("unmade", "site-plugins", "1.2", lambda: Unmade),
}
BROKEN = {
    "lost": Found("lost", "old-plugins", "0.9", missing),
    "odd": Found("odd", "old-plugins", "0.9", lambda: Odd),
}

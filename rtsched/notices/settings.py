"""The settings of `rtsched notices`, in a file of their own, and what users choose themselves."""

from __future__ import annotations

import contextlib
import os
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from rtsched.adapters.requirements import Event  # noqa: TC001 - read by msgspec
from rtsched.adapters.users import uid_of
from rtsched.daemon.systemd import Level  # noqa: TC001 - read by msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_EVENTS: tuple[Event, ...] = ("moved", "at-risk", "broken")

LONGEST = 4096
"""Bytes of a user's choice."""


class NoticesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A notices.toml."""

    events: Annotated[
        list[Event],
        Meta(description="Of what users are notified who chose nothing themselves."),
    ] = msgspec.field(default_factory=lambda: [*DEFAULT_EVENTS])
    choices: Annotated[
        str,
        Meta(
            description="Directory with a file for each user who chose, named like the user and "
            'owned by the user or root: `events = ["broken", "kept"]`. Empty: nobody may.'
        ),
    ] = "/var/lib/rtsched-notices/choices"
    mail: Annotated[
        list[str],
        Meta(
            description="Program that sends a mail which it reads, with its headers; the recipient "
            "is added. Empty: no mail."
        ),
    ] = msgspec.field(default_factory=lambda: ["/usr/sbin/sendmail", "-i"])
    sender: Annotated[
        str, Meta(description="Sender of the mails.", pattern=r"^[^\s<>,;]{1,200}$")
    ] = "rtsched"
    mail_domain: Annotated[
        str,
        Meta(
            description="Domain of users' addresses; empty: the names alone, as the local mail "
            "system knows them.",
            pattern=r"^[A-Za-z0-9.-]{0,200}$",
        ),
    ] = ""
    webhook: Annotated[
        str, Meta(description="URL to which each notice is sent as JSON; empty: none.")
    ] = ""
    command: Annotated[
        list[str],
        Meta(description="Program that reads each notice as JSON; no shell. Empty: none."),
    ] = []
    every: Annotated[float, Meta(gt=0, description="Seconds between two looks.")] = 15.0
    digest: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds in which what happens to a user's jobs is put into one notice; "
            "broken promises are sent at once.",
        ),
    ] = 300.0
    moved_s: Annotated[
        float, Meta(gt=0, description="Seconds by which a planned start moves to be told.")
    ] = 3600.0
    per_hour: Annotated[
        int,
        Meta(
            ge=1, description="Notices to one user per hour at the most; the rest is put together."
        ),
    ] = 12
    timeout: Annotated[float, Meta(gt=0, description="Seconds for a program or the webhook.")] = (
        20.0
    )
    query_socket: Annotated[str, Meta(description="Socket of the daemon for queries.")] = (
        "/run/rtsched/query.sock"
    )
    state: Annotated[str, Meta(description="File that remembers what was sent.")] = (
        "/var/lib/rtsched-notices/state.json"
    )
    log_level: Annotated[Level, Meta(description="Log level.")] = "info"

    def problems(self) -> list[str]:
        """Return what is wrong with the settings as a whole, one sentence each."""
        found = []
        for name, program in (("mail", self.mail), ("command", self.command)):
            if program and not os.access(program[0], os.X_OK):
                found.append(
                    f"{name}: {program[0]} is not a program; install it, or set {name} = []"
                )
        if self.webhook and urlsplit(self.webhook).scheme not in {"http", "https"}:
            found.append(f"webhook: {self.webhook!r} is not a URL such as https://host/path")
        if not (self.mail or self.webhook or self.command):
            found.append("mail, webhook, command: all are empty, so nobody would be told")
        return found


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one user wants to be told."""

    events: list[Event]


def chosen(settings: NoticesSettings, user: str) -> Sequence[Event]:
    """Return what a user is to be told: what the user chose, if that can be read.

    Only a file of the user's own, or of root's, counts, and no link.
    """
    if not settings.choices or "/" in user or user.startswith("."):
        return settings.events
    try:
        text = _own_text(Path(settings.choices) / user, user)
        return msgspec.convert(tomllib.loads(text), Choice).events
    except (OSError, ValueError):
        return settings.events


def _own_text(path: Path, user: str) -> str:
    """Return the text of a file that a user, or root, wrote.

    Raises
    ------
    OSError, ValueError
        If there is none, or it is something else.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with contextlib.closing(os.fdopen(handle, "rb")) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {0, uid_of(user)}:
            raise ValueError(f"{path} is not a file of {user}'s")
        return file.read(LONGEST).decode()

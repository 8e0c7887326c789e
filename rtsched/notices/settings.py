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

    events: list[Event] = msgspec.field(default_factory=lambda: [*DEFAULT_EVENTS])
    """Of what users are notified who chose nothing themselves."""
    choices: str = "/var/lib/rtsched-notices/choices"
    """Directory with a file for each user who chose, named like the user and owned by the user or
    root: `events = ["broken", "kept"]`. Empty: nobody may."""
    mail: list[str] = msgspec.field(default_factory=lambda: ["/usr/sbin/sendmail", "-i"])
    """Program that sends a mail which it reads, with its headers; the recipient is added. Empty: no
    mail."""
    sender: Annotated[str, Meta(pattern=r"^[^\s<>,;]{1,200}$")] = "rtsched"
    """Sender of the mails."""
    mail_domain: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.-]{0,200}$")] = ""
    """Domain of users' addresses; empty: the names alone, as the local mail system knows them."""
    webhook: str = ""
    """URL to which each notice is sent as JSON; empty: none."""
    command: list[str] = []
    """Program that reads each notice as JSON; no shell. Empty: none."""
    every: Annotated[float, Meta(gt=0)] = 15.0
    """Seconds between two looks."""
    digest: Annotated[float, Meta(ge=0)] = 300.0
    """Seconds in which what happens to a user's jobs is put into one notice; broken promises are
    sent at once."""
    moved_s: Annotated[float, Meta(gt=0)] = 3600.0
    """Seconds by which a planned start moves to be told."""
    per_hour: Annotated[int, Meta(ge=1)] = 12
    """Notices to one user per hour at the most; the rest is put together."""
    timeout: Annotated[float, Meta(gt=0)] = 20.0
    """Seconds for a program or the webhook."""
    query_socket: str = "/run/rtsched/query.sock"
    """Socket of the daemon for queries."""
    state: str = "/var/lib/rtsched-notices/state.json"
    """File that remembers what was sent."""
    log_level: Level = "info"
    """Log level."""

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

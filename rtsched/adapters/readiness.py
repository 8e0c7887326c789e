"""Readiness of a batch system: checks that all systems have, and their results."""

from __future__ import annotations

import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

SUBMIT_KEYS = {
    *("socket", "timeout_ms", "on_failure", "breaker_failures", "breaker_ms"),
    *("judge", "daemon_user"),
}
"""Settings of a submit filter that all batch systems share."""


class CheckResult(NamedTuple):
    """One thing that was looked at.

    Attributes
    ----------
    state : {"good", "note", "wrong"}
        `note`: it works, with a limit worth knowing.
    what : str
        What was found.
    remedy : str
        What to do; empty where all is good.
    """

    state: Literal["good", "note", "wrong"]
    what: str
    remedy: str = ""


def good(what: str) -> CheckResult:
    """Return that something is as it should be."""
    return CheckResult("good", what)


def note(what: str, remedy: str = "") -> CheckResult:
    """Return that something works, with a limit worth knowing."""
    return CheckResult("note", what, remedy)


def wrong(what: str, remedy: str) -> CheckResult:
    """Return that something is not as it should be, and what to do."""
    return CheckResult("wrong", what, remedy)


@dataclass(frozen=True, kw_only=True)
class HostSetup:
    """What there is on this machine, where the daemon and the submit filter meet.

    Attributes
    ----------
    user, user_exists : str, bool
        The daemon's user.
    run : Path
        Directory of the sockets.
    run_owner : str
        Whose that is; empty: it is not there.
    filters : tuple of str
        Who may ask for verdicts, by the site's settings.
    submit_path : Path
        Settings of the submit filter.
    submit : mapping of str to str
        What they say.
    """

    user: str = "rtsched"
    user_exists: bool = True
    run: Path = Path("/run/rtsched")
    run_owner: str = ""
    filters: tuple[str, ...] = ()
    submit_path: Path = Path("/etc/rtsched/submit.conf")
    submit: Mapping[str, str] = field(default_factory=dict)


def user_findings(setup: HostSetup) -> Iterator[CheckResult]:
    """Tell of a daemon's user that is not there."""
    if not setup.user_exists:
        yield wrong(
            f"the user {setup.user} does not exist on this machine",
            f"`useradd --system {setup.user}`, or install the package's sysusers file",
        )


def socket_findings(setup: HostSetup, keys: Collection[str]) -> Iterator[CheckResult]:
    """Tell whether daemon and filter name the same socket and user; `keys`: settings there are."""
    if not setup.run_owner:
        yield wrong(
            f"{setup.run} does not exist",
            "systemd creates it (RuntimeDirectory of the unit); start the daemon",
        )
    elif setup.run_owner != setup.user:
        yield wrong(
            f"{setup.run} belongs to {setup.run_owner}", f"`chown {setup.user}: {setup.run}`"
        )
    else:
        yield good(f"{setup.run} belongs to {setup.user}")
    for key, usual, wanted, filters, daemons in (
        ("socket", "/run/rtsched/submit.sock", f"{setup.run}/submit.sock", "asks", "listens on"),
        ("daemon_user", "rtsched", setup.user, "trusts", "runs as"),
    ):
        if (given := setup.submit.get(key, usual)) != wanted:
            yield wrong(
                f"the submit filter {filters} {given}, the daemon {daemons} {wanted}",
                f"set {key} = {wanted} in {setup.submit_path}",
            )
    for key in sorted(set(setup.submit) - set(keys)):
        yield wrong(f"{setup.submit_path}: unknown setting {key!r}", "correct or remove that line")


# --- looking --------------------------------------------------------------------------------------


def host_facts(user: str, run: Path, filters: Sequence[str], submit_path: Path) -> dict[str, Any]:
    """Return the attributes of a `HostSetup` of this machine."""
    return {
        "user": user,
        "user_exists": user_exists(user),
        "run": run,
        "run_owner": owner_of(run),
        "filters": tuple(filters),
        "submit_path": submit_path,
        "submit": submit_settings(submit_path),
    }


def user_exists(name: str) -> bool:
    """Return whether this machine has a user of that name."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def owner_of(path: Path) -> str:
    """Return whose a file or directory is; empty: it is not there."""
    try:
        uid = path.stat().st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def submit_settings(path: Path) -> dict[str, str]:
    """Return what the submit filter's settings say; a file that is not there says nothing."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in map(str.strip, lines) if line and line[0] != "#")
    return {key.strip(): value.strip() for key, _, value in pairs}

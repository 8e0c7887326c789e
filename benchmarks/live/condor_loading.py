"""An HTCondor pool with many slots and jobs on which nothing starts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import Pool, PoolOptions, fragments
from testbed.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

USERS = ("alice", "bob", "carol", "dave")
AGES = 100_000
SLEEPING = {
    "NEGOTIATOR_INTERVAL": str(AGES),
    "NEGOTIATOR_CYCLE_DELAY": str(AGES),
    "NEGOTIATOR_MIN_INTERVAL": str(AGES),
}
"""Nothing is matched, so that all stays as large as it is."""
LASTING = {"CLASSAD_LIFETIME": str(AGES)}
"""Made-up slots stay."""
ITS_OWN = (
    *("Name", "Machine", "MyAddress", "StartdIpAddr", "SlotID", "AddressV1"),
    *("AuthenticatedIdentity", "AuthenticationMethod", "LastHeardFrom", "MyCurrentTime"),
)
"""Attributes that no two slots share, or that the collector adds."""
TABLE = "/run/rtsched/slots"


def pool(
    *,
    ours: bool,
    settings: Mapping[str, str],
    config: Mapping[str, str] | None = None,
    submit_conf: str = "",
    parallel: bool = False,
) -> Pool:
    """Return a pool, not up yet, with our library, configuration and daemon or without."""
    files = {"/etc/rtsched/submit.conf": submit_conf}
    options = PoolOptions(
        parallel=parallel,
        settings=dict(settings),
        config=(fragments() if ours else {}) | dict(config or {}),
        library=ours,
    )
    return Pool("forky", options, software=ours, files=files)


def submit(
    running: Pool, lines: Iterable[str], count: int, user: str = "alice", timeout: float = 900
) -> float:
    """Submit a cluster of so many procs that sleep; return the seconds that it took."""
    text = "\n".join(["executable = /bin/sleep", "arguments = 3600", *lines, f"queue {count}", ""])
    begun = time.perf_counter()
    running.run(["condor_submit"], user=user, input=text, timeout=timeout)
    return time.perf_counter() - begun


def remove_all(running: Pool) -> None:
    """Remove all jobs, and wait until the queue is empty."""
    running.run(["condor_rm", *USERS], check=False, timeout=300)

    def empty() -> bool:
        return not running.run(["condor_q", "-allusers", "-af", "ClusterId"]).stdout.strip()

    wait_for("no job is left", empty, 300)


def advertise(running: Pool, names: Iterable[str]) -> None:
    """Tell the collector of slots that nobody has: copies of the first one, with other names."""
    first = running.options.slots[0]
    ad = running.run(["condor_status", "-long", first]).stdout.splitlines()
    common = [line for line in ad if line and line.partition(" ")[0] not in ITS_OWN]
    texts = []
    for number, name in enumerate(names):
        machine, address = name.partition("@")[2], f'"<127.0.0.1:9619?sock=made{number}>"'
        own = [f'Name = "{name}"', f'Machine = "{machine}"', "SlotID = 1"]
        own += [f"MyAddress = {address}", f"StartdIpAddr = {address}"]
        texts.append("\n".join([*common, *own]))
    path = Path("/tmp/slots.ads")  # noqa: S108
    running.path(str(path)).write_text("\n\n".join([*texts, ""]))
    words = ["condor_advertise", "-multiple", "UPDATE_STARTD_AD", path]
    running.run(words, timeout=300)


def write_table(running: Pool, names: Iterable[str]) -> None:
    """Write a table in which something is kept of every slot, as the daemon would."""
    now = int(time.time())
    lines = [f"rtsched-slots 1 {now} {AGES}"]
    lines += [f"{name}\t{1 + at % 3}\t{now + AGES}:1" for at, name in enumerate(names)]
    running.path(TABLE).write_text("\n".join([*lines, ""]))
    running.path(TABLE).chmod(0o644)

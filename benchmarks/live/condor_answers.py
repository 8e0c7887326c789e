"""How fast the daemon answers and cycles on a large pool, and what memory it takes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import answers
import condor_loading

from rtsched.adapters.wire import MessageKind, Tag, encode

if TYPE_CHECKING:
    from pathlib import Path

    from testbed import Pool

FULL = {"jobs": 10_000, "slots": 500, "promises": 1_000}
REDUCED = {"jobs": 1_000, "slots": 50, "promises": 100}
HOURS = 3600
SITE = f"""
planner = "mcdf"
[[plugin]]
name = "mcdf"
settings = {{ order = "deadline" }}
[condor]
start_delay_s = {HOURS}.0
overrun_s = 0.0
completing_s = 0.0
[daemon]
system = "condor"
cycle = 1.0
patience = 300
log_level = "debug"
lapse = 10
offer = 10
unused_promises_per_hour = 0
unused_offers_per_hour = 1000
"""
PATIENT = "timeout_ms = 4000\nbreaker_failures = 1000\n"


def run(*, reduced: bool, keep: Path | None = None) -> dict[str, Any]:  # noqa: ARG001 - as all
    """Measure a large state."""
    extent = REDUCED if reduced else FULL
    settings = condor_loading.SLEEPING | condor_loading.LASTING
    with condor_loading.pool(
        ours=True, settings=settings, submit_conf=PATIENT, parallel=True
    ) as running:
        users = [f"probe{number}" for number in range(answers.PROBES)]
        lines = [f"{name}:x:{30_000 + at}:100::/:/bin/sh\n" for at, name in enumerate(users)]
        with running.path("/etc/passwd").open("a") as passwords:
            passwords.writelines(lines)
        names = [f"slot1@made{number}.testbed" for number in range(extent["slots"])]
        condor_loading.advertise(running, names)
        for user in condor_loading.USERS:
            quarter = extent["jobs"] // len(condor_loading.USERS)
            condor_loading.submit(running, [f"+RtRunTime = {HOURS}"], quarter, user)
        running.start_daemon(SITE, timeout=300)
        _promise(running, extent)
        answers.steady(running)
        full = answers.measured(running, _questions(users, extent["slots"]))
    return {**extent, "load": os.getloadavg()[1], "full": full}


def problems(found: dict[str, Any]) -> list[str]:
    """Return what went wrong; speed alone never fails."""
    full = found["full"]
    wrong = [f"unexpected: {text}" for text in full["unexpected"]]
    wrong += [
        f"{many} of {answers.PROBES} deferred"
        for many in answers.deferred([full])
        if many > answers.PROBES // 20
    ]
    if full["promises"] < 0.99 * found["promises"]:
        wrong.append(f"only {full['promises']} promises could be made")
    return wrong


def _promise(running: Pool, extent: dict[str, int]) -> None:
    """Submit jobs of one slot of which each is promised a deadline: two for each slot.

    Each is a cluster of its own; the procs of one get one promise together.
    (Many parallel jobs on many slots keep HTCondor's dedicated scheduler busy for too long.)
    """
    deadline = int(time.time()) + 10 * HOURS * extent["promises"] // extent["slots"]
    lines = [f"+RtRunTime = {HOURS}", f"+RtDeadline = {deadline}"]
    for _ in range(extent["promises"]):
        condor_loading.submit(running, lines, 1)


def _questions(users: list[str], slots: int) -> answers.Questions:
    """Return what is asked: jobs that are accepted, and jobs that get an offer instead."""
    now = int(time.time())
    return {
        "accept": lambda number: _job(users[number], 1, now + 400 * HOURS, HOURS // 6),
        "reject": lambda number: _job(users[number], slots, now + 3 * HOURS, HOURS),
    }


def _job(user: str, hosts: int, deadline: int, run_time: int) -> bytes:
    """Return the question about a job, each of another user: each may hold an offer."""
    ad = {"ProcId": 0, "Owner": f'"{user}"', "JobUniverse": 11, "RequestCpus": 1}
    ad |= {"MinHosts": hosts, "MaxHosts": hosts, "RtDeadline": deadline, "RtRunTime": run_time}
    text = "".join(f"{name} = {value}\n" for name, value in ad.items())
    return encode(MessageKind.SUBMIT, [(Tag.AD, text)])

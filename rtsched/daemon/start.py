"""From a site.toml to a daemon that runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from rtsched.adapters.condor import CondorSystem, CondorTranslator
from rtsched.adapters.slurm import SlurmSystem, SlurmTranslator
from rtsched.adapters.users import uid_of
from rtsched.adapters.wire import Kind
from rtsched.chain import Chain
from rtsched.daemon.answers import Answers
from rtsched.daemon.app import Daemon, Policy
from rtsched.daemon.chains import Chains
from rtsched.daemon.logs import log_events
from rtsched.daemon.metrics import Metrics
from rtsched.daemon.promised_jobs import FILE, PromisedJobs
from rtsched.daemon.queries import Queries, Reader
from rtsched.daemon.server import Door
from rtsched.daemon.store import Store
from rtsched.daemon.worker import Worker
from rtsched.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rtsched.adapters.live import LiveSystem, Translator
    from rtsched.daemon.reports import PlanReport
    from rtsched.daemon.settings import LiveSite
    from rtsched.plugins import Found

log = structlog.get_logger(__name__)

TURN = 0.0002
"""Seconds after which a cycle, in its thread, lets the loop answer. Each answer lets go of the
interpreter a dozen times, to read, to write and to commit, and waits for its turn each time."""


def policy_of(live: LiveSite, found: Mapping[str, Found] | None = None) -> Policy:
    """Return the plug-ins of a site, made three times.

    Raises
    ------
    ConfigError, PluginError
        If one cannot be made, or the planner could not keep its promises on a batch system.
    """
    chains = [Chains(Chain.load(live.plugin, live.planner, found), live.scope) for _ in range(3)]
    problems = [
        f"plugin {member.name!r} is set to suspend jobs, which no batch system does here; "
        "change its settings"
        for member in chains[0].chain.members
        if member.mode == "enforce" and getattr(member.plugin, "suspends_every", None) is not None
    ]
    problems += [
        f"plugin {member.name!r}: {why}"
        for member in chains[0].chain.members
        if (why := getattr(member.plugin, "only_replayed", ""))
    ]
    if problems:
        raise ConfigError(problems)
    return Policy(live, *chains)


def system_of(live: LiveSite) -> tuple[Callable[[], LiveSystem], Translator]:
    """Return how to make the site's batch system, in another process, and its translator."""
    if live.daemon.system == "condor":
        return partial(CondorSystem, live.condor), CondorTranslator(live.condor)
    return partial(SlurmSystem, live.slurm), SlurmTranslator(live.slurm)


def serve(read: Callable[[], LiveSite], dry_run: bool = False) -> None:
    """Run the daemon until it is told to stop; `read` returns the site.toml, now and at SIGHUP.

    Raises
    ------
    ConfigError, PluginError
        If the site.toml cannot be followed.
    AdapterError
        If a socket cannot be made.
    StoreError
        If the database cannot be used.
    """
    live = read()
    log_events(live.daemon.log_level)
    sys.setswitchinterval(TURN)
    with _store(live, dry_run) as store:
        asyncio.run(_serve(live, store, lambda: policy_of(read()), dry_run))


def plan_once(live: LiveSite) -> PlanReport:
    """Return what a daemon that started now would plan and change; it touches nothing.

    Raises
    ------
    ConfigError, PluginError
        If the site.toml cannot be followed.
    AdapterError
        If the batch system does not answer.
    """

    async def one_cycle() -> PlanReport:
        daemon = _daemon(live, store, lambda: policy_of(live), dry_run=True)
        try:
            await daemon.cycle()
        finally:
            await daemon.worker.close()
        return Reader(daemon, os.getuid(), everyone=True).plan()

    with _store(live, dry_run=True) as store:
        return asyncio.run(one_cycle())


@contextlib.contextmanager
def _store(live: LiveSite, dry_run: bool) -> Iterator[Store]:
    """Give the site's database; in a dry-run an empty one that is forgotten."""
    with contextlib.ExitStack() as stack:
        database = Path(live.daemon.database)
        if dry_run:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="rtsched-dry-run-"))
            database = Path(directory) / "rtsched.db"
        yield stack.enter_context(Store(database, live.daemon.durable))


def _daemon(live: LiveSite, store: Store, reread: Callable[[], Policy], dry_run: bool) -> Daemon:
    factory, translator = system_of(live)
    worker, metrics = Worker(factory, live.daemon.patience), Metrics()
    daemon = Daemon(
        policy_of(live),
        store,
        worker,
        translator,
        metrics,
        reread=reread,
        dry_run=dry_run,
        promised=_promised(live) if not dry_run else None,
    )
    metrics.watch(lambda: [chain.books for chain in daemon.policy.chains()])
    return daemon


def _promised(live: LiveSite) -> PromisedJobs | None:
    """Return the list of promised jobs, where the submit filter needs one.

    HTCondor's schedd shows its expressions the whole job.
    """
    return PromisedJobs(Path(live.daemon.run) / FILE) if live.daemon.system == "slurm" else None


async def _serve(live: LiveSite, store: Store, reread: Callable[[], Policy], dry_run: bool) -> None:
    settings = live.daemon
    daemon = _daemon(live, store, reread, dry_run)
    daemon.metrics.listen(settings.metrics_port)
    asking = await asyncio.to_thread(_uids, settings.asking_users())
    run = Path(settings.run)
    asking = await asyncio.to_thread(_uids, settings.asking_users())
    submits = Door(
        run / "submit.sock",
        (Kind.SUBMIT, Kind.MODIFY),
        Answers(daemon).answer,
        uids=asking,
    )
    answering = Queries(daemon, os.getuid())
    queries = Door(run / "query.sock", (Kind.QUERY,), answering.answer)
    try:
        await daemon.run([(submits, settings.asking_group()), (queries, None)])
    finally:
        answering.close()


def _uids(names: Iterable[str]) -> set[int]:
    """Return the uids of users; one that is not there is left out, and said in the log."""
    found = {name: uid_of(name) for name in names}
    for name, uid in found.items():
        if uid < 0:
            log.warning("no_such_user", user=name, setting="daemon.filters")
    return {uid for uid in found.values() if uid >= 0}

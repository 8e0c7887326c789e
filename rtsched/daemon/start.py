"""Start of the daemon, from a site.toml."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from rtsched.adapters.users import uid_of
from rtsched.adapters.wire import MessageKind
from rtsched.core.chain import Chain
from rtsched.core.plugins import discover
from rtsched.daemon.answers import Answers, Queries
from rtsched.daemon.app import Daemon, PluginChains, rules_of, wording_of
from rtsched.daemon.chains import Chains, ConfigReloader
from rtsched.daemon.database import WriterEpoch
from rtsched.daemon.estimating import Estimating
from rtsched.daemon.metrics import Metrics
from rtsched.daemon.promises import LIST_FILE, PromisedJobs
from rtsched.daemon.server import SocketServer
from rtsched.daemon.settings import followed
from rtsched.daemon.site_reader import SiteReader
from rtsched.daemon.standby import BEAT, SharedSocketServer, Standby
from rtsched.daemon.store import Store
from rtsched.daemon.systemd import log_events, notify, watched
from rtsched.daemon.warming import warm_up
from rtsched.daemon.worker import Worker
from rtsched.errors import ConfigError, StoreError
from rtsched.loading import loading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from rtsched.adapters.live import LiveSystem, Translator
    from rtsched.core.config import PluginTable
    from rtsched.core.plugins import Found
    from rtsched.daemon.questions import PlanReport
    from rtsched.daemon.settings import LiveSite

log = structlog.get_logger(__name__)

QUESTIONS = (MessageKind.QUERY, MessageKind.QUERY_FOR)

TURN = 0.0002
"""Seconds after which a cycle, in its thread, lets the loop answer. Each answer lets go of the
interpreter a dozen times, to read, to write and to commit, and waits for its turn each time."""


def policy_of(live: LiveSite, found: Mapping[str, Found] | None = None) -> PluginChains:
    """Return the plug-ins of a site, made three times.

    Raises
    ------
    ConfigError, PluginError
        If one cannot be made, or the planner could not keep its promises on a batch system.
    """
    found = discover() if found is None else found
    tables = [with_live_settings(table, found) for table in live.plugin]
    chains = [Chains(Chain.load(tables, live.planner, found), live.scope) for _ in range(3)]
    problems = [
        f"plugin {member.name!r} is set to suspend jobs, which is not supported on live systems; "
        "change its settings"
        for member in chains[0].chain.members
        if member.mode == "enforce" and member.capabilities.suspends_every is not None
    ]
    problems += [
        f"plugin {member.name!r}: {why}"
        for member in chains[0].chain.members
        if (why := member.capabilities.replay_only)
    ]
    chain = chains[0].chain
    planner = chain.member(chain.planner) if chain.planner else None
    if live.shares_nodes and planner and not planner.capabilities.plans_resources:
        problems.append(
            f"plugin {planner.name!r} plans whole nodes only; set share_nodes = false in "
            f"[{live.daemon.system}], or plan with spare, with portfolio, or with mcdf without "
            "insured losses, rounds, unequal_nodes and staggered"
        )
    if live.daemon.standby and live.daemon.system != "slurm":
        problems.append("daemon.standby: is for Slurm only; remove it")
    if live.daemon.restart_exit_codes and live.daemon.system != "slurm":
        problems.append(
            "daemon.restart_exit_codes: is for Slurm only; remove it and set max_retries in jobs"
        )
    if problems:
        raise ConfigError(problems)
    return PluginChains(live, chains[0], chains[1], chains[2])


def policy_again(changed: LiveSite, running: LiveSite) -> PluginChains:
    """Return the plug-ins of a changed site for a daemon that started with other settings.

    Raises
    ------
    ConfigError, PluginError
        As `policy_of` does, and where nothing is set any more: as while a file is being written.
    """
    if changed == type(changed)() != running:
        raise ConfigError(["nothing is set, as in an empty file"])
    live, at_start = followed(changed, running)
    return replace(policy_of(live), at_start=at_start)


def with_live_settings(table: PluginTable, found: Mapping[str, Found]) -> PluginTable:
    """Return a plug-in's table with what is the default on live systems only.

    That is the plug-in's `live_settings`; what the table sets stays.
    """
    defaults = live_settings_of(table.name, found)
    return msgspec.structs.replace(table, settings={**defaults, **table.settings})


def live_settings_of(name: str, found: Mapping[str, Found]) -> Mapping[str, object]:
    """Return the defaults of a plug-in's settings that hold on live systems only, by name."""
    known = found.get(name)
    return getattr(known and known.plugin, "live_settings", {})


def system_of(live: LiveSite) -> tuple[Callable[[], LiveSystem], Translator]:
    """Return how to make the site's batch system, in another process, and its translator."""
    # Only this system's modules are loaded.
    if live.daemon.system == "condor":
        from rtsched.adapters.condor.submission import CondorTranslator
        from rtsched.adapters.condor.system import CondorSystem

        return partial(CondorSystem, live.condor), CondorTranslator(live.condor)
    from rtsched.adapters.slurm.submission import SlurmTranslator
    from rtsched.adapters.slurm.system import SlurmSystem

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
    with loading():
        live = read()
    log_events(live.daemon.log_level)
    sys.setswitchinterval(TURN)

    def reread() -> PluginChains:
        return policy_again(read(), live)

    try:
        if live.daemon.standby and not dry_run:
            asyncio.run(_under_watch(partial(_serve_in_turn, live, reread)))
        else:
            with _store(live, dry_run) as store:
                asyncio.run(_under_watch(partial(_serve, live, store, reread, dry_run)))
    finally:
        notify("STOPPING=1")


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
        daemon = _daemon(policy_of(live), store, lambda: policy_of(live), Metrics(), dry_run=True)
        try:
            await daemon.cycle()
        finally:
            await daemon.worker.close()
        return SiteReader(daemon, os.getuid(), everyone=True).plan()

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


def _daemon(
    policy: PluginChains,
    store: Store,
    reread: Callable[[], PluginChains],
    metrics: Metrics,
    dry_run: bool = False,
) -> Daemon:
    factory, translator = system_of(policy.live)
    worker = Worker(factory, policy.live.daemon.patience)
    estimating = Estimating(policy.live, metrics, kept=not dry_run)
    daemon = Daemon(
        policy,
        store,
        worker,
        translator,
        metrics,
        estimating=estimating,
        reread=reread,
        dry_run=dry_run,
        promised=_promised(policy.live) if not dry_run else None,
    )
    metrics.watch(lambda: [chain.hook_metrics for chain in daemon.policy.chains()])
    metrics.watch_database(store.path)
    return daemon


def _promised(live: LiveSite) -> PromisedJobs | None:
    """Return the list of promised jobs, where the submit filter needs one.

    HTCondor's schedd shows its expressions the whole job.
    """
    return (
        PromisedJobs(Path(live.daemon.run) / LIST_FILE) if live.daemon.system == "slurm" else None
    )


async def _under_watch(serving: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
    async with watched() as ready:
        await serving(ready)


async def _serve(
    live: LiveSite,
    store: Store,
    reread: Callable[[], PluginChains],
    dry_run: bool,
    ready: Callable[[], None],
) -> None:
    settings = live.daemon
    metrics = Metrics()
    daemon = _daemon(policy_of(live), store, reread, metrics, dry_run)
    metrics.listen(settings.metrics_port)
    run = Path(settings.run)
    asking = await asyncio.to_thread(_uids, settings.asking_users())
    submits = SocketServer(
        run / "submit.sock",
        (MessageKind.SUBMIT, MessageKind.MODIFY),
        Answers(daemon).answer,
        uids=asking,
    )
    answering = Queries(daemon, os.getuid())
    rest = await asyncio.to_thread(_rest_uid, settings.rest_user)
    queries = SocketServer(run / "query.sock", QUESTIONS, answering.answer, for_others=rest)
    try:
        await daemon.run([(submits, settings.asking_group()), (queries, None)], ready)
    finally:
        answering.close()


async def _serve_in_turn(
    live: LiveSite, reread: Callable[[], PluginChains], ready: Callable[[], None]
) -> None:
    """Be on standby and active by turns, as the controller of this host is."""
    from rtsched.adapters.slurm.installed import LocalController

    settings, run = live.daemon, Path(live.daemon.run)
    controller = LocalController(live.slurm, run)
    os.environ["SLURM_CONF"] = str(controller.copy)  # for the process that talks to Slurm
    left = PromisedJobs(run / LIST_FILE)
    standby = Standby(Path(settings.database), controller, settings.system, left.forget)
    metrics = Metrics()
    uids = await asyncio.to_thread(_uids, settings.asking_users())
    metrics.listen(settings.metrics_port)
    asked = (MessageKind.SUBMIT, MessageKind.MODIFY)
    submits = SharedSocketServer(run / "submit.sock", asked, standby.answer_filter, uids)
    rest = await asyncio.to_thread(_rest_uid, settings.rest_user)
    queries = SharedSocketServer(
        run / "query.sock", QUESTIONS, standby.answer_query, for_others=rest
    )
    wording, stop, loop = (
        wording_of(system_of(live)[1]),
        asyncio.Event(),
        asyncio.get_running_loop(),
    )

    def warmed() -> PluginChains:
        made = reread()
        warm_up(made, rules_of(made, wording))
        return made

    policy = await asyncio.to_thread(warmed)

    def follow(made: PluginChains) -> str:
        nonlocal policy
        policy = made
        return made.not_followed

    reloader = ConfigReloader(warmed, follow)
    standby.reload_problem = lambda: reloader.problem
    servers: list[tuple[SharedSocketServer, str | None]] = [
        (submits, settings.asking_group()),
        (queries, None),
    ]
    try:
        for server, group in servers:
            await server.listen(group)
        ready()
        while True:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
            loop.add_signal_handler(signal.SIGHUP, reloader.begin)
            if not await standby.until_in_control(stop):
                break
            writer = WriterEpoch(controller.host)
            try:
                store = await asyncio.to_thread(Store, settings.database, settings.durable, writer)
            except StoreError as error:
                log.error("not_taken_over", error=str(error))
                await asyncio.sleep(BEAT)
                continue
            with store:
                daemon = _daemon(policy, store, reread, metrics)
                daemon.peers = standby.heartbeats.shown
                answering = Queries(daemon, os.getuid())
                submits.active, queries.active = Answers(daemon).answer, answering.answer
                if stop.is_set():
                    break
                watcher = asyncio.create_task(_watch(standby, store, writer, daemon))
                try:
                    await daemon.run(servers)
                finally:
                    watcher.cancel()
                    answering.close()
            if daemon.signalled:  # perhaps while another host took over: it ends all the same
                break
            policy = daemon.policy
    finally:
        standby.heartbeats.write("stopped", "")
        for server, _ in servers:
            server.leave()


async def _watch(standby: Standby, store: Store, writer: WriterEpoch, daemon: Daemon) -> None:
    try:
        await standby.watch(store, writer)
    except Exception:  # a defect: it goes on standby, and takes over again if it still may
        log.exception("watch_crashed")
    daemon.stop()


def _uids(names: Iterable[str]) -> set[int]:
    """Return the uids of users; one that is not there is left out, and said in the log."""
    found = {name: _uid(name, "daemon.filters") for name in names}
    return {uid for uid in found.values() if uid >= 0}


def _rest_uid(name: str) -> int:
    """Return the uid of the REST server's user; -1: there is none."""
    return _uid(name, "daemon.rest_user") if name else -1


def _uid(name: str, setting: str) -> int:
    uid = uid_of(name)
    if uid < 0:
        log.warning("no_such_user", user=name, setting=setting)
    return uid

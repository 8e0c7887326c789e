"""Warm-up: the plug-ins are asked once before anybody waits for them.

Kernels are compiled, or read from the disk, when they are first called, which takes seconds, and a
submit filter waits for milliseconds.
"""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from rtsched.adapters.live import FeasibilityRequest, Marks, Observation, Submission
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.cycle import after_poll, steered
from rtsched.daemon.menu import Allowance, Request, with_lines, with_menu
from rtsched.daemon.messages import Wording
from rtsched.daemon.site import Site
from rtsched.errors import PlannerError, RtschedError
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.resources import CPU
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Accounts, Snapshot
from rtsched.model.units import HOUR, MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtsched.adapters.live import Translator
    from rtsched.daemon.app import PluginChains
    from rtsched.daemon.cycle import CycleRules

log = structlog.get_logger(__name__)

_NOW = 1.0e9
_NODES = 4
_DEMAND = np.full((2, 1), 3, np.int64)
"""Cores per node of the jobs, where they share nodes: no two fit on one."""


def warm_up(policy: PluginChains, rules: CycleRules) -> None:
    """Judge made-up jobs on a made-up machine, submit and cycle alike; nothing is kept."""
    begun = time.perf_counter()
    _ask(policy, rules, shares=policy.live.shares_nodes)
    log.info("plugins_warmed_up", seconds=round(time.perf_counter() - begun, 3))


def _ask(policy: PluginChains, rules: CycleRules, *, shares: bool) -> None:
    """Judge the jobs on whole nodes, or on nodes that jobs share."""
    room = np.full((_NODES, 1), 4, np.int64) if shares else None
    names = {"capacity": (CPU,) if shares else ()}
    nodes = Nodes.build(_NODES, name=list("abcd"), capacity=room, names=names)
    site = Site(Snapshot(_NOW, Cluster(nodes)))
    site = after_poll(site, _observation(site), rules, _NOW).site
    admission = AdmissionController(policy.submits, policy.live.daemon, Wording(str, str))
    free, waits = Edges.build(0), Edges.build(1, before=[2])  # job 2 runs
    for kind, links in (
        (Kind.RIGID, free),
        (Kind.MOLDABLE, free),
        (Kind.DIVISIBLE, free),
        (Kind.RIGID, waits),
    ):
        for left in (900.0, 3600.0, 100.0):  # fits, fits behind it, does not fit
            submission = Submission(_job(kind, _NOW + left), links, 0)
            try:
                site = admission.judge(site, submission, _NOW).site
            except PlannerError as error:  # it may still know what to do with the site's own jobs
                log.error("planning_failed", problem=str(error))
    observation = replace(_observation(site), time=_NOW + 1.0)
    settled = after_poll(site, observation, rules, _NOW + 1.0)
    steered(settled.site, settled.events, rules, _NOW + 1.0)


def rehearse(
    site: Site, policy: PluginChains, translator: Translator, wording: Wording, now: float
) -> None:
    """Answer made-up submissions on the site as it is, from the request to the reply.

    Nothing is kept. `now` in seconds since the epoch.
    """
    begun, settings = time.perf_counter(), policy.live.daemon
    admission = AdmissionController(policy.submits, settings, wording)
    for asked in _questions(now):
        try:
            fields = translator.fields_of(asked)
            request = Request(translator, fields, translator.describe(fields, site.facts, now))
            judged = admission.judge(site, request.submission, now)
            allowance = Allowance(settings.menu_ms / 1000.0)
            judged = with_menu(admission, site, judged, request, now, allowance)
            judged = with_lines(judged, request, now)
            translator.answer(request.submission, judged.reply, site.facts)
        except RtschedError as error:  # the batch system has no such jobs, or no plan is made now
            log.debug("not_rehearsed", problem=str(error))
    log.info("answers_rehearsed", seconds=round(time.perf_counter() - begun, 3))


def _questions(now: float) -> Iterator[FeasibilityRequest]:
    """Yield jobs of ten minutes of every kind, with deadlines that fit and that are too soon."""
    load = {"sigma": 100.0, "cms": 0.01, "cps": 2.0}
    kinds: tuple[dict[str, Any], ...] = ({}, {"nodes_max": 2}, {"load": load}, {"array": "0-3"})
    for left in (3.0 * HOUR, MINUTE):
        for kind in kinds:
            yield FeasibilityRequest(os.getuid(), now + left, time_s=10.0 * MINUTE, **kind)


def keep_loaded() -> None:
    """Have the garbage collector look no more through modules and kernels: they stay.

    To look through them again would delay answers. Once, before the daemon begins.
    """
    gc.collect()
    gc.freeze()


def _job(kind: Kind, deadline: float) -> Jobs:
    sigma = 100.0 if kind == Kind.DIVISIBLE else np.nan
    return Jobs.build(
        1,
        wall_time=[600.0],
        deadline=[deadline],
        kind=np.array([kind], np.int8),
        size=[2],
        size_min=[-1 if kind == Kind.RIGID else 1],
        size_max=[-1 if kind == Kind.RIGID else 3],
        sigma=[sigma],
        cms=[1.0],
        cps=[10.0],
        demand=_DEMAND[:1],
        names={"demand": (CPU,)},
    )


def _observation(site: Site) -> Observation:
    """Return an observation at one best-effort job that waits and one that runs."""
    both = Jobs.build(
        2,
        id=[1, 2],
        submit=[_NOW - 60.0, _NOW - 50.0],
        wall_time=[600.0, 300.0],
        association=[0, 0],
        user=["nobody", "nobody"],
        demand=_DEMAND,
        names={"demand": (CPU,)},
    )
    one = np.arange(2, dtype=np.int64)
    runs = Schedule.build([2], [_NOW - 10.0], [_NOW + 300.0], one, np.array([3], np.int32))
    return Observation(
        _NOW,
        site.snapshot.cluster,
        both.take([0]),
        both.take([1]),
        runs,
        Marks.build(2, job=[1, 2], uid=[0, 0]),
        accounts=Accounts.build(1, name=["nobody"], is_user=[True]),
    )

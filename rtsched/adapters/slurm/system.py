"""Slurm as a live system."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.live import Change, Completions, Done, LastGood, Observation, Remade
from rtsched.adapters.slurm import last_applied
from rtsched.adapters.slurm.accounts import (
    Associations,
    accounts_above,
    accounts_of,
    default_accounts_in,
    limits_of,
    used_time,
    with_ended,
)
from rtsched.adapters.slurm.commands import CommandRunner, carried_out, rank_of
from rtsched.adapters.slurm.completions import find_completions
from rtsched.adapters.slurm.facts import (
    Sharing,
    SlurmFacts,
    billing_of,
    calc_period_of,
    config_of,
    facts_of,
    federation_in,
    keeps_limits,
    partitions_of,
    plans_licenses,
    qos_of_partitions,
    sharing_of,
    used_time_rules,
)
from rtsched.adapters.slurm.groups import joined_arrays, joined_components
from rtsched.adapters.slurm.last_applied import AppliedFile, LastApplied, SlurmState, applied
from rtsched.adapters.slurm.layout import (
    ClusterLayout,
    blocked_of,
    foreign,
    layout_of,
    periodic_of,
    released_late,
    unreserved_licenses,
)
from rtsched.adapters.slurm.observation import (
    allocations_of,
    completions_of,
    edges_of,
    jobs_of,
    marks_of,
    requeued_parts,
)
from rtsched.adapters.slurm.route import JobSource
from rtsched.adapters.slurm.rows import parts
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.steering import SlurmSteering
from rtsched.errors import InputError
from rtsched.model.limits import USED_TIME, LimitRules, UsedTime
from rtsched.model.snapshot import Accounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.adapters.slurm.rows import JobRows, NodeRow, ReservationRow
    from rtsched.model.actions import Action

CONFIG_EVERY_S = 60.0
"""Seconds between two readings of the configuration."""

_OLD_LIMITS = "limits of accounts and QOS are those of the last time"
_OLD_USED_TIME = "used time of accounts and QOS is that of before"
_OLD_SHARES = "sshare shows no accounts: fair shares are those of the last time"


class SlurmSystem:
    """A Slurm that runs.

    Parameters
    ----------
    settings : SlurmSettings
        The `[slurm]` table.
    """

    name = "slurm"
    calls = math.inf

    def __init__(self, settings: SlurmSettings | None = None) -> None:
        self.settings = settings or SlurmSettings()
        self._commands = CommandRunner(self.settings)
        share = self.settings.share_nodes
        self._route = JobSource(self._commands, self.settings.route, amounts=share)
        self._last_applied = LastApplied.of(last_applied.read(self.settings.memory))
        self._kept = self._last_applied.kept()
        self._not_kept = ""
        self._view: SlurmState | None = None
        self._config: dict[str, str] = {}
        self._federation = ""
        self._config_read = self._shares_read = -np.inf
        self._shares: tuple[Accounts, Associations] = (Accounts.build(0), {})
        self._above: dict[str, str] = {}
        self._home: dict[str, str] = {}
        self._no_shares = self._no_billing = ""
        self._shown_limits = LastGood(("", ""), _OLD_LIMITS)
        self._limits = LastGood[LimitRules | None](None, _OLD_LIMITS)
        self._rules = Remade(limits_of)
        self._used_time = LastGood[UsedTime | None](None, _OLD_USED_TIME)
        self._version = 0
        self._machine = Remade(self._layout)
        self._blocked = Remade(blocked_of)

    def poll(self) -> Observation:
        """Return Slurm's present state.

        Raises
        ------
        AdapterError
            If the controller does not answer, or answers what this adapter does not know.
        """
        now = time.time()
        rows = self._route.jobs()
        reservations = self._commands.reservations()
        single, recurring = foreign(reservations, now)
        nodes = self._commands.nodes()
        self._read_config(now)
        given, unshared = sharing_of(self._config)
        sharing = self._with_licenses(given, reservations, now)
        machine, partition_qos = self._machine_now(nodes, single, sharing)
        self._read_shares(now)
        limits = self._limits_now(partition_qos)
        facts = self._facts(machine, sharing, given, _users_of(rows), limits)
        used = self._used_time_now(rows, limits, now)
        problems = (
            *(self._route.problem, self._not_kept, unshared if self.settings.share_nodes else ""),
            *(self._no_billing, self._no_shares),
            *(self._limits.problem or self._shown_limits.problem, self._used_time.problem),
        )
        self._last_applied.restore_marks(rows)
        self._last_applied.restore_deadlines(rows)
        requeued = requeued_parts(rows, now)
        rows = joined_components(joined_arrays(rows, reservations, facts, now), facts)
        queued, running, over = parts(rows)
        unshown = queued[rows.max_nodes[queued] == 0]
        self._last_applied.keep_only(set(rows.id[queued].tolist()), set(rows.id[unshown].tolist()))
        allocations = allocations_of(rows, running, machine, facts, now)
        which = np.concatenate([queued, running])
        waiting = jobs_of(rows, queued, facts, ranges=self._last_applied.ranges, now=now)
        observation = Observation(
            now,
            machine.cluster,
            waiting,
            jobs_of(rows, running, facts, allocations.entries.size),
            allocations,
            marks_of(rows, which, facts, waiting),
            completions_of(rows, over),
            self._shares[0],
            edges_of(rows, queued, which),
            periodic_of(recurring, machine.row, now),
            blocked=self._blocked.of(single, machine.row),
            reserved_ahead=self.settings.reserved_ahead_s,
            facts=facts,
            problems=tuple(filter(None, problems)),
            flapping=released_late(nodes, machine),
            leeway=facts.margin,
            requeue_delay=facts.requeue_delay,
            limits=limits,
            used_time=used,
            keeps_after=0.0,
        )
        names = machine.cluster.nodes.names("name")
        self._view = SlurmState(rows, observation, facts, names, reservations, now)
        self._view.requeued = requeued
        self._view.weights = {node.name: node.weight for node in nodes}
        return observation

    def find_completions(
        self,
        jobs: Sequence[int],
        since: float = -math.inf,  # noqa: ARG002 - of the interface; accounting finds jobs by id
    ) -> Completions:
        """Return how jobs ended that no poll shows any more, as far as accounting knows.

        Raises
        ------
        AdapterError
            If accounting does not answer in time.
        """
        return find_completions(self._commands, jobs)

    def changes(self, actions: Sequence[Action]) -> Sequence[Change]:
        """Return what of the actions is not so yet, by the last poll."""
        if self._view is None:
            self.poll()
        view = self._view
        assert view is not None  # noqa: S101 -- a poll sets it
        view.now = time.time()
        view.comments = {}
        steering = SlurmSteering(view, self._last_applied, self.settings)
        return sorted((each for one in actions for each in steering.changes(one)), key=rank_of)

    def carry_out(self, changes: Sequence[Change]) -> Sequence[Done]:
        """Do it, and return for each change what became of it; never raises for one of them."""
        self._keep(self._last_applied.foreseen(changes, time.time()))
        done = carried_out(self._commands, changes)
        now = time.time()
        for each in done:
            if each.outcome == "done" and self._view is not None:
                applied(self._view, each.change.command)
            self._last_applied.remember(each, now)
        self._keep(self._last_applied.kept())
        return done

    def _keep(self, what: AppliedFile) -> None:
        """Have the next process know what jobs were asked for."""
        if what != self._kept:
            self._kept = what
            self._not_kept = last_applied.write(self.settings.memory, what)

    def _with_licenses(
        self, given: Sharing, reservations: Sequence[ReservationRow], now: float
    ) -> Sharing:
        """Return how promised jobs share nodes, and with what licences."""
        if not self.settings.share_nodes:
            return Sharing()
        if not (given.resources and plans_licenses(self._config)):
            return given
        ahead, counts = self.settings.reserved_ahead_s, self._commands.licenses()
        return replace(given, licenses=unreserved_licenses(counts, reservations, now, ahead))

    def _machine_now(
        self, nodes: list[NodeRow], single: Sequence[ReservationRow], sharing: Sharing
    ) -> tuple[ClusterLayout, dict[str, str]]:
        """Return the machine, the same object as before if nothing changed; QOS of partitions."""
        shown, default = partitions_of(self._commands.partitions(), self._config)
        reserved = {name for each in single for name in each.nodes}
        reserved.intersection_update(node.name for node in nodes if node.maintenance)
        flags = self._config.get("PriorityFlags", "")
        machine = self._machine.of(nodes, shown, default, reserved, sharing, flags)
        return machine, qos_of_partitions(shown)

    def _layout(
        self,
        nodes: list[NodeRow],
        shown: dict[str, dict[str, str]],
        default: str,
        reserved: set[str],
        sharing: Sharing,
        flags: str,
    ) -> ClusterLayout:
        """Return the machine; `flags` are the PriorityFlags."""
        self._version += 1
        billing, self._no_billing = None, ""
        try:
            billing = billing_of(flags, shown)
        except InputError as error:
            self._no_billing = f"limits of billing are not planned with: {error}"
        asked = self.settings, self._version, sharing, billing
        return layout_of(nodes, shown, default, reserved, *asked)

    def _read_config(self, now: float) -> None:
        """Read the configuration, and the limits of accounts and QOS if Slurm keeps to them."""
        if now - self._config_read <= CONFIG_EVERY_S:
            return
        self._config = config_of(self._commands.config())
        shown = self._commands.federation()
        self._federation = self._federation if shown is None else federation_in(shown)
        self._config_read = now
        if keeps_limits(self._config):
            cluster = self._config.get("ClusterName", "")
            self._shown_limits.read(lambda: self._commands.limits(cluster))
        else:
            self._shown_limits = LastGood(("", ""), _OLD_LIMITS)

    def _limits_now(self, partition_qos: dict[str, str]) -> LimitRules | None:
        """Return the limits; the same object as before if nothing changed."""
        shown, period = self._shown_limits.value, calc_period_of(self._config)
        safe, half_life = used_time_rules(self._config)
        return self._limits.read(
            lambda: self._rules.of(*shown, partition_qos, period, safe=safe, half_life=half_life)
        )

    def _used_time_now(
        self, rows: JobRows, limits: LimitRules | None, now: float
    ) -> UsedTime | None:
        """Return what is used of limits, if some count used time; it is read with the limits."""
        if limits is None or limits.words.isdisjoint(USED_TIME):
            self._used_time = LastGood(None, _OLD_USED_TIME)
            return None
        if self._config_read == now or self._used_time.value is None:
            self._used_time.read(lambda: used_time(self._commands.used_time(), rows, limits, now))
        used = self._used_time.value
        return used and with_ended(used, rows, limits)

    def _read_shares(self, now: float) -> None:
        """Read the accounts now and then."""
        if now - self._shares_read > self.settings.accounts_every_s:
            shown = self._commands.shares()
            self._no_shares = _OLD_SHARES if shown is None else ""
            self._shares = self._shares if shown is None else accounts_of(shown)
            self._above = accounts_above(self._shares[0])
            self._home = default_accounts_in(self._commands.users()) or self._home
            self._shares_read = now

    def _facts(
        self,
        machine: ClusterLayout,
        sharing: Sharing,
        given: Sharing,
        users: dict[int, str],
        limits: LimitRules | None,
    ) -> SlurmFacts:
        """Return the facts."""
        settings = self.settings
        longest = [part.longest_s for part in machine.partitions.values()]
        return replace(
            facts_of(self._config, settings.start_delay_s, settings.completing_s),
            federation=self._federation,
            partitions=machine.partitions,
            default=machine.default,
            longest=max(longest, default=np.inf),
            associations=self._shares[1],
            sharing=sharing,
            given=given,
            home=self._home,
            above=self._above,
            users=users,
            limits=limits,
            billing=machine.cluster.billing,
            parts=machine.parts,
            features=machine.features,
        )


def _users_of(rows: JobRows) -> dict[int, str]:
    """Return the names of the jobs' users by uid."""
    uid, at = np.unique(rows.uid, return_index=True)
    return dict(zip(uid.tolist(), rows.user.take(at), strict=True))

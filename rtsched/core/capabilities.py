"""Capabilities: what a plug-in can do beside its hooks, and what it prepares and is asked for that.

    class Gentle:
        capabilities = Capabilities(keeps_periodic=True)

A field that does not exist, or holds a value of the wrong type, is a `TypeError` where the value is
made; loading the plug-in turns it into an error that names the plug-in.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple, cast

from rtsched.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import numpy as np
    from numpy.typing import NDArray

    from rtsched.kernels.policy import RejectedRows
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import PlanRows
    from rtsched.model.snapshot import Accounts
    from rtsched.model.verdicts import Verdicts


COMPILED = "write compiled_policy=..., see 'Compiled policies' in docs/plugins.md"
"""What to write in place of the compiled forms of earlier releases."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a plug-in declares in its attribute `capabilities`; the defaults hold where it does not.

    The attribute belongs to the class, or to the instance where it depends on settings.

    Attributes
    ----------
    keeps_periodic : bool
        Planner: its plans leave the site's periodic work (`snapshot.periodic`) its time.
    follows_dependencies : bool
        Planner: its plans start a job after those that it depends on (`snapshot.edges`).
    judges_only_deadlines : bool
        Admission: it has no opinion on a batch without a deadline, and need not be asked then.
    suspends_every : float or None
        Planner: seconds between the instants at which its plans may suspend a job; None: never.
    replay_only : str
        Planner: why no live system can follow its plans, and which setting to change; empty: one
        can.
    spare_nodes : int
        Planner: how many lost nodes its promises survive, in the partition where it is most.
    plans_resources : bool
        Planner: its plans give jobs amounts of resources on nodes that they share
        (`snapshot.cluster.shared`), and leave reservations of the site their time
        (`snapshot.blocked`).
    places_resources : bool
        Its placements, too, give jobs amounts of resources on nodes that they share: a node set
        holds only nodes that have what the job asks for and that it may use.
    shares_nodes : bool or None
        Whether it chooses nodes for a machine whose nodes run several jobs at a time; None: for
        either kind.
    static_hooks : callable or None
        `static_hooks(jobs, cluster)` returns the names of the hooks (`{"partition"}`) whose answers
        on all these jobs depend on them and the cluster alone. A hook method that names no other
        argument is static without it.
    compiled_policy : callable or None
        Job order, node choice: `compiled_policy(jobs, accounts, cluster, origin)` returns its
        compiled form for a replay of these jobs (`rtsched.kernels.policy`), or None.
    replay_planner : callable or None
        Planner: `replay_planner(jobs, cluster)` returns its short form for a replay of these jobs,
        a `rtsched.core.capabilities.ReplayPlanner`, or None where it has none.

    Raises
    ------
    TypeError
        Naming the field that holds a value of the wrong type.
    """

    keeps_periodic: bool = False
    follows_dependencies: bool = False
    judges_only_deadlines: bool = False
    suspends_every: float | None = None
    replay_only: str = ""
    spare_nodes: int = 0
    plans_resources: bool = False
    places_resources: bool = False
    shares_nodes: bool | None = None
    static_hooks: Callable[[Jobs, Cluster], Collection[str]] | None = None
    compiled_policy: Callable[[Jobs, Accounts, Cluster, float], Any] | None = None
    replay_planner: Callable[[Jobs, Cluster], ReplayPlanner | None] | None = None

    def __new__(cls, **given: object) -> Capabilities:
        """Refuse fields of earlier releases, saying what to write."""
        if gone := [name for name in ("compiled_hooks", "replay_placer") if name in given]:
            raise TypeError(f"Capabilities.{gone[0]} is not read any more; {COMPILED}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse values of the wrong type."""
        every = self.suspends_every
        seconds = isinstance(every, Real) and not isinstance(every, bool) and every > 0
        spare = self.spare_nodes
        count = isinstance(spare, int) and not isinstance(spare, bool) and spare >= 0
        optional_bool = self.shares_nodes is None or isinstance(self.shares_nodes, bool)
        right = {
            "keeps_periodic": (isinstance(self.keeps_periodic, bool), "True or False"),
            "follows_dependencies": (isinstance(self.follows_dependencies, bool), "True or False"),
            "judges_only_deadlines": (
                isinstance(self.judges_only_deadlines, bool),
                "True or False",
            ),
            "suspends_every": (every is None or seconds, "a number of seconds above 0 or None"),
            "replay_only": (isinstance(self.replay_only, str), "text"),
            "spare_nodes": (count, "a number of nodes, 0 or more"),
            "plans_resources": (isinstance(self.plans_resources, bool), "True or False"),
            "places_resources": (isinstance(self.places_resources, bool), "True or False"),
            "shares_nodes": (optional_bool, "True, False or None"),
            "static_hooks": (_optional_callable(self.static_hooks), "callable or None"),
            "compiled_policy": (_optional_callable(self.compiled_policy), "callable or None"),
            "replay_planner": (_optional_callable(self.replay_planner), "callable or None"),
        }
        for field, (holds, kind) in right.items():
            if not holds:
                raise TypeError(
                    f"Capabilities.{field} must be {kind}, not {getattr(self, field)!r}"
                )


REPLACED = {
    "keeps_periodic": "keeps_periodic=True",
    "follows_edges": "follows_dependencies=True",
    "suspends_every": "suspends_every=...",
    "only_replayed": 'replay_only="..."',
    "spare_nodes": "spare_nodes=...",
    "shares_nodes": "shares_nodes=...",
    "settled_hooks": "static_hooks=...",
    "compiled_hooks": "compiled_policy=...",
}
"""Attributes that plug-ins had in place of `Capabilities`, and what to write there."""


def capabilities_of(name: str, plugin: object) -> Capabilities:
    """Return what a plug-in declares.

    Parameters
    ----------
    name : str
        What errors call it.
    plugin : object
        An instance of it.

    Raises
    ------
    PluginError
        If `capabilities` is no `Capabilities`; if there is none, and the plug-in has one under
        another name, or attributes that `Capabilities` replaced.
    """
    declared = getattr(plugin, "capabilities", None)
    if isinstance(declared, Capabilities):
        return declared
    if declared is not None:
        raise PluginError(
            name, f"`capabilities` must be rtsched.api.Capabilities(...), not {declared!r}"
        )
    attributes = {each: inspect.getattr_static(plugin, each, None) for each in dir(plugin)}
    misspelt = [each for each, value in attributes.items() if isinstance(value, Capabilities)]
    if misspelt:
        raise PluginError(name, f"`{misspelt[0]}` is not read; call it `capabilities`")
    old = [each for each in REPLACED if each in attributes]
    if old:
        raise PluginError(
            name,
            f"{', '.join(f'`{each}`' for each in old)}: not read any more; write "
            f"`capabilities = Capabilities({', '.join(REPLACED[each] for each in old)})` "
            "with rtsched.api.Capabilities",
        )
    return Capabilities()


def _optional_callable(value: Any) -> bool:
    return value is None or callable(value)


class ReplayPlanner(Protocol):
    """Answers about the jobs of one workload, given to `Capabilities.replay_planner`."""

    @property
    def answers(self) -> NDArray[np.bool_]:
        """Return bool[n]: which jobs of the workload it can judge at their submission."""

    def judge(
        self,
        rows: NDArray[np.int64],
        now: float,
        held_until: NDArray[np.float64],
        plan: PlanRows,
        promises: Callable[[], int],
    ) -> tuple[Verdicts | None, PlanRows | None]:
        """Judge jobs as the hook does.

        Parameters
        ----------
        rows : int64[k]
            The jobs, as rows of the workload.
        now : float
            Seconds since the epoch.
        held_until : float64[m]
            When running jobs leave each node at the latest, seconds since the epoch; -inf: it is
            free; inf: it takes no job.
        plan : PlanRows
            What the planner planned last, without what has started since.
        promises : callable
            Returns how many promises there are to jobs that have not ended, without these.

        Returns
        -------
        Verdicts or None
            One row per job, without a plan; None: all are admitted with their own deadline.
        PlanRows or None
            The new plan; None: nobody is admitted, the old one stands.
        """

    def improve(
        self, now: float, held_until: NDArray[np.float64], plan: PlanRows
    ) -> PlanRows | None:
        """Return a better plan as the hook does that is asked about no job; None: there is none.

        No node of the plan is out of service.
        """

    def compiled_policy(self) -> Any:
        """Return its compiled form (`rtsched.kernels.policy`), which a replay's loop asks, or None.

        What that admits is done without asking `judge` or `improve`, which would admit the
        same. It may depend on what was asked last, and is looked at after each question.
        """

    def verdicts(self, rejected: RejectedRows) -> Verdicts:
        """Return why its compiled form rejected these jobs, one row each, as `judge` would."""


T = TypeVar("T")
Ts = TypeVarTuple("Ts")


RESULTS = 2
"""Results that are kept at most: alternatives to a rejected job are judged beside held offers, and
without them."""


class PreparedState:
    """What one plug-in prepared, from one call to the next; hooks name it `prepared`.

    It decides how long an answer takes, never what it is: a state left out, or one that was asked
    about something else before, gives the same answers.
    """

    def __init__(self) -> None:
        self._kept: dict[Callable[..., Any], list[tuple[tuple[object, ...], Any]]] = {}

    def get(
        self,
        make: Callable[[*Ts], T],
        *arguments: *Ts,
        reads: tuple[object, ...] | None = None,
        after: Callable[[T], T | None] | None = None,
    ) -> T:
        """Return `make(*arguments)`, or a kept result if it read the same.

        Parameters
        ----------
        make : callable
            A pure function. Of each the last result is kept, and the one before as long as half of
            what the two read is the same: no state of long ago stays in memory.
        *arguments
            What it is called with.
        reads : tuple, optional
            What the result depends on, where an argument has more than that: the fields of a
            snapshot that are read, and numbers derived from its time. Default: the arguments. A
            part is unchanged if it is the same object or an equal number; tables are never
            written to, so the same object has the same content.
        after : callable, optional
            Makes the new result from the last one where that is quicker, and an equal one; None:
            it cannot.
        """
        parts: tuple[object, ...] = arguments if reads is None else reads
        kept = self._kept.setdefault(make, [])
        for read, result in kept:
            if _shared(read, parts) == len(parts):
                return cast("T", result)
        grown = (after(result) for _, result in kept) if after is not None else ()
        found = next((result for result in grown if result is not None), None)
        found = make(*arguments) if found is None else found
        recent = [each for each in kept if 2 * _shared(each[0], parts) >= len(parts)]
        kept[:] = [(parts, found), *recent[: RESULTS - 1]]
        return found


def _shared(before: tuple[object, ...], now: tuple[object, ...]) -> int:
    """Return how many parts are the same; 0 where there are more of the one than of the other."""
    if len(before) != len(now):
        return 0
    pairs = zip(before, now, strict=True)
    return sum(a is b or (isinstance(a, (int, float)) and a == b) for a, b in pairs)

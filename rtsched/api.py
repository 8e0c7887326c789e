"""Every name that the author of a plug-in needs; `rtsched.testing` has those for its tests.

    from rtsched.api import Reason, Verdicts, hookimpl

The hooks and their rules are in `rtsched.core.hookspecs`. Names that are not here, and not in
`rtsched.testing`, may change in any release.
"""

from rtsched.core.capabilities import COMPILED, Capabilities, PreparedState, ReplayPlanner
from rtsched.core.chain import Chain, Member
from rtsched.core.decision import observe, steer
from rtsched.core.hookspecs import hookimpl
from rtsched.core.plan_repair import restored
from rtsched.core.planned_rows import planned_again, planned_in_turn
from rtsched.errors import ShapeError
from rtsched.kernels.policy import (
    RejectedRows,
    RowPlan,
    RowRejection,
    job_columns,
    policy_kernels,
)
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Edges, Jobs, Kind, Periodic, array_time, occurrences
from rtsched.model.resources import (
    TENANCY,
    allowed_nodes,
    demand_of,
    fitting_nodes,
    fitting_sets,
    lacking,
    room_of,
)
from rtsched.model.schedule import Entries, PlanRows, Schedule
from rtsched.model.snapshot import (
    Accounts,
    Dependencies,
    Snapshot,
    are_in,
    dependencies_of,
    places,
)
from rtsched.model.state import EventKind, EventRows, Events, State
from rtsched.model.table import Ragged, amounts_of, offsets_of
from rtsched.model.verdicts import (
    DelayClasses,
    Finding,
    Placement,
    Reason,
    Terms,
    Verdict,
    Verdicts,
)

__all__ = [
    "TENANCY",
    "Accounts",
    "Capabilities",
    "Chain",
    "Cluster",
    "DelayClasses",
    "Dependencies",
    "Edges",
    "Entries",
    "EventKind",
    "EventRows",
    "Events",
    "Finding",
    "Jobs",
    "Kind",
    "Member",
    "NodeState",
    "Nodes",
    "Periodic",
    "Placement",
    "PlanRows",
    "PreparedState",
    "Ragged",
    "Reason",
    "RejectedRows",
    "ReplayPlanner",
    "RowPlan",
    "RowRejection",
    "Schedule",
    "ShapeError",
    "Snapshot",
    "State",
    "Terms",
    "Verdict",
    "Verdicts",
    "allowed_nodes",
    "amounts_of",
    "are_in",
    "array_time",
    "demand_of",
    "dependencies_of",
    "fitting_nodes",
    "fitting_sets",
    "hookimpl",
    "job_columns",
    "lacking",
    "observe",
    "occurrences",
    "offsets_of",
    "places",
    "planned_again",
    "planned_in_turn",
    "policy_kernels",
    "restored",
    "room_of",
    "steer",
]

_REPLACED = {
    *("CompiledHook", "FAIR_SHARE", "OBSERVE", "compiled_hook", "RowPlacer", "RowTest"),
    *("places_rows", "plans_rows", "rejects_rows"),
}


def __getattr__(name: str) -> object:
    """Say of names of earlier releases what to write."""
    if name in _REPLACED:
        raise ImportError(f"rtsched.api.{name} is not there any more; {COMPILED}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Every name that the author of a plug-in needs; `rtsched.testing` has those for its tests.

    from rtsched.api import Reason, Verdicts, hookimpl

The hooks and their rules are in `rtsched.core.hookspecs`. Names that are not here, and not in
`rtsched.testing`, may change in any release.
"""

from rtsched.core.capabilities import Capabilities, PreparedState, ReplayPlanner
from rtsched.core.chain import Chain, Member
from rtsched.core.decision import observe, steer
from rtsched.core.hookspecs import hookimpl
from rtsched.core.plan_repair import restored
from rtsched.core.row_tests import planned_again, planned_in_turn
from rtsched.errors import ShapeError
from rtsched.kernels.hooks import (
    FAIR_SHARE,
    OBSERVE,
    CompiledHook,
    RejectedRows,
    RowPlacer,
    RowPlan,
    RowRejection,
    RowTest,
    compiled_hook,
    job_columns,
    places_rows,
    plans_rows,
    rejects_rows,
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
from rtsched.model.snapshot import Accounts, Dependencies, Snapshot, dependencies_of, places
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
    "FAIR_SHARE",
    "OBSERVE",
    "TENANCY",
    "Accounts",
    "Capabilities",
    "Chain",
    "Cluster",
    "CompiledHook",
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
    "RowPlacer",
    "RowPlan",
    "RowRejection",
    "RowTest",
    "Schedule",
    "ShapeError",
    "Snapshot",
    "State",
    "Terms",
    "Verdict",
    "Verdicts",
    "allowed_nodes",
    "amounts_of",
    "array_time",
    "compiled_hook",
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
    "places_rows",
    "planned_again",
    "planned_in_turn",
    "plans_rows",
    "rejects_rows",
    "restored",
    "room_of",
    "steer",
]

"""What Slurm's node states mean for a replay, as scontrol and sinfo print them."""

from __future__ import annotations

import pytest

from rtsched.logs.machine import slurm_state
from rtsched.model.cluster import NodeState

UP = "ALLOCATED IDLE MIXED UNKNOWN IDLE+CLOUD IDLE+DYNAMIC_NORM MIXED+PLANNED IDLE+RESERVED idle-"
SAVING = (
    "IDLE+CLOUD+POWERED_DOWN MIXED+CLOUD+POWER_DOWN IDLE+CLOUD+POWERING_DOWN idle~ idle! idle% "
    "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP alloc# mix# IDLE+CLOUD+POWER IDLE+POWER_DRAIN "
    "IDLE+NOT_RESPONDING+POWERED_DOWN IDLE#+CLOUD pow_dn pow_up"
)
BOOTING = "IDLE+REBOOT_REQUESTED MIXED+REBOOT_ISSUED+NOT_RESPONDING boot^ idle@"
DRAINED = (
    "IDLE+DRAIN MIXED+DRAIN IDLE+CLOUD+DRAIN+POWERED_DOWN drained drng draining IDLE+MAINTENANCE "
    "maint idle$ failg FAILING IDLE+INVALID_REG inval"
)
DOWN = (
    "DOWN DOWN*+DRAIN down* DOWN+CLOUD+POWERED_DOWN IDLE+NOT_RESPONDING idle* IDLE*+CLOUD FUTURE "
    "futr ERROR FAIL down~"
)


@pytest.mark.parametrize(
    ("states", "meant"),
    [
        (UP, NodeState.UP),
        (SAVING, NodeState.UP),
        (BOOTING, NodeState.UP),
        (DRAINED, NodeState.DRAINED),
        (DOWN, NodeState.DOWN),
    ],
)
def test_states(states: str, meant: NodeState) -> None:
    """A node that saves energy or boots takes jobs; one that is drained or lost does not."""
    found = {state: slurm_state(state.split("+")) for state in states.split()}
    assert found == dict.fromkeys(found, meant)

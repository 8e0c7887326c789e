"""What settings say that a simulated machine can do is what its class does."""

import pytest

from rtsched.model.actions import Reserve
from rtsched.simulator.machines import MACHINES, PERIODIC


@pytest.mark.parametrize("name", MACHINES)
def test_what_a_machine_can_do(name: str) -> None:
    """It follows plans if it carries out reservations, and does periodic work if a class does."""
    can = MACHINES[name].usual
    assert can.machine == name
    assert can.keeps_plans == (Reserve in MACHINES[name].handlers)
    assert can.keeps_periodic == (name in PERIODIC)

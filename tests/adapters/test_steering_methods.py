"""Each action has its method in the steering of each batch system, or is known to have none."""

import pytest

from rtsched.adapters.changes import Steering
from rtsched.adapters.condor.steering import CondorSteering
from rtsched.adapters.slurm.steering import SlurmSteering
from rtsched.model.actions import Action


@pytest.mark.parametrize(
    ("steering", "unknown"), [(SlurmSteering, set()), (CondorSteering, {"Restart"})]
)
def test_an_action_is_done_by_the_method_of_its_name(
    steering: type[Steering], unknown: set[str]
) -> None:
    """A method of another name would be called by nobody."""
    names = {
        each.__name__: "".join(f"_{c.lower()}" if c.isupper() else c for c in each.__name__)[1:]
        for each in Action.__subclasses__()
    }
    assert {action for action, name in names.items() if not hasattr(steering, name)} == unknown

"""What a question of the cycle came to."""

from __future__ import annotations

import numpy as np
import pytest

from rtsched.core.chain import Priorities
from rtsched.core.cycle import Decision


def test_priorities_by_their_former_name() -> None:
    """A plug-in's tests may still say `order`, for a release."""
    priorities = Priorities(np.zeros(1), ())
    decision = Decision((), priorities=priorities)
    with pytest.warns(DeprecationWarning, match="`order` is called `priorities`"):
        assert decision.order is priorities

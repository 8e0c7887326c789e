"""Former names of the public parts of the core: one release long, with a warning."""

from __future__ import annotations

import numpy as np
import pytest

from rtsched.core.chain import Chain, Priorities
from rtsched.core.cycle import Decision


def test_priorities_by_their_former_name() -> None:
    """A plug-in's tests may still say `order`, for a release."""
    priorities = Priorities(np.zeros(1), ())
    decision = Decision((), priorities=priorities)
    with pytest.warns(DeprecationWarning, match="`order` is called `priorities`"):
        assert decision.order is priorities


def test_hook_metrics_by_their_former_name() -> None:
    """A plug-in's tests may still say `books`, for a release."""
    chain = Chain([])
    with pytest.warns(DeprecationWarning, match="`books` is called `hook_metrics`"):
        assert chain.books is chain.hook_metrics

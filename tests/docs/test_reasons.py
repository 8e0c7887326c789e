"""Each reason that the plug-in `limits` gives, with the numbers in its sentence."""

from __future__ import annotations

import numpy as np
import pytest

from rtsched.core.chain import Chain
from rtsched.core.config import PluginTable
from rtsched.model.verdicts import Verdict
from rtsched.testing import make_cluster, make_jobs, make_snapshot


@pytest.mark.parametrize(
    ("code", "job", "sentence"),
    [
        ("limits.too-wide", {"size": [5]}, "requests 5 nodes, the limit is 4"),
        (
            "limits.too-long",
            {"wall_time": [7200.0]},
            "requests 2 h of run time, the limit is 1 h",
        ),
        (
            "limits.no-time-limit",
            {"wall_time": [np.inf]},
            "states no run time, the limit is 1 h",
        ),
        (
            "limits.never-fits",
            {"size": [3], "partition": ["small"]},
            "needs 3 nodes, its partition has 2 available",
        ),
    ],
)
def test_limits_say_why(code, job, sentence):
    """The reason's code is stable, its sentence names what was asked for and the limit."""
    table = PluginTable("limits", settings={"size": 4, "wall_time": 3600.0})
    cluster = make_cluster(8, partitions={"small": [0, 1]})
    verdicts = Chain.load([table]).admit(make_jobs(**job), make_snapshot(cluster=cluster)).verdicts
    assert verdicts.code.tolist() == [Verdict.REJECT]
    (finding,) = verdicts.findings
    assert finding.reason.code == code
    assert finding.text(0) == sentence

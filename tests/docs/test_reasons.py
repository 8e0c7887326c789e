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
        ("limits.too-wide", {"size": [5]}, "asks for 5 nodes, the limit is 4"),
        (
            "limits.too-long",
            {"wall_time": [7200.0]},
            "asks for 7200 s of run time, the limit is 3600 s",
        ),
        (
            "limits.no-time-limit",
            {"wall_time": [np.inf]},
            "states no run time, the limit is 3600 s",
        ),
        (
            "limits.never-fits",
            {"size": [3], "partition": ["small"]},
            "needs 3 nodes, its partition has 2 that take jobs",
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

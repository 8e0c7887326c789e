"""What the plug-in does by day and by night, and that it keeps rtsched's contract."""

from typing import ClassVar

import numpy as np
from rtsched.api import Verdict
from rtsched.testing import PluginConformance, make_jobs, make_snapshot

from rtsched_quiet_hours import QuietHours

HOUR = 3600.0


class TestConformance(PluginConformance):
    """The conformance test of rtsched, with a limit that random jobs exceed."""

    plugin = QuietHours
    settings: ClassVar = {"begin": 0.0, "end": 23.0, "widest": 3}


def judge(now, **columns):
    """Return the verdicts on jobs at some second of 1 January 1970."""
    plugin = QuietHours(QuietHours.Config(begin=8.0, end=18.0, widest=4))
    return plugin.rtsched_admit(make_jobs(**columns), make_snapshot(now=now))


def test_wide_jobs_wait_for_the_evening():
    """At ten in the morning five nodes are too many, and six in the evening is named."""
    verdicts = judge(10 * HOUR, size=[4, 5])
    assert verdicts.code.tolist() == [Verdict.ABSTAIN, Verdict.DEFER]
    assert verdicts.retry_at[1] == 18 * HOUR
    assert verdicts.findings[0].text(0) == "asks for 5 nodes, over 4 wait 28800 s"


def test_jobs_that_cannot_wait_are_turned_away_with_an_offer():
    """A wide job due before the evening is rejected; the earliest deadline is offered."""
    verdicts = judge(10 * HOUR, size=5, wall_time=HOUR, deadline=np.array([12 * HOUR]))
    assert verdicts.code.tolist() == [Verdict.REJECT]
    assert verdicts.offer.tolist() == [19 * HOUR]


def test_the_night_is_free():
    """Outside of the quiet hours there is no opinion."""
    assert judge(19 * HOUR, size=99) is None


def test_quiet_hours_may_span_midnight():
    """From ten in the evening to six in the morning: at one o'clock five hours are left."""
    plugin = QuietHours(QuietHours.Config(begin=22.0, end=6.0, widest=4))
    verdicts = plugin.rtsched_admit(make_jobs(size=5), make_snapshot(now=HOUR))
    assert verdicts.retry_at.tolist() == [6 * HOUR]

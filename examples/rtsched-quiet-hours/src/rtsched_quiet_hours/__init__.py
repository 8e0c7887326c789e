"""Keep wide jobs out of the quiet hours of the day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta
from rtsched.api import Finding, Reason, Verdict, Verdicts, hookimpl

if TYPE_CHECKING:
    from rtsched.api import Jobs, Snapshot

DAY = 86400.0
Hour = Annotated[float, Meta(ge=0, lt=24)]


class QuietHours:
    """Hold wide jobs until the quiet hours are over."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        begin: Annotated[Hour, Meta(description="Hour of the day at which they begin.")] = 8.0
        end: Annotated[Hour, Meta(description="Hour of the day at which they end.")] = 18.0
        widest: Annotated[int, Meta(gt=0, description="Widest job that is not held.")] = 16
        utc_offset: Annotated[
            float, Meta(ge=-14, le=14, description="Hours of local time ahead of UTC.")
        ] = 0.0

    held = Reason("quiet-hours.held", "asks for {asked} nodes, over {widest} wait {wait} s")
    too_late = Reason("quiet-hours.too-late", "would have to wait {wait} s, {left} s are left")

    def __init__(self, config: Config) -> None:
        self.config = config

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, snapshot: Snapshot) -> Verdicts | None:
        """Defer wide jobs during quiet hours; reject those that cannot wait so long."""
        wait = self._wait(snapshot.now)
        if wait == 0.0:
            return None
        over = snapshot.now + wait
        wide = jobs.size > self.config.widest
        late = wide & (over + jobs.wall_time > jobs.deadline)
        code = np.where(late, Verdict.REJECT, np.where(wide, Verdict.DEFER, Verdict.ABSTAIN))
        left = np.where(late, jobs.deadline - snapshot.now, 0.0)
        return Verdicts.build(
            code,
            retry_at=np.where(code == Verdict.DEFER, over, -np.inf),
            offer=np.where(late, over + jobs.wall_time, np.inf),
            findings=(
                Finding.where(
                    wide & ~late, self.held, asked=jobs.size, widest=self.config.widest, wait=wait
                ),
                Finding.where(late, self.too_late, wait=wait, left=left),
            ),
        )

    def _wait(self, now: float) -> float:
        """Return the seconds until the quiet hours end, 0 outside of them."""
        begin, end = self.config.begin * 3600.0, self.config.end * 3600.0
        passed = (now + self.config.utc_offset * 3600.0 - begin) % DAY
        length = (end - begin) % DAY
        return length - passed if passed < length else 0.0

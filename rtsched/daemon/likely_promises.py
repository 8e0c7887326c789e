"""Likely promises that are open: apart from guaranteed ones, so that no plan is made for them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.daemon.records import Records
from rtsched.estimates.likely_level import LikelyLevel
from rtsched.model.jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rtsched.daemon.records import PromiseRecord


@dataclass(frozen=True)
class LikelyPromises:
    """Open likely promises, and what was learnt from those that are over.

    Attributes
    ----------
    records : Records
        By job id.
    requested : Jobs
        What their jobs asked for, one row each, in any order.
    level : LikelyLevel
        From which odds on one is given.
    """

    records: Records = field(default_factory=Records)
    requested: Jobs = field(default_factory=lambda: Jobs.build(0))
    level: LikelyLevel = field(default_factory=LikelyLevel)

    def __len__(self) -> int:
        return len(self.records)

    def given_since(self, at: float) -> Jobs:
        """Return what was asked for by those made at `at`, seconds since the epoch, or later."""
        made = [self.records[job].made_at >= at for job in self.requested.id.tolist()]
        return self.requested.take(np.flatnonzero(made))

    def with_new(self, record: PromiseRecord, row: Jobs) -> LikelyPromises:
        """Return these and one more; `row` is what its job asked for."""
        row = row.replace(id=np.array([record.id]))
        records, requested = self.records.with_new(record), self.requested.with_rows(row)
        return replace(self, records=records, requested=requested)

    def without(self, jobs: Iterable[int]) -> LikelyPromises:
        """Return these without those of some jobs."""
        gone = set(jobs) & self.records.keys()
        if not gone:
            return self
        left = Records({job: each for job, each in self.records.items() if job not in gone})
        rows = ~np.isin(self.requested.id, np.array(sorted(gone), np.int64))
        return replace(self, records=left, requested=self.requested.take(rows))

    def changed(
        self, records: Iterable[PromiseRecord], numbers: Mapping[int, int]
    ) -> LikelyPromises:
        """Return these with other open records, whose jobs may have other numbers than before.

        `numbers` are the new ones by the old ones.
        """
        ids = np.array([numbers.get(job, job) for job in self.requested.id.tolist()], np.int64)
        new = Records({record.id: record for record in records})
        kept = np.isin(ids, np.array(list(new), np.int64))
        return replace(self, records=new, requested=self.requested.replace(id=ids).take(kept))

    def learnt(self, outcomes: Iterable[tuple[float, bool]]) -> LikelyPromises:
        """Return these with outcomes more: stated odds, and whether they were kept."""
        return replace(self, level=self.level.learnt(outcomes))

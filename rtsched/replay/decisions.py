"""What plug-ins found, kept as they said it and written out row by row when somebody reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rtsched.chain import Judgement
    from rtsched.config import Mode
    from rtsched.model.verdicts import Finding


@dataclass(frozen=True)
class _Batch:
    plugin: str
    mode: Mode
    rows: NDArray[np.int64]
    code: NDArray[np.int8]
    offer: NDArray[np.float64]
    finding: Finding


class Decisions:
    """All findings of a replay, in the order in which they were made.

    Iterating gives one mapping per finding and job: `job` (row of the workload), `plugin`, `mode`,
    `verdict`, `reason` (code), `text`, `numbers`, `offer_s` (epoch seconds or None).
    """

    def __init__(self) -> None:
        self._batches: list[_Batch] = []

    def add(self, judgement: Judgement, rows: NDArray[np.int64]) -> None:
        """Keep the findings of a judgement on the jobs in these rows of the workload."""
        for answer in judgement.answers:
            if answer.value is None:
                continue
            for finding in answer.value.findings:
                if len(finding.rows):
                    at = finding.rows
                    code, offer = answer.value.code[at], answer.value.offer[at]
                    batch = _Batch(answer.plugin, answer.mode, rows[at], code, offer, finding)
                    self._batches.append(batch)

    def __len__(self) -> int:
        return sum(len(batch.rows) for batch in self._batches)

    def __iter__(self) -> Iterator[dict[str, object]]:
        for batch in self._batches:
            numbers = {name: values.tolist() for name, values in batch.finding.numbers.items()}
            for k, row in enumerate(batch.rows.tolist()):
                offer = float(batch.offer[k])
                yield {
                    "job": row,
                    "plugin": batch.plugin,
                    "mode": batch.mode,
                    "verdict": Verdict(int(batch.code[k])).name.lower(),
                    "reason": batch.finding.reason.code,
                    "text": batch.finding.text(k),
                    "numbers": {name: values[k] for name, values in numbers.items()},
                    "offer_s": offer if np.isfinite(offer) else None,
                }

    def reasons(self, n: int) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        """Return per job the code of the enforced finding that decided its rejection or wait.

        The first one that turned it away, else the first that put it off.

        Returns
        -------
        (int32[n], tuple of str)
            Codes into the names of reasons; -1 where there is none.
        """
        codes = np.full(n, -1, np.int32)
        names: dict[str, int] = {}
        for verdict in (Verdict.REJECT, Verdict.DEFER):
            for batch in self._batches:
                if batch.mode != "enforce":
                    continue
                rows = batch.rows[batch.code == verdict]
                fresh = rows[codes[rows] < 0]
                if len(fresh):
                    codes[fresh] = names.setdefault(batch.finding.reason.code, len(names))
        return codes, tuple(names)

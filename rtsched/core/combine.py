"""Combiners: many plug-ins' answers to one."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.verdicts import DelayClasses, Placement, Verdict, Verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.model.verdicts import Terms


def strictest(answers: Sequence[Verdicts], n: int) -> Verdicts:
    """Return per job the strictest verdict; the order of `answers` does not matter.

    `ABSTAIN < ADMIT < DEFER < REJECT`. A deferred job is asked again at the latest `retry_at`. A
    promise holds only for a job that is admitted. A counter-offer must suit everyone who rejected,
    so the latest one stands, and none if anyone has none. All findings are kept; the plan is the
    one given.
    """
    if not answers:
        return Verdicts.abstain(n)
    code = reduce(np.maximum, [answer.code for answer in answers])
    retry_at = reduce(
        np.maximum, [np.where(answer.code == code, answer.retry_at, -np.inf) for answer in answers]
    )
    promise = reduce(np.minimum, [answer.promise for answer in answers])
    offer = reduce(
        np.maximum,
        [np.where(answer.code == Verdict.REJECT, answer.offer, -np.inf) for answer in answers],
    )
    plans = [answer.plan for answer in answers if answer.plan is not None]
    return Verdicts(
        code,
        retry_at=np.where(code == Verdict.DEFER, retry_at, -np.inf),
        promise=np.where(code == Verdict.ADMIT, promise, np.inf),
        offer=np.where(code == Verdict.REJECT, offer, np.inf),
        findings=tuple(finding for answer in answers for finding in answer.findings),
        plan=plans[-1] if plans else None,
    )


def first_opinion(answers: Sequence[Placement], n: int) -> Placement:
    """Return per job the first size and node set that anyone in order has an opinion on."""
    size = np.zeros(n, np.int32)
    node_set = np.full(n, -1, np.int32)
    sets: list[NDArray[np.int32]] = []
    fractions: list[NDArray[np.float64]] = []
    moves = None
    for answer in answers:
        open_rows = (size == 0) & (node_set < 0)
        taken = open_rows & ((answer.size > 0) | (answer.node_set >= 0))
        size[taken] = answer.size[taken]
        shifted = np.where(answer.node_set >= 0, answer.node_set + len(sets), -1)
        node_set[taken] = shifted[taken]
        sets.extend(answer.node_sets)
        fractions.extend(answer.fractions or [np.empty(0)] * len(answer.node_sets))
        moves = answer.moves if moves is None else moves
    divided = any(len(part) for part in fractions)
    return Placement(size, node_set, tuple(sets), tuple(fractions) if divided else (), moves)


def first_classes(answers: Sequence[DelayClasses]) -> DelayClasses | None:
    """Return the first opinion on delay classes, rows without one filled from the next."""
    if not answers:
        return None
    first = answers[0]
    per_job = first.per_job
    for other in answers[1:]:
        if per_job is not None and other.per_job is not None:
            per_job = np.where(np.isnan(per_job), other.per_job, per_job)
    return DelayClasses(first.factor, first.bounds, per_job)


def weighted_sum(
    answers: Sequence[tuple[float, Terms]], association: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return per job the sum over plug-ins of weight times the terms' total.

    Parameters
    ----------
    answers : sequence of (float, Terms)
        Each plug-in's weight and terms.
    association : int32[n]
        The jobs' rows in `Accounts`, for terms per account; a job without one gets 0.
    """
    value = np.zeros(len(association))
    for weight, terms in answers:
        total = terms.total()
        if terms.per_account:
            charged = association >= 0
            value[charged] += weight * total[association[charged]]
        else:
            value += weight * total
    return value

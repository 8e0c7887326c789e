"""Reason codes that the daemon itself gives, beside those of plug-ins; they are stable."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "submit.unusable": "The submission asks for what nobody can promise, such as an array by a "
    "deadline, or says it wrongly; the text says which.",
    "submit.too-many": "Its user has as many promises as `promises_per_user` allows.",
    "submit.unused": "As many of its user's admissions as `unused_promises_per_hour` allows came "
    "to no job in the last hour, as with `sbatch --test-only`: each kept nodes from others.",
    "submit.waits": "It waits for other jobs, and the planner does not mind what jobs wait for.",
    "submit.unseen": "It waits for a job that was submitted a moment ago and that no look at the "
    "batch system has shown yet; some seconds later it can be judged.",
    "submit.held": "Not a rejection: its user holds it, so nobody knows when it may start; it is "
    "judged when it is released.",
    "submit.busy": "Not a rejection: the daemon was reworking its plan just then, and could not "
    "promise anything. The job is held, and accepted or rejected in the next cycle, some seconds "
    "later.",
    "submit.offer": "Not a rejection: it was admitted by the counter-offer that was held for it.",
    "wait.held": "The job is held, by its user, by an admin, or until it has been judged.",
    "wait.planned": "It was promised something, and its planned start is to come.",
    "wait.nodes": "Fewer nodes are free than it needs.",
    "wait.kept": "Nodes are free, and kept for promised starts before it would end.",
    "wait.order": "Other jobs have a higher priority from rtsched.",
}
"""By code, what it means."""

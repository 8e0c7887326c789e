"""Reason codes that the daemon itself gives, beside those of plug-ins; they are stable."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "submit.unusable": "The request cannot be promised, such as a job without a time limit or one "
    "beyond a limit of its account or QOS, or is malformed; the text says which.",
    "submit.too-many": "The user has reached the limit `promises_per_user`.",
    "submit.budget": "Promises to the user, or to the account, would take more of the machine than "
    "`promised_share_per_user` or `promised_share_per_account` allows.",
    "submit.unused": "The user has reached the limit `unused_promises_per_hour` of admissions in "
    "the last hour that no job followed, as with `sbatch --test-only`: each reserved nodes.",
    "submit.waits": "The job depends on other jobs, and the planner, as it is configured, does not "
    "support dependencies.",
    "submit.unseen": "Not a rejection: the job depends on a job that was submitted a moment ago "
    "and that no poll of the batch system has shown yet. It is held, and evaluated some seconds "
    "later.",
    "submit.unverified": "Not a rejection: no poll has shown its account or QOS, which the batch "
    "system itself checks after rtsched. If it accepts the job, the job is held, and evaluated "
    "some seconds later.",
    "submit.held": "Not a rejection: the user holds the job, so it is not known when it may start; "
    "it is evaluated when it is released.",
    "submit.component": "Not a rejection: it is a component of a heterogeneous job, which is held, "
    "and evaluated as one job as soon as all its components are there.",
    "submit.singleton": "Not a rejection: the job waits for those of its user and name "
    "(`--dependency=singleton`). It is held, and evaluated as soon as a poll shows all of these, "
    "some seconds later.",
    "submit.busy": "Not a rejection: the daemon was updating its plan at that moment and could not "
    "promise anything. The job is held, and accepted or rejected in the next cycle, some seconds "
    "later.",
    "submit.unconfirmed": "Not a rejection: jobs may have started since the last poll on nodes "
    "that the job would need. It is held, and accepted or rejected by a poll, in a few "
    "seconds.",
    "submit.limit": "The running and promised jobs of its account, user or QOS leave no room for "
    "the job, where it would be planned, in a limit that the text names.",
    "submit.used-up": "The jobs of its account, user or QOS have used, and may yet use, so much of "
    "GrpTRESMins or GrpWall that less is left than the job may need; the text names the limit.",
    "submit.offer": "Not a rejection: the job was admitted by the counter-offer that was held "
    "for it.",
    "likely.accepted": "Not a rejection: the deadline has the odds that the user asks for, by "
    "estimated run times.",
    "likely.odds": "The deadline has lower odds than the user asks for; the text states them, and "
    "a later deadline with the odds asked for, if one is known.",
    "likely.no-estimate": "There is no estimate of the job's start now, so no odds can be stated.",
    "likely.busy": "The daemon was updating its plan at that moment and could not promise "
    "anything; the user can submit the job again some seconds later.",
    "likely.low": "The user asks for lower odds than `odds_least`.",
    "likely.share": "Open likely promises would take more than `share` of the machine.",
    "likely.off": "The site gives no promises with odds (`share = 0`).",
    "likely.unsuitable": "Such a job gets no promise with odds: an array, a divisible load, one "
    "that waits for others or is held, or one without a time limit.",
    "likely.queued": "The job asks for odds and was not evaluated at its submission.",
    "wait.held": "The job is held by its user or an admin, or until it has been evaluated.",
    "wait.limit": "The job waits for a limit of its account or QOS, which the batch system names. "
    "A promise is moved when that keeps its job from two planned starts, or breaks where it cannot "
    "be.",
    "wait.planned": "The job has a promise, and its planned start is in the future.",
    "wait.dependency": "The job waits for other jobs, as its user asked.",
    "wait.begin": "The job may not start before the time that its user set.",
    "wait.nodes": "The job needs more nodes than are free.",
    "wait.kept": "Nodes are free, but reserved for promised jobs that start before this "
    "job would end.",
    "wait.reservation": "Nodes are free, but set aside by a reservation of the site before "
    "this job would end.",
    "wait.order": "Other jobs have a higher priority from rtsched.",
}
"""By code, what it means."""

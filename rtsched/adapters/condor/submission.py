"""Submissions: between the ClassAd library and the models, and what may be asked for instead."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.facts import CondorFacts
from rtsched.adapters.condor.ids import CLUSTER_BITS, cluster_at, cluster_of, job_id
from rtsched.adapters.condor.job_ads import name_in, number_of, submitter_of
from rtsched.adapters.condor.pool_state import DEFERRED
from rtsched.adapters.condor.queue import submitted_array
from rtsched.adapters.condor.requirements import (
    MEGABYTE,
    MOST,
    PARALLEL,
    CondorRequirements,
    is_held,
    requirements_of,
    run_time,
    size_of,
)
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.sharing import RESOURCES, demand_of_requests
from rtsched.adapters.live import PART, Adjustable, FeasibilityRequest, Submission, SubmitReply
from rtsched.adapters.requirements import notify_choice, odds_alone, too_late, too_long
from rtsched.adapters.users import uid_of, user_name
from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.errors import AdapterError
from rtsched.logs.classads import Expression, Record, number, parse_value, text
from rtsched.model.jobs import Edges, Jobs, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.adapters.live import Adjustment

MARK = "rtsched:"
"""What stands before an admission in an answer."""

BEHIND = "rtsched: it starts when the jobs on which it depends (RtAfter) have ended"
"""What a user reads whose job is promised nothing and waits for others."""


class CondorTranslator:
    """Translates submissions of HTCondor.

    Parameters
    ----------
    settings : CondorSettings
        The `[condor]` table.
    """

    afterwards = "the job runs as best effort"

    def __init__(self, settings: CondorSettings | None = None) -> None:
        self.settings = settings or CondorSettings()

    def name_of(self, job: int) -> str:
        """Return what HTCondor calls a job, such as `12.0`."""
        return self.settings.names.of(job)

    @property
    def naming(self) -> str:
        """How a user must name a job, where its number alone does not tell; empty: it does."""
        several = "in this pool a job is named with its access point, as in SCHEDD#12.0"
        return several if self.settings.schedds else ""

    def number_of(self, name: str) -> int:
        """Return the id of the job `12.0`; -1: this is no job's name."""
        return self.settings.names.number(name)

    def describe(
        self, fields: Mapping[int, str | int], facts: CondorFacts | None, now: float
    ) -> Submission:
        """Return what a submission means; `facts` are those of the last poll."""
        facts = facts or CondorFacts(names=self.settings.names)
        fields, wrong = too_long(fields)
        ad, unknown = self._at_schedd(ad_of(str(fields.get(Tag.AD, ""))))
        needs = submitted_array(ad, requirements_of(ad, facts), facts)
        begin = number(ad, "deferraltime")
        user, odds = text(ad, "owner") or "", number(ad, "rtodds") / 100.0
        jobs = job_of(ad, needs, facts, submit=now, begin=begin if begin > now else -math.inf)
        problem = (
            wrong
            or unknown
            or needs.problem
            or too_late(needs.deadline, max(now, begin if begin > 0 else now), "RtDeadline")
            or odds_alone(odds, needs.deadline, "RtOdds", "RtDeadline")
        )
        uid = uid_of(user)
        if uid < 0:
            problem = problem or f"its owner {user[:60]!r} is not a user of this machine"
        edges = Edges.build(
            len(needs.after),
            before=np.array(needs.after, np.int64),
            after=-1,
            message_time=needs.message_time,
        )
        return Submission(
            jobs,
            edges,
            uid,
            problem,
            job=_job_in(ad, needs),
            held=is_held(ad),
            notify=notify_choice(text(ad, "rtnotify") or ""),
            odds=odds,
            otherwise=text(ad, "rtelse") or "",
        )

    def _at_schedd(self, ad: Record) -> tuple[Record, str]:
        """Return an ad whose numbers of clusters are those of its schedd; and what is wrong.

        The GlobalJobId names the schedd that asks. One that a user asks about has none.
        """
        schedd = (text(ad, "globaljobid") or "").partition("#")[0]
        if not self.settings.schedds or not schedd:
            return ad, ""
        at = self.settings.names.place(schedd)
        if at < 0:
            return ad, f"its access point {schedd[:60]!r} is not in the site's [condor] schedds"
        numbers = {name: number(ad, name) for name in ("clusterid", "dagmanjobid")}
        return ad | {
            name: cluster_at(at, int(cluster))
            for name, cluster in numbers.items()
            if 0 <= cluster < 1 << CLUSTER_BITS
        }, ""

    def default_limit(
        self,
        facts: CondorFacts | None,  # noqa: ARG002 - of the interface
    ) -> float:
        """Return inf: a job without `allowed_job_duration` has no end."""
        return math.inf

    def answer(
        self,
        submission: Submission,
        reply: SubmitReply,
        facts: CondorFacts | None,  # noqa: ARG002 - of the interface
    ) -> Mapping[int, str | int]:
        """Return what the library is to tell: the verdict, its text, and the admission.

        Everything else is set by the adapter, once the job is in the queue: until then it cannot
        start anywhere. A job that waits for others stays deferred until these have ended, where
        nothing is promised to it: HTCondor would start it at once.
        """
        if reply.rejected:
            return {Tag.VERDICT: REJECT, Tag.MESSAGE: reply.text}
        fields: dict[int, str | int] = {Tag.VERDICT: ACCEPT}
        behind = bool(len(submission.edges)) and not reply.token
        if reply.text or behind:
            fields[Tag.MESSAGE] = reply.text or BEHIND
        if reply.token or reply.deferred or behind:
            fields[Tag.ADMIN_COMMENT] = MARK + (reply.token or DEFERRED)
            if submission.jobs.kind[0] == Kind.ARRAY:
                fields[Tag.NTASKS_PER_NODE] = int(submission.jobs.tasks_per_node[0])
        return fields

    def asking(self, deadline: float) -> str:
        """Return the line of a submit file that asks for a deadline."""
        return f"+RtDeadline={math.ceil(deadline)}"

    taking = "rtsched take {} job.sub"
    beginning = "deferral_time"

    def adjustable(
        self, fields: Mapping[int, str | int], submission: Submission, facts: CondorFacts | None
    ) -> Adjustable:
        """Return what of a submission could be asked for otherwise."""
        facts, ad = facts or CondorFacts(names=self.settings.names), self._ad(fields)
        kind = submission.jobs.kind[0]
        least, most = number(ad, "minhosts"), number(ad, "maxhosts")
        alike = number(ad, "jobuniverse") == PARALLEL and least == most and math.isfinite(most)
        gpus, here = number(ad, "requestgpus"), text(ad, "rtclass") or ""
        classes = sorted({name.partition(PART)[0] for name in facts.parts.nodes} - {"", here})
        return Adjustable(
            nodes=int(most) if alike and kind not in {Kind.DIVISIBLE, Kind.ARRAY} else 1,
            limit_s=run_time(ad, facts) if kind != Kind.DIVISIBLE else math.inf,
            step_s=1.0,
            gpus=int(gpus) if math.isfinite(gpus) else 0,
            partitions=tuple(classes) if here else (),
        )

    def adjusted(self, fields: Mapping[int, str | int], to: Adjustment) -> Mapping[int, str | int]:
        """Return a submission that asks for something else."""
        given = {
            "MinHosts": to.nodes,
            "MaxHosts": to.nodes,
            "RtRunTime": None if to.limit_s is None else math.floor(to.limit_s),
            "RequestGPUs": to.gpus,
            "RtClass": None if to.partition is None else f'"{to.partition}"',
            "RtDeadline": None if to.deadline is None else math.ceil(to.deadline),
            "RtOdds": None if to.odds is None else _odds(to.odds),
        }
        new = {name: value for name, value in given.items() if value is not None}
        names = {name.lower() for name in new}
        lines = filter(None, str(fields.get(Tag.AD, "")).split("\n"))
        kept = [line for line in lines if line.partition("=")[0].strip().lower() not in names]
        kept += [f"{name} = {value}" for name, value in new.items()]
        return {**fields, Tag.AD: "".join(f"{line}\n" for line in kept)}

    def options(self, fields: Mapping[int, str | int], to: Adjustment) -> tuple[str, ...]:
        """Return the options of condor_submit that make an adjusted submission of the first one.

        They count whatever the submit file says.
        """
        ad = self._ad(self.adjusted(fields, to))
        limit, wanted = number(ad, "rtruntime"), text(ad, "rtclass")
        lines = [
            "" if to.nodes is None else f"machine_count = {to.nodes}",
            f"+RtRunTime = {limit:.0f}" if math.isfinite(limit) else "",
            "" if to.gpus is None else f"request_gpus = {to.gpus}",
            f'+RtClass = "{wanted}"' if wanted else "",
            f"+RtDeadline = {math.ceil(number(ad, 'rtdeadline'))}",
            "" if to.odds is None else f"+RtOdds = {_odds(to.odds)}",
        ]
        return tuple(word for line in lines if line for word in ("-append", line))

    @staticmethod
    def _ad(fields: Mapping[int, str | int]) -> Record:
        return ad_of(str(fields.get(Tag.AD, "")))

    def protected(self, *_: object) -> str:
        """Return nothing: HTCondor itself protects the attributes of a promise."""
        return ""

    def fields_of(self, question: FeasibilityRequest) -> Mapping[int, str | int]:
        """Return a question as the ClassAd library would describe the job.

        Raises
        ------
        AdapterError
            If it asks for what only Slurm has.
        """
        for name in ("tasks", "licenses", "constraint", "nodelist", "exclude"):
            if getattr(question, name):
                option = {"tasks": "ntasks"}.get(name, name)
                raise AdapterError(f"HTCondor has no --{option}; leave it out")
        ad: dict[str, object] = {
            "Owner": user_name(question.uid),
            "ProcId": 0,
            "JobUniverse": 5,
            "RtDeadline": math.ceil(question.deadline),
        }
        if question.array:
            ad |= {"TotalSubmitProcs": _procs_in(question.array), "WholeCluster": True}
        most = question.nodes_max or question.nodes
        if question.load:
            named = {name: f"Rt{name.title().replace('_', '')}" for name in question.load}
            ad |= {named[name]: value for name, value in question.load.items()}
            ad |= {"TotalSubmitProcs": most, "RtMinNodes": question.nodes}
        elif most > 1:
            ad |= {"JobUniverse": 11, "MinHosts": question.nodes, "MaxHosts": most}
        if question.time_s is not None:
            ad["RtRunTime"] = question.time_s
        requests = {
            "RequestCpus": question.cpus_per_task,
            "RequestMemory": -(-question.memory >> 20),
            "RequestGPUs": question.gpus,
        }
        ad |= {name: amount for name, amount in requests.items() if amount}
        if question.account:
            ad["AcctGroup"] = question.account
        if question.partition:
            ad["RtClass"] = question.partition
        return {Tag.AD: "".join(f"{name} = {_literal(value)}\n" for name, value in ad.items())}


def ad_of(lines: str) -> Record:
    """Return the ad that lines `Name = literal` make, names in lower case.

    The library writes no newline within a value; what else ends lines to Unicode is text. Where it
    says `error`, the user said something that is no value: not the same as nothing.
    """
    pairs = (line.partition("=") for line in lines.split("\n") if "=" in line)
    words = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return {
        name: Expression(word) if word == "error" else parse_value(word)
        for name, word in words.items()
    }


def job_of(
    ad: Record, needs: CondorRequirements, facts: CondorFacts, *, submit: float, begin: float
) -> Jobs:
    """Return a job of one row; times in seconds since the epoch."""
    job = _job_in(ad, needs)
    submitter = submitter_of(ad, facts)
    cpus, memory = number(ad, "requestcpus"), number(ad, "requestmemory")
    demand = None
    if facts.shared:
        demand = demand_of_requests(*size_of(ad), facts) * needs.together
    return Jobs.build(
        1,
        label=["the job" if job < 0 else facts.names.of(job)],
        submit=submit,
        begin=begin,
        deadline=needs.deadline,
        cores=int(min(min(cpus, MOST) * needs.size, (1 << 31) - 1)) if cpus > 0 else -1,
        memory=int(min(memory, 1 << 40)) * MEGABYTE if memory > 0 else -1,
        demand=demand,
        names={"demand": RESOURCES} if demand is not None else None,
        name=[name_in(ad)],
        user=[text(ad, "owner")],
        account=[text(ad, "acctgroup")],
        partition=[needs.partition or None],
        node_request=[needs.node_request or None],
        association=facts.associations.get(submitter, -1),
        nice=0.0,
        dag=needs.dag,
        checkpoints=needs.checkpoint,
        **needs.columns(),
    )


def _job_in(ad: Record, needs: CondorRequirements) -> int:
    """Return the id of the job in an ad; -1 if it has no number."""
    job = number_of(ad)
    together = job >= 0 and (needs.whole or needs.kind == Kind.ARRAY)
    return job_id(cluster_of(job), 0) if together else job


def _procs_in(array: str) -> int:
    """Return how many procs an array has that is given as 1-50.

    Raises
    ------
    AdapterError
        If it is given otherwise.
    """
    found = re.fullmatch(r"(\d{1,7})-(\d{1,7})", array, re.ASCII)
    if found is None or int(found[2]) < int(found[1]):
        raise AdapterError("--array is a range of procs on HTCondor, such as 1-50")
    return int(found[2]) - int(found[1]) + 1


def _literal(value: object) -> str:
    """Return a value as a ClassAd literal."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)


def _odds(odds: float) -> str:
    """Return a literal of odds, 0 to 1; 1: a guarantee is wanted, so none are."""
    return f"{100 * odds:g}" if odds < 1.0 else "undefined"

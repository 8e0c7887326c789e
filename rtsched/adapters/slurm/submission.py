"""Submissions: between the submit filter and the models, and what a job may ask for instead.

Source: manual pages sbatch and scontrol, `job_desc_msg_t` in slurm.h.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rtsched.adapters.live import (
    NOT_ADJUSTABLE,
    Adjustable,
    FeasibilityRequest,
    Submission,
    SubmitReply,
    dag_key,
)
from rtsched.adapters.requirements import odds_alone, too_late, too_long
from rtsched.adapters.slurm.access import Submitter, no_access, refused_in_list
from rtsched.adapters.slurm.accounts import limits_for
from rtsched.adapters.slurm.commands import promised_factor, promised_priority
from rtsched.adapters.slurm.comments import (
    WORD,
    CommentOptions,
    fitting_record,
    options_in,
    with_record,
)
from rtsched.adapters.slurm.facts import SlurmFacts
from rtsched.adapters.slurm.per_node import count_for_gpus, needed_licenses, processors_in
from rtsched.adapters.slurm.requirements import (
    JobRequest,
    beyond_limits,
    dependency_of,
    node_list_in,
    refused_features,
    requirements_of,
    with_node_list,
)
from rtsched.adapters.slurm.rows import tasks_in
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.users import user_name
from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.logs.hostlist import expand, fold
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.limits import JobNames, kinds_of
from rtsched.model.resources import GPU

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rtsched.adapters.live import Adjustment
    from rtsched.adapters.requirements import Requirements
    from rtsched.adapters.slurm.facts import Partition

MARK = "rtsched:"
"""What an admission's token stands behind in a job's admin comment."""
MOST = (1 << 31) - 1
"""More of anything is not counted."""

MOST_PARTITIONS = 4
"""Of those that a job names, in how many it is planned at most."""

RELEASE = -1
"""A priority that lets a held job go."""

_TEST_ONLY = re.compile(r"\s--test-only(?!\S)")
"""What slurmctld does not tell a filter (`_slurm_rpc_job_will_run`, src/slurmctld/proc_req.c): only
the command line says so. There it may be an argument of the script, or be missing: #SBATCH."""

DEFERRED = "parked"
"""What follows `MARK` in the admin comment of a job that is held until it has been evaluated."""

UNPROMISED = "unpromised"
"""What follows `MARK` in the admin comment of a job that runs without the promise it asked for. Its
deadline, which Slurm no longer has, stands behind `--deadline=` there."""

PROTECTED: dict[Tag, str] = {
    Tag.TIME_LIMIT: "its time limit",
    Tag.TIME_MIN: "its time limit",
    Tag.MIN_NODES: "its node count",
    Tag.MAX_NODES: "its node count",
    Tag.MIN_CPUS: "its processors",
    Tag.MAX_CPUS: "its processors",
    Tag.NUM_TASKS: "its tasks",
    Tag.CPUS_PER_TASK: "its processors per task",
    Tag.NTASKS_PER_NODE: "its tasks per node",
    Tag.PN_MIN_CPUS: "its processors per node",
    Tag.PN_MIN_MEMORY: "its memory",
    Tag.MEM_PER_CPU: "its memory",
    Tag.PN_MIN_TMP_DISK: "its disk space",
    Tag.REQ_NODES: "its node list",
    Tag.EXC_NODES: "its excluded nodes",
    Tag.FEATURES: "its constraint",
    Tag.PREFER: "its preferred features",
    Tag.PARTITION: "its partition",
    Tag.QOS: "its QOS",
    Tag.ACCOUNT: "its account",
    Tag.LICENSES: "its licences",
    Tag.TRES_PER_JOB: "its generic resources",
    Tag.TRES_PER_NODE: "its generic resources",
    Tag.TRES_PER_SOCKET: "its generic resources",
    Tag.TRES_PER_TASK: "its generic resources",
    Tag.DEADLINE: "its deadline",
    Tag.BEGIN_TIME: "its begin time",
    Tag.DEPENDENCY: "its dependencies",
    Tag.RESERVATION: "its reservation",
    Tag.SHARED: "its exclusive use of nodes",
    Tag.PRIORITY: "its priority or hold",
    Tag.OTHER: "where it may run",
    Tag.ADMIN_COMMENT: "its admission",
    Tag.ARRAY_INX: "how many of its tasks run at a time",
}
"""What a promise rests on."""


class SlurmTranslator:
    """Translates submit requests of Slurm.

    Parameters
    ----------
    settings : SlurmSettings
        The `[slurm]` table.
    """

    naming = ""
    afterwards = (
        "the job runs as best effort, and is cancelled at its deadline if it has not started "
        "(not with else=run)"
    )

    def __init__(self, settings: SlurmSettings | None = None) -> None:
        self.settings = settings or SlurmSettings()

    def name_of(self, job: int) -> str:
        """Return the job's number."""
        return str(job)

    def number_of(self, name: str) -> int:
        """Return the id of the job of this name; -1: no job's name.

        That of a task, `12_3`, is its array's, that of a component, `12+1`, its whole job's.
        """
        name = re.split(r"[_+]", name, maxsplit=1)[0]
        return int(name) if name.isascii() and name.isdigit() and len(name) < 16 else -1

    def fields_of(self, question: FeasibilityRequest) -> Mapping[int, str | int]:
        """Return a question as the submit filter would describe the job."""
        written = ",".join(f"{name}={value:g}" for name, value in question.load.items())
        most, limit = question.nodes_max, question.time_s
        if question.nodes > 1 or most is not None or not question.tasks:
            least, most = question.nodes, most if most is not None else question.nodes
        else:  # as many as its tasks need
            least = None
        fields: dict[int, str | int | None] = {
            Tag.USER_ID: question.uid,
            Tag.SUBMIT_UID: question.uid,
            Tag.MIN_NODES: least,
            Tag.MAX_NODES: most,
            Tag.TIME_LIMIT: math.ceil(limit / 60.0) if limit is not None else None,
            Tag.PARTITION: question.partition or None,
            Tag.ACCOUNT: question.account or None,
            Tag.QOS: question.qos or None,
            Tag.DEADLINE: math.ceil(question.deadline),
            Tag.EXTRA: f"rtsched:{written}" if written else None,
            Tag.NUM_TASKS: question.tasks or None,
            Tag.CPUS_PER_TASK: question.cpus_per_task or None,
            Tag.PN_MIN_MEMORY: -(-question.memory >> 20) or None,
            Tag.TRES_PER_NODE: f"gres/gpu:{question.gpus}" if question.gpus else None,
            Tag.LICENSES: question.licenses or None,
            Tag.FEATURES: question.constraint or None,
            Tag.REQ_NODES: question.nodelist or None,
            Tag.EXC_NODES: question.exclude or None,
            Tag.ARRAY_INX: question.array or None,
        }
        return {tag: value for tag, value in fields.items() if value is not None}

    def describe(
        self, fields: Mapping[int, str | int], facts: SlurmFacts | None, now: float
    ) -> Submission:
        """Return what a submit request means; `facts` are those of the last poll."""
        facts = facts or SlurmFacts()
        fields, wrong = too_long(fields)
        spec = options_in(_text(fields, Tag.EXTRA), _text(fields, Tag.COMMENT))
        uid = _number(fields, Tag.USER_ID, _number(fields, Tag.SUBMIT_UID, -1))
        user = facts.users.get(uid) or user_name(uid)
        request = request_of(fields, spec, now)
        account = _charged(_text(fields, Tag.ACCOUNT), user, facts)
        names = JobNames(_text(fields, Tag.QOS), "", account, user)
        asked = _in_partitions(fields, request, facts, names)
        problem = wrong or next((each.refused for each in asked if each.refused), "")
        of_all = (
            refused_features(request, facts)
            or too_late(request.deadline, max(request.begin, now), "--deadline")
            or odds_alone(spec.odds, request.deadline, "rtsched:odds", "--deadline")
        )
        edges, comment = edges_of(request, spec), _text(fields, Tag.COMMENT)

        def planned_in(part: _InPartition) -> Submission:
            needs = part.requirements
            jobs = Jobs.build(
                1,
                label=["the job"],
                submit=now,
                begin=request.begin,
                deadline=request.deadline,
                cores=request.cpus or -1,
                memory=request.memory or -1,
                name=[_text(fields, Tag.NAME) or None],
                user=[user],
                account=[account or None],
                partition=[needs.partition or None],
                node_request=[needs.node_request or None],
                qos=[_text(fields, Tag.QOS) or None],
                association=facts.associations.get((account, user), -1),
                nice=float(_number(fields, Tag.NICE, 0)),
                dag=dag_key(user, spec.dag) if spec.dag else -1,
                checkpoints=spec.checkpoint,
                **needs.one_job(),
            )
            several = max(needs.size, needs.size_max) > 1
            return Submission(
                jobs,
                edges,
                uid,
                problem or part.problem or of_all,
                comment,
                tasks_per_node=needs.tasks_per_node if several and not request.array else 0,
                component=request.het,
                singleton=dependency_of(request.dependency).singleton,
                notify=spec.notify,
                odds=spec.odds,
                otherwise=spec.otherwise,
                shape=_shape(request, needs, facts),
                limits=_limits(request, needs, facts),
                unverified=_unverified(account, user, part.names.qos, facts),
                tested=_TEST_ONLY.search(request.line) is not None,
                partitions=request.partition if "," in request.partition else "",
            )

        usable = [part for part in asked if not part.problem] or asked
        first, *others = [planned_in(part) for part in usable[:MOST_PARTITIONS]]
        return replace(first, elsewhere=tuple(others))

    def default_limit(self, facts: SlurmFacts | None) -> float:
        """Return for how long a job may run at most that names no limit, seconds; inf: no end."""
        parts = facts.partitions.values() if facts is not None else ()
        return max((part.default_s for part in parts), default=math.inf)

    def answer(
        self, submission: Submission, reply: SubmitReply, facts: SlurmFacts | None
    ) -> Mapping[int, str | int]:
        """Return the fields that the filter is to set in the job.

        A promised job gets whole nodes, its planned size, and the time limit that the plan leaves
        it; or where jobs share nodes the nodes planned for it; of several partitions the one that
        it is planned in. It comes before all others in the queue at once, for jobs without a
        promise may wait there for nodes that are still idle. A divisible one gets its fractions at
        once: Slurm may start it before the next poll.
        """
        facts = facts or SlurmFacts()
        kind = submission.jobs.kind[0]
        if reply.rejected:
            return {Tag.VERDICT: REJECT, Tag.MESSAGE: reply.text}
        fields: dict[int, str | int] = {Tag.VERDICT: ACCEPT}
        if reply.text:
            fields[Tag.MESSAGE] = reply.text
        again = reply.unpromised and math.isnan(submission.odds)  # it may be promised something yet
        if reply.deferred or reply.token or again:
            asked = submission.jobs.texts("node_request")[0] or ""
            word = reply.token or (DEFERRED if reply.deferred else UNPROMISED)
            mark = with_node_list(MARK + word, asked)
            dropped = _option(submission.jobs.deadline[0]) if again else ""
            several = submission.partitions
            listed = f"--partition={several}" if several else ""
            written = filter(None, (mark, listed, submission.shape, dropped, _kept(reply)))
            fields[Tag.ADMIN_COMMENT] = " ".join(written)
            if several:
                here = submission.jobs.texts("partition")[0] or ""
                planned = reply.token and not reply.likely
                others = [] if planned else several.split(",")
                fields[Tag.PARTITION] = ",".join(dict.fromkeys([here, *others]))
        if reply.deferred:
            fields[Tag.PRIORITY] = 0
        if reply.deferred or again:
            whole = bool(submission.jobs.exclusive[0]) and not submission.singleton
            if facts.sharing.resources and not whole:
                fields |= _spread(submission)
            elif kind != Kind.ARRAY:
                fields[Tag.SHARED] = 0
            if submission.component:
                fields[Tag.MIN_NODES] = fields[Tag.MAX_NODES] = int(submission.jobs.size[0])
        if reply.unpromised:  # Slurm would cancel it then
            fields[Tag.DEADLINE] = 0
        if not math.isnan(reply.limit):
            fields[Tag.TIME_LIMIT] = max(math.floor(reply.limit / 60.0 + 1e-6), 1)
            fields[Tag.TIME_MIN] = 0  # Slurm might shorten it further
        if not reply.token:
            return fields
        if not reply.likely and not facts.sharing.resources and self.settings.promised_first:
            fields |= _before_others(float(submission.jobs.deadline[0]), basic=facts.basic)
        if reply.size > 0 and kind != Kind.ARRAY:
            fields[Tag.MIN_NODES] = fields[Tag.MAX_NODES] = reply.size
            if facts.sharing.resources:
                fields[Tag.REQ_NODES] = fold(reply.nodes)
                fields[Tag.PRIORITY] = promised_priority(reply.start)
                fields |= _spread(submission)
            else:
                fields[Tag.SHARED] = 0
                own = node_list_in(submission.jobs.texts("node_request")[0] or "")
                if own and len(expand(own)) == reply.size:  # of --contiguous, it was chosen here
                    fields[Tag.REQ_NODES] = own
        if Tag.REQ_NODES in fields:  # sbatch is refused where these lack what --prefer names
            fields[Tag.PREFER] = ""
        if kind == Kind.DIVISIBLE:
            plan = reply.promise, reply.nodes, reply.shares, reply.rounds
            record = fitting_record(submission.comment, *plan)
            fields[Tag.COMMENT] = with_record(submission.comment, record)
        if kind in {Kind.MOLDABLE, Kind.DIVISIBLE} and reply.end > reply.start:
            names = kinds_of(submission.jobs)[0][0]
            fields[Tag.TIME_LIMIT] = limit_minutes(reply.end - reply.start, names, facts)
        if reply.likely:  # Slurm would give it up, or cut it, by its time limit
            fields[Tag.DEADLINE] = 0
        if reply.promise < math.inf:
            fields[Tag.ENV] = f"RTSCHED_DEADLINE={math.floor(reply.promise)}"
        return fields

    def asking(self, deadline: float) -> str:
        """Return the option of sbatch(1) that asks for a deadline.

        sbatch reads local times in its user's own zone, in which one hour of the year comes twice;
        seconds since the epoch (`uts`, src/common/parse_time.c) it reads alike everywhere.
        """
        return _option(deadline)

    taking = "rtsched take {} job.sh"
    beginning = "--begin"

    def adjustable(
        self, fields: Mapping[int, str | int], submission: Submission, facts: SlurmFacts | None
    ) -> Adjustable:
        """Return what of a submit request could be asked for otherwise."""
        facts, kind = facts or SlurmFacts(), submission.jobs.kind[0]
        name = submission.jobs.texts("partition")[0] or ""
        here = facts.partitions.get(name)
        if here is None:
            return NOT_ADJUSTABLE
        minutes = _number(fields, Tag.TIME_LIMIT, 0)
        limit = minutes * 60.0 if minutes > 0 else here.default_s
        limit = math.inf if kind == Kind.DIVISIBLE else limit
        rigid, pinned = kind not in {Kind.DIVISIBLE, Kind.ARRAY}, bool(fields.get(Tag.REQ_NODES))
        gpu_type, gpus = _gpus_in(fields)
        named = _text(fields, Tag.PARTITION).split(",")
        others = [
            other
            for other, part in facts.partitions.items()
            if other not in {name, *named} and part.up and not part.restricted
            if part.longest_s >= limit
        ]
        return Adjustable(
            nodes=_number(fields, Tag.MIN_NODES, 1) if rigid and not pinned else 1,
            limit_s=limit,
            gpus=gpus,
            gpu_types=tuple(_types(here, gpu_type)) if gpus else (),
            partitions=() if pinned else tuple(others),
        )

    def adjusted(self, fields: Mapping[int, str | int], to: Adjustment) -> dict[int, str | int]:
        """Return a submit request that asks for something else.

        With fewer nodes it asks for fewer tasks and processors in proportion, rounded up.
        """
        new = dict(fields)
        if to.nodes is not None:
            old = max(int(fields.get(Tag.MIN_NODES, 1)), 1)
            most = int(fields.get(Tag.MAX_NODES, old))
            new |= {Tag.MIN_NODES: to.nodes, Tag.MAX_NODES: most if most > old else to.nodes}
            for tag in (Tag.NUM_TASKS, Tag.MIN_CPUS, Tag.MAX_CPUS):
                if int(fields.get(tag, 0)) > 0:
                    new[tag] = -(-int(fields[tag]) * to.nodes // old)
        if to.limit_s is not None:
            new[Tag.TIME_LIMIT] = max(math.floor(to.limit_s / 60.0 + 1e-6), 1)
        if to.gpus is not None or to.gpu_type is not None:
            kind, count = _gpus_in(fields)
            kind = kind if to.gpu_type is None else to.gpu_type
            count = count if to.gpus is None else to.gpus
            new[Tag.TRES_PER_NODE] = ":".join(filter(None, (GPU, kind, str(count))))
        if to.partition is not None:
            new[Tag.PARTITION] = to.partition
        if to.deadline is not None:
            new[Tag.DEADLINE] = math.ceil(to.deadline)
        if to.odds is not None:
            new |= _with_odds(fields, to.odds)
        return new

    def options(self, fields: Mapping[int, str | int], to: Adjustment) -> tuple[str, ...]:
        """Return the options of sbatch that make an adjusted request of the first one.

        They count whatever the script says. A comment, and an Extra that is empty, are among them
        only if they change.
        """
        new, found = self.adjusted(fields, to), list[str]()
        if least := int(new.get(Tag.MIN_NODES, 0)):
            most = int(new.get(Tag.MAX_NODES, least))
            found.append(f"--nodes={least}-{most}" if most > least else f"--nodes={least}")
        if (minutes := int(new.get(Tag.TIME_LIMIT, 0))) > 0:
            found.append(f"--time={minutes}")
        found += [f"--{name}={new[tag]}" for tag, name in OPTIONS.items() if new.get(tag)]
        found += [
            f"--{name}={new.get(tag, '')}"
            for tag, name in TEXTS.items()
            if new.get(tag) != fields.get(tag) or (tag == Tag.EXTRA and new.get(tag))
        ]
        if memory := new.get(Tag.PN_MIN_MEMORY):
            found.append(f"--mem={memory}M")
        if memory := new.get(Tag.MEM_PER_CPU):
            found.append(f"--mem-per-cpu={memory}M")
        if tres := str(new.get(Tag.TRES_PER_NODE, "")):
            found.append(f"--gres={re.sub(r'(?:^|(?<=,))gres[/:]', '', tres)}")
        if deadline := int(new.get(Tag.DEADLINE, 0)):
            found.append(f"--deadline=uts{deadline}")
        return tuple(found)

    def protected(
        self,
        fields: Mapping[int, str | int],
        promised: Jobs | None = None,
        facts: SlurmFacts | None = None,
    ) -> str:
        """Return which promised properties a request to change a job would change.

        A release changes none: a promised job that is held could not start otherwise. Nor does a
        time limit that is no longer than the promised one.
        """
        harmless = {Tag.PRIORITY} if fields.get(Tag.PRIORITY) == RELEASE else set[Tag]()
        if promised is not None and len(promised) and facts is not None:
            longest = promised.wall_time[0] - facts.margin
            fixed = promised.kind[0] in {Kind.RIGID, Kind.ARRAY}
            if fixed and 0 < 60 * _number(fields, Tag.TIME_LIMIT, -1) <= longest:
                harmless.add(Tag.TIME_LIMIT)
        found = [PROTECTED[tag] for tag in PROTECTED if tag in fields and tag not in harmless]
        texts = (_text(fields, Tag.EXTRA), _text(fields, Tag.COMMENT))
        if any(MARK in text for text in texts):
            found.append("its rtsched: word")
        return ", ".join(dict.fromkeys(found))


def _option(deadline: float) -> str:
    return f"--deadline=uts{math.ceil(deadline)}"


def _before_others(deadline: float, *, basic: bool) -> dict[int, str | int]:
    """Return the fields that put a job with a deadline before all without a promise."""
    if not math.isfinite(deadline):
        return {}
    factor = promised_factor(deadline, basic)
    return {Tag.NICE: -factor} if basic else {Tag.SITE_FACTOR: factor}


def _charged(named: str, user: str, facts: SlurmFacts) -> str:
    """Return the account that Slurm charges a job: the one that is named, if its user has it.

    Names count alike in upper and lower case. In place of one that the user does not have Slurm
    charges the default account, unless it refuses such jobs (`_job_create` in job_mgr.c).
    """
    if (named.lower(), user) in facts.associations:
        return named.lower()
    home = facts.home.get(user, named)
    return named if named and (facts.enforced or not facts.associations) else home


def _unverified(account: str, user: str, qos: str, facts: SlurmFacts) -> str:
    """Return what Slurm may refuse a job for after the filter: its account or QOS, if unknown.

    They are read now and then, and may be newer. Names count alike in upper and lower case.
    """
    if not facts.enforced:
        return ""
    known = facts.associations
    if known and (account, user) not in known:
        return "account"
    names = facts.limits.qos_names if facts.limits is not None else frozenset[str]()
    return "QOS" if qos and names and qos.lower() not in names else ""


class _InPartition(NamedTuple):
    """What a request means in one of the partitions that it names.

    Attributes
    ----------
    names : JobNames
        With the partition.
    requirements : Requirements
        There.
    problem : str
        Why it can be promised nothing there; empty: it can.
    refused : str
        Why Slurm refuses it whatever other partitions it names; empty: it does not.
    """

    names: JobNames
    requirements: Requirements
    problem: str
    refused: str


def _in_partitions(
    fields: Mapping[int, str | int], request: JobRequest, facts: SlurmFacts, names: JobNames
) -> list[_InPartition]:
    """Return what a request means in each partition that it names, or in the default one.

    Slurm runs it in any that it may use, and by EnforcePartLimits refuses it if it may not use one,
    or all (`_valid_job_part` in src/slurmctld/job_mgr.c). Without a deadline the first one counts.
    """
    named = [*dict.fromkeys(request.partition.split(","))]
    found = list[_InPartition]()
    for name in named if request.needs_rtsched else named[:1]:
        one = names._replace(partition=name or facts.default)
        part, refused = facts.partitions.get(one.partition), ""
        needs = requirements_of(
            replace(request, partition=one.partition), facts, limits=limits_for(facts, one)
        )
        problem = needs.problem
        if part is None:
            refused = problem
        elif request.needs_rtsched:
            who = _submitter(fields, facts, one)
            problem = no_access(part, who) or problem
            if len(named) > 1:
                refused = refused_in_list(part, who, facts.part_limits)
            if facts.part_limits == "ALL":
                limit = part.default_s if math.isnan(request.limit) else request.limit
                least = max(request.min_nodes, 1)
                refused = refused or beyond_limits(request, part, limit, least)
        found.append(_InPartition(one, needs, problem, refused))
        if refused:
            break
    return found


def _submitter(fields: Mapping[int, str | int], facts: SlurmFacts, names: JobNames) -> Submitter:
    """Return who submits a request."""
    uid = _number(fields, Tag.USER_ID, -1)
    accounts, qos = [names.account.lower()] * facts.enforced, names.qos
    while accounts and accounts[-1] in facts.above:
        accounts.append(facts.above[accounts[-1]])
    if facts.limits is not None:
        qos = facts.limits.with_default_qos(names).qos
    sender, known = _number(fields, Tag.SUBMIT_UID, uid), tuple(filter(None, accounts))
    return Submitter(uid, sender, names.user, known, qos, _text(fields, Tag.ALLOC_NODE))


def _kept(reply: SubmitReply) -> str:
    """Return what the admin comment says to people, behind what it says to the adapter.

    Programs that submit jobs often show nothing of what sbatch prints. Comment is theirs.
    """
    return reply.note.removeprefix(MARK).strip() if reply.token else ""


def _shape(request: JobRequest, needs: Requirements, facts: SlurmFacts) -> str:
    """Return node count and time limit of a request of which a promised job may be given others.

    Once the promise ends the job gets them back; Slurm shows only what was set last.
    """
    open_size = needs.kind in {Kind.MOLDABLE, Kind.DIVISIBLE}
    if not open_size and math.isinf(_limits(request, needs, facts)[0]):
        return ""
    part, least, limit = facts.partitions.get(needs.partition), request.min_nodes, request.limit
    if open_size and not least and request.cpus <= 1:
        least = 1
    if math.isnan(limit):
        limit = part.default_s if part is not None else math.inf
    words = [f"--nodes={least}-{max(request.max_nodes, least)}"] if open_size and least else []
    words.append(f"--time={limit / 60.0:.0f}" if math.isfinite(limit) else "--time=UNLIMITED")
    return " ".join(words)


def _limits(request: JobRequest, needs: Requirements, facts: SlurmFacts) -> tuple[float, float]:
    """Return the shortest and the longest time limit of a job that may have a shorter one."""
    longest = needs.wall_time - facts.margin
    shorter = request.shortest < longest and needs.kind == Kind.RIGID and not request.het
    return (request.shortest, longest) if shorter else (math.inf, math.inf)


def _spread(submission: Submission) -> dict[int, str | int]:
    """Return what has a job on several nodes that it shares take the same of each."""
    tasks = submission.tasks_per_node
    return {Tag.NTASKS_PER_NODE: tasks} if tasks else {}


def limit_minutes(duration: float, names: JobNames, facts: SlurmFacts) -> int:
    """Return the time limit that leaves room for the margins in a planned duration, seconds.

    It is one that the job's partition, and its account and QOS, allow.
    """
    part = facts.partitions.get(names.partition)
    longest = part.longest_s if part is not None else math.inf
    minutes = min(duration - facts.margin, longest, limits_for(facts, names).wall) / 60.0
    return max(1, math.floor(minutes + 1e-6))


def request_of(fields: Mapping[int, str | int], spec: CommentOptions, now: float) -> JobRequest:
    """Return what a submit request asks for; one that may begin before `now` begins at once."""
    minutes = _number(fields, Tag.TIME_LIMIT, 0)
    limit = math.inf if minutes < 0 else minutes * 60.0 if minutes else math.nan
    deadline = _number(fields, Tag.DEADLINE, 0)
    least = _count(fields, Tag.MIN_NODES, 0)
    tasks = _count(fields, Tag.NUM_TASKS, 0)
    each = _count(fields, Tag.NTASKS_PER_NODE, 0)
    tres_task = _text(fields, Tag.TRES_PER_TASK)
    per_task = max(_count(fields, Tag.CPUS_PER_TASK, 1), processors_in(tres_task), 1)
    overcommit = Tag.OVERCOMMIT in fields
    cpus = 0 if overcommit else min(tasks * per_task, MOST)
    begin = _number(fields, Tag.BEGIN_TIME, 0)
    array, parallel = tasks_in(_text(fields, Tag.ARRAY_INX))
    shortest = _count(fields, Tag.TIME_MIN, 0) * 60.0
    return JobRequest(
        limit=limit,
        shortest=shortest or math.inf,
        deadline=float(deadline) if deadline > 0 else math.inf,
        min_nodes=max(least, -(-tasks // each) if each > 0 else 0),
        max_nodes=_count(fields, Tag.MAX_NODES, least),
        cpus=max(cpus, _count(fields, Tag.MIN_CPUS, 0)),
        each=_count(fields, Tag.PN_MIN_CPUS, 0)
        if overcommit
        else max(each * per_task, per_task, _count(fields, Tag.PN_MIN_CPUS, 0)),
        memory=_count(fields, Tag.PN_MIN_MEMORY, 0) << 20,
        cpu_memory=_count(fields, Tag.MEM_PER_CPU, 0) << 20,
        disk=_count(fields, Tag.PN_MIN_TMP_DISK, 0),
        partition=_text(fields, Tag.PARTITION),
        features=_text(fields, Tag.FEATURES),
        prefer=_text(fields, Tag.PREFER),
        required=_text(fields, Tag.REQ_NODES),
        excluded=_text(fields, Tag.EXC_NODES),
        reservation=_text(fields, Tag.RESERVATION),
        other=_not_planned(fields),
        clusters=_text(fields, Tag.CLUSTERS),
        licenses=needed_licenses(_text(fields, Tag.LICENSES)),
        tres_node=_text(fields, Tag.TRES_PER_NODE),
        tres_job=_text(fields, Tag.TRES_PER_JOB),
        tres_task=tres_task,
        tres_socket=_text(fields, Tag.TRES_PER_SOCKET),
        tasks=tasks,
        tasks_per_node=each,
        per_task=per_task,
        node_cpus=_count(fields, Tag.PN_MIN_CPUS, 0),
        all_memory=_number(fields, Tag.PN_MIN_MEMORY, -1) == 0,
        exclusive=_number(fields, Tag.SHARED, 1) != 1,
        oversubscribe=_number(fields, Tag.SHARED, 0) == 1,
        most_nodes=_count(fields, Tag.MAX_NODES, 0),
        sockets=_count(fields, Tag.SOCKETS_PER_NODE, 0),
        cores_per_socket=_count(fields, Tag.CORES_PER_SOCKET, 0),
        threads=_count(fields, Tag.THREADS_PER_CORE, 0),
        tasks_per_core=_count(fields, Tag.NTASKS_PER_CORE, 0),
        tasks_per_socket=_count(fields, Tag.NTASKS_PER_SOCKET, 0),
        tasks_per_gpu=_count(fields, Tag.NTASKS_PER_TRES, 0),
        gpu_cpus=min(count_for_gpus(_text(fields, Tag.CPUS_PER_TRES)), MOST),
        gpu_memory=min(count_for_gpus(_text(fields, Tag.MEM_PER_TRES)), MOST) << 20,
        switches=_count(fields, Tag.REQ_SWITCH, 0),
        contiguous=Tag.CONTIGUOUS in fields,
        overcommit=overcommit,
        line=_text(fields, Tag.SUBMIT_LINE),
        begin=float(begin) if begin > now else -math.inf,
        dependency=_text(fields, Tag.DEPENDENCY),
        unknown_jobs=frozenset(_text(fields, Tag.UNKNOWN_JOBS).split(",")) - {""},
        array=array,
        parallel=parallel,
        array_line=_text(fields, Tag.ARRAY_INX),
        het=Tag.HET_JOB_OFFSET in fields,
        held=_number(fields, Tag.PRIORITY, 1) == 0,
        cron=Tag.CRON in fields,
        spec=spec,
    )


_OWN_FIELDS: dict[str, Tag] = {
    "contiguous": Tag.CONTIGUOUS,
    "sockets-per-node": Tag.SOCKETS_PER_NODE,
    "cores-per-socket": Tag.CORES_PER_SOCKET,
    "threads-per-core": Tag.THREADS_PER_CORE,
    "ntasks-per-socket": Tag.NTASKS_PER_SOCKET,
    "ntasks-per-core": Tag.NTASKS_PER_CORE,
    "ntasks-per-gpu": Tag.NTASKS_PER_TRES,
    "cpus-per-gpu": Tag.CPUS_PER_TRES,
    "mem-per-gpu": Tag.MEM_PER_TRES,
    "switches": Tag.REQ_SWITCH,
}
"""Names in `Tag.OTHER` whose values a filter of this release sends too."""


def _not_planned(fields: Mapping[int, str | int]) -> str:
    """Return the options that nothing can be planned with, as in `Tag.OTHER`."""
    names = _text(fields, Tag.OTHER).split(",")
    return ",".join(name for name in names if _OWN_FIELDS.get(name) not in fields)


def edges_of(request: JobRequest, spec: CommentOptions) -> Edges:
    """Return the edges from the jobs that a request waits for to itself, -1; they exist."""
    named = dependency_of(request.dependency).jobs
    before = [job for job in named if str(job) not in request.unknown_jobs]
    return Edges.build(
        len(before), before=before, after=-1, message_time=spec.numbers.get("message_time", 0.0)
    )


def _text(fields: Mapping[int, str | int], tag: Tag) -> str:
    value = fields.get(tag, "")
    return value if isinstance(value, str) else str(value)


def _number(fields: Mapping[int, str | int], tag: Tag, otherwise: int) -> int:
    value = fields.get(tag, otherwise)
    return value if isinstance(value, int) else otherwise


def _count(fields: Mapping[int, str | int], tag: Tag, otherwise: int) -> int:
    """Return a number of things, within what can be counted."""
    return min(max(_number(fields, tag, otherwise), 0), MOST)


_GPUS = re.compile(r"(?:gres[/:])?gpu(?::([A-Za-z][\w.-]*))?(?::(\d{1,6}))?", re.ASCII)

OPTIONS: Mapping[Tag, str] = {
    Tag.PARTITION: "partition",
    Tag.ACCOUNT: "account",
    Tag.QOS: "qos",
    Tag.NUM_TASKS: "ntasks",
    Tag.NTASKS_PER_NODE: "ntasks-per-node",
    Tag.CPUS_PER_TASK: "cpus-per-task",
    Tag.FEATURES: "constraint",
    Tag.LICENSES: "licenses",
    Tag.REQ_NODES: "nodelist",
    Tag.EXC_NODES: "exclude",
    Tag.ARRAY_INX: "array",
    Tag.DEPENDENCY: "dependency",
}
"""Options of sbatch whose values are what the filter sends."""

TEXTS: Mapping[Tag, str] = {Tag.EXTRA: "extra", Tag.COMMENT: "comment"}
"""Likewise, of what may hold a word for rtsched."""


def _types(partition: Partition, present: str) -> Iterator[str]:
    """Yield the other types of GPUs of a partition's nodes, by name."""
    names = {name for node, _ in partition.hardware for name, n in node.items() if n}
    for name in sorted(names):
        if name.startswith(f"{GPU}:") and present and name != f"{GPU}:{present}":
            yield name.removeprefix(f"{GPU}:")


def _gpus_in(fields: Mapping[int, str | int]) -> tuple[str, int]:
    """Return the type, which may be empty, and the number of GPUs on each node; 0: none.

    Of a request for other generic resources too, or for GPUs in another way, nothing is changed.
    """
    others = (Tag.TRES_PER_JOB, Tag.TRES_PER_SOCKET, Tag.TRES_PER_TASK)
    found = _GPUS.fullmatch(str(fields.get(Tag.TRES_PER_NODE, "")))
    if found is None or any(fields.get(tag) for tag in others):
        return "", 0
    return found[1] or "", int(found[2] or 1)


def _with_odds(fields: Mapping[int, str | int], odds: float) -> dict[int, str | int]:
    """Return the texts of a request that asks for other odds; 1: for a guarantee, so for none."""
    texts = {tag: str(fields[tag]) for tag in (Tag.EXTRA, Tag.COMMENT) if fields.get(tag)}
    new: dict[int, str | int] = {}
    for tag, text in texts.items():
        if (left := WORD.sub(_without_odds, text).strip()) != text:
            new[tag] = left
    if odds < 1.0:
        extra = str(new.get(Tag.EXTRA, texts.get(Tag.EXTRA, "")))
        new[Tag.EXTRA] = f"{extra} rtsched:odds={100 * odds:g}".strip()
    return new


def _without_odds(word: re.Match[str]) -> str:
    pairs = word[1].split(",")
    left = [pair for pair in pairs if not pair.startswith("odds=")]
    return word[0] if left == pairs else f"rtsched:{','.join(left)}" if left else ""

"""Jobs in the forms in which users and tools ask Slurm for them: promised, or refused in words.

Without a deadline each is the same job as on the same cluster without rtsched.
"""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from promising import PROMISED, QUICK, SITE, SUBMIT_CONF, Live
from slurm_forms import FORMS, Form
from testbed import Cluster, SlurmOptions
from testbed.images import SUITES
from testbed.waiting import eventually

SHARED = "\n[slurm]\nshare_nodes = true\n"
NODES = 10
HARDWARE = "Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=8000 TmpDisk=1000"
PARTITIONS = """
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=2-0
PartitionName=open Nodes=ALL State=UP MaxTime=UNLIMITED
"""
SETTINGS = {
    "GresTypes": "gpu",
    "AccountingStorageTRES": "gres/gpu,gres/gpu:a",
    "DefMemPerCPU": "100",
    "SchedulerParameters": "bf_interval=5,bf_continue,bf_licenses",
    "ReturnToService": "1",
    "Licenses": "soft:4",
    "MaxArraySize": "1001",
    "ScronParameters": "enable",
}
GRES = "AutoDetect=off\nNodeName=fast[1-5] Name=gpu Type=a File=/srv/gpu[0-3]\n"
HELD = re.compile(r"rtsched: (?:the job is )?held ")
EASY, IMPOSSIBLE, NONE = "--deadline=now+20hours", "--deadline=now+2minutes", ""
LEAST_SHARE = 0.97
LEAST_FORMS = 60
KILLED = 124
"""Exit status of timeout(1): of a command that waits for its job."""

VARIES = re.compile(
    r"(?:JobId|ArrayJobId|HetJobId|HetJobIdSet|SLUID|Priority|Reason|Dependency|Comment"
    r"|\w*Time|SchedNodeList|AccrueTime|LastSchedEval|StdOut|StdErr|AllocNode:Sid|Scheduler|WaitTime"
    r"|ExitCode)$"
)
"""Fields of a job that differ between two jobs of one form; the exit code, where srun is killed."""

# The first alone, the next eight at once, and so on; those that wait for their jobs all at once.
RUNNER = """
run() {
    D=$1 J=$2 timeout 12 sh /tmp/forms/$2.sh >/tmp/forms/$2.out 2>&1 </dev/null
    echo $? >/tmp/forms/$2.rc
}
cd /tmp/forms
export SBATCH_OUTPUT=/dev/null SLURM_TIME_FORMAT=%s
at=0
for form in $FORMS; do
    run "$DEADLINE" $form &
    at=$((at + 1))
    if [ $((at % 8)) = 1 ] && [ -z "$BLOCKS" ]; then wait; fi
done
wait
"""


class Answer(NamedTuple):
    """What the user of a form read, and the exit status."""

    text: str
    status: int


@contextmanager
def forms_cluster(suite: str) -> Iterator[Live]:
    """Run five nodes with GPUs and five without, and a filter; the daemon does not run yet."""
    options = SlurmOptions(
        fast=5,
        slow=5,
        hardware={"fast": f"{HARDWARE} Gres=gpu:a:4", "slow": HARDWARE},
        job_submit=("rtsched",),
        partitions=PARTITIONS,
        settings=SETTINGS,
    )
    gpus = {f"/srv/gpu{number}": "" for number in range(4)}
    files = {SUBMIT_CONF: QUICK, "/etc/slurm/gres.conf": GRES, **gpus}
    with Cluster(suite, options, files=files) as cluster:
        yield Live(cluster)


def key(number: int) -> str:
    """Return the name of the jobs of a form."""
    return f"form{number:03}"


def submitted(live: Live, deadline: str) -> list[Answer]:
    """Submit a job of each form; return what their users read."""
    keys = [key(at) for at in range(len(FORMS))]
    waits = [one for one, form in zip(keys, FORMS, strict=True) if blocks(form)]
    batches = [one for one in keys if one not in waits]
    for which, blocking in ((batches, ""), (waits, "1")):
        environment = {"FORMS": " ".join(which), "DEADLINE": deadline, "BLOCKS": blocking}
        live.cluster.run(["sh", "-c", RUNNER], user="alice", env=environment, timeout=300)
    place = live.cluster.path("/tmp/forms")  # noqa: S108
    return [
        Answer((place / f"{one}.out").read_text(), int((place / f"{one}.rc").read_text() or 99))
        for one in keys
    ]


def blocks(form: Form) -> bool:
    """Return whether a command waits for the start or end of its job."""
    words = shlex.split(form.command.partition("<<")[0])
    return words[0] in {"srun", "salloc"} or not {"-W", "--wait"}.isdisjoint(words)


def records(live: Live, since: int) -> dict[str, list[dict[str, str]]]:
    """Return what Slurm shows of the jobs of each form, but for what differs between two jobs.

    Of those that came after job `since`.
    """
    shown = live.cluster.run(["scontrol", "-o", "show", "jobs"], check=False).stdout
    found: dict[str, list[dict[str, str]]] = {}
    for line in shown.splitlines():
        pairs = dict(re.findall(r"(?:^| )([\w:/]+)=(.*?)(?= [\w:/]+=|$)", line))
        new = int(pairs.get("JobId", 0)) > since
        if new and pairs.get("JobName", "").startswith("form"):
            own = {
                name: re.sub(r"(?<=--dependency=afterok:)\d+", "N", value)
                for name, value in pairs.items()
                if not VARIES.match(name)
            }
            found.setdefault(pairs["JobName"], []).append(own)
    return {name: sorted(jobs, key=str) for name, jobs in found.items()}


def without_deadline(live: Live) -> tuple[list[Answer], dict[str, list[dict[str, str]]]]:
    """Submit all forms without a deadline to partitions that start nothing; return what comes."""
    live.cluster.wait_nodes(live.cluster.slurm.nodes)
    for name in ("all", "open"):
        live.cluster.run(["scontrol", "update", f"PartitionName={name}", "State=DOWN"])
    try:
        last = max(live.known_jobs(), default=0)
        reply = submitted(live, NONE)
        jobs = records(live, last)
    finally:
        live.cancel_all()
        for name in ("all", "open"):
            live.cluster.run(["scontrol", "update", f"PartitionName={name}", "State=UP"])
    return reply, jobs


def comments(live: Live) -> dict[str, str]:
    """Return the comments of the jobs by name, of heterogeneous ones that of any component."""
    words = ["squeue", "-h", "-a", "-t", "all", "-O", "name:0|,state:0|,comment:0"]
    lines = live.cluster.run(words).stdout.splitlines()
    found = (line.rstrip().split("|", 2) for line in lines)
    return {name: f"{state}: {comment}" for name, state, comment in found}


def evaluated(live: Live, replies: list[Answer]) -> list[str]:
    """Return what became of each form in the end: of jobs that were held, their comments.

    Slurm itself refuses some after they were held by the filter: those are no jobs.
    """
    held = {
        key(at)
        for at, (text, status) in enumerate(replies)
        if HELD.search(text) and "(--begin)" not in text and status in {0, KILLED}
    }
    known: dict[str, str] = {}

    def waiting() -> list[str]:
        known.update(comments(live))
        return [
            name
            for name in held
            if re.fullmatch("(?:PENDING: .*)?", known.get(name, ""))
            and "rtsched: " not in known.get(name, "")
        ]

    eventually(lambda: not waiting(), 30, lambda: f"forms are evaluated: not yet {waiting()}")
    return [known[key(at)] if key(at) in held else answer.text for at, answer in enumerate(replies)]


def table(live: Live, accepted: list[bool], mode: str) -> list[str]:
    """Return what is wrong with the answers to an easy and an impossible deadline; print them."""
    answers = submitted(live, EASY)
    easy = evaluated(live, answers)
    live.cancel_all()
    hopeless = evaluated(live, submitted(live, IMPOSSIBLE))
    live.cancel_all()
    wrong, lines = [], []
    possible = promised = 0
    rows = zip(FORMS, accepted, answers, easy, hopeless, strict=True)
    for form, plain, answer, text, other in rows:
        refusal = form.refused or (form.whole_refused if mode == "whole" else "")
        good = PROMISED in text and answer.status in {0, KILLED}
        lines.append(f"{mode:7} {form.name:40} {' '.join(text.split())[:140]}")
        if plain and not refusal:
            possible, promised = possible + 1, promised + good
        expected = refusal in text and not good if refusal else good
        if plain and not expected:
            wrong.append(f"{form.name}: {text.strip()}")
        refused = "rtsched: " in other or "sbatch: error: " in other
        if plain and not refusal and (PROMISED in other or not refused):
            wrong.append(f"{form.name}, with a deadline that nobody can meet: {other.strip()}")
        if text.count("rtsched: ") > 1 + text.count("promised to end"):
            wrong.append(f"{form.name}: a doubled prefix: {text.strip()}")
    share = promised / max(possible, 1)
    print(*lines, f"{mode}: {promised} of {possible} are promised ({share:.1%})", sep="\n")
    if share < LEAST_SHARE:
        wrong.append(f"{mode}: {share:.1%} are promised")
    return wrong


def differing(one: list[dict[str, str]], other: list[dict[str, str]]) -> list[str]:
    """Return in what the jobs of a form differ."""
    if len(one) != len(other):
        return [f"{len(one)} jobs and {len(other)}"]
    return [
        f"{name}: {ours.get(name)} and {theirs.get(name)}"
        for ours, theirs in zip(one, other, strict=True)
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]


@pytest.mark.parametrize("suite", SUITES)
def test_forms(suite: str) -> None:
    """As without rtsched where no deadline is given; else promised, or refused with the reason."""
    with forms_cluster(suite) as live:
        cluster = live.cluster
        place = cluster.path("/tmp/forms")  # noqa: S108
        place.mkdir(mode=0o777)
        place.chmod(0o777)
        for at, form in enumerate(FORMS):
            (place / f"{key(at)}.sh").write_text(form.command + "\n")
        conf = cluster.path("/etc/slurm/slurm.conf")
        whole = conf.read_text()
        conf.write_text(re.sub(r"(?m)^JobSubmitPlugins=.*\n", "", whole))
        cluster.restart_slurmctld()
        before, bare = without_deadline(live)
        conf.write_text(whole)
        cluster.restart_slurmctld()
        cluster.wait_nodes(cluster.slurm.nodes)  # until they register Slurm can start nothing
        cluster.start_daemon(SITE)
        live.wait_usable(NODES)
        accepted = [answer.status in {0, KILLED} for answer in before]
        assert sum(accepted) >= LEAST_FORMS, [answer for answer in before if answer.status]
        wrong = table(live, accepted, "whole")
        after, ours = without_deadline(live)
        for at, form in enumerate(FORMS):
            if before[at].status != after[at].status:
                wrong.append(f"{form.name}: {before[at]} without rtsched, {after[at]} with it")
            found = differing(bare.get(key(at), []), ours.get(key(at), []))
            wrong += [f"{form.name}, without a deadline: {text}" for text in found]
        cluster.stop_daemon()
        cluster.start_daemon(SITE + SHARED)
        live.wait_usable(NODES)
        wrong += table(live, accepted, "shared")
        assert not wrong, "\n".join(wrong)

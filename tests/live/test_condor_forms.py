"""Submit files in the styles in use: as without rtsched, or with a deadline promised."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from condor_forms import FILES, FORMS, MACHINE, WRONG, Form
from promised_pool import EAGER, SITE, LivePool, live_pool
from promising import PROMISED
from testbed import Pool, PoolOptions
from testbed.images import SUITES
from testbed.waiting import eventually

HOME = "/home/alice/forms"
KIND = "$(LIBEXEC)/condor_gpu_discovery -properties -extra -simulate:4,2"
HARDWARE = {"NUM_CPUS": "16", "MEMORY": "32768"}
POOL: dict[str, Any] = {
    "fast": 1,
    "slow": 1,
    "startds": True,
    "parallel": True,
    "hardware": {"fast": HARDWARE, "slow": HARDWARE},
    "settings": EAGER
    | MACHINE
    | {
        "STARTD_ATTRS": f"$(STARTD_ATTRS) {' '.join(MACHINE)}",
        "MACHINE_RESOURCE_INVENTORY_GPUs": KIND,
        "MATLAB_LIMIT": "50",
        "GROUP_NAMES": "group_physics",
        "GROUP_QUOTA_group_physics": "20",
        "GROUP_ACCEPT_SURPLUS": "True",
    },
}
SHARED = f"{SITE.replace('start_delay_s = 6', 'start_delay_s = 16')}\nshare_nodes = true\n"
EASY = ("+RtRunTime = 60", "+RtDeadline = time() + 86400")
IMPOSSIBLE = ("+RtRunTime = 60", "+RtDeadline = time() + 30")

OF_THE_RUN = re.compile(
    r"(Rt\w+|.*(Date|Time|Bday|Id|Duration|Usage|Cpu|Claim|Addr|Ids|Size|Sec|RAW|Renewal)\d*"
    r"|(Cluster|Global|Server|AutoCluster|LastRej|LastMatch|Remote|Last|Num|Bytes|Transfer\w+Stats"
    r"|Machine|Match|Startd|DAG|Condor|Submit|Total|Block|Recent|Stats|Committed|Cumulative)\w*"
    r"|(StageIn|TransferIn|TransferOut)(Start|Finish|Queued)\w*|EnteredCurrentStatus|JobFinishedHookDone"
    r"|JobRunCount|JobPid|ToE|Iwd|AllRemoteHosts|CurrentHosts|\w*Provisioned|OrigMaxHosts"
    r"|ScratchDirFileCount|JobMaterializeDigestFile|\w+Mtime|\w+_)",
)
"""Attributes that differ from run to run: what rtsched writes, ids, times, measurements."""
NUMBERED = ("Err", "Out", "UserLog", "JobDescription")
"""Texts in which the forms put the number of the job."""
ENDS = ("JobStatus", "ExitCode", "ExitBySignal", "NumJobStarts", "NumHolds", "HoldReasonCode")


def file_of(form: Form, *more: str) -> str:
    """Return a submit file; the queue statements come last."""
    lines = "".join(f"{line}\n" for line in ("executable = /bin/true", "log = events", *more))
    text = form.lines.replace("$(begin)", f"{time.time() + 90:.0f}")
    queues = re.search(r"(?m)^queue", form.lines)
    return f"{lines}{text}\n" + ("" if queues else "queue\n")


def submit(pool: Pool, form: Form, *more: str) -> tuple[list[int], str]:
    """Submit a form; return its clusters and all that its user reads."""
    pool.write({f"{HOME}/job.sub": file_of(form, *more)})
    words = ["condor_submit", *form.args, "job.sub"]
    done = pool.run(words, user="alice", cwd=HOME, check=False)
    text = done.stdout + done.stderr
    return [int(number) for number in re.findall(r"submitted to cluster (\d+)", text)], text


def prepare(pool: Pool) -> None:
    """Write what submit files refer to."""
    pool.write({f"{HOME}/{name}": text for name, text in FILES.items()})
    pool.run(["chown", "-R", "alice", HOME])
    pool.run(["chmod", "755", f"{HOME}/work.sh"])


def ads_of(pool: Pool, cluster: int) -> list[dict[str, Any]]:
    """Return the jobs of a cluster, wherever they are, in order."""
    found: dict[int, dict[str, Any]] = {}
    for tool in ("condor_history", "condor_q"):
        done = pool.run([tool, str(cluster), "-json"], check=False)
        for ad in json.loads(done.stdout or "[]"):
            found[ad["ProcId"]] = ad
    return [found[at] for at in sorted(found)]


def plain(ad: dict[str, Any]) -> dict[str, Any]:
    """Return what of a job does not differ from run to run; its number in texts is N."""
    number = re.compile(rf"\b{ad['ClusterId']}\b")
    kept = {name: value for name, value in ad.items() if not OF_THE_RUN.fullmatch(name)}
    kept |= {name: number.sub("N", kept[name]) for name in NUMBERED if name in kept}
    return kept | {name: ad.get(name) for name in ENDS}


def as_they_are(pool: Pool) -> dict[str, Any]:
    """Submit each form without a deadline, and return what became of it.

    Those that do not end by themselves are held.
    """
    prepare(pool)
    held = {name: () if form.runs else ("hold = true",) for name, form in FORMS.items()}
    clusters = {name: submit(pool, form, *held[name]) for name, form in FORMS.items()}
    wait = [str(c) for name in FORMS if FORMS[name].runs for c in clusters[name][0]]

    def left() -> str:
        shown = ("JobStatus", "HoldReason", "LastRejMatchReason")
        waits = " || ".join(f"ClusterId == {number}" for number in wait)
        words = ["condor_q", "-allusers", "-constraint", f"JobStatus != 4 && ({waits})"]
        return pool.run([*words, "-af:j", *shown]).stdout

    eventually(lambda: not left(), 120, left)
    found = {}
    for name, (numbers, text) in clusters.items():
        reply = re.sub(r"\d+", "N", text)
        found[name] = (reply, [plain(ad) for number in numbers for ad in ads_of(pool, number)])
    pool.run(["condor_rm", "-all"])
    return found


def difference(before: tuple[str, list[dict[str, Any]]], after: Any) -> list[Any]:
    """Return in what two outcomes of a form differ."""
    (words, ads), (others, again) = before, after
    found: list[Any] = [(words, others)] * (words != others)
    found += [(len(ads), len(again))] * (len(ads) != len(again))
    for one, other in zip(ads, again, strict=False):
        names = sorted({*one, *other})
        found += [(n, one.get(n), other.get(n)) for n in names if one.get(n) != other.get(n)]
    return found


@pytest.fixture(scope="module", params=SUITES)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, Any], LivePool]]:
    """Run a bare pool and return what became of the forms there; then one with rtsched."""
    with Pool(request.param, PoolOptions(**POOL)) as bare:
        before = as_they_are(bare)
    with live_pool(SHARED, suite=request.param, **POOL) as live:
        yield before, live


def test_jobs_without_a_deadline_are_as_on_a_pool_without_rtsched(
    both: tuple[dict[str, Any], LivePool],
) -> None:
    """The same words at the prompt, the same ads, the same ends."""
    before, live = both
    after = as_they_are(live.pool)
    differing = {name: found for name in FORMS if (found := difference(before[name], after[name]))}
    assert differing == {}


def test_each_form_is_promised_or_refused_with_a_reason(
    both: tuple[dict[str, Any], LivePool],
) -> None:
    """With an easy deadline; with an impossible one each is rejected."""
    _, live = both
    prepare(live.pool)
    wrong, promised, bounded = {}, 0, 0
    for name, form in FORMS.items():
        numbers, text = submit(live.pool, form, *EASY)
        if form.refused:
            good = not numbers and form.refused in " ".join(text.split())
        else:
            bounded += 1
            good = bool(numbers) and PROMISED in text
            promised += good
        late, reply = submit(live.pool, form, *IMPOSSIBLE)
        if late or "ERROR: rtsched: " not in reply:
            wrong[f"{name}, impossible"] = reply
        if not good:
            wrong[name] = text
        live.pool.run(["condor_rm", "-all"], check=False)
    assert wrong == {}
    assert promised >= 0.97 * bounded
    assert len(FORMS) >= 45


def test_wrong_lines_give_a_sentence(both: tuple[dict[str, Any], LivePool]) -> None:
    """Which says what is wrong with the job, and nothing is in the queue."""
    _, live = both
    prepare(live.pool)
    wrong = {}
    for name, (lines, words) in WRONG.items():
        given = [line for line in EASY if line.split()[0] not in lines]
        numbers, text = submit(live.pool, Form(lines), *given)
        if numbers or words not in text or text.count("rtsched:") != 1:
            wrong[name] = text
    assert wrong == {}


DAGS = {
    "outer.dag": "JOB A node.sub\nRETRY A 1\nSPLICE S inner.dag\nSUBDAG EXTERNAL B lower.dag\n"
    'PARENT A CHILD S B\nPRIORITY A 5\nVARS A which="a"\n',
    "inner.dag": "JOB C node.sub\nJOB D node.sub\nPARENT C CHILD D\n",
    "lower.dag": "JOB E node.sub\nSCRIPT PRE E /bin/true\n",
    "late.dag": "JOB F late.sub\nRETRY F 1\n",
}
NODE = (
    "executable = /bin/true\nlog = nodes.log\n+RtRunTime = 60\n+RtDeadline = time() + {}\nqueue\n"
)
BINDINGS = """
import htcondor2
schedd = htcondor2.Schedd()
for later in (86400, 30):
    job = {"executable": "/bin/true", "My.RtRunTime": "60", "My.RtDeadline": f"QDate + {later}"}
    try:
        items = iter([{"n": "1"}, {"n": "2"}])
        print(schedd.submit(htcondor2.Submit(job), itemdata=items).cluster())
    except Exception as error:
        print(error)
"""


def test_nodes_of_workflows(both: tuple[dict[str, Any], LivePool]) -> None:
    """Nodes of a DAG, of a splice and of a DAG within it are promised; a late one is rejected."""
    _, live = both
    files = {**DAGS, "node.sub": NODE.format(86400), "late.sub": NODE.format(30)}
    live.pool.write({f"{HOME}/dag/{name}": text for name, text in files.items()})
    live.pool.run(["chown", "-R", "alice", HOME])
    for name in ("outer.dag", "late.dag"):
        words = ["condor_submit_dag", "-f", "-maxidle", "10", name]
        live.pool.run(words, user="alice", cwd=f"{HOME}/dag")

    def nodes() -> list[dict[str, Any]]:
        found = live.past("DAGNodeName isnt undefined && DAGManJobId isnt undefined").values()
        return [ad for ad in found if ad["Cmd"] == "/bin/true"]

    eventually(lambda: len(nodes()) == 4, 150, "all nodes have run")
    assert {ad["DAGNodeName"] for ad in nodes()} == {"A", "S+C", "S+D", "E"}
    assert all(PROMISED in ad["RtMessage"] for ad in nodes())
    late = live.pool.path(f"{HOME}/dag/late.dag.dagman.out")
    eventually(lambda: "rtsched: rejected: deadline too soon" in late.read_text(), 60)


def test_jobs_of_the_bindings(both: tuple[dict[str, Any], LivePool]) -> None:
    """Python submits a cluster from items: promised, or an exception says why not."""
    _, live = both
    done = live.pool.run(["python", "-c", BINDINGS], user="alice")
    first, other = done.stdout.split("\n", 1)
    assert all(PROMISED in ad["RtMessage"] for ad in ads_of(live.pool, int(first)))
    assert "rtsched: rejected: deadline too soon" in other

"""What users and admins ask the daemon on a real Slurm, and what it tells whom."""

import json
import time

import pytest
from testbed import Cluster, SlurmOptions, SubmitError
from testbed.waiting import eventually

SITE = """
planner = "mcdf"

[[plugin]]
name = "mcdf"

[daemon]
cycle = 1
offer = 2
metrics_port = 9100
admins = ["carol"]
"""
PROLOG = "/usr/libexec/rtsched/task_prolog.sh"
LOAD = "rtsched:sigma=100,cms=0.01,cps=2"


@pytest.fixture(scope="module")
def running(testbed):
    """Run a cluster of six nodes with our filter and daemon."""
    options = SlurmOptions(fast=2, slow=4, job_submit=("rtsched",))
    files = {"/etc/rtsched/submit.conf": "timeout_ms = 2000\n"}  # the machine may be busy
    with Cluster("forky", options, files=files) as cluster:
        cluster.start_daemon(SITE)
        yield cluster


@pytest.fixture(autouse=True)
def _calm(running):
    """Leave no job and no promise to the next test."""
    yield
    for user in ("alice", "bob", "dave"):
        running.run(["scancel", "--user", user])
    eventually(lambda: not ask(running, "status", user="root")["promises"], 30)


def ask(cluster, *words, user="alice", status=0):
    """Return the JSON that a command prints to a user."""
    done = cluster.run(["rtsched", *words, "--json"], user=user, check=False)
    assert done.returncode == status, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def known(cluster, job, user):
    """Return whether a poll has shown a user's job."""
    words = ["rtsched", "explain", str(job), "--live"]
    return cluster.run(words, user=user, check=False).returncode == 0


def refused(cluster, *words, user="alice"):
    """Return the sentence with which a command is refused to a user."""
    done = cluster.run(["rtsched", *words], user=user, check=False)
    assert done.returncode == 2, (done.stdout, done.stderr)
    return done.stderr


def test_a_promise_is_seen_by_its_owner_and_admins(running):
    """Status, explain and plan tell a user her own, and an admin or root everybody's."""
    job = running.sbatch(["-N2", "--time=2", "--deadline=now+30minutes"], script="sleep 300")
    try:
        eventually(lambda: [p for p in ask(running, "status")["promises"] if p["job"] == str(job)])
        assert not ask(running, "status", user="bob")["promises"]
        for admin in ("carol", "root", "rtsched"):
            report = ask(running, "status", user=admin)
            assert report["everyone"]
            assert [p["user"] for p in report["promises"]] == ["alice"]
        report = ask(running, "explain", str(job), "--live")
        assert report["promise"]["standing"] == "firm"
        assert "promised to end by" in report["verdicts"][0]["text"]
        assert "no job" in refused(running, "explain", str(job), user="bob")
        assert ask(running, "explain", str(job), user="carol")["job"]["user"] == "alice"
        assert "only admins" in refused(running, "plan")
        assert ask(running, "plan", user="root")["mode"] == "live"
    finally:
        running.run(["scancel", str(job)])
    eventually(lambda: not ask(running, "status")["promises"])
    closed = ask(running, "explain", str(job), "--live")["promise"]["standing"]
    assert closed not in {"firm", "provisional"}


def test_all_promises_are_cancelled_before_rtsched_is_removed(running):
    """Each user reads it in the comment of the job, which waits as a best-effort job."""
    later = ["-N6", "--time=2", "--deadline=now+60minutes"]
    hog = running.sbatch(["-N6", "--exclusive", "--time=2"], user="dave", script="sleep 100")
    running.wait_job(hog, "RUNNING")
    jobs = [running.sbatch(later, user=user, script="true") for user in ("alice", "bob")]

    def firm():
        promises = ask(running, "status", user="root")["promises"]
        return sorted(p["job"] for p in promises if p["standing"] == "firm") == list(map(str, jobs))

    eventually(firm, 20, "both are promised")
    reply = running.run(["rtsched", "cancel", "--all"], user="root").stdout
    assert "2 promises cancelled; the users are informed" in reply
    for job in jobs:
        eventually(
            lambda job=job: "cancelled by an admin" in running.job(job).get("Comment", ""), 20
        )
    assert not ask(running, "status", user="root")["promises"]


def test_a_rejection_is_explained(running):
    """What sbatch was told is remembered for its user; the deadline named there is feasible."""
    with pytest.raises(SubmitError) as told:
        running.sbatch(["-N6", "--time=30", "--deadline=now+10minutes"], user="bob")
    (verdict,) = ask(running, "explain", "--last", user="bob")["verdicts"]
    assert verdict["verdict"] == "reject"
    assert verdict["codes"]
    assert verdict["offer"] is not None, verdict["text"]
    assert verdict["offer"] > time.time()
    for line in verdict["text"].splitlines():
        assert line in str(told.value)
    shown = running.run(["rtsched", "explain", "--last"], user="bob").stdout
    assert "feasible then" in shown
    done = running.run(["rtsched", "explain", "--last", "10", "--json"], user="alice", check=False)
    assert verdict not in json.loads(done.stdout)["verdicts"]  # 1 where she never asked


def test_feasible_and_its_promise(running):
    """A job that asks for the deadline that `feasible` names is promised it; no trace is left."""
    question = ("feasible", "-N", "3", "--time", "5")
    report = ask(running, *question, user="dave")
    assert report["feasible"]
    assert len(report["nodes"]) == 3
    assert not ask(running, "status", user="dave")["promises"]
    job = running.sbatch(["-N3", "--time=5", report["asking"]], user="dave", script="sleep 1")
    eventually(lambda: known(running, job, "dave"), 30)
    promise = ask(running, "explain", str(job), "--live", user="dave")["verdicts"][0]
    assert promise["verdict"] == "admit"
    running.run(["scancel", str(job)])
    assert not ask(running, *question, "--deadline", "now+1minute", status=1)["feasible"]
    assert not ask(running, "feasible", "-N", "60", "--time", "5", status=1)["feasible"]


def test_a_load_learns_its_chunks(running):
    """A divisible job that waited gets the same from `srun --task-prolog` and `rtsched chunk`."""
    script = (
        f"srun --task-prolog={PROLOG} sh -c '"
        "env | grep ^RTSCHED_ | sort >told.$SLURM_JOB_ID.$SLURM_PROCID; "
        "unset RTSCHED_JOB; rtsched chunk | sort >asked.$SLURM_JOB_ID.$SLURM_PROCID'"
    )
    words = ["-N6", "--time=2", "--deadline=now+10minutes"]
    before = running.sbatch(words, script="until [ -e asked ]; do sleep 0.2; done")
    words = ["-N2-4", "--deadline=now+20minutes", "--time=10", f"--extra={LOAD}"]
    job = running.sbatch(words, script=script)
    seen = ["rtsched", "chunk", str(job)]
    eventually(lambda: running.run(seen, user="alice", check=False).returncode == 0)
    assert sum(ask(running, "chunk", str(job))["fractions"]) == pytest.approx(1, abs=1e-6)
    running.path("/home/alice/asked").touch()
    assert running.wait_job(before, "COMPLETED", timeout=60) == "COMPLETED"
    assert running.wait_job(job, "COMPLETED", timeout=120) == "COMPLETED"
    home = running.path("/home/alice")
    told = [path.read_text() for path in sorted(home.glob(f"told.{job}.*"))]
    again = [path.read_text() for path in sorted(home.glob(f"asked.{job}.*"))]
    assert len(told) >= 2
    assert [text.replace("export ", "") for text in again] == told
    assert len({line for text in told for line in text.splitlines() if "CHUNK" in line}) == len(
        told
    )


@pytest.mark.parametrize("command", ["sbatch --wrap true", "srun true"])
def test_who_only_tests_is_promised_nothing(running, command):
    """Users of --test-only read what would be promised; and nothing stays promised."""
    name, *words = command.split()
    words = [name, "--test-only", "-N1", "--time=2", "--deadline=now+30minutes", *words]
    done = running.run(words, user="alice")
    assert "rtsched: would be promised to end by " in done.stderr
    assert "no job is submitted, so nothing is promised yet" in done.stderr
    eventually(lambda: not ask(running, "status")["promises"], 30)


def test_metrics_on_localhost(running):
    """Prometheus reads the metrics on the head node; users do not get them by their socket."""
    code = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9100/metrics').read())"
    text = running.run(["/opt/rtsched/bin/python", "-c", code]).stdout
    assert "rtsched_cycle_seconds_count" in text
    shown = running.run(["rtsched", "status", "--metrics"], user="root").stdout
    assert "rtsched_look_age_seconds " in shown
    assert "no metrics" in running.run(["rtsched", "status", "--metrics"], user="alice").stdout


def test_without_the_daemon(running):
    """While the daemon is away its commands say so with status 3; afterwards promises are back."""
    job = running.sbatch(["-N1", "--time=2", "--deadline=now+30minutes"], script="sleep 300")
    eventually(lambda: [p for p in ask(running, "status")["promises"] if p["job"] == str(job)])
    running.kill_daemon()
    done = running.run(["rtsched", "status"], user="alice", check=False)
    assert done.returncode == 3
    assert "no daemon answers" in done.stderr
    running.start_daemon()
    assert [p["job"] for p in ask(running, "status")["promises"]] == [str(job)]
    running.run(["scancel", str(job)])

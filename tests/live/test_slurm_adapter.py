"""The adapter and real controllers of both releases, as the Operator `rtsched`."""

import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from remote import Remote
from testbed import Cluster
from testbed.slurm import SlurmOptions
from testbed.slurm_source import has_pyslurm
from testbed.waiting import eventually

from rtsched.adapters.live import FIRST_OWN_ID, CompletionStatus, Done, Observation
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.errors import AdapterError
from rtsched.model.actions import (
    Cancel,
    Hold,
    Move,
    Notify,
    Place,
    Release,
    Requeue,
    Reserve,
    SetNodeWeight,
    SetPriority,
)
from rtsched.model.jobs import Kind
from rtsched.model.schedule import Schedule
from rtsched.model.verdicts import Placement

HOSTILE = "x\n\nJobId=1 JobName=y\n   Extra=forged|,\t'\"$(id)`\\\x7f"
COMMANDS = SlurmSettings(route="commands")
MARGIN = 5 + 5 + 10
"""Start delay, KillWait, completing."""


@pytest.fixture(scope="module", params=["forky", "trixie"])
def slurm(request: pytest.FixtureRequest, testbed: None) -> Iterator[Cluster]:
    """Run Slurm of one Debian release."""
    with Cluster(request.param) as running:
        yield running


@pytest.fixture
def remote(slurm: Cluster) -> Iterator[Remote]:
    """Let the adapter use Slurm's commands; afterwards nothing waits, runs or is reserved."""
    with Remote(slurm, COMMANDS) as system:
        yield system
    for user in ("alice", "bob", "carol"):
        slurm.run(["scancel", "-u", user])
    with Remote(slurm, COMMANDS) as system:
        eventually(
            lambda: not len(system.poll().queued) + len(system.poll().running),
            60,
            "no job waits or runs",
        )
        system.apply(Reserve(np.empty(0, np.int64), Schedule.empty()))


def later(seconds: float) -> str:
    """Return an option that keeps a job waiting."""
    return f"--begin=now+{int(seconds)}"


def row(observation: Observation, job: int) -> int:
    """Return the row of a waiting job."""
    return int(np.flatnonzero(observation.queued.id == job)[0])


def plan_of(*entries: tuple[int, float, float, list[int]]) -> Reserve:
    """Return the reservation of a plan of (job, start, end, node rows)."""
    sizes = [len(nodes) for *_, nodes in entries]
    plan = Schedule.build(
        np.array([job for job, *_ in entries], np.int64),
        np.array([start for _, start, _, _ in entries]),
        np.array([end for *_, end, _ in entries]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array([node for *_, nodes in entries for node in nodes], np.int32),
    )
    return Reserve(plan.entries.job, plan)


def reservations(cluster: Cluster) -> list[str]:
    """Return the names of the reservations that there are."""
    shown = cluster.run(["scontrol", "-o", "show", "reservation"]).stdout
    return sorted(
        word.partition("=")[2] for word in shown.split() if word.startswith("ReservationName=")
    )


def good(dones: Any) -> list[str]:
    """Return the texts of changes, all of which were done."""
    assert [(done.change.text, done.text) for done in dones if done.outcome != "done"] == []
    return [done.change.text for done in dones]


def test_what_a_look_shows(slurm: Cluster, remote: Remote) -> None:
    """Jobs, nodes, partitions, accounts, dependencies and what ended are as Slurm has them."""
    plain = slurm.sbatch(["-N2", "-t3", later(600), "--deadline=now+5hours", "-Cslow"])
    moldable = slurm.sbatch(["-N2-4", "-t10", later(600), "--deadline=now+5hours"])
    words = "rtsched:sigma=400,cms=0.01,cps=1,dag=night"
    load = slurm.sbatch(["-N1-4", f"--extra={words}", "-d", f"afterok:{plain}"], user="bob")
    array = slurm.sbatch(["--array=1-5", "-t1", later(600), "--deadline=now+5hours"])
    running = slurm.sbatch(["-N3", "-t1"], script="sleep 60", user="carol")
    failed = slurm.sbatch(["-t1"], script="exit 3")
    slurm.wait_job(failed, "FAILED")
    slurm.wait_job(running, "RUNNING")
    observation = remote.poll()
    jobs = observation.queued
    at = row(observation, plain)
    assert jobs.wall_time[at] == 180 + MARGIN
    asked = jobs.texts("partition")[at], jobs.texts("node_request")[at]
    assert (jobs.size[at], *asked) == (2, "all", "--constraint=slow --partition=all")
    assert jobs.deadline[at] == pytest.approx(time.time() + 18000, abs=60)
    at = row(observation, moldable)
    assert (jobs.kind[at], jobs.size_min[at], jobs.size_max[at]) == (Kind.MOLDABLE, 2, 4)
    assert jobs.wall_time[at] == 600 + (MARGIN + 60) * 2
    at = row(observation, load)
    assert (jobs.kind[at], jobs.sigma[at], jobs.dag[at] >= 0) == (Kind.DIVISIBLE, 400.0, True)
    assert (observation.edges.before.tolist(), observation.edges.after.tolist()) == (
        [plain],
        [load],
    )
    at = row(observation, array)
    assert (jobs.kind[at], jobs.tasks[at], np.isfinite(jobs.deadline[at])) == (Kind.ARRAY, 5, True)
    assert observation.running.id.tolist() == [running]
    assert len(observation.allocations.nodes) == 3
    assert observation.allocations.entries.end[0] == pytest.approx(
        time.time() + 60 + MARGIN, abs=15
    )
    assert observation.completions.status[observation.completions.job == failed].tolist() == [
        CompletionStatus.FAILED
    ]
    assert len(observation.cluster) == 30
    assert observation.cluster.node_sets["--constraint=fast --partition=all"].sum() == 5
    assert observation.accounts.texts("name").count("alice") == 1
    names = observation.accounts.texts("name")
    assert names[jobs.association[row(observation, load)]] == "bob"
    assert not observation.problems


def test_nobody_forges_rows(slurm: Cluster, remote: Remote) -> None:
    """Delimiters, newlines and whole records in a user's texts change nothing else."""
    options = [f"--job-name={HOSTILE}", f"--comment={HOSTILE}", f"--extra={HOSTILE}", later(600)]
    job = slurm.sbatch(["-N1", "-t1", *options])
    other = slurm.sbatch(["-N1", "-t1", later(600), "--extra=rtsched:dag=mine"], user="bob")
    observation = remote.poll()
    assert observation.queued.id.tolist() == [job, other]
    assert observation.queued.texts("user") == ["alice", "bob"]
    assert observation.queued.texts("name")[0] == HOSTILE
    assert observation.queued.dag[0] == -1
    assert observation.queued.dag[1] >= 0
    assert observation.marks.texts("token") == [None, None]


@pytest.mark.skipif(not has_pyslurm(), reason="there is no pyslurm for this release of Slurm")
def test_both_routes_show_the_same(testbed: None) -> None:
    """What pyslurm shows is what the commands show, column by column."""
    with Cluster("forky") as slurm:
        slurm.run(["sh", "-c", "scontrol update NodeName=slow3 State=DRAIN Reason='a b'"])
        for options in (
            ["-N2-4", "-t2", "--deadline=now+5hours", "-Cfast", f"--comment={HOSTILE}"],
            ["-N1", "-n3", "--array=1-10", "--mem=500", f"--job-name={HOSTILE}"],
            ["-n9", "-c2", "-t1-0", "--mem-per-cpu=10", "--nice=5", "-d", "afterany:1"],
            ["-N2", "-x", "slow1", "--extra=rtsched:dag=x,checkpoint=yes", "-H"],
            ["-N1", "-w", "slow7", "--no-requeue", "--qos=normal", f"--extra={HOSTILE}"],
        ):
            slurm.sbatch([later(600), *options])
        runs = slurm.sbatch(["-N3", "-t2", "--extra=rtsched:checkpoint=yes"], script="sleep 60")
        over = slurm.sbatch(["-t1"], script="exit 1")
        slurm.wait_job(over, "FAILED")
        slurm.wait_job(runs, "RUNNING")
        with (
            Remote(slurm, SlurmSettings(route="pyslurm")) as bindings,
            Remote(slurm, COMMANDS) as commands,
        ):
            bindings.poll(), commands.poll()
            one, other = bindings.poll(), commands.poll()
    for table in ("queued", "running", "marks", "completions", "accounts", "edges", "periodic"):
        _same(getattr(one, table), getattr(other, table))
    for name in ("nodes", "indptr"):
        assert getattr(one.allocations, name).tolist() == getattr(other.allocations, name).tolist()
    _same(one.cluster.nodes, other.cluster.nodes)
    assert one.facts == other.facts
    assert one.problems == other.problems == ()


def _same(one: Any, other: Any) -> None:
    """Compare two tables, column by column."""
    assert len(one) == len(other)
    for name in one.columns():
        if one.names(name) or other.names(name):
            assert one.texts(name) == other.texts(name), name
        else:
            np.testing.assert_array_equal(one.column(name), other.column(name), name)


def test_a_promised_start_on_a_full_cluster(slurm: Cluster, remote: Remote) -> None:
    """A bound job starts when its reservation begins, on the nodes planned, before all that waits.

    It begins before the planned start by as much as other jobs may outlive their limits.
    """
    for _ in range(30):
        slurm.sbatch(["-N1", "--exclusive", "-t1"], user="bob", script="sleep 8")
    for _ in range(20):
        slurm.sbatch(["-N1", "--exclusive", "-t1"], user="bob", script="sleep 40")
        slurm.sbatch(["-N1", "--exclusive", "-t1"], script="sleep 40")
    job = slurm.sbatch(["-N3", "--exclusive", "-t1", "--deadline=now+9minutes"], script="sleep 9")
    start = float(int(time.time()) + 14 + MARGIN)
    end = start + 60 + MARGIN
    plan = plan_of((job, start, end, [9, 10, 11]), (FIRST_OWN_ID, end, end + 99, [11, 12]))
    assert [text.split()[0] for text in good(remote.apply(plan))] == [
        *("create",) * 2,
        "bind",
        "move",
    ]
    assert remote.apply(plan) == []
    slurm.wait_job(job, "RUNNING")
    began = slurm.job(job)
    assert began["NodeList"] == "slow[5-7]"
    assert remote.poll().running.id.tolist()[-1] == job
    seconds = remote.poll().allocations.entries.start[-1] - start
    assert -MARGIN <= seconds <= 5 - MARGIN
    texts = good(remote.apply(plan))
    assert any("out of reservation" in text for text in texts)
    assert reservations(slurm) == [f"rtsched_{FIRST_OWN_ID}"]
    slurm.wait_job(job, "COMPLETED")


def test_a_plan_that_changes(slurm: Cluster, remote: Remote) -> None:
    """Reservations move with the plan, jobs are resized and bound anew, nothing is left behind."""
    job = slurm.sbatch(["-N2-6", "-t9", "--deadline=now+5hours", later(900)])
    load = slurm.sbatch(
        [
            "-N1-4",
            "--extra=rtsched:sigma=400,cms=0.01,cps=1",
            "--deadline=now+5hours",
            later(900),
            "--comment=rtsched: is 'great'\n; rm -rf",
        ],
        user="bob",
    )
    soon = float(int(time.time()) + 1000)
    first = plan_of((job, soon, soon + 500, [1, 2, 3]), (load, soon + 600, soon + 800, [3, 4]))
    good(remote.apply(first))
    shown = slurm.job(job)
    assert (shown["NumNodes"], shown["TimeLimit"]) == ("3-3", "00:08:00")
    assert shown["Reservation"] == f"rtsched_{job}"
    assert slurm.job(load).get("Reservation", "(null)") == "(null)"
    second = plan_of((load, soon, soon + 200, [3, 4]), (job, soon + 300, soon + 999, [1, 4]))
    good(remote.apply(second))
    assert remote.apply(second) == []
    assert slurm.job(load)["Reservation"] == f"rtsched_{load}"
    assert slurm.job(job).get("Reservation", "(null)") == "(null)"
    assert slurm.job(job)["NumNodes"] == "2-2"
    text = slurm.run(["scontrol", "show", "job", str(load)]).stdout
    assert "Comment=rtsched:promise deadline=" in text
    assert "nodes=2 fractions=0.500000000:0.500000000 on=fast4:fast5 rtsched: is 'great'" in text
    good(remote.apply(plan_of()))
    assert reservations(slurm) == []
    assert slurm.job(load).get("Reservation", "(null)") == "(null)"


def test_a_second_call_knows_of_the_first(slurm: Cluster, remote: Remote) -> None:
    """Between two polls, what was carried out counts as so."""
    job = slurm.sbatch(["-N2", "-t9", "--deadline=now+5hours", later(900)])
    plan = plan_of((job, time.time() + 1000, time.time() + 1560, [1, 2]))
    remote.poll()
    assert remote.carry_out(remote.changes(plan))
    assert remote.changes(plan) == []
    assert remote.changes() == []


def test_somebody_in_a_reservation_of_ours(slurm: Cluster, remote: Remote) -> None:
    """A job that has no business in a reservation is taken out of it."""
    job = slurm.sbatch(["-N1", "-t9", "--deadline=now+5hours", later(900)])
    plan = plan_of((job, time.time() + 1000, time.time() + 1560, [1]))
    good(remote.apply(plan))
    intruder = slurm.sbatch(["-N1", "-t1", f"--reservation=rtsched_{job}", later(900)])
    assert good(remote.apply(plan)) == [f"take job {intruder} out of reservation rtsched_{job}"]
    assert slurm.job(job)["Reservation"] == f"rtsched_{job}"


def test_a_sites_own_reservation_is_left_alone(slurm: Cluster, remote: Remote) -> None:
    """Whatever it is called: it stays, its jobs stay in it, and no promise takes its nodes."""
    name = "rtsched_maintenance"
    create = ["scontrol", "create", "reservation", f"ReservationName={name}", "Nodes=fast2"]
    slurm.run([*create, "StartTime=now", "Duration=60", "Users=alice"])
    try:
        job = slurm.sbatch(["-N1", "-t1", f"--reservation={name}", later(900)])
        assert remote.apply(plan_of()) == []
        assert reservations(slurm) == [name]
        assert slurm.job(job)["Reservation"] == name
        observation = remote.poll()
        names = observation.cluster.nodes.texts("name")
        assert [names[at] for at in observation.blocked.node] == ["fast2"]
    finally:
        slurm.run(["sh", "-c", "scancel --quiet -u alice"])
        eventually(lambda: slurm.run(["squeue", "-h", "-u", "alice"]).stdout == "")
        slurm.run(["scontrol", "delete", f"ReservationName={name}"])


def test_a_job_that_starts_before_it_is_bound(slurm: Cluster, remote: Remote) -> None:
    """It is not bound any more: the end of the reservation would kill it."""
    job = slurm.sbatch(["-N1", "-t9", "--deadline=now+5hours", "--hold"], script="sleep 60")
    remote.poll()
    changes = remote.changes(plan_of((job, time.time() + 1000, time.time() + 1560, [7])))
    slurm.run(["scontrol", "release", str(job)])
    slurm.wait_job(job, "RUNNING")
    done = {d.change.text.split()[0]: d.outcome for d in remote.carry_out(changes)}
    assert done["bind"] == "failed"
    assert slurm.job(job).get("Reservation", "(null)") == "(null)"


def single(job: int) -> Any:
    """Return an array of one job id."""
    return np.array([job], np.int64)


def test_actions_on_single_jobs(slurm: Cluster, remote: Remote) -> None:
    """Hold, release, site factor, comment, cancel: asked for once, and then so."""
    job = slurm.sbatch(["-N1", "-t1", later(900)])
    before = int(slurm.job(job)["Priority"])
    for action in (
        Hold(single(job), np.zeros(1)),
        Release(single(job)),
        SetPriority(single(job), np.array([0.5])),
        Notify(single(job), ("rtsched: it waits for 'x' \"y\" $(z) ; \\ |",)),
    ):
        assert len(good(remote.apply(action))) == 1
        assert remote.changes(action) == []
    assert slurm.job(job)["Comment"].startswith("rtsched: it waits for 'x' \"y\" $(z) ; \\ |")
    assert int(slurm.job(job)["Priority"]) == pytest.approx(before + 500, abs=50)
    assert len(good(remote.apply(Cancel(single(job), ("no room",))))) == 2
    assert slurm.wait_job(job, "CANCELLED")
    assert slurm.job(job)["Comment"].strip() == "rtsched: no room"


def best_effort(slurm: Cluster) -> tuple[int, int, Place]:
    """Return a moldable job, one on a single node, and where they are to run."""
    moldable = slurm.sbatch(["-N2-6", "-t9", later(900), "--extra=rtsched:speedup=linear"])
    one = slurm.sbatch(["-N1", "-t1", later(900)])
    placement = Placement(
        np.array([4, 1], np.int32), np.array([-1, 0], np.int32), (np.array([7, 8], np.int32),)
    )
    return moldable, one, Place(np.array([moldable, one], np.int64), placement)


def test_what_was_set_outlives_a_killed_process(slurm: Cluster) -> None:
    """Whoever follows lets a job go that was sent to a node, and takes a site factor back."""
    moldable, one, action = best_effort(slurm)
    raised = SetPriority(single(one), np.array([0.5]))
    with Remote(slurm, COMMANDS) as remote:
        good(remote.apply(action, raised))
        remote.kill()
    assert (slurm.job(one)["ReqNodeList"], slurm.job(moldable)["NumNodes"]) == ("slow3", "4-4")
    before = int(slurm.job(one)["Priority"])
    with Remote(slurm, SlurmSettings(route="commands", bound_late_s=0.0)) as remote:
        remote.poll()
        assert remote.changes(raised) == []
        done = good(remote.apply(action, SetPriority(single(one), np.array([0.0]))))
        assert f"let job {one} start on any node again" in done
    assert slurm.job(one)["ReqNodeList"] == "(null)"
    assert int(slurm.job(one)["Priority"]) == pytest.approx(before - 500, abs=50)
    slurm.run(["scancel", str(one), str(moldable)])


def test_rollback_leaves_jobs_as_their_users_submitted_them(slurm: Cluster) -> None:
    """Site factors, node counts, node lists and reservations are undone, deferred jobs released.

    All that a daemon that was killed had set is known; without --apply nothing changes.
    """
    moldable, one, action = best_effort(slurm)
    promised = slurm.sbatch(["-N2", "-t9", "--deadline=now+5hours", later(900)])
    parked = slurm.sbatch(["-N1", "-t1", "--hold", later(900)])
    slurm.run(["scontrol", "update", f"JobId={parked}", "AdminComment=rtsched:parked"])
    jobs = (moldable, one, promised)
    before = {job: slurm.job(job) for job in jobs}
    soon = float(int(time.time()) + 1000)
    plan = plan_of((promised, soon, soon + 560, [1, 2]))
    first = SetPriority(np.array([one, moldable]), np.array([0.5, -0.5]))
    with Remote(slurm, COMMANDS) as remote:
        good(remote.apply(plan, action, first))
        remote.kill()
    reply = slurm.run(["rtsched", "slurm", "restore"], check=False).stdout
    assert f"let job {one} start on any node again" in reply
    assert reservations(slurm) == [f"rtsched_{promised}"]
    done = slurm.run(["rtsched", "slurm", "restore", "--apply"], check=False)
    assert done.returncode == 0, done
    assert reservations(slurm) == []
    for job in jobs:
        after = slurm.job(job)
        for field in ("ReqNodeList", "Reservation"):
            assert after.get(field) == before[job].get(field), (job, field)
        assert int(after["Priority"]) == pytest.approx(int(before[job]["Priority"]), abs=50)
    assert [slurm.job(job)["NumNodes"] for job in jobs] == ["2-6", "1-1", "2-2"]
    assert int(slurm.job(parked)["Priority"]) > 0
    again = slurm.run(["rtsched", "slurm", "restore", "--apply"], check=False)
    assert (again.returncode, again.stdout) == (0, "")
    slurm.run(["scancel", *map(str, (*jobs, parked))])


def comment_of(cluster: Cluster, job: int) -> str:
    """Return a job's comment."""
    return cluster.run(["squeue", "-h", "-j", str(job), "-o", "%k"]).stdout.strip()


def test_what_a_user_is_told_leaves_her_own_words(slurm: Cluster, remote: Remote) -> None:
    """A divisible load whose comment says that it is deferred stays divisible at the next poll."""
    words = "for the night's run rtsched:sigma=400,cms=0.01,cps=1"
    load = slurm.sbatch(["-N1-4", "--deadline=now+5hours", f"--comment={words}", later(900)])
    for message in ("held; it is evaluated again", "promised to end by 12:00:00"):
        good(remote.apply(Notify(single(load), (f"rtsched: {message}",))))
        assert comment_of(slurm, load) == f"rtsched: {message} -- {words}"
        observation = remote.poll()
        at = row(observation, load)
        assert (observation.queued.kind[at], observation.queued.sigma[at]) == (
            Kind.DIVISIBLE,
            400.0,
        )
    soon = float(int(time.time()) + 1000)
    plan, told = plan_of((load, soon, soon + 300, [1, 2])), Notify(single(load), ("rtsched: yes",))
    good(remote.apply(plan, told))
    comment = comment_of(slurm, load)
    assert comment.startswith("rtsched:promise deadline=")
    assert comment.endswith(f" on=fast2:fast3 rtsched: yes -- {words}")
    remote.poll()
    assert remote.changes(plan, told) == []
    good(remote.apply(plan_of()))
    assert comment_of(slurm, load) == f"rtsched: yes -- {words}"


def test_sizes_and_nodes_of_best_effort_jobs(slurm: Cluster, remote: Remote) -> None:
    """A moldable job's range outlives a restart; one on a single node is sent there, and let go."""
    moldable, one, action = best_effort(slurm)
    assert len(good(remote.apply(action))) == 2
    assert slurm.job(moldable)["NumNodes"] == "4-4"
    assert slurm.job(one)["ReqNodeList"] == "slow3"
    observation = remote.poll()
    at = row(observation, moldable)
    assert (observation.queued.size_min[at], observation.queued.size_max[at]) == (2, 6)
    assert remote.changes(action) == []
    with Remote(slurm, SlurmSettings(route="commands", bound_late_s=0)) as hasty:
        after = hasty.poll().queued
        at = int(np.flatnonzero(after.id == moldable)[0])
        assert (after.size_min[at], after.size_max[at]) == (2, 6)
        assert good(hasty.apply(action))[-1] == f"let job {one} start on any node again"
    assert slurm.job(one)["ReqNodeList"] == "(null)"


def outcomes(dones: Any) -> list[str]:
    """Return what became of changes."""
    found: list[Done] = list(dones)
    return [done.outcome for done in found]


def test_what_slurm_refuses(slurm: Cluster, remote: Remote) -> None:
    """A refusal is told apart from a failure; weights are not asked for a second time."""
    weights = SetNodeWeight(np.empty(0, np.int64), np.arange(30.0))
    assert remote.changes(weights) == []
    with Remote(slurm, SlurmSettings(route="commands", node_weights=True)) as system:
        assert set(outcomes(system.apply(weights))) == {"refused"}
        assert system.apply(weights) == []
    with Remote(slurm, COMMANDS, user="alice") as nobody:
        job = slurm.sbatch(["-N1", "-t9", later(900)], user="bob")
        plan = plan_of((job, time.time() + 1000, time.time() + 1560, [1]))
        dones = nobody.apply(plan)
        assert set(outcomes(dones)) == {"refused"}
        assert "Invalid user id" in dones[0].text
    running = slurm.sbatch(["-N1", "-t1"], script="sleep 60")
    slurm.wait_job(running, "RUNNING")
    moves = plan_of((running, time.time(), time.time() + 60, [3])).plan
    assert outcomes(remote.apply(Move(single(running), moves))) == ["unsupported"]
    remote.poll()
    changes = remote.changes(Notify(single(running), ("hello",)))
    slurm.run(["scancel", str(running)])
    slurm.wait_job(running, "CANCELLED")
    assert outcomes(remote.carry_out(changes)) == ["failed"]


def test_running_jobs_are_requeued(slurm: Cluster, remote: Remote) -> None:
    """One that declares checkpoints can move; any other can be queued again, unless it forbids."""
    saved = slurm.sbatch(["-N1", "-t1", "--extra=rtsched:checkpoint=yes"], script="sleep 60")
    plain = slurm.sbatch(["-N1", "-t1"], script="sleep 60")
    fixed = slurm.sbatch(["-N1", "-t1", "--no-requeue"], script="sleep 60")
    for job in (saved, plain, fixed):
        slurm.wait_job(job, "RUNNING")
    moves = plan_of((saved, time.time(), time.time() + 60, [3])).plan
    assert len(good(remote.apply(Move(single(saved), moves), Requeue(single(plain))))) == 2
    assert outcomes(remote.apply(Requeue(single(fixed)))) == ["unsupported"]
    slurm.wait_job(saved, "PENDING")
    slurm.wait_job(plain, "PENDING")


def test_one_task_is_requeued_alone(slurm: Cluster, remote: Remote) -> None:
    """The last task to start has the number of its array."""
    array = slurm.sbatch(["-N1", "-a1-3", "-t1"], script="sleep 60")

    def states() -> list[str]:
        lines = slurm.run(["squeue", "-h", "-r", "-j", str(array), "-O", "State"]).stdout
        return sorted(lines.split())

    eventually(lambda: states() == ["RUNNING"] * 3, 30, "all tasks run")
    remote.poll()
    assert len(good(remote.apply(Requeue(single(array))))) == 1
    again = ["PENDING", "RUNNING", "RUNNING"]
    eventually(lambda: states() == again, 30, "one of them is queued again, and it alone")


def test_how_jobs_ended_by_accounting(slurm: Cluster, remote: Remote) -> None:
    """It knows those that ran and those that did not, of any user; not those that still wait.

    A number that slurmctld is still to give is that of a job that it has lost.
    """
    good, bad, never, waits = (
        slurm.sbatch(["-t1", *args], script=script)
        for args, script in (
            ([], "true"),
            ([], "exit 3"),
            ([later(900)], "true"),
            ([later(900)], "true"),
        )
    )
    slurm.run(["scancel", str(never)])
    lost = waits + 1000
    jobs = (good, bad, never, waits, lost)
    eventually(
        lambda: len(remote.find_completions(*jobs)) >= 4, 30, "three jobs are in the accounting"
    )
    found = remote.find_completions(*jobs)
    rows = {job: at for at, job in enumerate(found.job.tolist())}
    assert sorted(rows) == sorted([good, bad, never, lost])
    endings = [CompletionStatus(found.status[rows[job]]) for job in (good, bad, never, lost)]
    assert endings == [
        CompletionStatus.COMPLETED,
        CompletionStatus.FAILED,
        CompletionStatus.FAILED,
        CompletionStatus.FORGOTTEN,
    ]
    assert abs(found.end[rows[good]] - time.time()) < 60
    assert np.isfinite(found.start[rows[good]])
    assert len(remote.find_completions()) == 0


def test_working_changes_out_touches_nothing(slurm: Cluster, remote: Remote) -> None:
    """Looks and changes alone leave jobs and reservations as they are."""
    job = slurm.sbatch(["-N2-4", "-t9", "--deadline=now+5hours", later(900)])
    before = slurm.job(job)
    remote.poll()
    actions = (
        plan_of((job, time.time() + 1000, time.time() + 1560, [1, 2])),
        Cancel(single(job), ("x",)),
        SetPriority(single(job), np.array([2.0])),
    )
    texts = [change.text for change in remote.changes(*actions)]
    assert any(text.startswith(f"create reservation rtsched_{job} on fast[2-3]") for text in texts)
    assert f"cancel job {job}: x" in texts
    after = slurm.job(job)
    passing = {"LastSchedEval", "SchedNodeList", "StartTime", "EndTime", "AccrueTime", "Reason"}
    assert {k: v for k, v in before.items() if k not in passing} == {
        k: v for k, v in after.items() if k not in passing
    }
    assert reservations(slurm) == []


def test_other_people_s_reservations(slurm: Cluster, remote: Remote) -> None:
    """They set their nodes aside; a recurring one is periodic work on each of its nodes."""
    words = ["scontrol", "create", "reservation", "Users=root", "Duration=10"]
    slurm.run([*words, "ReservationName=maint", "StartTime=now+1hour", "Nodes=slow1"])
    slurm.run(
        [*words, "ReservationName=daily", "StartTime=now+2hours", "Nodes=slow[2-3]", "Flags=DAILY"]
    )
    try:
        observation = remote.poll()
    finally:
        for name in ("maint", "daily"):
            slurm.run(["scontrol", "delete", f"ReservationName={name}"])
    names, blocked = observation.cluster.nodes.texts("name"), observation.blocked
    assert [names[at] for at in blocked.node] == ["slow1"]
    assert blocked.end - blocked.start == 600.0
    assert 3590 <= blocked.start[0] - observation.time <= 3600
    assert observation.cluster.usable.all()
    assert [names[at] for at in observation.periodic.node] == ["slow2", "slow3"]
    assert set(observation.periodic.period) == {86400.0}
    assert set(observation.periodic.exec_time) == {600.0}
    assert not len(remote.poll().blocked.node)
    assert {field.name for field in fields(observation)} >= {"facts", "problems"}


def test_without_accounting(testbed: None) -> None:
    """Without a database jobs and nodes are seen all the same."""
    options = SlurmOptions(fast=1, slow=1, database=False)
    with Cluster("forky", options) as slurm, Remote(slurm, COMMANDS) as remote:
        job = slurm.sbatch(["-N1", "-t9", later(900)])
        observation = remote.poll()
        assert observation.queued.id.tolist() == [job]
        assert len(observation.cluster) == 2
        assert not len(observation.accounts)
        assert remote.poll().problems == observation.problems
        found = remote.find_completions(job, job + 1)
        assert found.job.tolist() == [job + 1]
        assert found.status.tolist() == [CompletionStatus.FORGOTTEN]


def test_priority_basic(testbed: None) -> None:
    """Where the controller knows no site factors, jobs are put forward and back by Nice."""
    options = SlurmOptions(
        fast=1,
        slow=1,
        settings={
            "PriorityType": "priority/basic",
            "PriorityWeightAge": "",
            "PriorityWeightFairshare": "",
        },
    )
    with Cluster("forky", options) as slurm, Remote(slurm, COMMANDS) as remote:
        jobs = [slurm.sbatch(["-N2", "-t9", "--begin=now+1hour"]) for _ in range(2)]
        remote.poll()
        action = SetPriority(np.array(jobs), np.array([1.0, -1.0]))
        changes = remote.changes(action)
        assert outcomes(remote.carry_out(changes)) == ["done", "done"]
        assert [slurm.job(job)["Nice"] for job in jobs] == ["-1000", "1000"]
        remote.poll()
        assert not remote.changes(action)


def test_a_controller_that_is_down(testbed: None) -> None:
    """A poll is one clear error with a remedy; changes fail one by one; then all is well again."""
    with Cluster("trixie") as slurm, Remote(slurm, COMMANDS) as remote:
        job = slurm.sbatch(["-N1", "-t9", later(900)])
        remote.poll()
        changes = remote.changes(SetPriority(single(job), np.array([1.0])))
        slurm.stop_slurmctld()
        with pytest.raises(AdapterError, match="scontrol ping"):
            remote.poll()
        assert outcomes(remote.carry_out(changes)) == ["failed"]
        slurm.start_slurmctld()
        assert remote.poll().queued.id.tolist() == [job]
        assert outcomes(remote.carry_out(changes)) == ["done"]

"""Promised jobs that name nodes, exclude nodes or want several features, on a real Slurm."""

from collections.abc import Iterator

import pytest
from promising import QUICK, SITE, SUBMIT_CONF, Live, in_minutes
from testbed import Cluster, SlurmOptions
from testbed.waiting import eventually

FEATURES = {"fast1": "a,b", "fast2": "a", "slow1": "b", "slow2": "a,b,c"}
SHARED = "\n[slurm]\nshare_nodes = true\n"

WISHES = {
    ("--nodelist=fast2",): {"fast2"},
    ("--exclude=fast1,slow[1-2]",): {"fast2"},
    ("-C", "a&b"): {"fast1", "slow2"},
    ("-N1", "--nodelist=slow[1-2]"): {"slow1", "slow2"},
    ("-N2", "-C", "b&(a|c)"): {"fast1", "slow2"},
    ("-C", "c|a", "--exclude=fast[1-2]"): {"slow2"},
    ("-C", "b", "--exclude=slow2"): {"fast1", "slow1"},
}
"""The nodes that jobs may have, by their options."""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "shared"])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """Run four nodes with features; jobs have whole nodes, or share them."""
    options = SlurmOptions(
        fast=2,
        slow=2,
        job_submit=("rtsched",),
        settings={"SchedulerParameters": "bf_interval=5,bf_continue", "DefMemPerCPU": "100"},
    )
    with Cluster("forky", options, files={SUBMIT_CONF: QUICK}) as cluster:
        for node in FEATURES:
            set_features(cluster, node, FEATURES[node])
        cluster.start_daemon(SITE + SHARED * request.param)
        yield Live(cluster)


def set_features(cluster: Cluster, node: str, features: str) -> None:
    """Have a node other features."""
    words = [f"AvailableFeatures={features}", f"ActiveFeatures={features}"]
    cluster.run(["scontrol", "update", f"NodeName={node}", *words], user="root")


def fill(live: Live, seconds: int, count: int = 4) -> list[int]:
    """Have best-effort jobs of bob's on all nodes, and more of them wait."""
    words = ["-N1", "--exclusive", "--time=1"]
    script = f"sleep {seconds}"
    jobs = [live.cluster.sbatch(words, user="bob", script=script) for _ in range(count)]
    for job in jobs[:4]:
        live.cluster.wait_job(job, "RUNNING")
    live.polled()
    return jobs


def planned(live: Live, job: int) -> set[str]:
    """Return the nodes that a job is planned on, or runs on."""
    promise = live.ask("explain", str(job))["promise"]
    return set(promise["nodes"]) if promise else set()


def test_each_runs_where_it_may(live: Live) -> None:
    """Beside a flood: planned, started and ended on nodes as asked for, with their own lists."""
    fill(live, 15, 10)
    jobs = {
        wish: live.promise(*wish, "--time=1", in_minutes(20), script="sleep 2") for wish in WISHES
    }
    live.polled()
    for wish, allowed in WISHES.items():
        assert planned(live, jobs[wish]) <= allowed, wish
        shown = live.cluster.job(jobs[wish])
        excluded = next((word[10:] for word in wish if word.startswith("--exclude=")), "(null)")
        assert set(live.names_in(shown["ExcNodeList"])) == set(live.names_in(excluded)), wish
    for wish, allowed in WISHES.items():
        live.wait_state(jobs[wish], "kept", seconds=300)
        words = ["sacct", "-X", "-n", "-P", "-j", str(jobs[wish]), "-o", "NodeList"]
        ran = eventually(lambda w=words: live.cluster.run(w).stdout.strip(), 30)
        assert set(live.names_in(ran)) <= allowed, wish


def test_what_cannot_be_planned_is_told(live: Live) -> None:
    """In one sentence, before Slurm sees the job."""
    for options, text in (
        (("-N2", "-C", "a*1&c*1"), "it counts nodes or cannot be read; combine features with &"),
        (("-C", "a&x"), "no node in partition 'all' matches --constraint=a&x"),
        (("-C", "x|a"), "no node has the feature 'x' of --constraint; leave it out"),
        (("-N2", "-C", "[a|x]"), "no node has the feature 'x' of --constraint; leave it out"),
        (("-C", "a", "--prefer=x|b"), "no node has the feature 'x' of --prefer; leave it out"),
        (("-C", "((a|b))"), "Slurm cannot read --constraint='((a|b))'"),
        (("-N3", "-C", "a&b"), "asks for 3 nodes; in partition 'all' 2 match --constraint=a&b"),
        (("-N3", "-w", "fast[1-2]"), "asks for 3 nodes and names 2 of them; name as many as"),
    ):
        reply = live.submit(*options, "--time=1", in_minutes(6))
        assert not reply.job
        assert text in reply.text


def test_an_offer_is_for_its_nodes(live: Live) -> None:
    """Both nodes with both features are promised to another job; the offer comes after that."""
    words = ("-N2", "--exclusive", "-C", "a&b", "--time=3", in_minutes(20))
    first = live.promise(*words, script="sleep 60")
    live.cluster.wait_job(first, "RUNNING")
    live.polled()
    reply = live.submit("-C", "a&b", "--exclude=slow1", "--time=1", in_minutes(2))
    assert not reply.job
    assert reply.offer
    words = ("-C", "a&b", "--exclude=slow1", "--time=1", reply.offer)
    job = live.promise(*words, script="sleep 1")
    live.polled()
    assert planned(live, job) <= {"fast1", "slow2"}
    explained = live.command("rtsched", "explain", str(job))
    assert "it is planned to start at" in explained
    assert "void" not in explained


def test_features_that_change(live: Live) -> None:
    """The plan moves to the node that has them now; where none has, the promise is broken."""
    fill(live, 100)
    job = live.promise("-C", "b&c", "--time=1", in_minutes(20), script="sleep 1")
    live.polled()
    assert planned(live, job) == {"slow2"}
    try:
        set_features(live.cluster, "fast1", "a,b,c")
        set_features(live.cluster, "slow2", "a,b")
        eventually(lambda: planned(live, job) == {"fast1"}, 30, "it is planned on fast1")
        assert live.state(job) == "firm"
        set_features(live.cluster, "fast1", "a,b")
        live.wait_state(job, "broken", seconds=30)
    finally:
        for node in ("fast1", "slow2"):
            set_features(live.cluster, node, FEATURES[node])


def test_a_job_gets_its_own_list_back(live: Live) -> None:
    """When the promise is over, its node list is that of its user, and nothing else is ours."""
    fill(live, 100)
    words = ("-N1", "--nodelist=slow[1-2]", "--exclude=fast1", "--time=1")
    job = live.promise(*words, in_minutes(20), script="sleep 1")
    live.polled()
    assert set(live.names_in(live.cluster.job(job)["ReqNodeList"])) <= {"slow1", "slow2"}
    soon = in_minutes(2).strip("-")
    live.cluster.run(["scontrol", "update", f"JobId={job}", soon], user="root")
    live.wait_state(job, "void", "broken", seconds=60)
    live.polled()
    shown = live.cluster.job(job)
    assert set(live.names_in(shown["ReqNodeList"])) == {"slow1", "slow2"}
    assert set(live.names_in(shown["ExcNodeList"])) == {"fast1"}
    assert int(shown["Priority"]) < 3_000_000_000
    assert not live.reservations()

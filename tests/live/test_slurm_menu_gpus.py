"""The menu of a rejected job that wants GPUs, on a real Slurm: each choice is taken and kept."""

import re
from collections.abc import Iterator

import pytest
from gpu_nodes import SHARED, gpu_cluster
from promising import SITE, Live
from testbed.waiting import eventually

PARTITIONS = """PartitionName=gpu Nodes=fast1,slow1 Default=YES State=UP
PartitionName=spare Nodes=large1 State=UP"""
JOB = "/home/alice/gpus.sh"
SCRIPT = """#!/bin/sh
#SBATCH --nodes=1 --ntasks=1 --gres=gpu:a:4 --time=2 --output=/dev/null
sleep 2
"""
PATIENT = SITE.replace("[daemon]", "[daemon]\nmenu_ms = 5000")  # the machine may be busy
NODES, TYPES = {"fast": 1, "slow": 1, "large": 1}, {"fast": "a", "slow": "b", "large": "a"}

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run nodes with GPUs of two types in one partition, and one node in another."""
    site = PATIENT + SHARED + "\n[likely]\nshare = 0\n"
    with gpu_cluster(site, NODES, TYPES, partitions=PARTITIONS) as running:
        running.cluster.run(["sh", "-c", 'cat > "$1"', "sh", JOB], user="alice", input=SCRIPT)
        yield running


CHOICES = {
    "fewer-gpus": ("with 1 GPU per node in place of 4", "gres/gpu:a=1", "fast1"),
    "gpu-type": ("with GPUs of type b", "gres/gpu:b=4", "slow1"),
    "partition": ("in spare", "gres/gpu:a=4", "large1"),
}
"""What its user reads, what the job then has, and on which node, by kind."""


@pytest.mark.parametrize("kind", list(CHOICES))
def test_a_choice_is_taken_and_kept(live: Live, kind: str) -> None:
    """Three of the four GPUs of its type are busy: fewer, others, and those elsewhere are free."""
    text, amount, node = CHOICES[kind]
    live.submit("-n1", "--gres=gpu:a:3", "--time=10", user="bob", script="sleep 600")
    words = ["squeue", "-h", "-t", "R", "-u", "bob"]
    eventually(lambda: live.cluster.run(words).stdout.strip(), 30, "bob's job runs")
    live.polled()
    reply = live.cluster.run(["sbatch", "--deadline=now+6minutes", JOB], user="alice", check=False)
    assert reply.returncode != 0, reply.stdout
    _, *others, last = reply.stderr.splitlines()
    assert "Batch job submission failed" in last
    assert len(others) == 3
    found = [re.search(r"or `rtsched take (\d) job.sh`: (.*), by .*, (.*)$", one) for one in others]
    numbers = {one[2]: one[1] for one in found if one}
    assert set(numbers) == {shown for shown, _, _ in CHOICES.values()}, reply.stderr
    assert {one[3] for one in found if one} <= {"reserved", "not reserved"}
    taken = live.cluster.run(["rtsched", "take", numbers[text], JOB], user="alice")
    assert "promised to end by" in taken.stderr
    submitted = re.search(r"Submitted batch job (\d+)", taken.stdout)
    assert submitted
    job = int(submitted[1])
    live.wait_state(job, "kept", seconds=120)
    words = ["sacct", "-X", "-n", "-P", "-j", str(job), "-o", "NodeList,AllocTRES"]

    def ran() -> bool:
        nodes, _, has = live.cluster.run(words).stdout.strip().partition("|")
        return nodes == node and amount in has.split(",")

    eventually(ran, 30, f"accounting has job {job} on {node} with {amount}")

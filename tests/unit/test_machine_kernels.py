"""The records of a machine: who takes which node, heaps, the queue."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from rtsched.kernels import machine

PLAIN = """
import random
import numpy as np
from rtsched.kernels import machine, machine_queue, records
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs

random.seed(1)
m = 3000
table = np.zeros(m, machine.NODE)
words, top = np.zeros(94, np.int64), np.zeros(3, np.int64)
free = set(random.sample(range(m), 2000))
for node in free:
    machine.set_free(words, top, node)
assert {node for node in range(m) if machine.is_free(words, node)} == free
for row in range(300):
    count = random.randint(1, min(9, len(free)))
    node, taken = machine.take_lowest(table, words, top, row, count), []
    while node >= 0:
        taken.append(int(node))
        assert table[node].row == row
        node = table[node].next
    assert taken == sorted(free)[:count]
    free -= set(taken)
    back = random.sample(taken, len(taken) // 2)
    for node in back:
        machine.set_free(words, top, node)
    free |= set(back)
for node in sorted(free):
    machine.set_busy(words, top, node)
assert not words.any() and not top.any()

heap, entries = np.zeros(200, machine.TIMED), []
for step in range(400):
    if entries and (random.random() < 0.4 or len(entries) == 200):
        entries.sort()
        assert heap[0].time == entries[0][0]
        assert records.pop(heap, len(entries)) == entries.pop(0)[1]
    else:
        entry = (float(random.randint(0, 9)), step)
        records.push(heap, len(entries), *entry)
        entries.append(entry)

n = 400
jobs = Jobs.build(n, id=np.arange(n), submit=np.zeros(n), wall_time=1.0, size=1)
system = ExclusiveNodes(jobs, np.ones(n), Cluster.uniform(1), ExclusiveSettings(order="deadline"))
state, queue, waiting = system._machine.state[0], system._machine.queue, {}
for row in random.sample(range(n), n):
    key = random.randint(0, 20)
    system._machine.more[row].key = key
    system._machine.jobs[row].width = 1 + row % 7
    machine_queue.enqueue(system._machine, row)
    waiting[row] = key
    for gone in random.sample(sorted(waiting), len(waiting) // 5 if random.random() < 0.3 else 0):
        assert machine_queue.withdraw(system._machine, gone)
        assert not machine_queue.withdraw(system._machine, gone)
        del waiting[gone]
    places = [at for at in range(state.head, state.tail) if queue[at].width != machine.GONE]
    order = sorted(waiting, key=lambda row: (waiting[row], row))
    assert [queue[at].row for at in places] == order
    assert state.waiting == len(waiting)
    for at in places:
        block = system._machine.blocks[at >> 6]
        assert block.width <= queue[at].width and block.time <= queue[at].wall
"""


def test_nodes_heap_and_queue_against_python_sets_and_lists() -> None:
    """Free nodes are taken lowest first, heaps pop in order, the queue is sorted and bounded."""
    subprocess.run(
        [sys.executable, "-W", "error", "-c", PLAIN],
        env={"RTSCHED_COMPILE": "0", "PATH": ""},
        check=True,
    )


@pytest.mark.parametrize("name", ["JOB", "MORE", "NODE", "SLOT", "TIMED", "EVENT", "STATE"])
def test_no_field_hides_behind_an_attribute_of_records(name: str) -> None:
    """`record.size` would be numpy's own attribute where kernels run uncompiled."""
    fields = getattr(machine, name).names
    assert not [field for field in fields if hasattr(np.void, field)]


def test_a_job_takes_few_bytes() -> None:
    """A million jobs must fit beside their log."""
    assert machine.JOB.itemsize <= 60


def test_every_scalar_says_what_it_is() -> None:
    """No name stands twice, and each has a sentence."""
    names = [name for name, _, _ in machine.STATE_FIELDS]
    assert len(set(names)) == len(names) == len(machine.STATE.names)
    assert all(meaning.endswith(".") for _, _, meaning in machine.STATE_FIELDS)

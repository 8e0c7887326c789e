"""The records of a machine (nodes, heaps, queue), and amounts packed into words."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.kernels import machine, machine_sharing
from rtsched.kernels.machine_sharing import MOST_LANES, lanes_for

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


def written(name: str) -> Any:
    """Return a function as it is written."""
    function = getattr(machine_sharing, name)
    return getattr(function, "py_func", function)


pack, exceeds, most_of = written("pack"), written("exceeds"), written("most_of")
AMOUNTS = st.one_of(st.integers(0, 70), st.integers(0, 2**40), st.integers(0, 2**61))


def rows(*each: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return amounts, a row each."""
    return np.array(each, np.int64)


def test_each_resource_has_a_lane_of_its_own() -> None:
    """3 resources have 21 bits each; 256 GiB lose 18 of theirs, so that the guard stays 0."""
    lanes = lanes_for(rows([64, 256 << 30, 4]))
    assert lanes.shift.tolist() == [0, 19, 0]
    amounts = rows([64, 256 << 30, 4], [65, 1, 0], [1, 1, 5], [64, 200 << 30, 4])
    node, cores, gpus, fits = (pack(lanes, amounts, at) for at in range(4))
    assert node == 64 | (1 << 19) << 21 | 4 << 42
    assert exceeds(lanes, cores, node)
    assert exceeds(lanes, gpus, node)
    assert not exceeds(lanes, fits, node)
    assert exceeds(lanes, node, fits)


def test_amounts_below_0_and_above_any_node() -> None:
    """A node that has more taken than it has packs to 0, and a demand above all to the most."""
    lanes = lanes_for(rows([64]))
    amounts = rows([-5], [0], [2**62])
    below, nothing, much = (pack(lanes, amounts, at) for at in range(3))
    assert below == nothing == 0
    assert exceeds(lanes, much, pack(lanes, rows([64]), 0))


def test_without_resources_nothing_exceeds() -> None:
    """Of no resource there is always enough."""
    lanes = lanes_for(np.zeros((3, 0), np.int64))
    assert not exceeds(lanes, pack(lanes, np.zeros((1, 0), np.int64), 0), 0)


@given(data=st.data(), resources=st.integers(1, MOST_LANES + 3))
def test_what_fits_never_exceeds(data: st.DataObject, resources: int) -> None:
    """Neither the room itself nor the most of it and another room."""
    a_row = st.lists(AMOUNTS, min_size=resources, max_size=resources)
    capacity, room, other = (data.draw(a_row) for _ in range(3))
    demand = [data.draw(st.integers(0, amount)) for amount in room]
    lanes = lanes_for(rows(capacity))
    packed = [pack(lanes, rows(one), 0) for one in (demand, room, other)]
    assert not exceeds(lanes, packed[0], packed[1])
    most = most_of(lanes, packed[1], packed[2])
    assert not exceeds(lanes, packed[0], most)
    assert most == pack(lanes, np.maximum(rows(room), rows(other)), 0)

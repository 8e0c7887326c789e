"""Amounts of resources in tables, and which jobs fit where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.daemon.promises import decode_jobs, encode_jobs
from rtsched.errors import ShapeError
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.resources import MORE, fitting_nodes, fitting_sets, least_room, served
from rtsched.model.table import amounts_of

CPU, MEM, GPU = "cpu", "mem", "gres/gpu"


def asking(*rows: tuple[int, ...], resources: tuple[str, ...] = (CPU, MEM)) -> Jobs:
    """Return jobs that ask for these amounts."""
    table = np.array(rows, np.int64).reshape(len(rows), len(resources))
    return Jobs.build(len(rows), id=np.arange(len(rows)), names={"demand": resources}, demand=table)


def test_a_table_without_amounts_has_no_resources() -> None:
    """Whole nodes: nothing is said of what is on them."""
    jobs = Jobs.build(2)
    assert jobs.demand.shape == (2, 0)
    assert jobs.names("demand") == ()
    assert not Cluster.uniform(3).shared


def test_rows_are_taken_with_their_amounts() -> None:
    """A view of some rows, and a view of that."""
    jobs = asking((1, 10), (2, 20), (3, 30))
    assert jobs.take([2, 0]).demand.tolist() == [[3, 30], [1, 10]]
    assert jobs.take([2, 0]).take([1]).demand.tolist() == [[1, 10]]
    assert not jobs.demand.flags.writeable


def test_tables_of_different_resources_are_joined() -> None:
    """What one part does not name, its jobs do not ask for."""
    both = Jobs.joined([asking((1, 10)), asking((2, 1), resources=(CPU, GPU)), Jobs.build(1)])
    assert both.names("demand") == (CPU, MEM, GPU)
    assert both.demand.tolist() == [[1, 10, 0], [2, 0, 1], [0, 0, 0]]


def test_equal_amounts_in_another_order_are_equal() -> None:
    """The order of resources does not count, nor one that nobody asks for."""
    one = asking((1, 10))
    assert one.equals(asking((10, 1), resources=(MEM, CPU)))
    assert one.equals(asking((1, 10, 0), resources=(CPU, MEM, GPU)))
    assert not one.equals(asking((1, 11)))


def test_amounts_of_chosen_resources() -> None:
    """In the order asked for, 0 of what the table lacks."""
    assert amounts_of(asking((1, 10)), "demand", (GPU, MEM)).tolist() == [[0, 10]]


@pytest.mark.parametrize(
    "table", [np.zeros((2, 1), np.int64), np.zeros(2, np.int64), np.zeros((2, 2))]
)
def test_other_shapes_are_refused(table: np.ndarray) -> None:
    """One whole number per job and resource."""
    with pytest.raises(ShapeError, match="demand"):
        Jobs.build(2, names={"demand": (CPU, MEM)}, demand=table)


def test_amounts_survive_the_database() -> None:
    """What is stored comes back, with its resources."""
    jobs = asking((1, 10, 2), resources=(CPU, MEM, "gres/gpu:a100"))
    assert decode_jobs(encode_jobs(jobs)).equals(jobs)


def two_kinds() -> Cluster:
    """Return two nodes of 4 cores, and one of 8 with 2 GPUs, which alone is in partition `gpu`."""
    capacity = np.array([[4, 0], [4, 0], [8, 2]], np.int64)
    nodes = Nodes.build(3, names={"capacity": (CPU, GPU)}, capacity=capacity)
    return Cluster(nodes, {"gpu": np.array([False, False, True])})


def test_fitting_nodes() -> None:
    """By amounts, partition and the node that a job is pinned to."""
    demand = np.array([[4, 0], [5, 0], [1, 1], [1, 3], [1, 0], [5, 0], [0, 0]], np.int64)
    jobs = Jobs.build(
        7,
        names={"demand": (CPU, GPU), "partition": ("gpu", "all")},
        demand=demand,
        partition=np.array([-1, -1, -1, 1, 0, -1, -1]),
        pinned=np.array([-1, -1, -1, -1, -1, 0, 1]),
    )
    assert fitting_nodes(jobs, two_kinds()).tolist() == [3, 1, 1, 0, 1, 0, 1]


def test_fitting_nodes_among_some() -> None:
    """Only those count that are said to, for a pinned job too."""
    jobs = asking((4, 0), (1, 1), (1, 0), resources=(CPU, GPU)).with_column("pinned", [-1, -1, 2])
    among = np.array([True, False, False])
    assert fitting_nodes(jobs, two_kinds(), among).tolist() == [1, 0, 0]
    assert fitting_nodes(jobs, two_kinds()).tolist() == [3, 1, 1]


def test_what_no_node_has_fits_nowhere() -> None:
    """A resource that the machine does not name."""
    jobs = asking((1, 1), (1, 0), resources=(CPU, "gres/fpga"))
    assert fitting_nodes(jobs, two_kinds()).tolist() == [0, 3]


def test_demands_that_the_same_nodes_suffice_for_come_out_equal() -> None:
    """Nodes have 4 or 8 cores: 1 to 4 are one demand, 5 to 8 another, 9 no node has."""
    demand = np.array([[1], [4], [5], [8], [9]], np.int64)
    room = np.array([[8], [4], [4]], np.int64)
    assert least_room(demand, room)[:, 0].tolist() == [4, 4, 8, 8, MORE]


@given(
    demand=st.lists(st.tuples(*[st.integers(0, 9)] * 2), min_size=1, max_size=20),
    capacity=st.lists(st.tuples(*[st.integers(0, 9)] * 2), min_size=1, max_size=8),
)
def test_each_job_fits_where_each_amount_does(
    demand: list[tuple[int, int]], capacity: list[tuple[int, int]]
) -> None:
    """The sets are those that comparing each job with each node gives, each set once."""
    room = np.array(capacity, np.int64)
    cluster = Cluster(Nodes.build(len(room), names={"capacity": (CPU, MEM)}, capacity=room))
    code, sets = fitting_sets(asking(*demand), cluster)
    for row, amounts in enumerate(demand):
        fits = [all(a <= b for a, b in zip(amounts, node, strict=True)) for node in capacity]
        assert sets[code[row]].tolist() == fits
    assert len({mask.tobytes() for mask in sets}) == len(sets)


def test_served() -> None:
    """In nodes with the mean number of cores, here 16 / 3."""
    one, two = np.array([1, 1], np.int32), np.array([1.0, 2.0])
    service = served(asking((4, 0), (8, 0)), two_kinds(), one, two)
    assert service is not None
    assert service.tolist() == pytest.approx([0.75, 3.0])
    assert served(asking((4, 0), (8, 0)), Cluster.uniform(3), one, two) is None

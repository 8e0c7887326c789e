"""What one request may ask for at the most: what is said, and that it is read in one go."""

from __future__ import annotations

import numpy as np
import pytest

from rtsched.adapters.condor import CondorTranslator
from rtsched.adapters.requirements import HORIZON, LONGEST, LONGEST_ATTRIBUTE, beyond_horizon
from rtsched.adapters.slurm import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.logs.node_requests import nodes_with
from rtsched.model.jobs import Edges, Jobs
from rtsched_plugins.kernels.admission_events import on_grid

NOW = 1_800_000_000.0
JOB: dict[int, int | str] = {Tag.USER_ID: 0, Tag.TIME_LIMIT: 1, Tag.DEADLINE: int(NOW) + 3600}


@pytest.mark.parametrize("tag", LONGEST)
def test_texts_that_are_too_long_are_named(tag: Tag) -> None:
    """By what users call them, with the limit; one of that length is read."""
    longest, name = LONGEST[tag]
    for length, wrong in ((longest, False), (longest + 1, True)):
        job = SlurmTranslator().describe({**JOB, tag: "a" * length}, None, NOW)
        text = f"{name} is longer than {longest:,} characters; shorten it"
        assert (job.problem == text) == wrong


def test_an_attribute_that_is_too_long_is_named() -> None:
    """Of a ClassAd."""
    text = "a" * (LONGEST_ATTRIBUTE + 1)
    ad = f'Owner = "root"\nRtDeadline = {NOW + 60:.0f}\nRtClass = "{text}"\n'
    job = CondorTranslator().describe({Tag.AD: ad}, None, NOW)
    assert job.problem == "RtClass is longer than 32,768 characters; shorten it"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({}, ""),
        ({"wall_time": [HORIZON], "deadline": [NOW + HORIZON]}, ""),
        ({"deadline": [np.inf]}, ""),
        ({"wall_time": [HORIZON + 1]}, "it may run for more than 10 years"),
        ({"wall_time": [np.nan]}, "it may run for more than 10 years"),
        ({"deadline": [NOW + HORIZON + 1]}, "its deadline is more than 10 years ahead"),
        ({"deadline": [2.0**63]}, "its deadline is more than 10 years ahead"),
    ],
)
def test_the_horizon(columns: dict[str, list[float]], text: str) -> None:
    """Nothing is planned beyond it."""
    jobs = Jobs.build(1, **{"wall_time": [60.0], "deadline": [NOW + 3600.0], **columns})
    found = beyond_horizon(jobs, Edges.build(0), NOW)
    assert found.startswith(text)
    assert bool(found) == bool(text)


def test_long_messages_between_jobs_lie_beyond_the_horizon() -> None:
    """They delay what comes behind."""
    jobs = Jobs.build(1, wall_time=[60.0], deadline=[NOW + 3600.0])
    edges = Edges.build(1, before=[1], after=-1, message_time=1e300)
    assert beyond_horizon(jobs, edges, NOW).startswith("its messages take")


@pytest.mark.parametrize("instant", [2.0**52, 2.0**53 + 2, 2.0**63, 1e300, -(2.0**63), np.inf])
@pytest.mark.parametrize("base", [0.0, -0.3, -(2.0**60)])
def test_far_instants_are_on_the_grid_as_they_are(instant: float, base: float) -> None:
    """Where floats are farther apart than the grid there is nothing to look for."""
    assert on_grid(instant, base, 1.0) == instant


def test_a_constraint_is_read_in_one_go() -> None:
    """Each feature is looked up once, and brackets may be as deep as anybody likes."""
    asked: list[str] = []

    def having(feature: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        asked.append(feature)
        return np.array([feature == "a", True])

    found = nodes_with("(" * 5000 + "a&b" + ")" * 5000 + "|a" * 5000, having)
    assert found is not None
    assert found.tolist() == [True, True]
    assert asked == ["a", "b"]
    for text in ("", "(", ")", "(a", "a)", "a b", "a&", "&a", "()", "a(b)", "(a)b", "[a|b]", "a*2"):
        assert nodes_with(text, having) is None


@pytest.mark.parametrize(
    ("text", "nodes"), [("b|a&a", [1, 0]), ("b|(a&a)", [1, 1]), ("a|b", [1, 1]), ("(a)", [1, 0])]
)
def test_operators_apply_from_left_to_right(text: str, nodes: list[int]) -> None:
    """But for parentheses."""
    masks = {"a": np.array([True, False]), "b": np.array([False, True])}
    found = nodes_with(text, masks.__getitem__)
    assert found is not None
    assert found.astype(int).tolist() == nodes

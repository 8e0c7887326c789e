"""Requests that ask for something else, and the most that one may ask for."""

import math
from typing import Any

import numpy as np
import pytest

from rtsched.adapters.condor.submission import CondorTranslator, ad_of
from rtsched.adapters.live import Adjustment
from rtsched.adapters.requirements import HORIZON, LONGEST, LONGEST_ATTRIBUTE, beyond_horizon
from rtsched.adapters.slurm.comments import options_in
from rtsched.adapters.slurm.facts import Partition, SlurmFacts
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.logs.node_requests import nodes_with
from rtsched.model.jobs import Edges, Jobs

SLURM = SlurmTranslator()


def texts_of(extra: str, comment: str, odds: float) -> tuple[Any, Any, tuple[str, ...]]:
    """Return Extra and Comment of a request that asks for other odds, and its options."""
    given = {Tag.EXTRA: extra, Tag.COMMENT: comment}
    fields = {tag: text for tag, text in given.items() if text}
    to = Adjustment(odds=odds)
    new = SLURM.adjusted(fields, to)
    return new.get(Tag.EXTRA, ""), new.get(Tag.COMMENT, ""), SLURM.options(fields, to)


@pytest.mark.parametrize(
    ("extra", "comment", "odds", "texts", "options"),
    [
        ("", "", 0.975, ("rtsched:odds=97.5", ""), ("--extra=rtsched:odds=97.5",)),
        ("mine", "", 0.9, ("mine rtsched:odds=90", ""), ("--extra=mine rtsched:odds=90",)),
        ("rtsched:odds=95", "", 1.0, ("", ""), ("--extra=",)),
        (
            "rtsched:notify=kept,odds=95",
            "",
            0.9,
            ("rtsched:notify=kept rtsched:odds=90", ""),
            ("--extra=rtsched:notify=kept rtsched:odds=90",),
        ),
        (
            "",
            "a rtsched:odds=95 b",
            0.8,
            ("rtsched:odds=80", "a  b"),
            ("--extra=rtsched:odds=80", "--comment=a  b"),
        ),
        ("", "rtsched:odds=95", 1.0, ("", ""), ("--comment=",)),
        ("", "a text", 1.0, ("", "a text"), ()),
    ],
)
def test_other_odds_in_slurm(
    extra: str, comment: str, odds: float, texts: tuple[str, str], options: tuple[str, ...]
) -> None:
    """Odds are given once, in Extra, wherever they stood; all else that was said stays."""
    *found, words = texts_of(extra, comment, odds)
    assert tuple(found) == texts
    assert words == options
    spec = options_in(*found)
    assert not spec.problem
    assert spec.odds == odds or (odds == 1.0 and math.isnan(spec.odds))


@pytest.mark.parametrize(
    ("line", "odds", "value", "options"),
    [
        ("", 0.95, 95.0, ("-append", "+RtOdds = 95")),
        ("RtOdds = 95\n", 0.9, 90.0, ("-append", "+RtOdds = 90")),
        ("RtOdds = 95\n", 1.0, None, ("-append", "+RtOdds = undefined")),
        ("RtOdds = 95\n", None, 95.0, ()),
    ],
)
def test_other_odds_in_condor(
    line: str, odds: float | None, value: float | None, options: tuple[str, ...]
) -> None:
    """A guarantee is asked for by odds that are undefined, whatever the file says."""
    translator = CondorTranslator()
    fields: dict[int, str | int] = {Tag.AD: f"{line}RtDeadline = 1800000000\nRtRunTime = 60\n"}
    to = Adjustment(odds=odds)
    new = translator.adjusted(fields, to)
    assert ad_of(str(new[Tag.AD])).get("rtodds") == value
    words = translator.options(fields, to)
    assert words[: len(words) - len(options)] == (
        *("-append", "+RtRunTime = 60"),
        *("-append", "+RtDeadline = 1800000000"),
    )
    assert words[len(words) - len(options) :] == options


def test_other_partitions_in_slurm() -> None:
    """Not those that the job's user named: it was judged in these."""
    parts = {name: Partition(name, longest_s=600.0) for name in ("a", "b", "c", "d")}
    facts = SlurmFacts(partitions=parts, default="a")
    fields: dict[int, int | str] = {Tag.PARTITION: "c,d", Tag.TIME_LIMIT: 5}
    submission = SLURM.describe(fields, facts, 1.9e9)
    assert SLURM.adjustable(fields, submission, facts).partitions == ("a", "b")


def test_other_gpus_in_slurm() -> None:
    """Fewer, and of another type, in the way of --gres; what cannot be told stays as it is."""
    fields = {Tag.TRES_PER_NODE: "gres/gpu:a100:4"}
    assert SLURM.options(fields, Adjustment(gpus=2)) == ("--gres=gpu:a100:2",)
    assert SLURM.options(fields, Adjustment(gpu_type="v100")) == ("--gres=gpu:v100:4",)
    assert SLURM.options({Tag.TRES_PER_NODE: "gres/gpu:4"}, Adjustment(gpus=1)) == ("--gres=gpu:1",)


def test_fewer_gpus_and_hosts_in_condor() -> None:
    """In the words of condor_submit."""
    ad = "RequestGPUs = 4\nMinHosts = 3\nMaxHosts = 3\nRtDeadline = 1800000000\n"
    translator = CondorTranslator()
    words = translator.options({Tag.AD: ad}, Adjustment(gpus=2, nodes=1))
    assert words[1::2] == ("machine_count = 1", "request_gpus = 2", "+RtDeadline = 1800000000")


@pytest.mark.parametrize("literal", ["undefined", '"undefined"'])
def test_undefined_odds_are_none(literal: str) -> None:
    """However the library writes them: the job asks for a guarantee."""
    ad = f'RtOdds = {literal}\nRtDeadline = 1800003600\nRtRunTime = 60\nOwner = "ann"\n'
    job = CondorTranslator().describe({Tag.AD: ad}, None, 1.8e9)
    assert "RtOdds" not in job.problem
    assert math.isnan(job.odds)


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


def test_a_constraint_is_read_in_one_go() -> None:
    """Each feature is looked up once, and brackets may be as deep as anybody likes."""
    asked: list[str] = []

    def having(feature: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        asked.append(feature)
        return np.array([feature == "a", True])

    found = nodes_with("(" * 5000 + "a&b" + ")" * 5000 + "|a" * 5000, having)
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
    assert found.astype(int).tolist() == nodes

"""Requests that ask for something else, of both batch systems, and the options that make them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rtsched.adapters.condor import CondorTranslator
from rtsched.adapters.condor.submission import ad_of
from rtsched.adapters.live import Adjustment
from rtsched.adapters.slurm import SlurmTranslator
from rtsched.adapters.slurm.comments import spec_of
from rtsched.adapters.wire import Tag

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
    spec = spec_of(*found)
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

"""The daemon's metrics and questions are documented."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec

from rtsched.adapters.condor import setup as condor_setup
from rtsched.adapters.slurm import setup as slurm_setup
from rtsched.daemon.messages import REASONS
from rtsched.daemon.metrics import METRICS
from rtsched.daemon.reports import AnyQuestion
from rtsched.daemon.settings import DaemonSettings, LiveSite, Scope

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_every_metric_is_documented():
    """Each metric stands on its page with its labels."""
    text = (REFERENCE / "metrics.md").read_text("utf-8")
    for name, metric in METRICS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert all(f"`{label}`" in row for label in metric.labels)


def test_every_question_is_documented():
    """Each question and each field of its report stands on its page, with a meaning."""
    text = (REFERENCE / "queries.md").read_text("utf-8")
    for question in get_args(AnyQuestion):
        part = text.partition(f"\n## {question.__struct_config__.tag}\n")[2].partition("\n## ")[0]
        for kind in (question, question.Answer):
            for field in msgspec.structs.fields(kind):
                start = f"| `{field.encode_name}` |"
                row = next(line for line in part.splitlines() if line.startswith(start))
                assert len(re.split(r"(?<!\\)\|", row)[3].strip()) > 3


def test_every_reason_of_the_daemon_is_documented():
    """Each code that stands in its source is known, and each known one stands there."""
    source = Path(__file__).resolve().parents[2] / "rtsched" / "daemon"
    texts = [path.read_text("utf-8") for path in source.glob("*.py") if path.name != "reasons.py"]
    code = re.compile(r'"((?:submit|wait|likely)\.(?!sock\b)[a-z-]+)"')
    given = {found for text in texts for found in code.findall(text)}
    assert given == set(REASONS)
    page = (REFERENCE / "reasons.md").read_text("utf-8")
    assert all(f"\n## {code}\n\n{meaning}" in page for code, meaning in REASONS.items())


def test_every_setting_of_the_filter_is_documented():
    """The page has those that filter and library, and the commands that check them, know."""
    page = (REFERENCE / "submit.md").read_text("utf-8")
    slurm, condor = page.partition("## Slurm")[2].split("## HTCondor")
    assert set(re.findall(r"^\| `(\w+)`", slurm, re.MULTILINE)) == slurm_setup.SUBMIT_KEYS
    assert set(re.findall(r"^\| `(\w+)`", condor, re.MULTILINE)) == condor_setup.SUBMIT_KEYS


def test_every_setting_of_a_live_site_is_documented():
    """Each has a row under the table that it stands in."""
    page = (REFERENCE / "site.md").read_text("utf-8")
    kinds = {"`[daemon]`": DaemonSettings, "`[[scope]]`": Scope, "`[slurm]`": None}
    for title, kind in kinds.items():
        part = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        kind = kind or type(LiveSite().slurm)
        assert all(f"| `{each.name}` |" in part for each in msgspec.structs.fields(kind)), title

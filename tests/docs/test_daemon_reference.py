"""The daemon's metrics and questions are documented."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec

from rtsched.daemon.metrics import METRICS
from rtsched.daemon.reports import AnyQuestion

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
                row = next(x for x in part.splitlines() if x.startswith(f"| `{field.name}` |"))
                assert len(re.split(r"(?<!\\)\|", row)[3].strip()) > 3

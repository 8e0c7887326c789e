"""Reference pages on the daemon: its metrics, and the questions that it answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from installed import NOTE, TOP
from writing import block, code, doc_of, page, table

from rtsched.cli.common import settings_of
from rtsched.daemon import questions
from rtsched.daemon.metrics import METRICS

if TYPE_CHECKING:
    from pathlib import Path

SUBMIT_CONFS = {
    "Slurm": (
        "Settings of the submit filter, on the head node. slurmctld reads the file again within a "
        "second of a change; if it is wrong it says so in its log, and all stays as it was. "
        "`rtsched slurm check` compares it with site.toml."
    ),
    "HTCondor": (
        "Settings of the ClassAd library, on the access point and the central manager. The "
        "schedd and the negotiator read the file again within a second of a change; if it is "
        "wrong they say so in their logs, and all stays as it was. `rtsched condor check` compares "
        "it with site.toml."
    ),
}
"""What the file is for, by batch system."""
_SHIPPED = {"Slurm": "contrib/slurm/submit.conf", "HTCondor": "contrib/condor/submit.conf"}
_SETTINGS = re.compile(r"((?:^# .*\n)+)((?:^#\w+ = .*\n)+)", re.MULTILINE)
_CHOICE = re.compile(r"\n#   (\w+)  +(.*)")


def metric_page() -> str:
    """Return the page of the daemon's metrics."""
    rows = [
        (code(name), each.kind, ", ".join(map(code, each.labels)), each.description)
        for name, each in METRICS.items()
    ]
    return page(
        "Metrics",
        NOTE,
        "With `metrics_port` in the `[daemon]` table the daemon shows these at "
        "`http://localhost:PORT/metrics`, to the head node alone; `rtsched status --metrics` "
        "prints them. A client that accepts OpenMetrics gets that format. They need "
        "`pip install 'rtsched[live]'`. Nothing is counted by user or job: for those there are the "
        "log and `rtsched explain`. [Monitoring](../monitoring.md) has alert rules and a "
        "dashboard.",
        table(("metric", "kind", "labels", "what it counts"), rows),
    )


def filter_page() -> str:
    """Return the page of the submit filter's settings, as the shipped files explain them."""
    parts = []
    for system, text in SUBMIT_CONFS.items():
        titles = ("setting", "default", "meaning")
        parts += [f"## {system}", text, table(titles, _submit_settings(TOP / _SHIPPED[system]))]
    return page(
        "submit.conf",
        NOTE,
        "`/etc/rtsched/submit.conf`: how the batch system asks the daemon when a job is submitted.",
        *parts,
    )


def _submit_settings(path: Path) -> list[tuple[str, str, str]]:
    """Return name, default and meaning of each setting in a shipped file."""
    rows = []
    for comment, settings in _SETTINGS.findall(path.read_text("utf-8")):
        marked = _CHOICE.sub(r"\n# `\1`: \2.", comment)
        text = " ".join(line.removeprefix("#").strip() for line in marked.splitlines())
        for line in settings.splitlines():
            name, _, default = line.removeprefix("#").partition(" = ")
            rows.append((code(name), code(default), text))
    return rows


def query_page() -> str:
    """Return the page of questions and reports."""
    doc = doc_of(questions)
    parts = []
    used: dict[str, type[msgspec.Struct]] = {}
    for question in get_args(questions.AnyQuestion):
        name = question.__struct_config__.tag
        example = msgspec.json.decode(msgspec.json.encode(_example(question)))
        parts += [
            f"## {name}",
            doc_of(question).text,
            block(msgspec.json.encode({"ask": name, **example}).decode(), "json"),
            _fields(question),
            f"**Report.** {doc_of(question.Answer).text}",
            _fields(question.Answer),
        ]
        used |= _inner(question.Answer)
    for title, kind in used.items():
        parts += [f"## {title}", doc_of(kind).text, _fields(kind)]
    return page(
        "Questions to the daemon",
        NOTE,
        doc.summary,
        doc.body,
        "They go over the socket `query.sock` in the daemon's run directory, in frames of kind "
        "`QUERY` and `REPORT` (`rtsched/adapters/wire.py`). `rtsched status`, `explain`, "
        "`feasible`, `plan`, `chunk` and `cancel` ask them, and with `--json` print the reports as "
        "they came. Over HTTP they are [REST](rest.md).",
        *parts,
    )


def _example(question: type[questions.Question]) -> questions.Question:
    required: dict[str, Any] = {"since": 1_800_000_000.0, "job": "4711"}
    return question(**{name: required[name] for name in _required(question)})


def _required(kind: type[msgspec.Struct]) -> list[str]:
    return [each.name for each in msgspec.structs.fields(kind) if each.required]


def _fields(kind: type[msgspec.Struct]) -> str:
    rows = [
        (code(each.name), each.kind, each.description)
        for each in settings_of(kind)
        if each.name != "ask"
    ]
    return table(("field", "value", "meaning"), rows)


def _inner(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """Return the structures that stand within a report, by name."""
    names = msgspec.json.schema(kind).get("$defs", {})
    return {name: getattr(questions, name) for name in names if name != kind.__name__}

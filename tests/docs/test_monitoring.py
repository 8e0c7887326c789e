"""Alert rules and dashboard use what the daemon exports, and name pages that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rtsched.daemon.metrics import INTERVALS, METRICS
from rtsched.model.units import PERIODS

TOP = Path(__file__).resolve().parents[2]
RULES = TOP / "contrib" / "prometheus" / "rtsched.rules.yml"
DASHBOARD = TOP / "contrib" / "grafana" / "rtsched.json"

SELECTED = re.compile(r"\b([a-z_]+)\{([^}]*)\}|\b(rtsched_[a-z_]+|up)\b(?![{(])")
MATCHER = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus adds to each series that it reads."""
RESULTS = {"admit", "reject", "defer", "pass", "accept", "error", "unheard"}
STATES = {"offered", "provisional", "firm", "kept", "missed", "broken", "void", "own-limit"}
VALUES = {
    "kind": {"submit", "modify"},
    "result": RESULTS,
    "standing": STATES,
    "outcome": {"done", "refused", "failed", "unsupported"},
    "mode": {"shadow", "warn", "enforce"},
    "verdict": {"abstain", "admit", "defer", "reject", "error"},
    "job": {"rtsched"},
    "interval": set(INTERVALS),
    "period": set(PERIODS.values()),
}


def exported() -> dict[str, set[str]]:
    """Return the labels of each series that the daemon exports, and of Prometheus' own `up`."""
    found: dict[str, set[str]] = {"up": set()}
    for name, metric in METRICS.items():
        labels = set(metric.labels)
        if metric.kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}}
            found |= {f"{name}_{part}": labels for part in ("sum", "count")}
        else:
            found[name] = labels
    return found


def rules():
    """Return the alert rules."""
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, which mkdocs brings along")
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return group["rules"]


def dashboard():
    """Return the dashboard."""
    return json.loads(DASHBOARD.read_text("utf-8"))


def check(expression: str) -> None:
    """Check every series, label and value of an expression."""
    series = exported()
    labels: set[str] = set()
    names = set()
    for selected in SELECTED.finditer(expression):
        name, matchers = selected[1] or selected[3], selected[2] or ""
        assert name in series, f"{name} is not exported: {expression}"
        names.add(name)
        labels |= series[name]
        for label, text in MATCHER.findall(matchers):
            assert label in series[name] | OF_PROMETHEUS, f"{name} has no {label}: {expression}"
            for value in text.split("|") if label in VALUES else ():
                assert value in VALUES[label], f"{label} is never {value}: {expression}"
    assert names, expression
    for group in GROUPED.findall(expression):
        grouped = {label.strip() for label in group.split(",")}
        assert grouped <= labels | OF_PROMETHEUS, expression


def test_the_check_finds_mistakes():
    """A series, a label, a value or a group that there is not is found."""
    for wrong in (
        "rtsched_no_such_total > 0",
        'rtsched_promises{state="firm"}',
        'rtsched_promises{standing="gone"}',
        "sum by (job, user) (rtsched_promises)",
        "rtsched_answer_seconds > 1",
    ):
        with pytest.raises(AssertionError):
            check(wrong)
    check('sum by (instance, le) (rate(rtsched_answer_seconds_bucket{kind="submit"}[5m])) > 1')


def test_alert_rules():
    """Each uses exported series, and says what to do and where that is described."""
    found = rules()
    names = [rule["alert"] for rule in found]
    assert len(set(names)) == len(names)
    for rule in found:
        check(rule["expr"])
        assert set(rule["annotations"]) == {"summary", "runbook", "doc"}, rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        for annotation in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            assert annotation in rule["expr"].split("(increase")[0], rule["alert"]


def test_pages_of_the_alerts():
    """The page and its section exist."""
    for rule in rules():
        page, _, anchor = rule["annotations"]["doc"].partition("#")
        headings = re.findall(r"^##+ (.*)$", (TOP / page).read_text("utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w-]+", "-", heading.lower()) for heading in headings}
        assert anchor in anchors, rule["alert"]


def test_dashboard():
    """Each panel has a description and a place of its own, and uses exported series."""
    panels = dashboard()["panels"]
    cells = set()
    for panel in panels:
        assert panel["description"], panel["title"]
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in cells, panel["title"]
                assert x < 24
                cells.add((x, y))
        for target in panel["targets"]:
            check(target["expr"])
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            grouped = ",".join(GROUPED.findall(target["expr"]))
            assert shown <= {label.strip() for label in grouped.split(",")}, panel["title"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_variables_of_the_dashboard():
    """The data source is chosen, and daemons are found by a series that each exports."""
    datasource, instance = dashboard()["templating"]["list"]
    assert datasource["type"] == "datasource"
    check(re.fullmatch(r"label_values\((.*), instance\)", instance["query"]["query"])[1])


PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (tests/promtool.sh)"
)
OF_DAEMON = 'instance="head",job="rtsched"'
WEEK = 'interval="90",period="week"'
FIRING = {
    "RtschedDown": ("up", "", "0x60"),
    "RtschedPromiseBroken": ("rtsched_misses_total", "", "0x50 1x10"),
    "RtschedPlanAtRisk": ("rtsched_promises_at_risk", "", "1x60"),
    "RtschedPlannerFails": ("rtsched_planning_failures_total", "", "0x50 1x10"),
    "RtschedPollsLate": ("rtsched_look_age_seconds", "", "31x60"),
    "RtschedCyclesFail": ("rtsched_cycle_failures_total", "", "0+1x60"),
    "RtschedAnswersSlow": ("rtsched_answer_seconds_bucket", 'kind="submit",le="+Inf"', "0+9x60"),
    "RtschedFilterFails": (
        "rtsched_requests_total",
        'kind="submit",result="unheard"',
        "0x50 1x10",
    ),
    "RtschedChangesNotMade": ("rtsched_changes_total", 'kind="hold",outcome="refused"', "0+1x60"),
    "RtschedEndsNotKnown": ("rtsched_completion_lookup_failures_total", "", "0+1x60"),
    "RtschedDatabaseNearlyFull": ("rtsched_database_free_bytes", "", "1e8x60"),
    "RtschedEstimatesWrong": ("rtsched_estimate_coverage", WEEK, "0.79x60"),
}
"""A series that lets each alert fire after an hour of samples, one per minute."""
QUIET = {
    "RtschedPlanAtRisk": ("rtsched_promises_at_risk", "", "0x60"),
    "RtschedPollsLate": ("rtsched_look_age_seconds", "", "5x60"),
    "RtschedCyclesFail": ("rtsched_cycle_failures_total", "", "5x59 6"),
    "RtschedFilterFails": ("rtsched_requests_total", 'kind="submit",result="admit"', "0+1x60"),
    "RtschedChangesNotMade": ("rtsched_changes_total", 'kind="hold",outcome="done"', "0+1x60"),
    "RtschedDatabaseNearlyFull": ("rtsched_database_free_bytes", "", "1e9x60"),
    "RtschedEstimatesWrong": ("rtsched_estimate_coverage", WEEK, "0.8x60"),
}
"""Series on which they stay silent."""


def written_test(path, cases, *, fires):
    """Write a test for promtool: alerts by name, each on a series of its own."""
    tests = []
    for name, (series, labels, values) in cases.items():
        given = [{"series": f"{series}{{{OF_DAEMON},{labels}}}", "values": values}]
        if name == "RtschedAnswersSlow":  # half of them within 40 ms
            fast = labels.replace("+Inf", "0.04")
            given.append({"series": f"{series}{{{OF_DAEMON},{fast}}}", "values": "0+4x60"})
            slow = labels.replace("+Inf", "0.08")
            given.append({"series": f"{series}{{{OF_DAEMON},{slow}}}", "values": "0+9x60"})
        if name == "RtschedEstimatesWrong":
            judged = f'rtsched_estimate_judged_jobs{{{OF_DAEMON},period="week"}}'
            given.append({"series": judged, "values": "100x60"})
        expected = f'count by (alertname) (ALERTS{{alertname="{name}",alertstate="firing"}})'
        samples = [{"labels": f'{{alertname="{name}"}}', "value": 1}] if fires else []
        query = {"expr": expected, "eval_time": "1h", "exp_samples": samples}
        tests.append({"interval": "1m", "input_series": given, "promql_expr_test": [query]})
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    path.write_text(json.dumps(content))


@PROMTOOL
@pytest.mark.parametrize(("cases", "fires"), [(FIRING, True), (QUIET, False)])
def test_when_alerts_fire(tmp_path, cases, fires):
    """Each alert fires on what it is for, the first failure included, and not otherwise."""
    assert set(FIRING) == {rule["alert"] for rule in rules()}
    written_test(tmp_path / "test.yml", cases, fires=fires)
    words = ["promtool", "test", "rules", str(tmp_path / "test.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@PROMTOOL
def test_promtool(tmp_path):
    """Prometheus' own tool accepts the rules and the expressions of the dashboard."""
    every = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    made = [
        {"record": f"panel:{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(every)
    ]
    panels = tmp_path / "panels.yml"
    panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": made}]}))
    for path in (RULES, panels):
        words = ["promtool", "check", "rules", "--lint-fatal", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

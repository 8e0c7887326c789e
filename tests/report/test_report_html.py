"""The page: complete in itself, the same bytes each time, of bounded size, hostile names inert."""

import base64
import dataclasses
import hashlib
import json
import re
import sys
from html.parser import HTMLParser

import pytest
import report_builders as build

from rtsched.errors import MissingExtraError
from rtsched.replay.policies import baseline
from rtsched.report.html import lines, render, sentences, tiles
from rtsched.report.store import read, write
from rtsched.report.summary import Summary, summarise
from rtsched.report.tables import ROWS, best

MOST_BYTES = 8_000_000


class Page(HTMLParser):
    """Collect elements, their attributes, scripts and the text that is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Keep one element."""
        self.elements.append((tag, dict(attrs)))
        self._within = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        """Leave it."""
        self._within = ""

    def handle_data(self, data):
        """Keep its text."""
        if self._within == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self._within != "style":
            self.text += data


@pytest.fixture(scope="module")
def replay():
    """Return a replay whose users, policies, files and reasons are all hostile."""
    work = build.workload(users=build.HOSTILE)
    work.skipped.add(build.SCRIPT, f"{build.SCRIPT}:1")
    runs = [build.run(work, name, rejects=0.3) for name in build.HOSTILE]
    return work, runs, summarise(work, runs)


@pytest.fixture(scope="module")
def text(replay):
    """Return the page of the hostile replay."""
    return render(*replay)


def test_nothing_is_fetched(text):
    """No element refers to anything outside the page."""
    page = Page(text)
    for tag, attributes in page.elements:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img", "form"}
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"@import|url\(", re.sub(r"<script>.*?</script>", "", text, flags=re.S))


def test_only_the_pages_own_scripts_may_run(text):
    """The content policy names exactly the page's two scripts by hash, and no network at all."""
    page = Page(text)
    policy = next(a["content"] for tag, a in page.elements if "http-equiv" in a)
    run = [body for attributes, body in page.scripts if "type" not in attributes]
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
        for body in run
    }
    allowed = re.search(r"script-src ([^;]*);", policy).group(1)
    assert set(allowed.split()) == hashes
    assert len(run) == 2
    assert policy.startswith("default-src 'none';")


def test_hostile_names_are_text(text, replay):
    """Markup, scripts and template syntax in names reach the reader as they are written."""
    page = Page(text)
    assert build.SCRIPT in page.text
    assert "{{ 7*7 }}" in page.text
    assert r"\x1b[31mred" in page.text
    assert r"abc\u202edef" in page.text
    assert not any("evil.example" in str(a.get("href")) for _, a in page.elements)
    data = [body for attributes, body in page.scripts if "type" in attributes]
    assert all("<" not in body and json.loads(body) for body in data)


def test_every_figure_has_heading_words_and_data(text):
    """A reader who cannot see a figure has its title and what there is to be seen in it."""
    page = Page(text)
    ids = [attributes.get("id") for _, attributes in page.elements]
    plots = [a for tag, a in page.elements if a.get("class") == "plot"]
    assert len(plots) == 10
    for plot in plots:
        assert plot["role"] == "img"
        for part in ("aria-labelledby", "aria-describedby"):
            assert plot[part] in ids
        assert f"{plot['id']}-data" in ids
    assert len([i for i in ids if i]) == len({i for i in ids if i})
    tables = [tag for tag, _ in page.elements if tag in {"table", "caption"}]
    assert tables.count("table") == tables.count("caption") == 5


def test_the_table_says_what_its_shares_are_of(text):
    """Of jobs with a deadline, or of all: they do not add up to 100 %."""
    shares = "Ended in time: share of the 38 jobs with a deadline; missed deadlines and rejected: "
    assert f"{shares}shares of all 60 jobs." in Page(text).text


def test_the_same_replay_gives_the_same_page(replay, text):
    """There is neither date nor random name in it."""
    assert render(*replay) == text


@pytest.mark.parametrize("table_format", ["parquet", "csv"])
def test_a_kept_replay_gives_the_same_page(replay, text, tmp_path, table_format):
    """What `rtsched render` makes of the files is what `rtsched replay` made of the run."""
    write(tmp_path, *replay, table_format)
    kept = read(tmp_path)
    assert render(kept.workload, kept.runs(), kept.summary) == text


def test_a_large_log_gives_a_small_page():
    """Whatever the log's size, everything is aggregated."""
    work, runs = build.million(120_000)
    assert len(render(work, runs, summarise(work, runs)).encode()) < MOST_BYTES


@pytest.mark.parametrize("missing", ["jinja2", "plotly.offline"])
def test_without_the_extra_the_page_says_what_to_install(replay, monkeypatch, missing):
    """A minimal install has no report, and says how to get it."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"rtsched\[report\]"):
        render(*replay)


def test_assumptions_stand_above_the_table(text):
    """Who reads a figure has read what it rests on."""
    ids = [attributes.get("id") for _, attributes in Page(text).elements]
    assert ids.index("comparison") < ids.index("assumed") < ids.index("table")


def test_the_heading_may_be_given(replay):
    """As text, like everything else that the page is told."""
    page = render(*replay, title=f"October {build.SCRIPT}")
    assert "<h1>October &lt;script&gt;alert(1)&lt;/script&gt;</h1>" in page
    assert build.SCRIPT not in page


def test_resources_have_tables_where_nodes_are_shared():
    """Hours per resource and the partitions, from the same rows as on a terminal."""
    work = build.shared_workload()
    runs = [build.shared_run(work)]
    page = Page(render(work, runs, summarise(work, runs)))
    assert "core-hours" in page.text
    assert "gpu (30): mean wait" in page.text
    assert "8 nodes with 64 cores and 8 GPUs" in page.text
    assert "Busy part of all 64 cores" in page.text


DEADLINES = (
    "60 of 60 jobs got a deadline that the log does not give: 4 times the requested time after "
    "submission."
)


def summary(*names: str, rejects: float = 0.0, said: tuple[str, ...] = ()) -> Summary:
    """Return the summary of runs of these names, of which the last may reject jobs."""
    work = build.workload()
    work = dataclasses.replace(work, assumptions=(*work.assumptions, *said))
    runs = [build.run(work, name) for name in names[:-1]]
    return summarise(work, [*runs, build.run(work, names[-1], rejects=rejects)])


def test_the_policy_that_stands_for_the_site():
    """`site` where a configuration names it, else the first that was asked for."""
    assert baseline(["fcfs", "site", "easy"]) == "site"
    assert baseline(["fcfs", "easy"]) == "fcfs"
    assert baseline([]) == ""


def test_policies_are_compared_with_the_site_and_not_with_the_log():
    """Neither the log nor the site itself has a difference; the sentence names the site."""
    found = summary("fcfs", "easy")
    wait = next(line for line in lines(found) if line.label == "wait, mean")
    logged, fcfs, easy = wait.cells
    assert logged.difference == fcfs.difference == ""
    measures = [found.measures(name)["mean_wait_s"] for name in ("fcfs", "easy")]
    assert measures[1] < measures[0]
    gap = 100 * (1 - measures[1] / measures[0])
    assert easy.difference == f"−{gap:.1f} %"
    first = sentences(found)[0]
    assert first.startswith("Under easy jobs wait ")
    assert first.endswith(f"that is {gap:.1f} % less than under fcfs.")
    assert "log" not in first


def test_a_site_that_rejects_jobs_is_no_measure_of_waits():
    """Its waits are those of fewer jobs."""
    work = build.workload()
    runs = [build.run(work, "site", rejects=0.3), build.run(work, "easy")]
    assert "than under site" not in sentences(summarise(work, runs))[0]


def test_the_log_wins_nothing():
    """Only policies have marks; one alone has none."""
    for line in lines(summary("fcfs", "easy")):
        assert not line.cells[0].wins
    for line in lines(summary("fcfs")):
        assert not any(cell.wins for cell in line.cells)
    for tile in tiles(summary("fcfs", "easy")):
        assert not tile.bars[0].wins


def test_no_best_wait_where_policies_started_different_jobs():
    """Who rejects jobs has shorter queues; what ended in time, of all jobs, is still compared."""
    found = summary("fcfs", "easy", rejects=0.5)
    columns = [found.measures(name) for name in found.policies]
    rows = {row.measure: row for row in ROWS}
    for name in ("mean_wait_s", "max_wait_s", "mean_bounded_slowdown", "miss_ratio"):
        assert best(rows[name], columns) == set()
    assert best(rows["in_time_ratio"], columns)
    same = summary("fcfs", "easy")
    assert best(rows["mean_wait_s"], [same.measures(name) for name in same.policies]) == {1}


def test_a_tile_says_that_deadlines_are_assumed():
    """On the tile itself, not only in the list of assumptions."""
    (assumed,) = [t for t in tiles(summary("easy", said=(DEADLINES,))) if "in time" in t.label]
    assert assumed.hint == "higher is better; deadlines are assumed"
    (known,) = [t for t in tiles(summary("easy")) if "in time" in t.label]
    assert known.hint == "higher is better"


def test_deadlines_are_compared_over_all_that_were_submitted():
    """A policy that rejects jobs does not look better for it."""
    found = summary("fcfs", "easy", rejects=0.3)
    parts = []
    for name in found.policies:
        measures = found.measures(name)
        in_time = round(100 * measures["in_time"] / found.log["jobs_with_deadline"], 1)
        rejected = f" ({100 * measures['reject_ratio']:.1f} % rejected)"
        parts.append(f"{name} {in_time} %" + (rejected if measures["rejected"] else ""))
    assert sentences(found)[-1].endswith(f"of all that were submitted: {', '.join(parts)}.")


def test_waits_are_also_compared_over_the_jobs_that_all_started():
    """Beside each policy's own."""
    found = summary("fcfs", "easy", rejects=0.3)
    for name in found.policies:
        own, common = (found.measures(name)[f"mean_{k}wait_s"] for k in ("", "common_"))
        assert (own == common) == bool(found.measures(name)["rejected"])
    assert "of common jobs" in [line.label for line in lines(found)]
    assert "of common jobs" not in [line.label for line in lines(summary("fcfs", "easy"))]

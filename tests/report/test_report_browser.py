"""The page in a real browser, without network: every figure is drawn, nothing is complained of."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rtsched.report.html import render
from rtsched.report.summary import summarise

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import report_builders as build

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
    "--window-size=1400,1000",
    "--virtual-time-budget=20000",
)
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND"
DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def browser() -> str:
    """Return Chromium's path."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"none of {', '.join(NAMES)} is installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class Drawn(HTMLParser):
    """Find the figures of a page after its scripts have run, and what is drawn in each."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link", "wbr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.figures: dict[str, dict[str, object]] = {}
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Count surfaces and marks below the figure they are in."""
        named = dict(attrs)
        classes = (named.get("class") or "").split()
        if "plot" in classes:
            self.figures[named["id"]] = {"svg": 0, "marks": 0, **named}
            self.figure = named["id"]
        elif "plot" in self.stack:
            self.figures[self.figure]["svg"] += "main-svg" in classes
            self.figures[self.figure]["marks"] += bool({"js-line", "point"} & set(classes))
        for name in ("src", "href"):
            if named.get(name):
                self.links.append(named[name])
        if tag not in self.VOID:
            self.stack.append("plot" if "plot" in classes else tag)

    def handle_endtag(self, tag):
        """Leave an element."""
        if self.stack:
            self.stack.pop()


def visit(browser: str, page: Path, *flags: str) -> tuple[str, str]:
    """Return the page's elements after its scripts have run, and what the browser had to say."""
    with_profile = f"--user-data-dir={page.parent / 'profile'}"
    done = subprocess.run(
        [browser, *FLAGS, NO_NETWORK, with_profile, *flags, "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Write the report of a replay with hostile names."""
    work = build.workload(n=300, users=("ann", "bob", *build.HOSTILE))
    runs = [build.run(work), build.run(work, "easy"), build.run(work, "[b]mcdf", rejects=0.3)]
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(work, runs, summarise(work, runs)), "utf-8")
    return path


@pytest.mark.parametrize(("flags", "mode"), [((), "light"), ((DARK,), "dark")])
def test_every_figure_is_drawn_without_network(browser, page, flags, mode):
    """Each figure has its surface and something on it, in light and in dark, and no complaint."""
    elements, log = visit(browser, page, *flags)
    drawn = Drawn(elements)
    ids = re.findall(r'<div class="plot" id="([^"]+)"', page.read_text("utf-8"))
    assert sorted(drawn.figures) == sorted(ids)
    assert len(ids) == 10
    for name, figure in drawn.figures.items():
        assert figure["svg"] >= 1, name
        assert figure["marks"] >= 1, name
        assert figure["data-drawn"] == mode, name
        assert "failed" not in figure["class"], name
    complaints = [line for line in log.splitlines() if ":CONSOLE" in line]
    assert complaints == []
    assert [link for link in drawn.links if not link.startswith("#")] == []


def test_hostile_names_stay_text_in_the_browser(browser, page):
    """No name became an element: neither in the page nor in a plot's labels."""
    elements, _ = visit(browser, page)
    assert "alert(1)" in elements
    assert "<script>alert" not in elements
    assert "<a href='http://evil" not in elements
    assert '<a href="http://evil' not in elements
    assert '<a xlink:href="http://evil' not in elements


def test_what_goes_wrong_in_the_browser_is_seen(browser, page, tmp_path):
    """A script that the page's own policy forbids is complained of, so silence means something."""
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text("utf-8").replace('"use strict";', '"use strict";;'), "utf-8")
    elements, log = visit(browser, broken)
    assert ":CONSOLE" in log
    assert not any(figure["svg"] for figure in Drawn(elements).figures.values())

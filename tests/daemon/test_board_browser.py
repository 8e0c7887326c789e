"""The board in a real browser: it draws, answers as one types, and is for everybody to read."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from board_pages import HOSTILE, board, large_daemon, link_for
from playwright.sync_api import expect
from rest_client import BOB

from rtsched.report.wording import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 800}
DESK = {"width": 1400, "height": 1000}


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a board of 2,000 nodes, 10,000 running jobs and 20 promises."""
    with large_daemon(tmp_path_factory.mktemp("board")) as running, board(running) as address:
        yield address


@pytest.fixture
def opened(browser: Browser, where: str) -> Iterator[Callable[..., Page]]:
    """Give what opens the board; afterwards nothing may have been complained of or loaded."""
    complaints: list[str] = []
    contexts = []

    def foreign(url: str) -> None:
        if not url.startswith((where, "data:")):
            complaints.append(url)

    def open_board(uid: int | None = None, **settings: Any) -> Page:
        context = browser.new_context(**{"viewport": DESK, **settings})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                None if asked.url.startswith((where, "data:")) else complaints.append(asked.url)
            ),
        )
        page.goto(link_for(where) if uid is None else link_for(where, uid))
        return page

    yield open_board
    for context in contexts:
        context.close()
    assert complaints == []


def axe(page: Page) -> list[tuple[str, str, list[str]]]:
    """Return the serious findings of axe on a page."""
    page.evaluate((files("axe_core_python") / "axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run()")
    return [
        (each["id"], each["help"], [node["html"] for node in each["nodes"]][:3])
        for each in found["violations"]
        if each["impact"] in {"serious", "critical"}
    ]


def test_all_is_drawn(opened: Callable[..., Page]) -> None:
    """Every kind of bar is there, as wide as the page; so are ann's promises, by name."""
    page = opened()
    expect(page.get_by_role("heading", name="Now and the plan ahead")).to_be_visible()
    boxes = {
        kind: page.locator(f".gantt path.{kind}").bounding_box()
        for kind in ("running", "planned", "reserved")
    }
    assert all(box is not None and box["width"] > 20 for box in boxes.values()), boxes
    assert page.locator(".gantt path.own").count() == 20
    assert page.locator("#promises tbody tr").count() == 20
    assert len(page.locator(".gantt path.running").get_attribute("d") or "") > 100_000
    names, values = (page.locator(f".tiles {tag}").all_inner_texts() for tag in ("dt", "dd"))
    tiles = dict(zip(names, values, strict=True))
    assert (tiles["Nodes in service"], tiles["Jobs running"]) == ("2,000 of 2,000", "10,000")
    assert tiles["Promised"] == "20"
    assert (tiles["Kept"], tiles["Missed or broken"]) == ("0", "0")  # likely ones are drawn apart


def test_the_record_of_likely_promises_is_drawn(opened: Callable[..., Page]) -> None:
    """Stated odds against what was kept: a point for each class, and what each says."""
    page = opened()
    plot = page.locator("#likely svg")
    expect(plot).to_be_visible()
    expect(plot).to_have_attribute("aria-label", re.compile("Of 400 promises, stated with odds"))
    points = plot.locator("circle")
    assert points.count() == 4
    boxes = [points.nth(at).bounding_box() for at in range(4)]
    assert all(box is not None and box["width"] > 3 for box in boxes)
    assert "kept" in plot.locator("g.point title").first.inner_html()


def test_names_of_jobs_are_shown_and_never_obeyed(opened: Callable[..., Page]) -> None:
    """Tags and escape sequences in a job's name are text."""
    page = opened()
    expect(page.locator("#promises tbody tr td").first).to_have_text(visible(HOSTILE))
    page.locator("#promises tbody th a", has_text="4711").first.click()
    expect(page.locator("#why")).to_contain_text(visible(HOSTILE))
    assert page.locator("img").count() == 0


def test_it_answers_as_one_types(opened: Callable[..., Page]) -> None:
    """A form without a click: the lines to copy change with what stands in it."""
    page = opened()
    part = page.locator('[data-part="when"]')
    part.get_by_label("Nodes").fill("4")
    part.get_by_label("Time limit").fill("1:30")
    lines = page.locator("#lines")
    expect(lines).to_contain_text("#SBATCH --nodes=4")
    expect(lines).to_contain_text("#SBATCH --time=90")
    expect(lines).to_contain_text("#SBATCH --deadline=uts")
    part.get_by_label("Nodes").fill("many")
    expect(page.locator("#when .problem")).to_have_text("Nodes: 'many' is not a whole number")
    part.get_by_label("Nodes").fill("2500")
    expect(page.locator("#when .answer")).to_have_text("It would not be promised anything.")


def test_keyboard_and_no_script(opened: Callable[..., Page]) -> None:
    """The tabulator reaches the forms in order; without a script they are answered with a page."""
    page = opened()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    plain = opened(java_script_enabled=False)
    plain.locator('[data-part="when"]').get_by_label("Nodes").fill("3")
    plain.locator('[data-part="when"]').get_by_label("Time limit").fill("60")
    plain.get_by_role("button", name="Ask").click()
    expect(plain.locator("#lines")).to_contain_text("#SBATCH --nodes=3")
    plain.locator('[data-part="why"]').get_by_label("Job").fill("4712")
    plain.get_by_role("button", name="Explain").click()
    expect(plain.locator("#why .answer")).to_contain_text("Job 4712 (model-1) is waiting")


@pytest.mark.parametrize("viewport", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(
    opened: Callable[..., Page], viewport: dict[str, int], scheme: str
) -> None:
    """Axe finds nothing serious; nothing is wider than the screen."""
    page = opened(viewport=viewport, color_scheme=scheme, bypass_csp=True)
    page.locator('[data-part="when"]').get_by_label("Nodes").fill("4")
    expect(page.locator("#lines")).to_be_visible()
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_another_user_sees_that_nodes_are_busy_and_no_more(opened: Callable[..., Page]) -> None:
    """The bars are the same; whose they are is not told."""
    page = opened(BOB)
    assert page.locator(".gantt path.own").count() == 0
    expect(page.locator("#promises")).to_contain_text("None is open.")
    assert len(page.locator(".gantt path.planned").get_attribute("d") or "") > 100
    page.locator('[data-part="why"]').get_by_label("Job").fill("4711")
    expect(page.locator("#why .problem")).to_contain_text("no job '4711' of yours is known")


def test_partitions_and_spans(opened: Callable[..., Page]) -> None:
    """A chosen partition has its nodes only, at once."""
    page = opened()
    page.locator("[data-view]").get_by_label("Partition").select_option("second")
    expect(page.locator(".gantt > svg").first).to_have_attribute("viewBox", "0 0 1000 1000")
    expect(page.locator(".names text").first).to_have_text("node1000")

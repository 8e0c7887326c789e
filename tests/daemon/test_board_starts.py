"""Start estimates on the board in a real browser: the reader's jobs, and the record's pictures."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from board_pages import HOSTILE, board, link_for
from estimating_site import KnownEstimator, ten_minutes_from, waiting
from playwright.sync_api import expect
from rest_client import BOB, in_thread
from running import NOW, Running

from rtsched.daemon.estimating import Estimating, LatestEstimates
from rtsched.estimates.settings import EstimateSettings
from rtsched.report.wording import about, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from rtsched.estimates.tables import Estimates
    from rtsched.model.jobs import Jobs

pytestmark = pytest.mark.browser


class Known(Estimating):
    """Estimates that are known at once."""

    async def estimate(self, jobs: Jobs, timeout_s: float = 1.0) -> Estimates:
        """Answer at once."""
        del timeout_s
        return ten_minutes_from(NOW, jobs.id, 0.0)


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a board with three waiting jobs, one of them held."""

    async def course(running: Running) -> None:
        running.show(**waiting(HOSTILE, "held", "model", held=("held",)))
        estimating = Known(running.live, running.daemon.metrics)
        estimating.latest = LatestEstimates(
            ten_minutes_from(NOW, np.array([1, 3]), 0.0),
            NOW - 5.0,
            accuracy=KnownEstimator(EstimateSettings()).accuracy(),
        )
        running.daemon.estimating = estimating
        await running.start()

    with (
        in_thread(Running(tmp_path_factory.mktemp("starts")), course) as running,
        board(running) as address,
    ):
        yield address


def opened(browser: Browser, where: str, uid: int | None = None, **settings: Any) -> Page:
    """Return the board as a user sees it."""
    settings = {"viewport": {"width": 1400, "height": 1000}, **settings}
    page = browser.new_context(**settings).new_page()
    page.goto(link_for(where) if uid is None else link_for(where, uid))
    return page


def test_waiting_jobs_have_their_estimates(browser: Browser, where: str) -> None:
    """Each with both intervals; a name is text, and of a held job it says why there is none."""
    page = opened(browser, where)
    rows = page.locator("#starts table").first.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text(visible(HOSTILE))
    expect(rows.first).to_contain_text(about(NOW + 600.0, NOW))
    expect(rows.first).to_contain_text(f"{about(NOW + 300.0, NOW)} to {about(NOW + 1800.0, NOW)}")
    expect(page.locator("#starts tbody tr", has_text="it is held")).to_have_count(1)
    rows.first.get_by_role("link", name="1").click()
    expect(page.locator("#estimate")).to_contain_text("Estimate: it starts about")
    assert page.locator("img").count() == 0
    other = opened(browser, where, BOB)
    expect(other.locator("#starts")).to_contain_text("None without a promise.")


def test_the_record_is_drawn_to_scale(browser: Browser, where: str) -> None:
    """Each bar is as high as its share; its line stands where it should reach."""
    page = opened(browser, where)
    heights = {}
    for kind in ("cover80", "cover90", "cover95"):
        bars = page.locator(f".record rect.{kind}")
        expect(bars).to_have_count(3)
        boxes = [bars.nth(at).bounding_box() for at in range(3)]
        heights[kind] = [box["height"] if box else 0.0 for box in boxes]
    assert heights["cover80"] == pytest.approx([75.0, 80.0, 81.0], abs=1.0)
    assert heights["cover90"] == pytest.approx([75.0, 90.0, 91.0], abs=1.0)
    assert heights["cover95"] == pytest.approx([100.0, 95.0, 96.0], abs=1.0)
    errors = [page.locator(".record rect.error").nth(at).bounding_box() for at in range(3)]
    assert [box and box["height"] for box in errors] == pytest.approx([30.0, 25.0, 20.0], abs=1.0)
    expect(page.locator("#starts")).to_contain_text("last month")


def test_an_estimate_stands_beside_the_guarantee(browser: Browser, where: str) -> None:
    """As one types."""
    page = opened(browser, where)
    part = page.locator('[data-part="when"]')
    part.get_by_label("Nodes").fill("2")
    part.get_by_label("Time limit").fill("60")
    expect(page.locator("#when")).to_contain_text("It would be promised to end by")
    likely = page.locator("#likely")
    expect(likely).to_contain_text(f"start about {about(NOW + 600.0, NOW)}")
    expect(likely).to_contain_text(f"and {about(NOW + 1800.0, NOW)} (80 %)")


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_the_estimates(
    browser: Browser, where: str, width: int, scheme: str
) -> None:
    """Axe finds nothing serious; nothing is wider than the screen."""
    viewport = {"width": width, "height": 900}
    page = opened(browser, where, viewport=viewport, color_scheme=scheme, bypass_csp=True)
    expect(page.locator("#starts")).to_be_visible()
    page.evaluate((files("axe_core_python") / "axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width

"""A click on a choice, in a real browser: it is held, and the command that takes it is copied."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from board_pages import board, large_daemon, link_for
from playwright.sync_api import expect
from running import NOW

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_a_click_holds_a_choice_and_copies_the_command(browser: Browser, tmp_path: Path) -> None:
    """What it copies is what `rtsched take` submits; the choice is shown as offered from then."""
    with large_daemon(tmp_path, nodes=80, jobs=400, promises=1) as running, board(running) as where:
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.goto(link_for(where))
        form = page.locator('[data-part="when"]')
        form.get_by_label("Nodes").fill("60")
        form.get_by_label("Time limit").fill("60")
        by = datetime.fromtimestamp(NOW + 5400).strftime("%Y-%m-%dT%H:%M")
        form.get_by_label("Finish by").fill(by)
        choice = page.locator("#when .choices button[data-hold=later]")
        expect(choice).to_have_count(1)
        choice.click()
        expect(choice).to_have_text("Copied")
        expect(page.locator("#take")).to_have_text("rtsched take 1 job.sh")
        assert page.evaluate("navigator.clipboard.readText()") == "rtsched take 1 job.sh"
        assert "offered" in running.states()
        page.reload()
        expect(page.locator("#take-1")).to_have_text("rtsched take 1 job.sh")

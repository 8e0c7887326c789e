"""Make docs/images/board.png: the board of a made-up cluster, as headless Chromium shows it.

python tools/docs/board.py
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import structlog
from installed import TOP

sys.path.append(str(TOP / "tests" / "daemon"))

from board_pages import HOUR, board, large_daemon, link_for
from playwright.sync_api import sync_playwright
from running import NOW

PICTURE = TOP / "docs" / "images" / "board.png"


def main() -> int:
    """Run the daemon, open the board, ask it something, write the picture."""
    path = shutil.which("chromium")
    if path is None:
        print("chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with (
        tempfile.TemporaryDirectory() as name,
        large_daemon(
            Path(name), nodes=240, jobs=700, promises=8, first="model-0", waiting=5
        ) as running,
        board(running) as where,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(link_for(where))
        part = page.locator('[data-part="when"]')
        part.get_by_label("Nodes").fill("60")
        part.get_by_label("Time limit").fill("1:30")
        by = datetime.fromtimestamp(NOW + 2 * HOUR).astimezone()
        part.get_by_label("Finish by").fill(by.strftime("%Y-%m-%dT%H:%M"))
        page.locator("#when .choices").wait_for()
        page.locator("#promises tbody th a").nth(1).click()
        page.locator("#why .answer").wait_for()
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        page.screenshot(path=PICTURE, full_page=True)
        browser.close()
    print(f"{PICTURE.relative_to(TOP)}: {PICTURE.stat().st_size // 1024} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Make docs/images/report.png: the report of a shipped log, as headless Chromium shows it.

python tools/docs/screenshot.py [LOG]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from installed import TOP

PICTURE = TOP / "docs" / "images" / "report.png"
LOG = TOP / "examples" / "logs" / "cluster.swf.gz"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1400,1600",
    "--virtual-time-budget=8000",
)


def main(log: Path) -> int:
    """Replay the log, open the page, write the picture."""
    browser = shutil.which("chromium")
    if browser is None:
        print("chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        page, profile = Path(directory) / "report.html", Path(directory) / "profile"
        replay = [sys.executable, "-m", "rtsched", "replay", str(log), "--no-out"]
        subprocess.run([*replay, "--html", str(page)], check=True)  # noqa: S603
        PICTURE.parent.mkdir(exist_ok=True)
        where = [f"--user-data-dir={profile}", f"--screenshot={PICTURE}", page.as_uri()]
        subprocess.run([browser, *FLAGS, *where], check=True, capture_output=True)  # noqa: S603
    print(f"{PICTURE.relative_to(TOP)}: {PICTURE.stat().st_size // 1024} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else LOG))

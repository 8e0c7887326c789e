"""Make docs/images/start-accuracy.png of a page of `rtsched when --check LOG --html PAGE`.

python tools/docs/start_accuracy.py PAGE
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from installed import TOP
from screenshot import FLAGS

PICTURE = TOP / "docs" / "images" / "start-accuracy.png"


def main(page: Path) -> int:
    """Open the page, write the picture."""
    browser = shutil.which("chromium")
    if browser is None:
        print("chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as profile:
        flags = [*FLAGS, f"--user-data-dir={profile}", "--window-size=1400,2080"]
        where = [f"--screenshot={PICTURE}", page.resolve().as_uri()]
        subprocess.run([browser, *flags, *where], check=True, capture_output=True)  # noqa: S603
    print(f"{PICTURE.relative_to(TOP)}: {PICTURE.stat().st_size // 1024} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

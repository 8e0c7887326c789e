"""The documentation is a site in which every link and anchor leads somewhere, short for admins."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BROKEN = """
[a page](nowhere.md), [a place](second.md#nowhere), [one that is there](second.md#a-place)
"""

STEPS = ("index", "install", "limitations", "upgrade")

needs_material = pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="needs the extra docs"
)


def built(settings: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site strictly, and return how that ended."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [*words, "--config-file", str(settings), "--site-dir", str(site)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_material
def test_the_site_builds_strictly(tmp_path):
    """All pages are in its navigation, and in its search; nothing is loaded from elsewhere."""
    done = built(TOP / "mkdocs.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "search" / "search_index.json").stat().st_size > 100_000
    pages = [path.read_text("utf-8") for path in tmp_path.rglob("*.html")]
    assert len(pages) > 40
    for page in pages:
        assert "```" not in page, "a fence that is none"
        assert not re.search(r"""<(script|link)[^>]*(src|href)=["']?https?:""", page)


@needs_material
def test_a_broken_link_or_anchor_fails(tmp_path):
    """Each is named."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(BROKEN, "utf-8")
    (docs / "second.md").write_text("## A place\n", "utf-8")
    hook = TOP / "tools" / "docs" / "site_links.py"
    settings = tmp_path / "mkdocs.yml"
    settings.write_text(
        f"INHERIT: {TOP / 'mkdocs.yml'}\nhooks: [{hook}]\n"
        "nav: [index.md, second.md]\nsite_dir: site\n",
        "utf-8",
    )
    done = built(settings, tmp_path / "site")
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr
    assert "#nowhere" in done.stderr
    assert "#a-place" not in done.stderr


@pytest.mark.parametrize("system", ["condor", "slurm"])
def test_the_path_of_an_admin_is_short(system):
    """From the question whether it is for a site to its limits: fewer than 8,000 words."""
    pages = [TOP / "docs" / name for name in ("tutorial.md", "operations.md")]
    pages += [TOP / "docs" / system / f"{step}.md" for step in STEPS]
    words = [word for page in pages for word in page.read_text("utf-8").split() if word != "|"]
    assert len(words) < 8000

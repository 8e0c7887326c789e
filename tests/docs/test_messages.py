"""Messages that tables of the docs quote are those of the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGES = ("operations.md", "promises.md")
SOURCES = (".py", ".c", ".cpp", ".conf")
WORDS = 3
"""From so many words on, a text between placeholders is looked up."""
OF_OTHERS = {
    "ERROR in transform RtFrozen",
    "database or disk is full",
    "start timed out",
    "the daemon could not be reached",
    "the daemon could not evaluate",
}
"""Messages of HTCondor, SQLite and systemd, and two that the filter composes."""


def source() -> str:
    """Return all sources, with literals that follow one another joined."""
    tops = (TOP / top for top in ("rtsched", "plugins", "contrib"))
    files = [path for top in tops for path in top.rglob("*") if path.suffix in SOURCES]
    text = "\n".join(path.read_text("utf-8", errors="ignore") for path in sorted(files))
    return re.sub(r"\s+", " ", re.sub(r'"\s*\n\s*f?"', "", text))


def quoted(page: str) -> list[str]:
    """Return what stands between the placeholders of messages in first cells of a page's tables."""
    cells = re.findall(r"^\| ([^|]*) \|", (TOP / "docs" / page).read_text("utf-8"), re.MULTILINE)
    texts = [text for cell in cells for text in re.findall(r"`([^`]*)`", cell)]
    parts = [
        part.strip()
        for text in texts
        if text not in OF_OTHERS
        for part in re.split(r"\.\.\.|\b[A-Z]\b|[:;()='\"]|\bmin\b", text)
    ]
    return [part for part in parts if len(part.split()) >= WORDS and part not in OF_OTHERS]


@pytest.mark.parametrize("page", PAGES)
def test_messages_are_those_of_the_sources(page: str) -> None:
    """Who searches the docs for a message finds it."""
    parts = quoted(page)
    assert len(parts) > 10
    text = source()
    assert [part for part in parts if part not in text] == []

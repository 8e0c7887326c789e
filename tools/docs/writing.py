"""Markdown from docstrings and settings: what `generate.py` builds its pages from."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNDERLINED = re.compile(r"^(\S[^\n]*)\n-{3,}$", re.MULTILINE)
_ENTRY = re.compile(r"^(\S[^\n]*)\n((?:[ ]{2,}[^\n]*\n?|\n(?=[ ]{2,}))+)", re.MULTILINE)


class Doc(NamedTuple):
    """A docstring in parts."""

    summary: str
    """First paragraph, on one line."""
    body: str
    """What follows it, before the first section."""
    sections: dict[str, str]
    """Numpy sections by title: Attributes, Raises, References, ..."""

    @property
    def text(self) -> str:
        """Return summary and body as Markdown paragraphs."""
        return "\n\n".join(part for part in (self.summary, self.body) if part)


def doc_of(thing: object) -> Doc:
    """Return the docstring of a function, class or module in parts."""
    return parsed(inspect.getdoc(thing) or "")


def parsed(text: str) -> Doc:
    """Return a docstring in parts."""
    pieces = _UNDERLINED.split(inspect.cleandoc(text) + "\n")
    head, sections = pieces[0], dict(zip(pieces[1::2], pieces[2::2], strict=True))
    summary, _, body = head.strip().partition("\n\n")
    sections = {title: inspect.cleandoc(part).strip("\n") for title, part in sections.items()}
    return Doc(" ".join(summary.split()), body.strip(), sections)


def sentences(thing: object) -> str:
    """Return the description in a docstring on one line."""
    return " ".join(doc_of(thing).text.split())


def entries(section: str) -> list[tuple[str, str]]:
    """Return the entries of a numpy section: (`name : type`, its text on one line)."""
    found = _ENTRY.findall(section + "\n")
    return [(head.strip(), " ".join(textwrap.dedent(body).split())) for head, body in found]


def definitions(section: str) -> str:
    """Return a section of terms with indented texts as a Markdown list."""
    return "\n".join(f"* {head}: {text}" for head, text in entries(section))


def cell(text: object) -> str:
    """Return a text for a table cell."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; an empty one is a sentence."""
    lines = [f"| {' | '.join(cell(text) for text in row)} |" for row in rows]
    if not lines:
        return "None."
    return "\n".join([f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *lines])


def anchor(name: str) -> str:
    """Return an anchor that keeps the dots of a code."""
    return f'<a id="{name}"></a>'


def code(text: object) -> str:
    """Return a text as inline code, empty for an empty one."""
    return f"`{text}`" if str(text) else ""


def block(text: str, language: str = "") -> str:
    """Return a fenced block."""
    return f"```{language}\n{text.rstrip()}\n```"


def page(title: str, *parts: str) -> str:
    """Return a page: title, then parts, one blank line between them."""
    return "\n\n".join(part.strip("\n") for part in (f"# {title}", *parts) if part.strip()) + "\n"

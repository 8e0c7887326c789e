"""A hook of MkDocs: what pages need to be read as a site, beside being read in a checkout.

The reference and the pages of reproductions are made. A link that leads out of `docs/`, such as
`[README](../README.md)`, has no page to lead to: the site shows its text and the path in the source
instead.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")
MARKED = re.compile(r"^```toml site$", re.MULTILINE)


def on_pre_build(config: Any, **_: object) -> None:
    """Make the pages that are not kept."""
    tools = Path(__file__).resolve().parent
    if Path(config.docs_dir).resolve() == tools.parents[1] / "docs":
        sys.path.insert(0, str(tools))
        importlib.import_module("generate").make_pages()
        sys.path.remove(str(tools))


def on_page_markdown(markdown: str, page: Any, config: Any, **_: object) -> str:
    """Return a page's text with links out of `docs/` as paths and plain fences."""
    docs = Path(config.docs_dir).resolve()
    directory = Path(page.file.abs_src_path).resolve().parent

    def shown(link: re.Match[str]) -> str:
        target = (directory / link[2]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return link[0]  # one that leads nowhere is for MkDocs to report
        path = target.relative_to(docs.parent)
        return link[1] if link[1].strip("`") == str(path) else f"{link[1]} (`{path}`)"

    return MARKED.sub("```toml", LINK.sub(shown, markdown))

"""Make `docs/reference/*.md` and `docs/man/*.1` from the code.

    python tools/docs/generate.py            write the pages
    python tools/docs/generate.py --check    name stale pages and left-overs; status 1 if any

The pages depend on the checkout alone: plug-ins are those that pyproject.toml announces, not
whatever else is installed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from installed import NOTE, TOP
from pages_for_admins import (
    command_page,
    log_page,
    measure_page,
    notices_page,
    plugin_page,
    policy_page,
    rest_page,
    site_page,
)
from pages_for_authors import error_page, hook_page, model_page, reason_page
from pages_for_daemon import filter_page, metric_page, query_page
from pages_for_man import man_pages
from writing import page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REFERENCE = TOP / "docs" / "reference"
MANUAL = TOP / "docs" / "man"


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": command_page,
    "site.md": site_page,
    "submit.md": filter_page,
    "policies.md": policy_page,
    "plugins.md": plugin_page,
    "reasons.md": reason_page,
    "measures.md": measure_page,
    "logs.md": log_page,
    "metrics.md": metric_page,
    "queries.md": query_page,
    "notices.md": notices_page,
    "rest.md": rest_page,
    "hooks.md": hook_page,
    "model.md": model_page,
    "errors.md": error_page,
}


def index_page(made: dict[str, str]) -> str:
    """Return the list of the pages."""
    rows = []
    for name, text in made.items():
        title = text.partition("\n")[0].removeprefix("# ")
        rows.append(f"* [{title}]({name})")
    return page("Reference", NOTE, "\n".join(rows))


def pages() -> dict[str, str]:
    """Return every page's text by file name."""
    made = {name: make() for name, make in PAGES.items()}
    return {**made, "index.md": index_page(made)}


def stale(made: dict[str, str]) -> list[str]:
    """Return one sentence per page on disk that is not as it would be made."""
    found = []
    for folder, texts in ((REFERENCE, made), (MANUAL, man_pages())):
        shown = folder.relative_to(TOP)
        for name, text in texts.items():
            path = folder / name
            if not path.exists():
                found.append(f"{shown}/{name} is missing")
            elif path.read_text("utf-8") != text:
                found.append(f"{shown}/{name} is stale")
        left_over = sorted({path.name for path in folder.glob("*")} - set(texts))
        found += [f"{shown}/{name} is not generated" for name in left_over]
    return found


def run(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` compare them, and return the exit status."""
    made = pages()
    if list(arguments) == ["--check"]:
        wrong = stale(made)
        for sentence in wrong:
            print(f"{sentence}; run `python tools/docs/generate.py`")
        return int(bool(wrong))
    if arguments:
        print("usage: python tools/docs/generate.py [--check]", file=sys.stderr)
        return 2
    for folder, texts in ((REFERENCE, made), (MANUAL, man_pages())):
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

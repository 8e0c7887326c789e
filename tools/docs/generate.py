"""Make reference and manual pages from the code, and those of reproductions from their values.

    python tools/docs/generate.py            write the pages
    python tools/docs/generate.py --check    name stale manual pages; status 1 if any

Pages are made when the site or a package is built, and by the tests that read them; only manual
pages are kept. They depend on the checkout alone: plug-ins are those that pyproject.toml announces,
not whatever else is installed; reproductions are not run.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
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

from rtsched.adapters.files import replace_file
from rtsched.reproduce.pages import from_object, markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

REFERENCE = TOP / "docs" / "reference"
MANUAL = TOP / "docs" / "man"
REPRODUCTIONS = TOP / "docs" / "evidence" / "reproductions"


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


def write(folder: Path, made: dict[str, str]) -> None:
    """Write pages of a folder that are not so yet, each as a whole, and delete all others.

    Hidden files are pages that another process is writing.
    """
    folder.mkdir(exist_ok=True)
    for path in folder.glob("[!.]*"):
        if path.name not in made:
            path.unlink(missing_ok=True)
    for name, text in made.items():
        keep(folder / name, text)


def keep(path: Path, text: str) -> None:
    """Write a page that is not so yet."""
    if not path.exists() or path.read_text("utf-8") != text:
        replace_file(path, text, 0o644)


def make_pages() -> None:
    """Write all pages that are not kept, several processes perhaps at a time."""
    write(REFERENCE, pages())
    for path in REPRODUCTIONS.glob("*.json"):
        values = msgspec.json.decode(path.read_bytes())
        keep(path.with_suffix(".md"), markdown(from_object(values)))


def stale(made: dict[str, str]) -> list[str]:
    """Return one sentence per manual page that is missing, or not as it would be made."""
    kept = {path.name: path.read_text("utf-8") for path in MANUAL.glob("*")}
    names = sorted(kept.keys() | made.keys())
    return [f"docs/man/{name} is stale" for name in names if kept.get(name) != made.get(name)]


def run(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` compare the manual, and return the exit status."""
    if list(arguments) == ["--check"]:
        wrong = stale(man_pages())
        for sentence in wrong:
            print(f"{sentence}; run `python tools/docs/generate.py`")
        return int(bool(wrong))
    if arguments:
        print("usage: python tools/docs/generate.py [--check]", file=sys.stderr)
        return 2
    make_pages()
    write(MANUAL, man_pages())
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

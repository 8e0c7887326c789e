"""What the program requires, with some extras, one requirement a line; `build`: its build too."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def requirements(project_file: Path, extras: list[str]) -> list[str]:
    """Return the requirements in a pyproject.toml."""
    settings = tomllib.loads(project_file.read_text())
    project = settings["project"]
    known = project["optional-dependencies"] | {"build": settings["build-system"]["requires"]}
    found, pending = set(project["dependencies"]), list(extras)
    while pending:
        for word in known[pending.pop()]:
            own = re.fullmatch(rf"{project['name']}\[(.+)\]", word)
            if own:
                pending += own[1].split(",")
            else:
                found.add(word)
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(requirements(Path(sys.argv[1]), sys.argv[2:])))

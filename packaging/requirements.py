"""What the program and its build require, of some extras, one requirement a line."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def requirements(project_file: Path, extras: list[str]) -> list[str]:
    """Return the requirements in a pyproject.toml, of the build too."""
    settings = tomllib.loads(project_file.read_text())
    project = settings["project"]
    found = {*settings["build-system"]["requires"], *project["dependencies"]}
    pending = list(extras)
    while pending:
        for word in project["optional-dependencies"][pending.pop()]:
            own = re.fullmatch(rf"{project['name']}\[(.+)\]", word)
            if own:
                pending += own[1].split(",")
            else:
                found.add(word)
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(requirements(Path(sys.argv[1]), sys.argv[2:])))

"""Pages that are not kept are made before tests of the docs are collected."""

import sys
from pathlib import Path

TOOLS = str(Path(__file__).resolve().parents[2] / "tools" / "docs")

sys.path.insert(0, TOOLS)
import generate  # noqa: E402

generate.make_pages()
sys.path.remove(TOOLS)

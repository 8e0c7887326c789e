"""Have a wheel bring compiled kernels along (`tools/kernels.py`), where that is asked for.

HATCH_BUILD_HOOK_ENABLE_CUSTOM=true python -m build --wheel
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Kernels(BuildHookInterface[Any]):
    """Compile kernels into a directory of their own, and put that into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install has no use for it."""
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory()
        command = [sys.executable, str(Path(self.root) / "tools" / "kernels.py"), self._made.name]
        command += self.config.get("arguments", [])
        subprocess.run(command, check=True)  # noqa: S603 (our own program)
        made = Path(self._made.name)
        for path in made.rglob("*.nb[ci]"):
            place = path.relative_to(made)
            if place.parts[0] == "plugins":
                place = place.relative_to("plugins")
            build_data["force_include"][str(path)] = str(place)
        # For this release of Python on this kind of machine.
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, *_: Any) -> None:
        """Remove what was compiled."""
        if version != "editable":
            self._made.cleanup()

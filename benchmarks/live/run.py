"""The proof on a real batch system: one command, machines of its own, tables.

    python benchmarks/live/run.py [--system slurm|condor]
        --part promises|shared-nodes|failures|shared-failures|fair-share|mapping|
               answers|throughput|negotiation
        [--planner edf|mcdf|spare] [--reduced] [--json] [--keep DIR]

It needs root on Linux with debootstrap, as tests/testbed does. The exit status is 1 if what the
part must show is not so.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]

import answers  # noqa: E402
import condor_answers  # noqa: E402
import condor_negotiation  # noqa: E402
import condor_throughput  # noqa: E402
import failures  # noqa: E402
import mapping  # noqa: E402
import promises  # noqa: E402
import shared_failures  # noqa: E402
import shared_nodes  # noqa: E402
import shares  # noqa: E402
import throughput  # noqa: E402
from on_condor import Condor  # noqa: E402
from on_slurm import Slurm  # noqa: E402
from shared_on_condor import SharedCondor  # noqa: E402
from shared_on_slurm import SharedSlurm  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workload_driver import Live

SYSTEMS: Mapping[str, type[Live]] = {"slurm": Slurm, "condor": Condor}
SHARED: Mapping[str, type[Live]] = {"slurm": SharedSlurm, "condor": SharedCondor}
"""Those whose nodes jobs share."""
PLAYED: Mapping[str, Any] = {
    "promises": promises,
    "shared-nodes": shared_nodes,
    "failures": failures,
    "shared-failures": shared_failures,
    "fair-share": shares,
    "mapping": mapping,
}
"""Parts that play jobs to any system."""
ALONE: Mapping[str, Mapping[str, Any]] = {
    "slurm": {"answers": answers, "throughput": throughput},
    "condor": {
        "answers": condor_answers,
        "negotiation": condor_negotiation,
        "throughput": condor_throughput,
    },
}
"""Parts of one system."""


def main() -> int:
    """Run a part, and print what it came to."""
    given = arguments()
    run, problems = part_of(given)
    found = run(reduced=given.reduced, keep=given.keep)
    found["problems"] = problems(found)
    text = json.dumps(found, indent=1)
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        (given.keep / f"{given.part}.json").write_text(text)
    print(text if given.json else "\n".join(table(found)))
    return 1 if found["problems"] else 0


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parts = {**PLAYED, **{name: part for parts in ALONE.values() for name, part in parts.items()}}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--system", choices=SYSTEMS, default="slurm", help="default: slurm")
    parser.add_argument("--part", choices=parts, required=True)
    parser.add_argument(
        "--planner", choices=promises.PRESETS, default="edf", help="of promises; default: edf"
    )
    parser.add_argument("--reduced", action="store_true", help="minutes only")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--keep", type=Path, help="directory in which logs are kept")
    given = parser.parse_args()
    if given.part not in {**PLAYED, **ALONE[given.system]}:
        parser.error(f"there is no part {given.part} for {given.system}")
    return given


def part_of(given: argparse.Namespace) -> tuple[Callable[..., Any], Callable[..., list[str]]]:
    """Return what runs a part, and what finds its problems."""
    if given.part not in PLAYED:
        part = ALONE[given.system][given.part]
        return part.run, part.problems
    systems = SHARED if given.part.startswith("shared-") else SYSTEMS
    part, system = PLAYED[given.part], systems[given.system]
    more = {"planner": given.planner} if given.part == "promises" else {}
    return partial(part.run, system, **more), partial(part.problems, system)


def table(found: Mapping[str, Any]) -> list[str]:
    """Return figures as a table in Markdown, one column per run, and then single figures."""
    runs = {name: flat(side) for name, side in found.items() if isinstance(side, dict)}
    lines, keys = [], list(dict.fromkeys(key for side in runs.values() for key in side))
    if runs:
        lines += [f"| | {' | '.join(runs)} |", f"|---|{'---:|' * len(runs)}"]
        for key in keys:
            cells = (shown(side.get(key, "")) for side in runs.values())
            lines.append(f"| {key} | {' | '.join(cells)} |")
        lines.append("")
    single = {key: value for key, value in found.items() if key not in runs}
    return lines + [f"* {key}: {line}" for key, value in single.items() for line in listed(value)]


def flat(side: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested figures with their names joined."""
    found: dict[str, Any] = {}
    for key, value in side.items():
        name = f"{before}{key.replace('_', ' ')}"
        found |= flat(value, f"{name} ") if isinstance(value, dict) else {name: value}
    return found


def shown(value: Any) -> str:
    """Return a figure with as many digits as it deserves."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else str(value)


def listed(value: Any) -> list[str]:
    """Return the lines of a single figure or of a list."""
    if not isinstance(value, list):
        return [shown(value)]
    return [json.dumps(each) if isinstance(each, dict) else str(each) for each in value] or ["none"]


if __name__ == "__main__":
    sys.exit(main())

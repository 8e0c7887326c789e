"""A fence for changes that are to change nothing: results, answers and speed beside recorded ones.

    python benchmarks/fence.py [--part replays|daemon|speed]... [--log NAME]...
        [--policy NAME]... [--record] [--keep DIR] [--json]

* `replays`: small logs of every kind (`fence_logs.py`) under all presets, by the command. Of each
  the results of all jobs are hashed: starts, ends, nodes, verdicts, promises, offers. A preset that
  refuses a log is recorded as refusing it.
* `daemon`: recorded runs of the daemon (`fence_daemon.py`): what it answered to submissions, what
  its promises became and what it asked of the batch system, also after kills.
* `speed`: the figures of `guard.py`, each as a ratio to a loop without rtsched in the same run.

Results and answers are compared with `fence.toml`, which is kept with the sources, ratios with
those of an earlier run of `guard.py --record` on this machine. The exit status is 1 if something
differs or a figure is slower. `--log` replays one log only, by its name in `fence_logs.py`, and
`--policy` only under that preset.
`--record` writes down what this run found, beside what others did; a commit that does so says what
was to change. `--keep DIR` keeps what was hashed, for a `diff` between two checkouts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import fence_daemon
import fence_logs
from measuring import HERE

from rtsched.cli.common import Exit
from rtsched.replay.policies import presets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECORDED = HERE / "fence.toml"
PARTS = "replays", "daemon", "speed"


def replays(keep: Path, logs: Sequence[str], policies: Sequence[str]) -> dict[str, str]:
    """Return a hash of the results of each log, or each that is named, under some presets."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="rtsched-fence-") as directory:
        for name, case in fence_logs.cases(Path(directory)).items():
            if logs and name not in logs:
                continue
            folder = keep / name.replace(" ", "-")
            for policy, text in replayed(case, folder, policies).items():
                found[f"{name}, {policy}"] = text
            if found.get(f"{name}, easy") == "refused":
                raise SystemExit(f"{name}: refused by easy, which replays every log; mend the log")
    return found


def replayed(case: fence_logs.Case, folder: Path, policies: Sequence[str]) -> dict[str, str]:
    """Return a hash of the results under each preset; `refused` where it cannot be replayed."""
    if _replay(case, folder, policies):
        return {policy: _hash_of(folder, policy) for policy in policies}
    return {
        policy: _hash_of(folder, policy) if _replay(case, folder, [policy]) else "refused"
        for policy in policies
    }


def _replay(case: fence_logs.Case, folder: Path, policies: Sequence[str]) -> bool:
    """Replay a log under some presets; return whether none of them was refused."""
    words = [sys.executable, "-m", "rtsched", "replay", *map(str, (case.log, *case.options))]
    words += [word for policy in policies for word in ("--policy", policy)]
    words += ["--out", str(folder), "--table-format", "csv", "--no-report", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (Exit.GOOD, Exit.USAGE):  # an internal error is no refusal
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return done.returncode == 0


def _hash_of(folder: Path, policy: str) -> str:
    return _hash((folder / policy / "jobs.csv").read_text())


def daemon(keep: Path) -> dict[str, str]:
    """Return a hash of what the daemon answered and asked for, by planner."""
    found: dict[str, str] = {}
    for planner in fence_daemon.PLANNERS:
        with tempfile.TemporaryDirectory(prefix="rtsched-fence-") as directory:
            text = "\n".join(fence_daemon.run(Path(directory), planner)) + "\n"
        (keep / f"daemon-{planner.replace(' ', '-')}.txt").write_text(text)
        found[planner] = _hash(text)
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def speed() -> int:
    """Compare the figures of `guard.py`; return its exit status."""
    return subprocess.run([sys.executable, HERE / "guard.py"], check=False).returncode


def _write(found: Mapping[str, Mapping[str, str]]) -> None:
    lines = ["# Hashes of results and answers: python benchmarks/fence.py --record"]
    for part, hashes in found.items():
        lines += ["", f"[{part}]", *(f'"{name}" = "{text}"' for name, text in hashes.items())]
    RECORDED.write_text("\n".join(lines) + "\n")


def main() -> int:
    """Compare, or record, and print a table; 1 if something differs."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="repeatable; all if not given"
    )
    parser.add_argument("--log", action="append", default=[], help="repeatable")
    parser.add_argument("--policy", action="append", choices=presets(), help="repeatable")
    parser.add_argument("--record", action="store_true", help="write down what is found")
    parser.add_argument("--keep", type=Path, help="directory for what was hashed")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    parts = given.part or PARTS
    recorded = tomllib.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="rtsched-fence-") as directory:
        keep = given.keep or Path(directory)
        keep.mkdir(parents=True, exist_ok=True)
        if "replays" in parts:
            found["replays"] = replays(keep, given.log, given.policy or list(presets()))
        if "daemon" in parts:
            found["daemon"] = daemon(keep)
    if given.record:
        recorded |= {part: recorded.get(part, {}) | hashes for part, hashes in found.items()}
        _write(recorded)
    differ = {
        part: [name for name, text in hashes.items() if recorded.get(part, {}).get(name) != text]
        for part, hashes in found.items()
    }
    if given.json:
        print(json.dumps({"found": found, "differ": differ}))
    else:
        print("| part | compared | differ |\n|---|---:|---:|")
        for part, hashes in found.items():
            print(f"| {part} | {len(hashes)} | {len(differ[part])} |")
        for part, names in differ.items():
            for name in names:
                print(f"{part} differs: {name}", file=sys.stderr)
    slow = speed() if "speed" in parts and not given.record else 0
    return int(bool(slow) or any(differ.values()))


if __name__ == "__main__":
    sys.exit(main())

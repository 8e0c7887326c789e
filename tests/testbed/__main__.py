"""A batch system to play with: `PYTHONPATH=tests python -m testbed up`, `shell`, `run`, `down`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from testbed import (
    Box,
    Cluster,
    Pool,
    PoolOptions,
    SlurmOptions,
    TestbedError,
    condor_images,
    fragments,
    images,
    unavailable,
)
from testbed.images import SUITES
from testbed.layers import cache

ME = "tests/testbed/cluster"

SITE_TOML = """\
planner = "mcdf"

[daemon]
system = "{system}"

[[plugin]]
name = "mcdf"
"""
ASK = {"slurm": "sinfo", "condor": "condor_status"}
"""By batch system, a command that shows it."""


def main() -> int:
    """Carry out the command; return the exit status."""
    parser = argparse.ArgumentParser(prog=ME, description="A real Slurm or HTCondor to play with.")
    parser.add_argument("--name", default="main", help="which one, if there are several")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster that stays until `down`")
    up.add_argument("--system", choices=ASK, default="slurm", help="the batch system: %(default)s")
    up.add_argument("--suite", choices=SUITES, default=SUITES[0], help="Debian release")
    up.add_argument(
        "--slurm-source", type=Path, metavar="FILE", help="build and run the Slurm of this archive"
    )
    up.add_argument("--bare", action="store_true", help="the batch system alone, no submit filter")
    up.add_argument("--without-daemon", action="store_true", help="do not run `rtsched serve`")
    up.add_argument("--config", type=Path, help="site.toml of the daemon")
    up.add_argument(
        "--tools", action="store_true", help="with Snakemake, Dask and others in /opt/tools"
    )
    commands.add_parser("down", help="end it, and remove all that it wrote")
    commands.add_parser("status", help="say whether one is up")
    build = commands.add_parser("build", help="make the layers that a cluster needs")
    build.add_argument("--system", choices=ASK, action="append", help="all, unless named")
    build.add_argument("--suite", choices=SUITES, action="append", help="all, unless named")
    shell = commands.add_parser("shell", help="open a shell on it")
    shell.add_argument("--user", default="root", help="root, rtsched, alice, bob, carol, dave")
    run = commands.add_parser("run", help="run a command on it")
    run.add_argument("--user", default="root")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    options = parser.parse_args()
    cause = unavailable()
    if cause:
        print(f"{ME}: no cluster can run on this machine: {cause}", file=sys.stderr)
        return 3
    try:
        return int(globals()[f"_{options.command}"](options) or 0)
    except TestbedError as error:
        print(f"{ME}: {error}", file=sys.stderr)
        return 1


def _up(options: argparse.Namespace) -> None:
    found = _find(options.name)
    if found is not None:
        print(f"A cluster of {found.suite} is up already; `{ME} down` ends it.")
        return
    began = time.monotonic()
    if options.slurm_source is not None and options.system != "slurm":
        raise TestbedError("--slurm-source is for --system slurm")
    cluster = _made(options)
    cluster.start()
    _note(cluster, options.name)
    if not (options.bare or options.without_daemon):
        config = options.config.read_text() if options.config else None
        try:
            cluster.start_daemon(config or SITE_TOML.format(system=options.system))
        except TestbedError as error:
            print(f"The daemon did not start; the cluster is up without it.\n{error}")
    hints = {
        f"{ME} shell --user alice": "a shell on it, as alice (also bob, carol, dave)",
        f"{ME} run -- {ASK[options.system]}": "one command, as root",
        f"{ME} down": "end it",
    }
    print(
        f"A cluster of {options.suite} is up after {time.monotonic() - began:.0f} s.",
        *(f"  {words:<45}{meaning}" for words, meaning in hints.items()),
        f"Its files: {cluster.path('/')}",
        sep="\n",
    )


def _made(options: argparse.Namespace) -> Box:
    bare, more = options.bare, {"detached": True, "tools": options.tools}
    if options.system == "slurm":
        slurm = SlurmOptions() if bare else SlurmOptions(job_submit=("rtsched",))
        return Cluster(options.suite, slurm, source=options.slurm_source, **more)
    pool = PoolOptions() if bare else PoolOptions(library=True, config=fragments())
    return Pool(options.suite, pool, **more)


def _down(options: argparse.Namespace) -> None:
    found = _find(options.name)
    if found is None:
        print("No cluster is up.")
    else:
        found.close()
        print("The cluster is down.")
    _state(options.name).unlink(missing_ok=True)


def _status(options: argparse.Namespace) -> int:
    found = _find(options.name)
    print("No cluster is up." if found is None else f"A cluster of {found.suite} is up.")
    return int(found is None)


def _build(options: argparse.Namespace) -> None:
    stacks = {"slurm": images.stack, "condor": condor_images.stack}
    for system in options.system or ASK:
        for suite in options.suite or SUITES:
            began = time.monotonic()
            stacks[system](suite).ready()
            spent = time.monotonic() - began
            print(f"{system} of {suite}: ready after {spent:.0f} s, in {cache()}")


def _shell(options: argparse.Namespace) -> None:
    words, variables = _present(options.name).box.entry(options.user)
    variables["TERM"] = os.environ.get("TERM", "dumb")
    os.execvpe(words[0], [*words, "bash"], variables)  # noqa: S606 # a shell is what is asked for


def _run(options: argparse.Namespace) -> None:
    words, variables = _present(options.name).box.entry(options.user)
    command = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not command:
        raise TestbedError(f"no command: {ME} run -- hostname")
    os.execvpe(words[0], [*words, *command], variables)  # noqa: S606 # the caller's own command


def _state(name: str) -> Path:
    return cache() / f"cluster-{name}.json"


def _note(cluster: Box, name: str) -> None:
    pid, kind = cluster.box.pid, type(cluster).__name__
    facts = {"pid": pid, "started": _started(pid), "kind": kind, "suite": cluster.suite}
    _state(name).write_text(json.dumps(facts) + "\n")


def _find(name: str) -> Box | None:
    try:
        facts = json.loads(_state(name).read_text())
    except FileNotFoundError:
        return None
    if _started(facts["pid"]) != facts["started"]:
        return None
    kind = Pool if facts["kind"] == "Pool" else Cluster
    return kind.attach(facts["pid"], facts["suite"])


def _present(name: str) -> Box:
    found = _find(name)
    if found is None:
        raise TestbedError(f"no cluster is up: {ME} up")
    return found


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks: process ids are used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


if __name__ == "__main__":
    sys.exit(main())

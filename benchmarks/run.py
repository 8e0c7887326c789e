"""Measure rtsched against its targets, beside its peers: one command, one core.

    python benchmarks/run.py [--trace FILE.swf[.gz]]... [--jobs N] [--quick] [--json FILE]

Five parts: whole-process replay, reading, deadline admission, the policies' questions and replays,
growth. Every measured process is bound to one core. The exit status is 1 if a schedule differs from
the bare loop's, a promise would be broken or a plug-in fails; speed alone never fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reading
import traces
from measuring import machine, run_alone, script
from replaying import PLUGGED, TARGET, TARGET_MB, compare
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTS = ("replay", "reading", "admission", "policies", "growth")
OFFER_TARGET_MS = 40.0
TEST_TARGET_MS = {1_000: 1.0, 10_000: 20.0}
"""99th percentile of one admission test, by the number of waiting promised tasks."""


class Benchmark:
    """What is measured, with which options, and what was found."""

    def __init__(self, given: argparse.Namespace, out: Console) -> None:
        self.given, self.out = given, out
        self.quick: bool = given.quick
        self.found: dict[str, Any] = {"machine": machine()}
        self.failures: list[str] = []

    def run(self, parts: Iterable[str]) -> None:
        """Measure and show some of the parts."""
        about = self.found["machine"]
        self.out.print(
            f"{about['cpu']}, {about['cores']} cores, one used; Python {about['python']}; "
            f"load average {about['load_average']} at the start"
        )
        with tempfile.TemporaryDirectory(prefix="rtsched-benchmark-") as directory:
            for part in parts:
                getattr(self, f"_{part}")(Path(directory))
        self.found["failures"] = self.failures
        self.found["machine"]["load_average_after"] = machine()["load_average"]

    def _replay(self, directory: Path) -> None:
        """Replay each trace with and without plug-ins, beside the peers."""
        given, quick = self.given, self.quick
        jobs = given.jobs or (5_000 if quick else 1_000_000)
        paths = given.trace or traces.generate(directory, 1_000 if quick else 20_000)
        self.found["replay"] = {}
        for path in paths:
            trace = traces.repeat(path, directory, jobs)
            peer_jobs = 0 if given.no_peer else 500 if quick else 5_000
            result = compare(trace, directory, given.runs or (1 if quick else 3), peer_jobs)
            self.found["replay"][trace.name] = result
            self.failures += [f"{trace.name}: {text}" for text in result["differences"]]
            self._show_replay(trace.name, result)
            trace.path.unlink()

    def _show_replay(self, name: str, result: dict[str, Any]) -> None:
        self.out.print(f"[bold]Whole-process replay of {name}, {result['records']:,} records[/]")
        table = _table(
            "", "jobs", "jobs/s", "range", "jobs/CPU s", "peak MB", "mean wait s", "slowdown",
        )  # fmt: skip
        for label, row in result["contestants"].items():
            if row is None:
                table.add_row(label, "not installed")
                continue
            table.add_row(
                label,
                f"{row['jobs']:,}",
                f"{row['jobs_per_s']:,.0f}",
                f"{row['least_jobs_per_s']:,.0f}-{row['most_jobs_per_s']:,.0f}",
                f"{row['jobs_per_cpu_s']:,.0f}",
                f"{row['peak_mb']:.0f}",
                _digits(row["mean_wait_s"]),
                _digits(row["mean_bounded_slowdown"]),
            )
        self.out.print(table)
        hooks = _table("hook", "plug-in", "calls", "rows", "rows changed")
        for hook, books in result["hooks"].items():
            for plugin, book in books.items():
                cells = (f"{book[key]:,}" for key in ("calls", "judged", "changed"))
                hooks.add_row(hook, plugin, *cells)
        self.out.print(hooks)
        plugged = result["contestants"][PLUGGED]
        speed, memory = plugged["jobs_per_s"], plugged["peak_mb"]
        if not self.quick:
            self.out.print(f"at least {TARGET:,} jobs/s: {_verdict(speed >= TARGET)}; ", end="")
            self.out.print(f"at most {TARGET_MB} MB: {_verdict(memory <= TARGET_MB)}")
        same = _verdict(not result["differences"])
        self.out.print(f"waits and slowdowns as those of the bare loop: {same}\n")

    def _reading(self, directory: Path) -> None:
        """Read generated logs of each format."""
        lines = 10_000 if self.quick else 1_000_000
        self.out.print(f"[bold]Reading logs of {lines:,} lines[/]")
        table = _table("format", "lines/s", "first", "peak MB", "")
        self.found["reading"] = {}
        for kind, write in sorted(reading.WRITERS.items()):
            path = directory / f"log.{kind}"
            write(path, lines)
            command = script("reading.py", "--measure", path)
            if not self.quick:
                run_alone(command)  # compiles what is not compiled yet
            row = json.loads(run_alone(command).output)
            path.unlink()
            self.found["reading"][kind] = row
            wanted = reading.WANTED[kind]
            good = _verdict(row["again"] >= wanted)
            verdict = "" if self.quick else f"at least {wanted:,}: {good}"
            speeds = (f"{row[key]:,.0f}" for key in ("again", "first"))
            table.add_row(kind, *speeds, f"{row['peak_mb']:.0f}", verdict)
        self.out.print(table)
        self.out.print()

    def _admission(self, _directory: Path) -> None:
        """Test newcomers against promised tasks that wait, and make counter-offers."""
        if self.quick:
            sizes = "--waiting 100 --nodes 1000 --tests 30 --offers 5"
        else:
            sizes = "--waiting 1000 --waiting 10000 --tests 500"
        rows = json.loads(run_alone(script("admission.py", "--json", *sizes.split())).output)
        self.found["admission"] = rows
        for row in rows:
            self._show_admission(row)
            if not row["promises_kept"]:
                self.failures.append(f"{row['waiting']:,} waiting: a promise would be broken")

    def _show_admission(self, row: dict[str, Any]) -> None:
        test = TEST_TARGET_MS.get(row["waiting"])
        wanted = {"plugin": test, "plugin_anew": test, "kernel": test, "kernel_prepared": test}
        wanted |= {"offer": OFFER_TARGET_MS, "offer_kernel": OFFER_TARGET_MS}
        names = {
            "plugin": "test by the plug-in, through the chain",
            "plugin_anew": "the first one after a promise",
            "kernel": "test by the kernel",
            "kernel_prepared": "test by the kernel, state prepared before",
            "offer": "test and counter-offer by the plug-in",
            "offer_kernel": "counter-offer by the kernel, state prepared before",
        }
        self.out.print(
            f"[bold]Admission: {row['waiting']:,} promised tasks wait, {row['nodes']:,} nodes[/]"
        )
        table = _table(
            "", "p50 ms", "p99 ms", "worst ms", "p99 CPU ms", "",
        )  # fmt: skip
        for key, label in names.items():
            if key in row:
                took, limit = row[key], wanted[key]
                keys = ("p50_ms", "p99_ms", "worst_ms", "cpu_p99_ms")
                verdict = ""
                if limit is not None:
                    verdict = f"p99 at most {limit:g} ms: {_verdict(took['p99_ms'] <= limit)}"
                table.add_row(label, *(f"{took[k]:.2f}" for k in keys), verdict)
        self.out.print(table)
        kept = _verdict(row["promises_kept"])
        self.out.print(f"{row['admitted']} of {row['tests']} newcomers admitted; ", end="")
        self.out.print(f"all waiting tasks stay admitted: {kept}\n")

    def _policies(self, _directory: Path) -> None:
        """Put each policy its question, and replay a busy trace under each."""
        quick = ["--quick"] if self.quick else []
        answers = json.loads(run_alone(script("policies.py", "--json", *quick)).output)
        for answer in answers.values():
            self._show_answer(answer)
        trace = ["--trace", self.given.trace[0]] if self.given.trace else []
        command = script("batch.py", "--json", *quick, *trace)
        replays = json.loads(run_alone(command).output)
        self._show_replays(replays)
        self.found["policies"] = {"questions": answers, "replays": replays}
        for policy, row in replays.items():
            if row and row["errors"]:
                self.failures.append(f"{policy}: a plug-in failed {row['errors']} times")

    def _show_answer(self, answer: dict[str, Any]) -> None:
        self.out.print(f"[bold]{answer['title']}[/]")
        table = _table(
            "", answer["axis"], "p50 ms", "p99 ms", "p50 CPU ms", "p99 CPU ms", "growth", "p99 CPU",
        )  # fmt: skip
        for label, by_size in answer["ways"].items():
            for size, took in by_size.items():
                keys = ("p50_ms", "p99_ms", "cpu_p50_ms", "cpu_p99_ms")
                limit = answer["wanted"].get(label)
                at_target = limit is not None and int(size) == answer["wanted_size"]
                table.add_row(
                    label if size == next(iter(by_size)) else "",
                    f"{int(size):,}",
                    *(f"{took[key]:.2f}" for key in keys),
                    f"{answer['growth'].get(label, 1.0):.2f}" if len(by_size) > 1 else "",
                    _reached(limit / took["cpu_p99_ms"], f"{limit:g} ms") if at_target else "",
                )
        self.out.print(table)
        peaks = ", ".join(f"{int(n):,}: {mb:.0f}" for n, mb in answer["peak_mb"].items())
        self.out.print(f"peak MB of the process, by {answer['axis']}: {peaks}\n")

    def _show_replays(self, replays: dict[str, Any]) -> None:
        self.out.print("[bold]Replay in the batch setting, without reading and measuring[/]")
        table = _table(
            "", "jobs", "mean queue", "jobs/s", "jobs/CPU s", "peak MB", "jobs/CPU s wanted",
        )  # fmt: skip
        for policy, row in replays.items():
            if row is None:
                table.add_row(policy, "not installed")
                continue
            wanted = row["wanted_jobs_per_s"]
            table.add_row(
                policy,
                f"{row['jobs']:,}",
                f"{row['mean_queue']:.1f}",
                f"{row['jobs_per_s']:,.0f}",
                f"{row['jobs_per_cpu_s']:,.0f}",
                f"{row['peak_mb']:.0f}",
                _reached(row["jobs_per_cpu_s"] / wanted, f"{wanted:,}"),
            )
        self.out.print(table)
        self.out.print()

    def _growth(self, directory: Path) -> None:
        """Grow the work and fit the cost."""
        words = ["--json", "--plot", self.given.plot or directory / "growth.svg"]
        words += ["--quick"] if self.quick else []
        studies = json.loads(run_alone(script("growth.py", *words)).output)
        self.found["growth"] = studies
        for study in studies:
            self.out.print(f"[bold]{study['title']}[/]: {study['held']}")
            table = _table(study["axis"])
            for curve in study["curves"]:
                table.add_column(f"{curve['name']}, s", justify="right")
            for number, size in enumerate(study["curves"][0]["size"]):
                costs = (f"{curve['seconds'][number]:.4g}" for curve in study["curves"])
                table.add_row(f"{size:,.0f}", *costs)
            table.add_section()
            table.add_row("exponent", *(f"{value:.2f}" for value in study["exponents"]))
            self.out.print(table)
        self.out.print()


def _table(*columns: str) -> Table:
    table = Table()
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number and name else "left")
    return table


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _verdict(good: bool) -> str:
    return "[green]yes[/]" if good else "[red]no[/]"


def _reached(part: float, wanted: str) -> str:
    """Say whether what is wanted was reached, or by what factor not."""
    return f"{wanted}: [green]yes[/]" if part >= 1 else f"{wanted}: [red]missed {1 / part:.3f}x[/]"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--trace",
        type=Path,
        action="append",
        metavar="FILE",
        help="an SWF log to replay; repeatable. Default: generated ones",
    )
    parser.add_argument("--jobs", type=int, help="repeat traces to this many (1,000,000)")
    parser.add_argument("--runs", type=int, help="runs of each whole process (3)")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it all work?")
    parser.add_argument("--no-peer", action="store_true", help="do not install and run AccaSim")
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="measure only this; repeatable"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="where to keep the plot of the growth"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here too")
    given = parser.parse_args()
    out = Console(width=None if sys.stdout.isatty() else 110)
    benchmark = Benchmark(given, out)
    benchmark.run(given.part or PARTS)
    if given.json:
        given.json.write_text(json.dumps(benchmark.found, indent=2) + "\n")
    for failure in benchmark.failures:
        out.print(f"[red]failed[/] {failure}")
    return 1 if benchmark.failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Change policies and reproductions in one place at a time, and see whether a reproduction notices.

    python tools/mutations.py                    all of them, on all cores: hours
    python tools/mutations.py psts spare         those of two reproductions
    python tools/mutations.py --list             names only
    python tools/mutations.py --named NAMES      those named in a file, one a line ('#': comment)

Each number of a policy's files is changed, and each number and operator of a reproduction's, but
for tables of printed values, plots and type annotations. A change is made in a copy of the module,
which one process sees; no file is written. A small reproduction then runs, in plain Python if a
kernel was changed.

A change is *noticed* if a verdict of the reproduction changes, or if it fails or does not end;
*seen in values* if only computed values change, which `tests/replay/test_mutations.py` keeps; *not
run* if the reproduction does not come by it; else it *survives*. The exit status is 1 if any
survives.

    python tools/mutations.py --values           the outcomes without any change, as JSON
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.util
import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType

TOP = Path(__file__).resolve().parents[1]
ROOTS = (TOP, TOP / "plugins")


class Target(NamedTuple):
    """A reproduction, the modules whose changes it should notice, and how much of it is run."""

    policy: tuple[str, ...]
    formulas: tuple[str, ...]
    extent: dict[str, Any]
    """Parameters of its reduced extent that are replaced."""

    @property
    def modules(self) -> tuple[str, ...]:
        """Both kinds."""
        return self.policy + self.formulas


TARGETS = {
    "psts": Target(
        (
            "rtsched_plugins.kernels.scans",
            "rtsched_plugins.kernels.scan_grid",
        ),
        ("rtsched_reproductions.psts",),
        {"seeds": 5, "tasks": 100},
    ),
    "spare": Target(
        (
            "rtsched.kernels.edf",
            "rtsched_plugins.kernels.spare",
        ),
        ("rtsched_reproductions.spare",),
        {"seeds": 5, "jobs": 12, "sets": 100},
    ),
    "ste": Target(
        ("rtsched.kernels.sliced", "rtsched.simulator.sliced"),
        ("rtsched_reproductions.ste",),
        {"seeds": 4, "arrivals": 2000},
    ),
    "mcdf": Target(
        (
            "rtsched.kernels.dlt",
            "rtsched_plugins.kernels.admission",
            *(
                f"rtsched_plugins.kernels.admission_{name}"
                for name in ("by_cost", "events", "in_orders", "of_rows")
            ),
        ),
        ("rtsched_reproductions.mcdf",),
        {"seeds": 2, "jobs": 50, "rows": 2},
    ),
    "sed": Target(
        (
            "rtsched_plugins.sed",
            "rtsched_plugins.mapping",
            "rtsched_plugins.kernels.delay_classes",
            "rtsched.kernels.delays",
        ),
        (
            "rtsched_reproductions.sed",
            "rtsched_reproductions.sed_runs",
        ),
        {"seeds": 2, "jobs": 50, "saturated": 40},
    ),
    "portfolio": Target(
        (),
        ("rtsched_reproductions.portfolio",),
        {"jobs": 100, "rows": 1},
    ),
}

PRINTED = {
    *("PRINTED", "EXPECTED", "RATIOS", "TABLES", "STATES", "CROSSINGS", "COMPLETIONS"),
    *("LINE_POINTS", "BEST_POINTS", "ARRIVAL_POINTS", "LEAST_STEPS", "FINAL", "HALF_DIGITS"),
}
"""Tables of printed values: what is compared with, not a formula."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "argmin": "argmax",
    "argmax": "argmin",
    "mean": "sum",
    "ceil": "floor",
    "floor": "ceil",
    "cumsum": "cumprod",
}
"""Functions that are exchanged, where a module itself or numpy has them."""

COMPOUND = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.If, ast.With)

TINY = 1e-5
"""Below this a number is taken for a tolerance, and made much larger."""


@dataclass(frozen=True)
class Mutant:
    """One change: the module, and the place in it."""

    study: str
    module: str
    name: str
    at: int
    """Which of the module's nodes, in the order of `ast.walk`, and ..."""
    part: int
    """... which operator of it, for a comparison with several."""
    lines: range
    """The lines of its statement, or of the head of one that holds others."""

    def tree(self) -> ast.Module:
        """Return the module with the change."""
        tree = _parsed(self.module)
        node = list(ast.walk(tree))[self.at]
        _change(node, self.part)
        return ast.fix_missing_locations(tree)


def path_of(module: str) -> Path:
    """Return the file of a module."""
    parts = module.split(".")
    return next(
        path for root in ROOTS if (path := root.joinpath(*parts).with_suffix(".py")).exists()
    )


def compiles(module: str) -> bool:
    """Return whether a module has kernels, or stands among them: what is compiled is not seen."""
    path = path_of(module)
    return path.parent.name == "kernels" or "@compiled" in path.read_text("utf-8")


def _parsed(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text("utf-8"))


def _change(node: ast.AST, part: int) -> None:
    """Change a node in place."""
    if isinstance(node, ast.Constant):
        node.value = _other(node.value)
    elif isinstance(node, ast.Compare):
        node.ops[part] = SWAPS[type(node.ops[part])]()  # type: ignore[call-overload]
    elif isinstance(node, (ast.BinOp, ast.BoolOp)):
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.USub()
    elif isinstance(node, ast.Name):
        node.id = NAMES[node.id]
    elif isinstance(node, ast.Attribute):
        node.attr = NAMES[node.attr]


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return 1.0 if value == 0 else value * (1e4 if abs(value) < TINY else 1.5)


def _parts(node: ast.AST, formulas: bool) -> Iterator[int]:
    """Yield which changes of a node there are."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, (bool, int, float)):
            yield 0
    elif not formulas:
        return
    elif isinstance(node, ast.Compare):
        yield from (k for k, op in enumerate(node.ops) if type(op) in SWAPS)
    elif isinstance(node, (ast.BinOp, ast.BoolOp)):
        if type(node.op) in SWAPS and not _is_text(node):
            yield 0
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub):
            yield 0
    elif (isinstance(node, ast.Name) and node.id in {"min", "max", "any", "all"}) or (
        isinstance(node, ast.Attribute) and node.attr in NAMES
    ):
        yield 0


def _is_text(node: ast.AST) -> bool:
    """Return whether texts are put together, or types."""
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and (part.value is None or isinstance(part.value, str)))
        for part in ast.walk(node)
    )


def _kept(node: ast.AST, extent: dict[str, Any]) -> set[int]:
    """Return the ids of all nodes that are not to be changed: types, plots, extents, tables."""
    kept_names = PRINTED | extent.keys()
    kept: set[int] = set()

    def keep(some: ast.AST | None) -> None:
        if some is not None:
            kept.update(map(id, ast.walk(some)))

    for part in ast.walk(node):
        if isinstance(part, ast.AnnAssign):
            keep(part.annotation)
            replaced = isinstance(part.target, ast.Name) and part.target.id in kept_names
            if replaced or "ClassVar[" in ast.unparse(part.annotation):
                keep(part.value)
        elif isinstance(part, ast.Assign):
            if any(isinstance(to, ast.Name) and to.id in PRINTED for to in part.targets):
                keep(part.value)
        elif isinstance(part, ast.arg):
            keep(part.annotation)
        elif isinstance(part, ast.keyword) and part.arg in {"strict", "frozen", "description"}:
            keep(part)
        elif isinstance(part, ast.ClassDef):
            for each in (*part.keywords, *part.decorator_list):
                keep(each)
        elif isinstance(part, ast.FunctionDef):
            keep(part.returns)
            if part.name.endswith(("_plot", "_figure")) or part.name == "__repr__":
                keep(part)
        elif isinstance(part, ast.JoinedStr):
            keep(part)
        elif isinstance(part, ast.If) and "TYPE_CHECKING" in ast.unparse(part.test):
            for line in part.body:
                keep(line)
    return kept


def mutants_of(study: str) -> list[Mutant]:
    """Return all changes that a reproduction should notice, in the order of the files."""
    target = TARGETS[study]
    found: list[Mutant] = []
    for module in target.modules:
        seen: Counter[str] = Counter()
        tree = _parsed(module)
        kept, home = _kept(tree, target.extent), _homes(tree)
        for at, node in enumerate(ast.walk(tree)):
            if id(node) in kept:
                continue
            for part in _parts(node, module in target.formulas):
                name = f"{module}:{_name(node, part, *home[id(node)])}"
                seen[name] += 1
                name += f" ({seen[name]})" if seen[name] > 1 else ""
                statement = home[id(node)][1]
                last = getattr(statement, "end_lineno", 0) or 0
                lines = range(getattr(statement, "lineno", 0), last + 1)
                found.append(Mutant(study, module, name, at, part, lines))
    return found


def _homes(tree: ast.Module) -> dict[int, tuple[str, ast.AST]]:
    """Return the function and the statement, or a part of it, of each node."""
    homes: dict[int, tuple[str, ast.AST]] = {}

    def visit(node: ast.AST, function: str, statement: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            function = f"{function}.{node.name}" if function else node.name
        if isinstance(node, ast.stmt):
            statement = node
        homes[id(node)] = function, statement
        for child in ast.iter_child_nodes(node):
            inner = statement is node and isinstance(statement, COMPOUND)
            visit(child, function, child if inner else statement)

    visit(tree, "", tree)
    return homes


def _name(node: ast.AST, part: int, function: str, statement: ast.AST) -> str:
    """Return function, what is changed, and the statement that it stands in."""
    other = copy.deepcopy(node)
    _change(other, part)
    line = " ".join(ast.unparse(statement).split())
    return f"{function}: {_short(node)} -> {_short(other)} in {line[:100].strip()}"


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 40 else f"{text[:18]} ... {text[-18:]}"


class _Mutated(SourceFileLoader):
    """Loads a module with its change."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(path_of(mutant.module)))
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Return the changed code; what was compiled to disk is not used."""
        return compile(self.mutant.tree(), self.get_filename(fullname), "exec")


class _Finder:
    """Finds the one module that is changed."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return how to load it, None for all others."""
        if name != self.mutant.module:
            return None
        return importlib.util.spec_from_loader(name, _Mutated(self.mutant))


Outcome = dict[str, Any]
"""`verdicts`: of all values and claims; `values`: computed, remarked rows, claims' evidence;
`lines`: those that were run, by file, and `modules`: what was imported, if asked for."""


def outcome_of(study: str) -> Outcome:
    """Run a reproduction in this process and return what comes of it."""
    import numpy as np
    from msgspec.structs import replace

    from rtsched.reproduce import reproduce, reproductions

    kind = reproductions()[study]
    done = reproduce(kind(), replace(kind.reduced, **TARGETS[study].extent))
    verdicts: list[Any] = []
    values: list[Any] = []
    for sheet in done.findings.sheets:
        verdicts += [[sheet.title, *map(str, row)] for row in sheet.verdicts()]
        for table in (sheet.ours, np.where(sheet.compared(), sheet.bounds(), np.nan)):
            values += [[float(f"{value:.9g}") for value in row] for row in table.tolist()]
        values.append(list(sheet.why))
    for claim in done.findings.claims:
        verdicts.append([claim.text, str(claim.verdict)])
        values.append(re.sub(r"\d\.\d+e-\d+", "0", claim.evidence))
    for plot in done.findings.plots:
        for curve in plot.curves:
            values += [[float(f"{z:.9g}") for z in axis.tolist()] for axis in (curve.x, curve.y)]
    return {"verdicts": verdicts, "values": values}


def _lines_of(study: str) -> dict[str, set[int]]:
    """Return the lines that are run from now on, by file, of what a reproduction should notice."""
    target = TARGETS[study]
    run: dict[str, set[int]] = {str(path_of(module)): set() for module in target.modules}

    events: Counter[Any] = Counter()

    def traced(frame: Any, event: str, _: object) -> Any:
        lines = run.get(frame.f_code.co_filename)
        if lines is None or events[frame.f_code] > ENOUGH:
            return None
        events[frame.f_code] += 1
        if event in {"line", "call"}:
            lines.add(frame.f_lineno)
        return traced

    sys.settrace(traced)
    return run


MEMORY = 4 << 30
"""Bytes that a changed reproduction may take."""

ENOUGH = 20_000
"""Steps of a function after which those of its lines that are ever run have been seen."""

PRELOADED = {"rtsched", "numpy", "numba", "llvmlite", "msgspec", "pluggy", "structlog"}


def _child(pipe: Any, study: str, mutant: Mutant | None, seconds: int, plain: bool) -> None:
    """Send the outcome, or the name of the exception."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    if plain:
        os.environ["RTSCHED_COMPILE"] = "0"
    sys.stderr = sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    run: dict[str, set[int]] = {}
    if mutant is not None:
        _forget(everything=plain or mutant.module.startswith("rtsched."))
        sys.meta_path.insert(0, _Finder(mutant))  # type: ignore[arg-type]
    elif plain or not any(map(compiles, TARGETS[study].modules)):
        run = _lines_of(study)
    try:
        found = outcome_of(study)
        modules = [name for name in sys.modules if name.partition(".")[0] in PRELOADED]
        pipe.send(found | {"lines": run, "modules": modules, "seconds": time.process_time()})
    except BaseException as cause:  # whatever a change leads to
        pipe.send(type(cause).__name__)
    os._exit(0)


def _forget(everything: bool) -> None:
    """Forget what was imported of plug-ins and reproductions, or of all of rtsched."""
    for name in list(sys.modules):
        root = name.partition(".")[0]
        if root in {"rtsched_plugins", "rtsched_reproductions"} or (
            everything and root == "rtsched"
        ):
            del sys.modules[name]


def run_apart(study: str, mutant: Mutant | None, seconds: int, plain: bool) -> Outcome | str:
    """Run a reproduction in a process of its own; return its outcome, or what it failed with.

    It may take so many seconds of processor time: a busy machine lets nothing seem endless.
    """
    ours, theirs = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(
        target=_child, args=(theirs, study, mutant, seconds, plain), daemon=True
    )
    process.start()
    theirs.close()
    try:
        found: Outcome | str = ours.recv()
    except EOFError:
        process.join()
        found = "does not end" if process.exitcode == -signal.SIGXCPU else "died"
    process.kill()
    process.join()
    return found


def same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether values are equal, nan to nan."""
    return json.dumps(one) == json.dumps(other)


KINDS = ("noticed", "seen in values", "not run", "survives")


class Judge:
    """Judges changes of one reproduction against its outcome without any."""

    def __init__(self, study: str) -> None:
        self.outcomes: dict[bool, Outcome] = {}
        self.seconds: dict[bool, int] = {}
        """Without any change, and the most that a change may take; in plain Python, and not."""
        for plain in sorted({False, *map(compiles, TARGETS[study].modules)}):
            outcome = run_apart(study, None, 600, plain)
            if isinstance(outcome, str):
                raise SystemExit(f"{study} without any change: {outcome}")
            self.outcomes[plain] = outcome
            self.seconds[plain] = min(round(3 * outcome["seconds"]) + 10, 120)

    def verdict(self, mutant: Mutant) -> str:
        """Return one of `KINDS`, with what a reproduction failed with."""
        path, plain = path_of(mutant.module), compiles(mutant.module)
        if self.outcomes[max(self.outcomes)]["lines"][str(path)].isdisjoint(mutant.lines):
            return "not run"
        outcome = run_apart(mutant.study, mutant, self.seconds[plain], plain)
        if isinstance(outcome, str):
            return f"noticed ({outcome})"
        if not same(outcome["verdicts"], self.outcomes[plain]["verdicts"]):
            return "noticed"
        if not same(outcome["values"], self.outcomes[plain]["values"]):
            return "seen in values"
        return "survives"


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the changes asked for, and print each with its verdict as it comes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("studies", nargs="*", metavar="NAME", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--named", type=Path, metavar="FILE", help="only those named in this file")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth")
    parser.add_argument("--list", action="store_true", help="print names only")
    parser.add_argument("--values", action="store_true", help="print the outcomes without changes")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    chosen = parser.parse_args(arguments)
    for root in ROOTS:
        sys.path.insert(0, str(root))
    studies = chosen.studies or list(TARGETS)
    if unknown := set(studies) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if chosen.values:
        print(json.dumps({study: outcome_of(study) for study in studies}, indent=1))
        return 0
    mutants = [mutant for study in studies for mutant in mutants_of(study)]
    if chosen.named:
        lines = [line.strip() for line in chosen.named.read_text("utf-8").splitlines()]
        names = {line for line in lines if line and not line.startswith("#")}
        mutants = [mutant for mutant in mutants if mutant.name in names]
        if missing := names - {mutant.name for mutant in mutants}:
            parser.error("no such change (any more):\n" + "\n".join(sorted(missing)))
    mutants = mutants[:: chosen.every]
    if chosen.list:
        print("\n".join(mutant.name for mutant in mutants))
        return 0
    judges = {study: Judge(study) for study in dict.fromkeys(m.study for m in mutants)}
    for judge in judges.values():  # what all need, once before the forks
        for module in judge.outcomes[False]["modules"]:
            importlib.import_module(module)
    count: Counter[tuple[str, str]] = Counter()
    with ThreadPoolExecutor(chosen.workers) as pool:
        for mutant, verdict in zip(
            mutants, pool.map(lambda m: judges[m.study].verdict(m), mutants), strict=True
        ):
            count[mutant.study, verdict.partition(" (")[0]] += 1
            print(f"{verdict}: {mutant.name}", flush=True)
    print()
    for study in judges:
        print(f"{study}: " + ", ".join(f"{count[study, kind]} {kind}" for kind in KINDS))
    return int(any(kind == "survives" for _, kind in count))


if __name__ == "__main__":
    sys.exit(main())

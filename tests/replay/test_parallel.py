"""Policies replayed in parallel, and each once for each value of a setting that it has."""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from test_engine import workload

from rtsched.core.config import PluginTable
from rtsched.errors import (
    ConfigError,
    InputError,
    MissingExtraError,
    OutputError,
    PluginError,
    RtschedError,
    StoreError,
    WorkerError,
)
from rtsched.replay.engine import replay
from rtsched.replay.parallel import LocalWorkers, replay_in_parallel
from rtsched.replay.policies import Policy, Sweep, presets, swept


def silent(policies: Mapping[str, Policy]) -> dict[str, Callable[[float], None]]:
    """Return callbacks that ignore the policies' progress."""
    return dict.fromkeys(policies, lambda _fraction: None)


def test_the_same_runs() -> None:
    """Results, nodes and decisions are those of one process, in the order that was asked for."""
    work = workload(deadlines=0.5)
    policies = {name: presets()[name] for name in ("mcdf", "fcfs", "multifactor")}
    seen = []
    told = {name: lambda fraction, name=name: seen.append((name, fraction)) for name in policies}
    runs = replay_in_parallel(LocalWorkers(work, 2), policies, told)
    assert [run.policy for run in runs] == list(policies)
    for run in runs:
        alone = replay(work, run.policy, policies[run.policy])
        assert run.results.equals(alone.results)
        assert [rows.tolist() for rows in run.node_rows] == [r.tolist() for r in alone.node_rows]
        assert list(run.decisions) == list(alone.decisions)
        assert run.settings == alone.settings
    assert {name for name, _ in seen} == set(policies)
    assert all(0 <= fraction <= 1 for _, fraction in seen)


def test_an_error_is_that_of_the_policy() -> None:
    """What is wrong with one policy is said as by a replay in this process."""
    wrong = Policy(plugin=[PluginTable("no-such-plug-in")])
    policies = {"fcfs": presets()["fcfs"], "wrong": wrong}
    with pytest.raises(ConfigError, match="no plug-in 'no-such-plug-in' is installed") as caught:
        replay_in_parallel(LocalWorkers(workload(), 2), policies, silent(policies))
    with pytest.raises(ConfigError) as alone:
        replay(workload(), "wrong", wrong)
    assert caught.value.problems == alone.value.problems


class Deadly:
    """Kills the process that gets it, as the kernel does when memory runs out."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def test_a_process_that_is_killed() -> None:
    """One sentence, with what may help."""
    policies = {name: presets()[name] for name in ("fcfs", "easy")}
    work: Any = Deadly()
    with pytest.raises(WorkerError, match="was killed; if memory ran out, use fewer --workers"):
        replay_in_parallel(LocalWorkers(work, 2), policies, silent(policies))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Take interrupts as from a terminal: a process in the background may have to ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupted() -> None:
    """The runs that are finished are there; the others are given up."""
    work = workload(100_000, deadlines=1.0)
    policies = {name: presets()[name] for name in ("fcfs", "spare-rf-edf")}
    interrupt = threading.Thread(
        target=lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    )
    told = silent(policies) | {
        "spare-rf-edf": lambda _fraction: None if begun() else interrupt.start()
    }

    def begun() -> bool:
        return interrupt.ident is not None

    runs = replay_in_parallel(LocalWorkers(work, 2), policies, told)
    assert [run.policy for run in runs] in ([], ["fcfs"])


@pytest.mark.parametrize(
    "error",
    [
        RtschedError("a"),
        ConfigError(["a", "b"], "site.toml"),
        InputError("log", "wrong", line=3),
        OutputError("out", "full"),
        PluginError("mcdf", "raised"),
        MissingExtraError("it", "report", "no plotly"),
        StoreError("db", "damaged"),
    ],
)
def test_errors_travel_between_processes(error: RtschedError) -> None:
    """The sentence and the data behind it arrive."""
    there = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(there) is type(error)
    assert str(there) == str(error)
    assert vars(there) == vars(error)


POLICIES = {name: presets()[name] for name in ("easy", "mcdf", "multifactor")}


def sweep(*texts: str) -> list[Sweep]:
    """Return what `--sweep` says, each."""
    return [Sweep.parse(text) for text in texts]


def test_a_policy_has_each_value_of_its_settings() -> None:
    """All combinations, in order; who has none of the tables stays as it is."""
    found = swept(POLICIES, sweep("mcdf.order=deadline, arrival", "mcdf.offer_tests=0,9"))
    assert list(found) == [
        "easy",
        "mcdf+order=deadline+offer_tests=0",
        "mcdf+order=deadline+offer_tests=9",
        "mcdf+order=arrival+offer_tests=0",
        "mcdf+order=arrival+offer_tests=9",
        "multifactor",
    ]
    assert found["easy"] == POLICIES["easy"]
    changed = found["mcdf+order=arrival+offer_tests=9"]
    (table,) = changed.plugin
    assert table.settings == POLICIES["mcdf"].plugin[0].settings | {
        "order": "arrival",
        "offer_tests": 9,
    }
    assert (changed.planner, changed.system) == ("mcdf", POLICIES["mcdf"].system)


def test_the_systems_own_settings() -> None:
    """`system` is a table of all policies; values are those of TOML, or texts."""
    found = swept(POLICIES, sweep("system.depth=0,5", "system.loop=fcfs"))
    assert [(name, policy.system.depth) for name, policy in found.items()] == [
        (f"{name}+depth={depth}+loop=fcfs", depth) for name in POLICIES for depth in (0, 5)
    ]
    assert swept(POLICIES, []) == POLICIES


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("order=1,2", "'order=1,2' is not TABLE.KEY=VALUE,VALUE"),
        ("mcdf.order", "is not TABLE.KEY=VALUE,VALUE"),
        ("mcdf.order=", "is not TABLE.KEY=VALUE,VALUE"),
        ("mcdf.order=a,,b", "is not TABLE.KEY=VALUE,VALUE"),
        ("spare.order=a", "no policy has the plug-in 'spare'; name one of its plug-ins"),
        ("system.dept=1", "policy easy+dept=1: system.dept: unknown setting"),
        ("system.depth=deep", "policy easy+depth=deep: system.depth: expected `int`"),
        ("system.depth=[[[[1", "expected `int`"),
    ],
)
def test_what_is_no_sweep_is_told(text: str, problem: str) -> None:
    """One sentence that names the policy and the setting."""
    with pytest.raises(ConfigError) as caught:
        swept(POLICIES, sweep(text))
    assert problem in str(caught.value)

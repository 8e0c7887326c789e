"""Capabilities: typed, refused by field and plug-in; and what a plug-in prepared."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import rtsched.api
from rtsched.api import (
    Capabilities,
    Chain,
    Member,
    Placement,
    PreparedState,
    Snapshot,
    Verdicts,
    hookimpl,
)
from rtsched.core.capabilities import REPLACED, capabilities_of
from rtsched.core.chain import Stage
from rtsched.core.config import PluginTable
from rtsched.core.plugins import Found, discover
from rtsched.errors import ConfigError, PluginError
from rtsched.testing import check_plugin, make_cluster, make_jobs
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.multifactor import Multifactor
from rtsched_plugins.sed import Sed
from rtsched_plugins.spare import Spare


class Declaring:
    """Declare what the test gives it."""

    given: ClassVar[dict[str, Any]] = {}

    def __init__(self, config: object = None) -> None:
        del config
        self.capabilities = Capabilities(**self.given)


class Plain:
    """Declare nothing."""


def load(plugin: type[Any]) -> Chain:
    """Return a chain of a plug-in, loaded as from a file."""
    found = {"mine": Found("mine", "test", "1", lambda: plugin)}
    return Chain.load([PluginTable("mine")], found=found)


def test_defaults_claim_nothing() -> None:
    """A plug-in without the attribute has no capability."""
    assert Member("plain", Plain()).capabilities == Capabilities()


def test_members_hold_what_is_declared() -> None:
    """By the class or, where settings decide, by the instance."""
    plugin = Spare()
    spare = Member("spare", plugin).capabilities
    assert spare == Capabilities(
        keeps_periodic=True,
        follows_dependencies=True,
        judges_only_deadlines=True,
        plans_resources=True,
        replay_planner=plugin.replay_planner,
    )
    slots = Member("spare", Spare(Spare.Config(form="edf", slot=60.0))).capabilities
    assert (slots.suspends_every, slots.keeps_periodic) == (60.0, True)
    assert not slots.plans_resources
    assert slots.replay_planner is None
    assert Member("sed", Sed(Sed.Config(time_sharing=True))).capabilities.shares_nodes is True
    staggered = Member("mcdf", Mcdf(Mcdf.Config(staggered=True))).capabilities
    assert "staggered" in staggered.replay_only
    assert Member("mcdf", Mcdf(Mcdf.Config(rounds=2))).capabilities.replay_only == ""
    assert Member("mcdf", Mcdf(Mcdf.Config(spare_nodes=2))).capabilities.spare_nodes == 2
    assert Member("m", Multifactor(Multifactor.Config())).capabilities.compiled_policy is not None


def test_classes_are_known_before_they_are_made() -> None:
    """What holds whatever the settings can be listed of installed plug-ins."""
    found = discover()
    assert [name for name in found if found[name].capabilities.keeps_periodic] == ["spare"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("keeps_periodic", "yes"),
        ("keeps_periodic", None),
        ("follows_dependencies", 1),
        ("suspends_every", "60"),
        ("suspends_every", 0.0),
        ("suspends_every", True),
        ("replay_only", None),
        ("spare_nodes", -1),
        ("spare_nodes", True),
        ("shares_nodes", "no"),
        ("static_hooks", {"partition"}),
        ("compiled_policy", {}),
        ("replay_planner", ()),
    ],
)
def test_a_wrong_type_names_plug_in_and_field(
    field: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails when the plug-in is loaded, not when the capability is first needed."""
    monkeypatch.setattr(Declaring, "given", {field: value})
    with pytest.raises(PluginError, match=rf"'mine'.*Capabilities\.{field} must be .*, not"):
        load(Declaring)


def test_an_unknown_one_names_plug_in_and_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error is not silent."""
    monkeypatch.setattr(Declaring, "given", {"keep_periodic": True})
    with pytest.raises(PluginError, match=r"'mine'.*unexpected keyword argument 'keep_periodic'"):
        load(Declaring)


def test_an_unknown_one_of_a_class_is_the_cause_that_it_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing plug-ins goes on; the policy that uses it is refused."""
    metadata = tmp_path / "elsewhere-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[rtsched.plugins]\nmine = capable_mine:Mine\n")
    (tmp_path / "capable_mine.py").write_text(
        "from rtsched.api import Capabilities\n"
        "class Mine:\n    capabilities = Capabilities(keep_periodic=True)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"'mine' cannot be imported: .*'keep_periodic'"):
        Chain.load([PluginTable("mine")])
    sys.modules.pop("capable_mine", None)


def test_another_kind_of_value_is_refused() -> None:
    """A dictionary would bring the silent typing errors back."""
    plugin = type("Mine", (), {"capabilities": {"keeps_periodic": True}})()
    with pytest.raises(PluginError, match=r"'mine': `capabilities` must be .*Capabilities\("):
        Member("mine", plugin)


def test_a_misspelt_attribute_is_refused() -> None:
    """The value is there, under a name that nobody reads."""
    plugin = type("Mine", (), {"capabilites": Capabilities(keeps_periodic=True)})()
    with pytest.raises(PluginError, match="'mine': `capabilites` is not read; call it"):
        Member("mine", plugin)


@pytest.mark.parametrize("old", REPLACED)
def test_a_former_attribute_says_what_to_write(old: str) -> None:
    """Rather than lose an ability of a plug-in that was written for an earlier version."""
    plugin = type("Mine", (), {old: True})()
    with pytest.raises(PluginError) as caught:
        Member("mine", plugin)
    assert f"plug-in 'mine': `{old}`: not read any more" in str(caught.value)
    assert f"Capabilities({REPLACED[old]})" in str(caught.value)


def test_names_of_a_declaring_plug_in_are_its_own() -> None:
    """A method may be called like the field that it fills."""

    class Mine:
        def static_hooks(self, *_: object) -> set[str]:
            return set()

        @property
        def capabilities(self) -> Capabilities:
            return Capabilities(static_hooks=self.static_hooks)

    assert capabilities_of("mine", Mine()).static_hooks is not None


@pytest.mark.parametrize("field", ["compiled_hooks", "replay_placer"])
def test_a_field_of_an_earlier_release_says_what_to_write(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than replay by the hooks, many times slower."""
    monkeypatch.setattr(Declaring, "given", {field: None})
    remedy = r"write compiled_policy=\.\.\., see 'Compiled policies' in docs/plugins\.md"
    with pytest.raises(PluginError, match=rf"'mine'.*Capabilities\.{field} is not read.*{remedy}"):
        load(Declaring)


@pytest.mark.parametrize("name", ["CompiledHook", "RowTest", "places_rows"])
def test_a_name_of_an_earlier_release_says_what_to_write(name: str) -> None:
    """Where it is imported."""
    with pytest.raises(ImportError, match=rf"{name} is not there any more; write compiled_policy"):
        getattr(rtsched.api, name)


def test_static_hooks_name_hooks() -> None:
    """A name that is none would leave the hook dynamic, without a word."""

    class Mine:
        capabilities = Capabilities(static_hooks=lambda _jobs, _cluster: {"partitions"})

        @hookimpl
        def rtsched_partition(self, jobs: Any, snapshot: Any) -> Placement | None:
            del jobs, snapshot

    chain = Chain([Member("mine", Mine())])
    with pytest.raises(PluginError, match="'mine': static_hooks names 'partitions'; hooks are"):
        chain.mark_static(make_jobs(1), make_cluster(1))


def total(values: list[float]) -> float:
    """Return the sum."""
    return sum(values)


def shifted(values: list[float], by: float) -> list[float]:
    """Return the values, moved."""
    return [value + by for value in values]


def test_a_result_is_kept_while_its_arguments_are_the_same_objects() -> None:
    """An equal list is another list; an equal number is the same."""
    prepared, values = PreparedState(), [1.0, 2.0]
    first = prepared.get(shifted, values, 1000.0)
    assert first == [1001.0, 1002.0]
    assert prepared.get(shifted, values, 2000.0 / 2) is first
    assert prepared.get(shifted, list(values), 1000.0) is not first


def test_the_last_two_results_are_kept() -> None:
    """A third one takes the place of the older of them, wherever that was asked for again."""
    prepared, values = PreparedState(), [1.0, 2.0]
    first = prepared.get(shifted, values, 1000.0)
    second = prepared.get(shifted, values, 1001.0)
    assert second == [1002.0, 1003.0]
    assert prepared.get(shifted, values, 1000.0) is first
    assert prepared.get(shifted, values, 1002.0) == [1003.0, 1004.0]
    assert prepared.get(shifted, values, 1001.0) is second
    assert prepared.get(shifted, values, 1000.0) is not first


def test_a_result_is_let_go_once_less_than_half_of_what_was_read_is_the_same() -> None:
    """A poll makes other tables: those of the poll before do not stay in memory."""
    prepared, cluster, queue, plan = PreparedState(), [1.0], [2.0], [3.0]

    def get(*reads: object) -> list[float]:
        return prepared.get(shifted, cluster, 1.0, reads=reads)

    first = get(cluster, queue, plan)
    get(cluster, queue, [4.0])
    assert get(cluster, queue, plan) is first
    get(cluster, [5.0], [6.0])
    assert get(cluster, queue, plan) is not first


def test_each_function_has_its_own_result() -> None:
    """One does not push out the other."""
    prepared, values = PreparedState(), [1.0, 2.0]
    first = prepared.get(shifted, values, 1.0)
    assert prepared.get(total, values) == 3.0
    assert prepared.get(shifted, values, 1.0) is first


def test_what_is_read_may_be_less_than_the_arguments() -> None:
    """Only what `reads` names decides."""
    prepared, values = PreparedState(), [1.0, 2.0]
    first = prepared.get(shifted, values, 1.0, reads=(values,))
    assert prepared.get(shifted, values, 2.0, reads=(values,)) is first
    assert prepared.get(shifted, values, 2.0, reads=(values, 2.0)) == [3.0, 4.0]


def test_a_result_may_be_made_from_the_last_one() -> None:
    """Where that cannot be, it is made anew."""
    prepared = PreparedState()
    first = prepared.get(shifted, [1.0], 1.0, after=lambda _last: [0.0])
    assert first == [2.0]
    assert prepared.get(shifted, [1.0], 2.0, after=lambda last: [*last, 3.0]) == [2.0, 3.0]
    assert prepared.get(shifted, [1.0], 3.0, after=lambda _last: None) == [4.0]


class Ranked:
    """Say how often nodes were ranked."""

    def __init__(self, config: object = None) -> None:
        del config
        self.made = 0

    @hookimpl
    def rtsched_admit(self, snapshot: Snapshot, prepared: PreparedState) -> Verdicts | None:
        """Rank the nodes."""
        prepared.get(self.ranking, snapshot.cluster.nodes.speed)
        return None

    def ranking(self, speed: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
        """Return nodes from fast to slow."""
        self.made += 1
        return np.argsort(-speed).tolist()


def test_the_chain_keeps_it_from_one_call_to_the_next() -> None:
    """Also in another chain, made of the same member with another mode."""
    plugin, jobs = Ranked(), make_jobs(1)
    member = Member("ranked", plugin)
    snapshot = Snapshot(0.0, make_cluster(4))
    for now in (0.0, 10.0):
        Chain([member]).admit(jobs, replace(snapshot, now=now))
    Chain([replace(member, mode="shadow")]).admit(jobs, snapshot)
    assert plugin.made == 1
    Chain([member]).admit(jobs, Snapshot(0.0, make_cluster(4)))
    assert plugin.made == 2


class Widest:
    """Let everything in that fits the machine."""

    @hookimpl
    def rtsched_admit(self, jobs: object, cluster: object, prepared: PreparedState) -> None:
        """Have no opinion."""


def test_who_prepares_may_be_static() -> None:
    """What is prepared follows from the other arguments."""
    assert Chain([Member("widest", Widest())]).asks("admit", Stage.STATIC) == ("widest",)


class Stale:
    """Keep more than stands."""

    def __init__(self, config: object = None) -> None:
        del config

    @hookimpl
    def rtsched_admit(
        self, jobs: object, snapshot: Snapshot, prepared: PreparedState
    ) -> Verdicts | None:
        """Hold for as long after the first instant asked about as after this one."""
        first = prepared.get(float, snapshot.now, reads=())
        n = len(jobs)  # type: ignore[arg-type]
        return Verdicts.build(np.full(n, 2, np.int8), retry_at=np.full(n, first + 60.0))


def test_conformance_notices_what_stands_no_longer() -> None:
    """A part that is read and not named shows as another answer."""
    with pytest.raises(AssertionError, match="asked before"):
        check_plugin(Stale, examples=5)

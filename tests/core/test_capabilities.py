"""Capabilities: declared as one typed value, refused by field and plug-in where they are wrong."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from rtsched.api import Capabilities, Chain, Member, hookimpl
from rtsched.core.capabilities import REPLACED, capabilities_of
from rtsched.core.config import PluginTable
from rtsched.core.plugins import Found, discover
from rtsched.errors import ConfigError, PluginError
from rtsched.testing import make_cluster, make_jobs
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.multifactor import Multifactor
from rtsched_plugins.sed import Sed
from rtsched_plugins.spare import Spare

if TYPE_CHECKING:
    from pathlib import Path

    from rtsched.api import Placement


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
    assert Member("m", Multifactor(Multifactor.Config())).capabilities.compiled_hooks is not None


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
        ("compiled_hooks", {}),
        ("replay_placer", ()),
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
        def compiled_hooks(self, *_: object) -> dict[str, Any]:
            return {}

        @property
        def capabilities(self) -> Capabilities:
            return Capabilities(compiled_hooks=self.compiled_hooks)

    assert capabilities_of("mine", Mine()).compiled_hooks is not None


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

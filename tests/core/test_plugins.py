"""Discovery: what is installed is listed, the broken with its cause; settings are typed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from rtsched.core.config import PluginTable
from rtsched.core.plugins import Found, NoSettings, discover, instantiate, settings
from rtsched.errors import ConfigError
from rtsched_plugins.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METADATA = "Metadata-Version: 2.1\nName: elsewhere\nVersion: 4.5\n"
POINTS = """[rtsched.plugins]
sound = elsewhere_plugins:Sound
missing = elsewhere_plugins:Missing
broken = elsewhere_broken:Broken
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a distribution with a sound plug-in, a missing one, and one that fails to import."""
    metadata = tmp_path / "elsewhere-4.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(METADATA)
    (metadata / "entry_points.txt").write_text(POINTS)
    (tmp_path / "elsewhere_plugins.py").write_text(
        'class Sound:\n    """Say nothing.\n\n    At length.\n    """\n'
        "    def __init__(self, config):\n        self.config = config\n"
        "    def rtsched_admit(self, jobs): ...\n    def other(self): ...\n"
    )
    (tmp_path / "elsewhere_broken.py").write_text('raise RuntimeError("no licence")\n')
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("elsewhere_plugins", "elsewhere_broken"):
        sys.modules.pop(name, None)


def test_built_in_plug_ins_are_found() -> None:
    """They come by the same entry points as anybody's."""
    found = discover()
    assert {"fastest", "limits", "mcdf", "multifactor"} <= set(found)
    assert found["limits"].plugin is Limits
    assert found["limits"].hooks == ("rtsched_admit",)
    assert found["limits"].config is Limits.Config
    assert found["limits"].distribution == "rtsched"


def test_others_are_found_with_their_version(elsewhere: Path) -> None:
    """Distribution, version, hooks, first line of the docstring."""
    sound = discover()["sound"]
    assert (sound.distribution, sound.version, sound.cause) == ("elsewhere", "4.5", "")
    assert sound.hooks == ("rtsched_admit",)
    assert sound.summary == "Say nothing."
    assert sound.config is NoSettings


def test_broken_ones_are_listed_with_their_cause(elsewhere: Path) -> None:
    """Listing never fails; what cannot be imported says why, and has no hooks."""
    found = discover()
    assert found["broken"].plugin is None
    assert found["broken"].cause == "RuntimeError: no licence"
    assert "AttributeError" in found["missing"].cause
    assert found["broken"].hooks == ()
    assert found["broken"].summary == ""


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (PluginTable("nowhere"), "plugin[2].name: no plug-in 'nowhere' is installed"),
        (PluginTable("broken"), "plugin[2].name: 'broken' cannot be imported: RuntimeError"),
        (PluginTable("sound", settings={"x": 1}), "plugin[2].settings.x: unknown setting"),
        (PluginTable("limits", settings={"size": 0}), "plugin[2].settings.size: expected"),
    ],
)
def test_wrong_tables_are_told_with_their_path(
    elsewhere: Path, table: PluginTable, problem: str
) -> None:
    """Not installed, not importable, wrong settings."""
    problems: list[str] = []
    assert settings(table.name, table.settings, discover(), "plugin[2]", problems) is None
    assert problems[0].startswith(problem)
    with pytest.raises(ConfigError):
        instantiate(table, discover(), "plugin[2]")


def test_a_plug_in_is_made_with_its_settings(elsewhere: Path) -> None:
    """The constructor gets its `Config`, or an empty one where it declares none."""
    made: Any = instantiate(PluginTable("limits", settings={"size": 8}), discover())
    assert made.config == Limits.Config(size=8)
    assert instantiate(PluginTable("sound"), discover()).config == NoSettings()


def test_a_name_can_stand_for_a_class_in_tests() -> None:
    """`Found` needs no distribution; chains can be made of classes at hand."""
    found = {"mine": Found("mine", "here", "0", lambda: Limits)}
    assert isinstance(instantiate(PluginTable("mine"), found), Limits)

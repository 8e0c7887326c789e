"""Settings, every mistake in one go with its path; and plug-ins that are found, with theirs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from rtsched.core.config import PluginTable, convert, read_toml, schema
from rtsched.core.plugins import Found, NoSettings, discover, instantiate, settings
from rtsched.errors import ConfigError
from rtsched_plugins.limits import Limits


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table in a table."""

    size: Annotated[int, Meta(gt=0, description="Size.")]
    speed: Annotated[float, Meta(description="Speed.")] = 1.0


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table."""

    mode: Annotated[Literal["on", "off"], Meta(description="Mode.")] = "on"
    limit: Annotated[Annotated[int, Meta(gt=0)] | None, Meta(description="Limit.")] = None
    inner: Annotated[Inner | None, Meta(description="One.")] = None
    many: Annotated[list[Inner], Meta(description="Several.", max_length=2)] = []
    named: Annotated[dict[str, Inner], Meta(description="By name.")] = {}


def problems_of(raw: object, path: str = "plugin[0]") -> list[str]:
    """Return what `convert` finds, and check that it answers None exactly then."""
    problems: list[str] = []
    converted = convert(raw, Outer, path, problems)
    assert (converted is None) == bool(problems)
    return problems


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"mode": "onn"}, "plugin[0].mode: invalid value 'onn'; choose one of: 'on', 'off'"),
        ({"mod": "on"}, "plugin[0].mod: unknown setting; did you mean 'mode'?"),
        ({"zzz": 1}, "plugin[0].zzz: unknown setting; known: mode, limit, inner, many, named"),
        ({"limit": 0}, "plugin[0].limit: expected `int` >= 1"),
        ({"limit": "4"}, "plugin[0].limit: expected `int | null`, got `str`"),
        ({"many": [{"size": 1}, {"size": 0}]}, "plugin[0].many[1].size: expected `int` >= 1"),
        ({"many": [{}]}, "plugin[0].many[0].size: is required"),
        ({"many": [{"size": 1}] * 3}, "plugin[0].many: expected `array` of length <= 2"),
        ({"named": {"x": {"sise": 1}}}, "plugin[0].named.x.size: is required"),
        ({"named": 3}, "plugin[0].named: expected `object`, got `int`"),
        ("on", "plugin[0]: expected `object`, got `str`"),
    ],
)
def test_a_mistake_is_told_with_its_path(raw: object, problem: str) -> None:
    """Path, what is wrong, and what would be right."""
    assert problem in problems_of(raw)


def test_all_mistakes_are_told_at_once() -> None:
    """Nobody wants to fix a file one error at a time."""
    raw = {"mode": 1, "limit": -1, "many": [{"size": "x", "sped": 2}], "named": {"a": {}}}
    paths = [problem.partition(":")[0] for problem in problems_of(raw, "")]
    assert paths == ["mode", "limit", "many[0].sped", "many[0].size", "named.a.size"]


def test_a_right_table_is_converted() -> None:
    """Defaults are filled in; a whole number serves as a float."""
    problems: list[str] = []
    table = convert({"limit": 3, "many": [{"size": 1, "speed": 2}]}, Outer, "x", problems)
    assert problems == []
    assert table == Outer(limit=3, many=[Inner(1, 2.0)])


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["size", "mode", "many", "named", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["mode", "limit", "inner", "many", "named", "x"]), values))
def test_whatever_a_file_holds_is_judged(raw: dict[str, Any]) -> None:
    """Any table is converted or complained of, never a crash."""
    for problem in problems_of(raw):
        assert "\n" not in problem
        assert problem.startswith("plugin[0]")


def test_a_plug_in_table_has_sound_defaults() -> None:
    """A name is enough."""
    problems: list[str] = []
    table = convert({"name": "limits"}, PluginTable, "plugin[0]", problems)
    assert table == PluginTable("limits", "enforce", "abstain", 1.0, {})
    assert convert({"weight": -1}, PluginTable, "plugin[3]", problems) is None
    assert problems == ["plugin[3].name: is required", "plugin[3].weight: expected `float` >= 0.0"]


def test_toml_is_read(tmp_path: Path) -> None:
    """Tables come back as dictionaries."""
    path = tmp_path / "site.toml"
    path.write_text('[[plugin]]\nname = "limits"\n')
    assert read_toml(path) == {"plugin": [{"name": "limits"}]}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"name = \n", r"site\.toml: is not valid TOML: .*line 1"),
        (b"name = '\xff'\n", r"site\.toml: is not valid TOML"),
        (None, r"site\.toml: cannot be read: No such file"),
    ],
)
def test_what_is_no_toml_is_told_with_its_line(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    """Missing, garbled or not text: file and line, no traceback."""
    path = tmp_path / "site.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=complaint) as caught:
        read_toml(path)
    assert caught.value.source == path
    assert caught.value.exit_status == 2


def test_a_schema_is_exported_for_editors() -> None:
    """The same structure gives the JSON schema, descriptions included."""
    exported = schema(Outer)
    fields = exported["$defs"]["Outer"]["properties"]
    assert fields["mode"]["enum"] == ["off", "on"]
    assert fields["mode"]["description"] == "Mode."


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

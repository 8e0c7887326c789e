"""Settings: every mistake in one go, each with its path; TOML errors with their line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from rtsched.core.config import PluginTable, convert, read_toml, schema
from rtsched.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


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

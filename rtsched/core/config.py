"""Settings: TOML to typed structures, every mistake reported with its path, schema export."""

from __future__ import annotations

import tomllib
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from rtsched.descriptions import described
from rtsched.errors import ConfigError
from rtsched.text import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T", bound=msgspec.Struct)

Mode = Literal["off", "shadow", "warn", "enforce"]


class PluginTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[plugin]]` table. The order of the tables is the order of the plug-ins."""

    name: str
    """Name of the plug-in, as `rtsched plugins` lists it."""
    mode: Mode = "enforce"
    """`off`: not loaded. `shadow`: verdicts are recorded and have no effect. `warn`: users see a
    warning, the job is accepted. `enforce`: verdicts take effect."""
    on_error: Literal["abstain", "defer"] = "abstain"
    """The verdict on admission when the plug-in fails. A planner that abstains gives no verdict on
    jobs with a deadline: see design.md."""
    weight: Annotated[float, Meta(ge=0)] = 1.0
    """Weight of its fair-share terms relative to other plug-ins'."""
    settings: dict[str, Any] = {}
    """The plug-in's own settings; see its page."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises
    ------
    ConfigError
        If it cannot be read or is not TOML; the sentence names the line.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as cause:
        raise ConfigError([f"cannot be read: {cause.strerror}"], path) from cause
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise ConfigError([f"is not valid TOML: {cause}"], path) from cause


def read_settings(path: Path, kind: type[T]) -> T:
    """Return the settings in a TOML file of one structure; its `problems()`, if any, count too.

    Raises
    ------
    ConfigError
        Listing every mistake.
    """
    problems: list[str] = []
    settings = convert(read_toml(path), kind, "", problems)
    if settings is not None:
        problems += getattr(settings, "problems", list)()
    if problems or settings is None:
        raise ConfigError(problems, path)
    return settings


def convert(raw: object, kind: type[T], path: str, problems: list[str]) -> T | None:
    """Return `raw` as `kind`, or None after adding every mistake in it to `problems`.

    Parameters
    ----------
    raw : object
        A table as TOML gives it.
    kind : type
        The msgspec structure that describes it.
    path : str
        Where the table stands, to begin each problem with; may be empty.
    problems : list of str
        One sentence per mistake is appended.
    """
    before = len(problems)
    raw = with_tags(raw, kind)
    _collect(raw, kind, path, problems)
    return None if len(problems) > before else msgspec.convert(raw, kind)


class _Tagged(NamedTuple):
    """A union of structures: the table's value of `field` says which."""

    field: str
    kinds: dict[str, type[msgspec.Struct]]


def _tagged(kind: Any) -> _Tagged | None:
    """Return a type as a union of tagged structures, None if it is none."""
    members = get_args(kind) if get_origin(kind) in {Union, UnionType} else ()
    kinds = {
        str(member.__struct_config__.tag): member
        for member in members
        if msgspec.inspect.is_struct_type(member) and member.__struct_config__.tag_field
    }
    if not kinds or len(kinds) < len(members):
        return None
    return _Tagged(members[0].__struct_config__.tag_field, kinds)


def with_tags(raw: Any, kind: Any) -> Any:
    """Return a table in which each union of tagged structures has its tag: by default the first."""
    inner = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if not isinstance(raw, dict):
        return raw
    if (union := _tagged(inner)) is not None:
        return {union.field: next(iter(union.kinds)), **raw}
    if get_origin(inner) is dict:
        return {name: with_tags(value, get_args(inner)[1]) for name, value in raw.items()}
    if msgspec.inspect.is_struct_type(inner):
        hints = get_type_hints(inner, include_extras=True)
        return {name: with_tags(value, hints.get(name)) for name, value in raw.items()}
    return raw


def _collect(raw: object, kind: Any, path: str, problems: list[str], where: str = "") -> None:
    inner = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    union = _tagged(inner)
    if union is not None and isinstance(raw, dict):
        _collect_tagged(raw, union, path, problems)
    elif msgspec.inspect.is_struct_type(inner) and isinstance(raw, dict):
        before = len(problems)
        _collect_fields(raw, inner, f"{path}." if path else "", problems)
        if len(problems) == before:
            _collect_misfit(raw, kind, path, problems)
    elif get_origin(inner) is list and isinstance(raw, list):
        for index, value in enumerate(raw):
            _collect(value, get_args(inner)[0], f"{path}[{index}]", problems)
    elif get_origin(inner) is dict and isinstance(raw, dict):
        for name, value in raw.items():
            _collect(value, get_args(inner)[1], f"{path}.{name}", problems)
    elif get_origin(inner) is Literal:
        if raw not in get_args(inner):
            known = ", ".join(repr(choice) for choice in get_args(inner))
            problems.append(f"{path}: invalid value {raw!r}{where}; choose one of: {known}")
    else:
        _collect_misfit(raw, kind, path, problems)


def _collect_tagged(raw: dict[str, Any], union: _Tagged, path: str, problems: list[str]) -> None:
    """Add the mistakes in a table of a union; what another of its structures has is said so."""
    tag = raw[union.field]
    if tag not in union.kinds:
        _collect(tag, Literal[tuple(union.kinds)], f"{path}.{union.field}", problems)
        return
    kind, before, own = union.kinds[tag], len(problems), dict(raw)
    for other, others in union.kinds.items():
        for name in set(own) & set(others.__struct_encode_fields__):
            if name not in kind.__struct_encode_fields__:
                problems.append(f"{path}.{name}: is a setting of {union.field} {other!r}")
                del own[name]
    del own[union.field]
    where = "" if tag == next(iter(union.kinds)) else f" on {union.field} {tag!r}"
    _collect_fields(own, kind, f"{path}.", problems, where)
    if len(problems) == before:
        _collect_misfit(raw, kind, path, problems)


def _collect_misfit(raw: object, kind: Any, path: str, problems: list[str]) -> None:
    """Add what is wrong with a value, or with a table as a whole whose settings are right each."""
    try:
        msgspec.convert(raw, kind)
    except msgspec.ValidationError as cause:
        problems.append(_misfit(raw, kind, path, str(cause)))


def _misfit(raw: object, kind: Any, path: str, message: str) -> str:
    """Return what is wrong with one value; for a rule in text which forms it has."""
    forms = [each for m in get_args(kind)[1:] if isinstance(m, Meta) for each in m.examples or ()]
    if "matching regex" in message and forms:
        return f"{path}: invalid value {raw!r}; use a form such as {', '.join(forms)}"
    return _sentence(path, message)


def _collect_fields(
    raw: dict[str, Any],
    kind: type[msgspec.Struct],
    prefix: str,
    problems: list[str],
    where: str = "",
) -> None:
    hints = get_type_hints(kind, include_extras=True)
    known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in raw:
        if name not in known:
            hint = did_you_mean(name, known, f"known: {', '.join(known) or 'none'}")
            problems.append(f"{prefix}{name}: unknown setting; {hint}")
    for name, field in known.items():
        if name in raw:
            _collect(raw[name], hints[field.name], f"{prefix}{name}", problems, where)
        elif field.required:
            problems.append(f"{prefix}{name}: is required")


def _sentence(path: str, message: str) -> str:
    """Return msgspec's message with our path in front and its own spliced in."""
    text, _, inner = message.partition(" - at `$")
    inner = inner.rstrip("`") if path else inner.strip("`.")
    return f"{path}{inner}: {text[:1].lower()}{text[1:]}" if path or inner else text


def schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a structure, with the descriptions of its fields."""
    return msgspec.json.schema(described(kind))

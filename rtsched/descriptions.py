"""Descriptions of fields: the text below a field of a structure, for schemas and the reference.

    class Settings(msgspec.Struct):
        retries: Annotated[int, Meta(ge=0)] = 3
        "How often it is tried again."

A `Meta(description=...)` comes first. Sources are read when somebody asks, never at an import.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

K = TypeVar("K", bound=type[msgspec.Struct])


def described(kind: K) -> K:
    """Return a structure; its schemas, and those of the ones within it, describe their fields."""
    _describe(kind)
    return kind


@cache
def _describe(kind: type[msgspec.Struct]) -> None:
    for base in kind.__mro__:
        if base is not msgspec.Struct and msgspec.inspect.is_struct_type(base):
            _annotate(base)
    for hint in get_type_hints(kind).values():
        for inner in structures(hint):
            _describe(inner)


def structures(hint: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the structures in a type."""
    if msgspec.inspect.is_struct_type(hint):
        yield hint
    for part in get_args(hint):
        yield from structures(part)


@cache
def _annotate(kind: type[msgspec.Struct]) -> None:
    """Put the texts below the fields of one class into its annotations."""
    hints = get_type_hints(kind, include_extras=True)
    for name, text in field_texts(kind).items():
        metas = getattr(hints.get(name), "__metadata__", ())
        if name in hints and not any(isinstance(m, Meta) and m.description for m in metas):
            kind.__annotations__[name] = Annotated[hints[name], Meta(description=text)]


def field_texts(kind: type) -> Mapping[str, str]:
    """Return the text below each field of a class, by its name; none without its source."""
    return _texts(kind.__module__).get(kind.__qualname__, {})


@cache
def _texts(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the texts below fields, by class and field, of a module; none without its source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError, KeyError):
        return {}
    return dict(_of_classes(ast.parse(source).body, ""))


def _of_classes(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    for part in body:
        if isinstance(part, ast.ClassDef):
            name = f"{prefix}{part.name}"
            yield name, dict(_of_fields(part.body))
            yield from _of_classes(part.body, f"{name}.")


def _of_fields(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(ast.Constant(str(text))),
            ):
                yield name, " ".join(text.split())

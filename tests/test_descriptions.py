"""Descriptions of fields, from the texts below them."""

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from rtsched.core.config import schema
from rtsched.descriptions import described, field_texts, structures


class Inner(msgspec.Struct):
    """Within another one."""

    depth: int = 0
    """How deep
    it is."""


class Outer(Inner):
    """With one of each kind."""

    count: Annotated[int, Meta(ge=0)] = 1
    """How many."""
    named: Annotated[str, Meta(description="Its own.")] = ""
    """Not this one."""
    bare: float = 0.0
    inner: list[Inner] | None = None
    """What is within."""

    class Deeper(msgspec.Struct):
        """A class in a class."""

        width: int
        """How wide."""


def test_schemas_have_the_texts_below_fields() -> None:
    """Also of inherited fields and of structures within; limits stay, a description comes first."""
    found = schema(Outer)["$defs"]
    fields = found["Outer"]["properties"]
    texts = {name: entry.get("description") for name, entry in fields.items()}
    assert texts == {
        "depth": "How deep it is.",
        "count": "How many.",
        "named": "Its own.",
        "bare": None,
        "inner": "What is within.",
    }
    assert (fields["count"]["minimum"], fields["count"]["default"]) == (0, 1)
    assert found["Inner"]["properties"]["depth"]["description"] == "How deep it is."
    deeper = msgspec.json.schema(described(Outer.Deeper))["$defs"]["Deeper"]["properties"]
    assert deeper["width"]["description"] == "How wide."
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"count": -1}, Outer)


def test_where_there_is_no_source() -> None:
    """Then there are no texts, and nothing fails."""
    made = msgspec.defstruct("Made", [("size", int, 0)], module="nowhere")
    assert field_texts(made) == {}
    assert "description" not in schema(made)["$defs"]["Made"]["properties"]["size"]


def test_structures_in_a_type() -> None:
    """Those of its arguments; what they hold is not looked at."""
    assert list(structures(dict[str, Inner] | list[Outer] | int)) == [Inner, Outer]

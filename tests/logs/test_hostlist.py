"""Node lists folded and expanded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.logs.hostlist import expand, fold


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["head"], "head"),
        (["n7"], "n7"),
        (["slow1", "slow2", "slow3", "fast5", "slow9"], "slow[1-3,9],fast5"),
        (["n09", "n10", "n9"], "n[09-10],n9"),
        (["r1n2", "r1n3", "r2n2"], "r1n[2-3],r2n2"),
        (["s9", "s10", "s11"], "s[9-11]"),
        (["a0", "a1", "b00", "b1"], "a[0-1],b00,b1"),
        (["gpu-a", "gpu-b"], "gpu-a,gpu-b"),
    ],
)
def test_fold(names, text):
    """Names that differ in their last number stand in one bracket."""
    assert fold(names) == text


@given(st.lists(st.from_regex(r"[a-z][a-z0-9.-]{0,5}[0-9]{0,4}", fullmatch=True)))
def test_folding_loses_nothing(names):
    """What is folded expands to the same names, each once."""
    assert sorted(expand(fold(names))) == sorted(set(names))


@pytest.mark.parametrize("text", ["n[1-999999]", "n[1-30][1-30]", "n1,n[2-102]", "n[1-50],m[1-51]"])
def test_no_more_names_than_allowed_are_made(text: str) -> None:
    """A list of 100 nodes and one more."""
    with pytest.raises(ValueError, match="more than 100 nodes"):
        expand(text, 100)
    assert len(expand("n[1-10][1-10]", 100)) == 100


@pytest.mark.parametrize("text", ["n[2-1]", "a,b[9-1][2-4294967295]", "n[1-3,7-5]", "n[-1]", "n[]"])
def test_a_range_that_ends_before_it_begins_is_none(text: str) -> None:
    """As in Slurm; and it hides no other range that is too long to be made."""
    with pytest.raises(ValueError, match="no range of node numbers"):
        expand(text)

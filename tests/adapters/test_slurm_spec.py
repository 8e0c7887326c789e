"""What users say to rtsched in Extra or Comment."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.live import dag_key
from rtsched.adapters.slurm.comments import KEYS, NOTHING, spec_of


def test_a_divisible_load() -> None:
    """Words of ours are found anywhere between white space, in either text."""
    spec = spec_of("please rtsched:sigma=400,cms=1,cps=100\tsoon", "rtsched:setup_link=0.5")
    assert not spec.problem
    assert spec.divisible
    assert spec.numbers == {"sigma": 400.0, "cms": 1.0, "cps": 100.0, "setup_link": 0.5}


def test_a_load_in_rounds() -> None:
    """A job takes its load at once unless it says that it takes it in rounds."""
    assert spec_of("rtsched:sigma=400,cms=1,cps=100").rounds == 1
    assert spec_of("rtsched:sigma=400,cms=1,cps=100,rounds=8").rounds == 8
    assert spec_of("rtsched:sigma=400,cms=1,cps=100,rounds=64").rounds == 64


def test_a_graph_and_its_key() -> None:
    """A graph's key is the same whenever asked for, and another for another user."""
    spec = spec_of("rtsched:dag=night.run_7,message_time=2.5,checkpoint=yes,speedup=none")
    assert spec_of("rtsched:odds=97.5,notify=kept").odds == pytest.approx(0.975)
    assert math.isnan(spec.odds)
    assert spec_of("rtsched:notify=kept+broken").notify == "broken+kept"
    assert (spec.dag, spec.checkpoint, spec.speedup) == ("night.run_7", True, "none")
    assert dag_key("ann", "x") == dag_key("ann", "x") != dag_key("bob", "x")
    assert 0 <= dag_key("ann", "x") < 1 << 63


@pytest.mark.parametrize("text", ["", "nothing", "xrtsched:sigma=1", "rtsched:promise nodes=4"])
def test_texts_without_words(text: str) -> None:
    """Text that only looks like ours says nothing; neither does the daemon's own record."""
    assert spec_of(text) is NOTHING


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rtsched:speed=2", "'speed=2' is unknown"),
        ("rtsched:sigma", "'sigma' is unknown"),
        ("rtsched:sigma=-1,cms=1,cps=1", "sigma='-1' must be a number"),
        ("rtsched:sigma=nan,cms=1,cps=1", "sigma='nan' must be a number"),
        ("rtsched:sigma=1e400,cms=1,cps=1", "sigma='1e400' must be a number"),
        ("rtsched:sigma=0,cms=1,cps=1", "sigma='0' must be above 0"),
        ("rtsched:sigma=1 rtsched:sigma=2", "sigma is given twice"),
        ("rtsched:sigma=1,cms=1", "give all"),
        ("rtsched:setup_node=1", "need sigma"),
        ("rtsched:rounds=2", "rounds need sigma"),
        ("rtsched:sigma=1,cms=1,cps=1,rounds=0", "rounds='0' must be a whole number from 1 to 64"),
        ("rtsched:sigma=1,cms=1,cps=1,rounds=65", "must be a whole number from 1 to 64"),
        ("rtsched:sigma=1,cms=1,cps=1,rounds=2.5", "must be a whole number from 1 to 64"),
        ("rtsched:sigma=1,cms=1,cps=1,rounds=yes", "must be a whole number from 1 to 64"),
        ("rtsched:dag=a/b", "must be 1 to 64 letters"),
        ("rtsched:dag=" + "x" * 65, "must be 1 to 64 letters"),
        ("rtsched:checkpoint=maybe", "must be yes or no"),
        (
            "rtsched:notify=always",
            "must be none, or some of promised, moved",
        ),
        ("rtsched:odds=0", "odds='0' must be a percentage above 0 and below 100"),
        ("rtsched:odds=100", "must be a percentage above 0"),
        ("rtsched:odds=95%", "must be a percentage above 0"),
        ("rtsched:odds=95,odds=90", "odds is given twice"),
        ("rtsched:message_time=1", "needs dag"),
        ("rtsched:dag=a\x07", "control characters"),
        ("rtsched:sigma=1,cms=1,cps=1,speedup=linear", "cannot be combined with"),
    ],
)
def test_mistakes(text: str, says: str) -> None:
    """Each mistake is one clear sentence."""
    problem = spec_of(text).problem
    assert says in problem
    assert problem.startswith("rtsched:")
    assert problem.isprintable()


@given(st.text(), st.text())
def test_any_text(before: str, after: str) -> None:
    """Whatever users write, there is a spec; what is wrong is said in printable words."""
    spec = spec_of(before + " rtsched:" + after)
    assert spec.problem.isprintable()
    assert all(math.isfinite(value) and value >= 0 for value in spec.numbers.values())


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=30), max_size=4))
def test_any_values(pairs: dict[str, str]) -> None:
    """Values of any form are either taken or complained of."""
    text = ",".join(f"{key}={value}" for key, value in pairs.items())
    spec = spec_of(f"rtsched:{text}")
    assert spec.problem or all(key in KEYS for key in spec.numbers)

"""Pages of reproductions state what their values give."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rtsched.reproduce import Tally, Verdict, reproductions

PAGES = Path(__file__).parents[2] / "docs" / "evidence" / "reproductions"
NAMES = sorted(path.stem for path in PAGES.glob("*.json"))


def values_of(name: str) -> Any:
    """Return what was written beside a page."""
    return json.loads((PAGES / f"{name}.json").read_text("utf-8"))


def test_every_published_policy_has_its_page() -> None:
    """`portfolio` has no paper."""
    assert sorted(reproductions().keys() - {"portfolio"}) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_follow_from_the_values(name: str) -> None:
    """From computed and expected values and tolerances alone, whatever remark is beside them."""
    done = values_of(name)
    found = []
    for sheet in done["sheets"]:
        ours, expected, bounds = (
            np.array(sheet[key], np.float64) for key in ("ours", "expected", "tolerance")
        )
        good = Verdict.FITTED if sheet["fitted"] else Verdict.AGREES
        near = np.abs(ours - expected) <= bounds + 1e-12
        verdicts = np.where(near, good, Verdict.DIFFERS)
        compared = np.isfinite(expected)
        assert sheet["verdicts"] == np.where(compared, verdicts, None).tolist(), sheet["title"]
        found += verdicts[compared].tolist()
    assert Tally.of(found)._asdict() == done["values"]
    claims = [Verdict.AGREES if claim["holds"] else Verdict.DIFFERS for claim in done["claims"]]
    assert [claim["verdict"] for claim in done["claims"]] == claims
    assert Tally.of(claims)._asdict() == done["claim_verdicts"]


@pytest.mark.parametrize("name", NAMES)
def test_page_and_index_state_the_counts(name: str) -> None:
    """Of the full run; the list of all pages has them too."""
    done = values_of(name)
    assert done["parameters"] == json.loads(msgspec.json.encode(reproductions()[name].full))
    values, claims = Tally(**done["values"]), Tally(**done["claim_verdicts"])
    page = (PAGES / f"{name}.md").read_text("utf-8")
    for what, tally in (("values", values), ("claims", claims)):
        assert f"| {what} | {tally.agree} | {tally.differ} | {tally.fitted} |" in page
    index = (PAGES / "index.md").read_text("utf-8")
    (row,) = [line for line in index.splitlines() if line.startswith(f"| [{name}]({name}.md)")]
    assert row.replace("**", "").endswith(f"| {values} | {claims} |")
    verdicts = {
        sheet["title"]: [each for row in sheet["verdicts"] for each in row if each]
        for sheet in done["sheets"]
    }
    sheets = [
        f"{title} **{found.count(Verdict.DIFFERS)} of {len(found)}**"
        for title, found in verdicts.items()
        if Verdict.DIFFERS in found
    ]
    texts = [f"**{c['text']}**" for c in done["claims"] if c["verdict"] == Verdict.DIFFERS]
    assert f"| {name} | {'; '.join(sheets)} | {'; '.join(texts)} |" in index.splitlines()

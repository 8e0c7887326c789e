"""The summary: one JSON object of plain types, the same bytes for the same replay."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import report_builders as build

import rtsched
from rtsched.core.chain import HookMetrics
from rtsched.model.log import FinalState
from rtsched.replay.measures import MEASURES
from rtsched.replay.results import PolicyRun, Results
from rtsched.report.summary import ASSUMPTIONS, name_of, named, summarise


def test_the_object_has_log_assumptions_and_policies():
    """Policies stand under their names in the order of the run, measures beside their books."""
    work = build.workload()
    summary = summarise(work, [build.run(work, "mcdf", rejects=0.3), build.run(work)])
    found = json.loads(summary.encode())
    assert list(found) == ["log", "assumptions", "policies"]
    assert list(found["policies"]) == ["mcdf", "fcfs"]
    mcdf = found["policies"]["mcdf"]
    assert set(MEASURES) <= set(mcdf)
    assert mcdf["hooks"]["admit"]["mcdf"]["judged"] == 60
    assert mcdf["hooks"]["fair_share"]["multifactor"]["first_error"] == "ValueError: no"
    assert found["log"]["as_logged"]["mean_wait_s"] > 0
    assert found["log"]["skipped"]["run time is not a number"] == {
        "records": 3,
        "first": "site.swf:17",
    }
    assert found["log"]["promisable"] == {
        "jobs": 60,
        "promisable": 58,
        "share": 58 / 60,
        "others": {"it has no time limit": {"jobs": 2, "first": "job 103"}},
    }
    assert found["assumptions"] == {
        "machine_size": "The log does not describe the machine: 8 processors, the most that its "
        "jobs held at once, are taken.",
        "equal_shares": "All accounts have equal shares, and so have the users in each account.",
    }


def test_every_name_of_an_assumption_has_its_sentence_in_the_code():
    """No name waits for words that rtsched no longer says; each stands for one sentence."""
    sources = [path.read_text() for path in Path(rtsched.__file__).parent.rglob("*.py")]
    code = "\n".join(text for text in sources if "ASSUMPTIONS = {" not in text)
    for name, assumption in ASSUMPTIONS.items():
        assert all(words in code for words in assumption.words), name
    words = [each for assumption in ASSUMPTIONS.values() for each in assumption.words]
    assert [name_of(each) for each in words] == [
        name for name, assumption in ASSUMPTIONS.items() for _ in assumption.words
    ]


def test_names_do_not_depend_on_counts_and_are_told_apart():
    """One job or many, the name is the same; a second sentence of a name gets a number."""
    said = ["Speed factor 2: 1 of 8 nodes (a).", "Speed factor 3: 7 of 8 nodes (b).", "Odd."]
    assert named(said) == dict(zip(["node_speeds", "node_speeds_2", "other"], said, strict=True))
    assert name_of("1 job is taken as moldable: any size") == "moldable_jobs"
    assert name_of("3,000 jobs are taken as moldable: any size") == "moldable_jobs"


def test_a_compiled_hook_is_not_timed():
    """Calls from within the compiled loop take no measured time: null, not 0."""
    work = build.workload()
    hooks = {"observe": {"fair": HookMetrics(60, 60, 60), "asked": HookMetrics(2, 2, 0, 0, 0.5)}}
    hooks["admit"] = {"idle": HookMetrics()}
    summary = summarise(work, [dataclasses.replace(build.run(work), hooks=hooks)], timings=True)
    books = json.loads(summary.encode())["policies"]["fcfs"]["hooks"]
    assert books["observe"]["fair"]["seconds"] is None
    assert (books["observe"]["asked"]["seconds"], books["admit"]["idle"]["seconds"]) == (0.5, 0)


def test_equal_runs_of_unequal_speed_give_equal_bytes():
    """Seconds stand in the summary only where they were asked for, and can be taken out."""
    work = build.workload()
    run = build.run(work, "mcdf", rejects=0.3)
    slow = dataclasses.replace(run, seconds=99.0)
    assert summarise(work, [run]).encode() == summarise(work, [slow]).encode()
    timed = summarise(work, [slow], timings=True)
    assert timed.policies["mcdf"]["seconds"] == 99.0
    assert timed.policies["mcdf"]["hooks"]["admit"]["mcdf"]["seconds"] == 0.25
    assert timed.without_timings().encode() == summarise(work, [run]).encode()


def test_a_setting_named_seconds_is_no_timing():
    """Only the timings go, not what a plug-in calls the same."""
    work = build.workload()
    run = dataclasses.replace(build.run(work), settings={"seconds": 3, "limit": float("inf")})
    kept = summarise(work, [run], timings=True).without_timings()
    assert kept.policies["fcfs"]["settings"] == {"seconds": 3, "limit": None}


def test_nothing_ran_gives_null_and_no_nan():
    """JSON knows neither nan nor infinity."""
    work = build.workload(n=4)
    results = Results.build(4, fate=np.full(4, FinalState.REJECTED, np.int8))
    nowhere = (np.zeros(5, np.int64), np.empty(0, np.int32))
    text = summarise(work, [PolicyRun("none", results, nowhere)]).encode().decode()
    assert json.loads(text)["policies"]["none"]["mean_wait_s"] is None
    assert "NaN" not in text
    assert "Infinity" not in text


def test_texts_that_are_no_unicode_are_written_out():
    """A lone surrogate, as surrogateescape makes it of foreign bytes, cannot break the output."""
    work = dataclasses.replace(build.workload(n=3), sources=("caf\udce9.swf",))
    assert json.loads(summarise(work, []).encode())["log"]["sources"] == ["caf\\udce9.swf"]

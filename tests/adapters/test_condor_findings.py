"""What our files for HTCondor hold, and what is found wrong with an HTCondor."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor import condor_conf
from rtsched.adapters.condor.condor_conf import ACCESS, EXECUTE, SCRIPT, choices, filled, shipped
from rtsched.adapters.condor.requirements import OURS, REQUEST_ATTRIBUTES
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.setup import (
    NEGOTIATOR,
    SCHEDD,
    Setup,
    findings,
    path_of,
    table_problem,
    wanted,
)
from rtsched.adapters.readiness import owner_of

USED = {name: " ".join(words) for name, words in (SCHEDD | NEGOTIATOR).items()}
TRANSFORMS = USED["JOB_TRANSFORM_NAMES"]
PLAIN = Setup(directory=Path("/etc/condor/config.d"))
GOOD = replace(
    PLAIN,
    present=wanted(PLAIN),
    version="25.14.1",
    schedd=USED | {"QUEUE_SUPER_USERS": "root, condor, rtsched"},
    negotiator=USED | {"NEGOTIATOR_CONSIDER_PREEMPTION": "False"},
    started=2e9,
    library_time=1e9,
    library_works=True,
    slots=3,
    groups=("rtsched", "condor"),
    run_owner="rtsched",
)


def test_all_is_good() -> None:
    """Where all is ready nothing is wrong or worth a note."""
    assert {each.state for each in findings(GOOD)} == {"good"}


@pytest.mark.parametrize(
    ("change", "state", "what", "remedy"),
    [
        ({"version": ""}, "wrong", "not installed here", "install condor"),
        ({"present": {}}, "wrong", f"{EXECUTE} does not exist", "install --apply"),
        ({"settings": CondorSettings(overrun_s=5)}, "wrong", f"{ACCESS} does not match", "--apply"),
        ({"library_time": None}, "wrong", "librtsched_classad.so does not exist", "make -C"),
        ({"library_works": False}, "wrong", "HTCondor cannot use", "make -C"),
        ({"started": 5e8}, "note", "newer than the running schedd", "condor_restart"),
        ({"native": False}, "note", "without the ClassAd library", "--library"),
        ({"schedd": None, "silence": "no"}, "wrong", "schedd does not answer: no", "start it"),
        ({"schedd": {}}, "wrong", "JOB_TRANSFORM_NAMES without RtForged", "condor_reconfig"),
        ({"schedd": USED}, "wrong", "QUEUE_SUPER_USERS without rtsched", "condor_config_val -v"),
        (
            {"schedd": GOOD.schedd | {"JOB_TRANSFORM_NAMES": f"A {TRANSFORMS}, B PelicanRetry C"}},
            "note",
            "applies B C in JOB_TRANSFORM_NAMES after RtParallel",
            f"read before {ACCESS}",
        ),
        ({"negotiator": None}, "note", "no negotiator answers", "central manager"),
        ({"negotiator": {}}, "wrong", "NEGOTIATOR_PRE_JOB_RANK without", "condor_reconfig"),
        ({"negotiator": USED}, "note", "may preempt promised jobs", "RtPromise is undefined"),
        (
            {"negotiator": GOOD.negotiator | {"NEGOTIATOR_INTERVAL": "60"}, "interval": "20"},
            "wrong",
            "interval is 60 s, plans assume 20 s: promised jobs may start too late",
            "set NEGOTIATOR_INTERVAL = 60 on this machine too; or start_delay_s",
        ),
        (
            {"negotiator": GOOD.negotiator | {"NEGOTIATOR_INTERVAL": "20"}, "interval": "60"},
            "note",
            "later than necessary",
            "set NEGOTIATOR_INTERVAL = 20",
        ),
        ({"table": "does not exist"}, "note", "/run/rtsched/slots does not exist", "shared file"),
        ({"gateless": ("slot1@a",)}, "wrong", "1 of 3 slots start jobs", EXECUTE),
        ({"slots": 0}, "note", "reports no slots", "start the execute machines"),
        ({"user_exists": False}, "wrong", "the user rtsched does not exist", "useradd"),
        (
            {"known_user": False},
            "wrong",
            "not know the user",
            "runuser -u rtsched -- condor_submit",
        ),
        ({"bindings": "cannot be loaded"}, "wrong", "cannot be loaded", "pip install"),
        ({"run_owner": ""}, "wrong", "/run/rtsched does not exist", "start the daemon"),
        (
            {"schedd_user": "cndr"},
            "wrong",
            "runs as cndr, who may not",
            'filters = ["cndr", "root"]',
        ),
        (
            {"groups": ("rtsched",)},
            "wrong",
            "not in the group condor",
            "usermod -aG condor rtsched",
        ),
        (
            {"submit": {"table": "/x"}},
            "wrong",
            "library reads /x",
            "set table = /run/rtsched/slots",
        ),
        ({"submit": {"tabel": "x"}}, "wrong", "unknown setting 'tabel'", "correct"),
    ],
)
def test_every_finding_has_a_remedy(change, state, what, remedy) -> None:
    """Each thing that can be wrong is told with what to do."""
    found = [each for each in findings(replace(GOOD, **change)) if each.state != "good"]
    assert any(
        each.state == state and what in each.what and remedy in each.remedy for each in found
    ), found
    assert all(each.remedy for each in found)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": CondorSettings(start_delay_s=50)},
        {"interval": "60.0"},
        {"interval": ""},
        {"queue": False},
    ],
)
def test_an_interval_that_does_no_harm(change) -> None:
    """Intervals may differ where plans do not rest on them; what is no number says nothing."""
    negotiator = GOOD.negotiator | {"NEGOTIATOR_INTERVAL": "60"}
    setup = replace(GOOD, negotiator=negotiator, **({"interval": "20"} | change))
    assert {each.state for each in findings(setup)} == {"good"}


def test_a_central_manager() -> None:
    """It needs the library, our file and the table; schedd, daemon and sockets are elsewhere."""
    setup = replace(
        GOOD,
        names=(ACCESS,),
        present={ACCESS: GOOD.present[ACCESS]},
        queue=False,
        schedd=None,
        known_user=False,
        bindings="none",
        run_owner="",
        groups=(),
        submit={"table": "/shared/slots"},
    )
    assert {each.state for each in findings(setup)} == {"good"}
    found = findings(replace(setup, started=5e8, table="does not exist", user_exists=False))
    told = [(each.state, each.what.partition(" ")[2]) for each in found if each.state != "good"]
    assert [state for state, _ in told] == ["note", "wrong", "note"]
    assert "newer than the running negotiator" in told[0][1]
    assert "user rtsched does not exist" in told[1][1]
    assert found[-1].what.startswith("/shared/slots does not exist: no slot is reserved")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "does not exist"),
        ("rtsched-slots 1 1000 60\n", ""),
        ("rtsched-slots 1 900 60\nslot1@a\t1\t-\n", "was written 100 s ago, and holds for 60 s"),
        ("rtsched-slots 1 1100 60\n", "was written -100 s ago, and holds for 60 s"),
        ("rtsched-slots 2 1000 60\n", "is no table"),
        ("rtsched-slots 1 1000\n", "is no table"),
        ("rtsched-slots 1 x 60\n", "is no table"),
        ("", "is no table"),
    ],
)
def test_the_table_is_looked_at_as_the_library_does(tmp_path, text, problem) -> None:
    """A table that is missing, malformed or too old is told; its owner counts too."""
    path = tmp_path / "slots"
    if text is not None:
        path.write_text(text)
    found = table_problem(path, owner_of(tmp_path), 1000.0)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_a_table_of_somebody_elses(tmp_path) -> None:
    """The library takes a table of the daemon's user or root's only."""
    path = tmp_path / "slots"
    path.write_text("rtsched-slots 1 1000 60\n")
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    assert "not to nobody-we-know" in table_problem(path, "nobody-we-know", 1000.0)


def test_an_execute_machine() -> None:
    """It needs its own file, without the library a script too; nothing else is looked at."""
    setup = Setup(directory=Path("/c"), names=(EXECUTE,), version="25.14.1", native=False)
    assert set(wanted(setup)) == {EXECUTE, SCRIPT}
    assert "RTSCHED_NATIVE = False\n" in wanted(setup)[EXECUTE]
    assert path_of(setup, SCRIPT) == Path("/usr/libexec/rtsched/slots.sh")
    assert len(findings(setup)) == 2


def test_choices_follow_the_settings() -> None:
    """What the `[condor]` table says is filled in; what it does not say stays as it was."""
    settings = CondorSettings(
        run_time_s=3600.0, overruns="remove", overrun_s=7.5, completing_s=3, user="me", table="/t"
    )
    setup = replace(PLAIN, settings=settings)
    mine = shipped(EXECUTE).replace("/usr/libexec/rtsched/slots.sh", "/opt/slots.sh")
    texts = wanted(replace(setup, present={EXECUTE: mine}))
    access, execute = choices(texts[ACCESS]), choices(texts[EXECUTE])
    assert access["RTSCHED_RUN_TIME"] == execute["RTSCHED_RUN_TIME"] == "3600"
    assert (access["RTSCHED_OVERRUNS"], access["RTSCHED_OVERRUN"]) == ("remove", "7")
    assert (access["RTSCHED_USER"], execute["RTSCHED_VACATE_TIME"]) == ("me", "3")
    assert (execute["RTSCHED_TABLE"], execute["RTSCHED_SCRIPT"]) == ("/t", "/opt/slots.sh")
    with_fraction = condor_conf.from_settings(CondorSettings(run_time_s=0.5))
    assert with_fraction["RTSCHED_RUN_TIME"] == "0.5"


@pytest.mark.parametrize("name", [ACCESS, EXECUTE])
def test_defaults_agree(name) -> None:
    """Our files as shipped say what the settings' defaults say."""
    assert condor_conf.wanted(name, "", condor_conf.from_settings(CondorSettings())) == shipped(
        name
    )


@given(
    st.dictionaries(
        st.sampled_from(sorted(choices(shipped(EXECUTE)))),
        st.from_regex(r"\w{1,9}", fullmatch=True),
    )
)
def test_filled_and_read_back(values) -> None:
    """Choices that are filled in are read back, and nothing else of the file changes."""
    text = filled(shipped(EXECUTE), values)
    assert choices(text) == choices(shipped(EXECUTE)) | values
    assert filled(text, choices(shipped(EXECUTE))) == shipped(EXECUTE)


def test_a_file_that_is_not_ours() -> None:
    """A file without our first part has no choices, and is left as it is."""
    assert choices("START = True\n") == {}
    assert filled("START = True\n", {"RTSCHED_NATIVE": "x"}) == "START = True\n"


def test_every_attribute_is_protected() -> None:
    """What only rtsched writes is taken out of submissions; it and all wishes are protected."""
    text = shipped(ACCESS)
    assert set(re.findall(r"DELETE (\w+)", text)) == set(OURS)
    frozen = set(re.findall(r"EVALSET (\w+) \(\1 \?:", text))
    assert frozen == set(REQUEST_ATTRIBUTES.values())
    protected = text.split("PROTECTED_JOB_ATTRS = ")[1].split("\n\n")[0]
    assert {*OURS, *REQUEST_ATTRIBUTES.values()} <= set(re.findall(r"\w+", protected))


@pytest.mark.parametrize("name", [ACCESS, EXECUTE])
def test_they_are_read_in_order(name) -> None:
    """Every macro of ours that a file uses is defined in it."""
    text = re.sub(r"#.*", "", shipped(name))
    used = set(re.findall(r"\$\((RTSCHED_\w+)\)", text))
    assert used <= set(re.findall(r"^(RTSCHED_\w+) =", text, re.MULTILINE))


BEGAN, RAN = "JobCurrentStartDate", "JobCurrentStartExecutingDate"


@pytest.mark.parametrize(
    ("said", "over"),
    [
        ({"RtRunTime": 60}, True),
        ({"RtRunTime": 60, "AllowedExecuteDuration": 60}, False),
        ({"RtRunTime": 60, "AllowedJobDuration": 60}, False),
        ({"RtRunTime": 60, "AllowedExecuteDuration": 60, RAN: "time() - 91"}, True),
        ({"RtRunTime": 60, "AllowedExecuteDuration": 60, RAN: "time() - 89"}, False),
        ({"RtRunTime": 60, "AllowedExecuteDuration": 60, RAN: "time() - 999"}, False),
        ({"RtRunTime": 60, "AllowedExecuteDuration": 60, BEGAN: "time() - 3689"}, False),
        ({"RtRunTime": 60, "AllowedExecuteDuration": 60, BEGAN: "time() - 3691"}, True),
        ({"RtRunTime": 60, "AllowedExecuteDuration": 600}, True),
        ({"RtRunTime": 60, "AllowedExecuteDuration": "time() - time() + 60"}, True),
        ({"RtRunTime": 60, "AllowedExecuteDuration": 60, "RtDeadline": 5}, True),
        ({"RtRunTime": 600, "AllowedExecuteDuration": 600, "RtLimit": 60}, True),
        ({}, None),
        ({"RtRunTime": 600}, False),
    ],
)
def test_who_outlives_a_run_time(said, over) -> None:
    """A limit of HTCondor's own counts from when the job runs, or an hour after it got its slot."""
    classads = pytest.importorskip("classad2")
    macros = dict(re.findall(r"^(\w+) = ((?:.*\\\n)*.*)$", shipped(ACCESS), re.MULTILINE))
    text = macros["RTSCHED_OVER"]
    while found := re.search(r"\$\((\w+)\)", text):
        text = text.replace(found[0], macros[found[1]])
    ad = classads.ClassAd({"JobStatus": 2, "JobUniverse": 5})
    ad[BEGAN] = classads.ExprTree("time() - 100")
    for name, value in said.items():
        ad[name] = classads.ExprTree(value) if isinstance(value, str) else value
    ad["Over"] = classads.ExprTree(text.replace("\\\n", " "))
    answer = ad.eval("Over")
    assert answer == (classads.Value.Undefined if over is None else over)


# --- the script -----------------------------------------------------------------------------------


@pytest.fixture
def told(tmp_path):
    """Return what the script tells of a table."""
    if shutil.which("awk") is None:
        pytest.skip("needs awk")
    script = tmp_path / "slots.sh"
    script.write_text(shipped(SCRIPT))

    def run(table: str | None) -> str:
        path = tmp_path / "slots"
        if table is not None:
            path.write_text(table)
        return subprocess.run(
            ["sh", script, path], capture_output=True, text=True, check=True
        ).stdout

    return run


def test_what_the_script_tells(told) -> None:
    """The first start and the most that is kept, the delay, and until when it holds."""
    table = "rtsched-slots 1 1000 60\nslot1@a\t2.5\t2000:1,3000:4\nslot2@a\t1\t-\n"
    assert told(table).split("\n- ")[0].splitlines() == [
        'SlotMergeConstraint = TARGET.RtSlot == "slot1@a"',
        "RtKeptFrom = 2000",
        "RtKeptCpus = 4",
        "RtKeptUntil = 1060",
        "RtDelay = 2.5",
    ]
    assert "RtKeptFrom = 4000000000\nRtKeptCpus = 0\n" in told(table)
    assert told(table).endswith("- slot2@a\n")


@pytest.mark.parametrize("disk", [None, 4096])
def test_what_the_script_tells_of_memory_gpus_and_disk(told, disk: int | None) -> None:
    """They are reported where the table names them; that of an earlier release names no disk."""
    first, last = (
        ("2000:1:512:0", "3000:4:2048:2")
        if disk is None
        else ("2000:1:512:0:7", f"3000:4:2048:2:{disk}")
    )
    table = f"rtsched-slots 1 1000 60\nslot1@a\t1\t{first},{last}\nslot2@a\t1\t-\n"
    first, second = told(table).split("\n- ")[:2]
    assert first.splitlines()[1:] == [
        "RtKeptFrom = 2000",
        "RtKeptCpus = 4",
        "RtKeptUntil = 1060",
        "RtKeptMemory = 2048",
        "RtKeptGpus = 2",
        *([] if disk is None else [f"RtKeptDisk = {disk}"]),
        "RtDelay = 1",
    ]
    assert "RtKeptMemory" not in second


@pytest.mark.parametrize(
    "table",
    [None, "", "rtsched-slots 2 1 1\nslot1@a\t1\t-\n", "rtsched-slots 1 1\nslot1@a\t1\t-\n"],
)
def test_a_table_that_makes_no_sense(told, table) -> None:
    """The script tells nothing of it, and does not fail."""
    assert told(table) == ""


def test_lines_that_make_no_sense(told) -> None:
    """They are left out: no name can become an expression."""
    bad = ['slot1@a" || true\t1\t-', "slot1@a\t1; x\t-", "slot1@a\t1", "\\\t1\t-"]
    assert told("\n".join(["rtsched-slots 1 1 1", *bad, ""])) == ""

"""Requirements of jobs: which slots they match, and what users read where none does."""

import pickle
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from condor_views import NOW, Shown
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.adapters.condor import matching
from rtsched.adapters.condor import system as observers
from rtsched.adapters.condor.facts import CondorFacts
from rtsched.adapters.condor.matching import (
    MachineAd,
    MachineAds,
    SlotRequest,
    condition_in,
    conjuncts_of,
    lasting_attributes,
    names_in,
    wrong_in,
)
from rtsched.adapters.condor.pool import Pool
from rtsched.adapters.condor.queue import DIFFER
from rtsched.adapters.condor.requirements import requirements_of
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.slots import Slot, layout_of, slots_of
from rtsched.adapters.condor.submission import CondorTranslator
from rtsched.adapters.condor.system import Observer
from rtsched.adapters.wire import Tag
from rtsched.logs.classads import Expression, Record
from rtsched.model.jobs import Kind
from rtsched.model.resources import allowed_nodes

pytest.importorskip(
    "htcondor2"
)  # which has MY, TARGET and names without a scope work as in HTCondor
classad2 = pytest.importorskip("classad2")

GB = 1 << 30
SUBMITTED = (
    '(TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX") && (TARGET.Disk >= RequestDisk)'
    " && (TARGET.Memory >= RequestMemory) && (TARGET.HasFileTransfer)"
)
"""What condor_submit writes itself."""
LINUX: Record = {"arch": "X86_64", "opsys": "LINUX", "hasfiletransfer": True}


def condition(written: str, **job: Any) -> str:
    """Return what Requirements say of machines."""
    return condition_in({"requirements": Expression(written), **job})


def matched(written: str, ads: Mapping[str, Record], **job: Any) -> list[bool]:
    """Return which slots Requirements match."""
    found: list[bool] = MachineAds.of(ads).matched(condition(written, **job))[:-1].tolist()
    return found


def by_htcondor(written: str, job: Record, slots: Sequence[Record]) -> list[bool]:
    """Return the same as HTCondor itself matches them."""
    tree = classad2.ExprTree

    def read(ad: Record) -> dict[str, Any]:
        return {
            name: tree(value) if isinstance(value, Expression) else value
            for name, value in ad.items()
        }

    one = classad2.ClassAd(read(job) | {"Requirements": tree(written)})
    return [classad2.ClassAd(read(slot)).matches(one) for slot in slots]


NAMES = ("Aa", "Bb", "Cc")
EXPRESSION = Expression("MY.Aa == 1")
VALUES = st.sampled_from([True, False, 0, 1, 2, 1.5, "x", "X", "y", EXPRESSION])
ADS = st.dictionaries(st.sampled_from([name.lower() for name in NAMES]), VALUES)
REFERENCES = st.sampled_from(
    [f"{scope}{name}" for scope in ("", "MY.", "TARGET.", "my.") for name in NAMES]
)
LITERALS = st.sampled_from(["1", "2", "1.5", "true", '"x"', "undefined"])
ATOMS = st.one_of(
    REFERENCES,
    st.builds(
        "{} {} {}".format,
        REFERENCES,
        st.sampled_from(["==", "!=", "=?=", "=!=", "<", ">="]),
        st.one_of(REFERENCES, LITERALS),
    ),
    st.builds("isUndefined({})".format, REFERENCES),
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({}) && ({})".format, inner, inner),
        st.builds("({}) || ({})".format, inner, inner),
        st.builds("{} && {}".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("(({}) ? ({}) : ({}))".format, inner, inner, inner),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, st.lists(ADS, min_size=1, max_size=3), st.lists(ADS, min_size=1, max_size=5))
@settings(max_examples=400)
def test_every_job_matches_the_slots_that_htcondor_matches(
    written: str, jobs: list[Record], slots: list[Record]
) -> None:
    """Each job on each slot, whatever is undefined; an expression of a slot is of that slot."""
    jobs = [{name: own for name, own in job.items() if own != EXPRESSION} for job in jobs]
    slots = [{"aa": 0} | each if EXPRESSION in each.values() else each for each in slots]
    ads = {f"slot{at}": slot for at, slot in enumerate(slots)}
    for job in jobs:
        assert matched(written, ads, **job) == by_htcondor(written, job, slots)


CHANGING = {"loadavg": (0.0, 1.0), "state": ("Unclaimed", "Claimed"), "keyboardidle": (0, 9000)}
TRUTHS = st.dictionaries(st.sampled_from(["aa", "bb"]), st.sampled_from([True, False, 0, 1, 1.5]))
OF_A_MOMENT = st.sampled_from(
    ["LoadAvg < 0.3", 'State == "Unclaimed"', "TARGET.KeyboardIdle > 600", "Aa", "Bb == 1"]
)
MIXED = st.recursive(
    OF_A_MOMENT,
    lambda inner: st.one_of(
        st.builds("({}) && ({})".format, inner, inner),
        st.builds("({}) || ({})".format, inner, inner),
        st.builds("{} && {} || {}".format, inner, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("ifThenElse({}, {}, {})".format, inner, inner, inner),
    ),
    max_leaves=5,
)


@given(MIXED, st.lists(TRUTHS, min_size=1, max_size=4))
@settings(max_examples=300)
def test_a_machine_that_may_match_at_another_moment_is_not_left_out(
    written: str, slots: list[Record]
) -> None:
    """Whatever its load and its state are now: one of all that they can be is enough."""
    may = np.zeros(len(slots), np.bool_)
    for values in product(*CHANGING.values()):
        now = dict(zip(CHANGING, values, strict=True))
        may |= by_htcondor(written, {}, [slot | now for slot in slots])
    found = matched(written, {f"slot{at}": slot for at, slot in enumerate(slots)})
    assert not (may & ~np.array(found)).any()


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (SUBMITTED, '(Arch == "X86_64") && (OpSys == "LINUX") && (HasFileTransfer)'),
        ("Memory >= RequestMemory", "true"),
        ("(LoadAvg < 0.3 && HasMatlab) || HasOctave", "HasMatlab || HasOctave"),
        ("HasMatlab && (LoadAvg < 0.3 || KeyboardIdle > 600)", "HasMatlab"),
        ("(Cc || Aa && !(LoadAvg > 1)) && Bb", "(Cc || Aa) && Bb"),
        ("LoadAvg < 1 ?: HasMatlab", "true"),
        ("Machine =!= LastRemoteHost && Machine =!= MachineAttrMachine1 && Aa", "Aa"),
        (
            "(TARGET.HasJobDeferral) && ((CurrentTime + ScheddInterval) >= (DeferralTime - 60))",
            "HasJobDeferral",
        ),
        (
            "(TARGET.GPUs >= RequestGPUs) && TARGET.HasSIF"
            " && countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs"
            " && TARGET.GPUs_Capability > 8",  # of those that are free now
            "HasSIF",
        ),
        (
            'stringListIMember("https",TARGET.HasFileTransferPluginMethods) && time() > 5',
            'stringListIMember("https",HasFileTransferPluginMethods)',
        ),
        ('TARGET.Site == "a" && ifThenElse(RtNodeSet is undefined, true, Aa)', 'Site == "a"'),
    ],
)
def test_what_changes_while_jobs_run_is_left_out(written: str, left: str) -> None:
    """What is left is of the machine alone."""
    assert condition(written) == left
    assert wrong_in(left) == ""


@pytest.mark.parametrize(
    ("written", "job", "filled"),
    [
        ("TARGET.Site == MY.Want", {"want": 'a"b\\'}, r'Site == "a\"b\\"'),
        ("Site == Want", {"want": "a"}, 'Site == "a"'),
        ("Level >= Want", {"want": 2.0}, "Level >= 2"),
        ("Level >= Want", {"want": 2.5}, "Level >= 2.5"),
        ("Level >= Want", {"want": True}, "Level >= true"),
        ("Level >= Want", {}, "Level >= Want"),
        ("Level >= MY.Want", {}, "Level >= undefined"),
        ("Level >= Want", {"want": Expression("More * 2"), "more": 3}, "Level >= 6"),
        ("Level >= Want", {"want": Expression("TARGET.Level - 1")}, "Level >= Want"),
        ('"Want" == Want && x[0].Want', {"want": 1}, '"Want" == 1 && x[0].Want'),
        ("Level   is\n 1 && A isnt 2.50", {}, "Level =?= 1 && A =!= 2.5"),
        ("Want(", {"want": 1}, "Want("),
    ],
)
def test_what_the_job_says_is_filled_in(written: str, job: Record, filled: str) -> None:
    """In one form, whoever wrote it: the queue and a submission."""
    assert condition(written, **job) == filled


def test_a_job_without_requirements_asks_nothing() -> None:
    """A number or a truth value is an expression like others."""
    assert condition_in({}) == ""
    assert condition_in({"requirements": True}) == "true"
    assert condition_in({"requirements": "HasMatlab"}) == "HasMatlab"
    assert names_in("TARGET.A == MY.B && Cc && f(D) && RequestMemory > 1") == {"b", "cc", "d"}
    assert conjuncts_of("(A == 1 && (B || C)) && (D)") == ["A == 1", "(B || C)", "D"]
    assert conjuncts_of("(A && B || C)") == ["(A && B || C)"]
    assert conjuncts_of("A && B ? C : D") == ["A && B ? C : D"]


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ("Aa ==", "its requirements (Aa ==) cannot be read"),
        ("userHome(Owner) == 1", "cannot plan with the function userHome in its requirements"),
        ('regexp("(a+)+$", Machine)', "cannot plan with this regexp in its requirements"),
        ('regexp("a*b*c*", Machine)', "cannot plan with this regexp in its requirements"),
        ('regexp("a?a?a?aaa", Machine)', "cannot plan with this regexp in its requirements"),
        ("regexp(Pattern, Machine)", "cannot plan with this regexp in its requirements"),
        ('regexp("a", strcat(Machine, "b"))', "cannot plan with this regexp in its requirements"),
        ('regexpMember("(a+)+$", Names)', "cannot plan with this regexpMember in its requirements"),
        ('stringList_regexpMember("^gpu", Names)', ""),
        ('stringListsIntersect(toUpper(Models), "A,B") && avg(Sizes) > 3', ""),
        ('splitSlotName(Name)[1] != "node1"', ""),
        ('replaceAll("a", Names, "aa") == "b"', "cannot plan with the function replaceAll"),
        ('regexp("^node[0-9]+\\\\.", Machine)', ""),
        ('regexp("^NODE", TARGET.Machine, "i")', ""),
        ("[ b = 1 ].b == 1", "cannot plan with an ad in its requirements"),
        ("size(TARGET) > 1", "cannot plan with TARGET itself in its requirements"),
        ("Aa || " * 2000 + "Bb", "its requirements are longer than 8000 characters"),
        ("(" * 60 + "Aa" + ")" * 60, "its requirements ("),
    ],
)
def test_what_cannot_be_evaluated_is_told(written: str, wrong: str) -> None:
    """It matches nowhere; functions that may take long are among that."""
    asked = condition(written)
    found = wrong_in(asked)
    assert found.startswith(wrong) if wrong else not found
    assert not wrong or matched(written, {"a": {"aa": True, "machine": "aaa"}}) == [False]


WORDS = r"""Aa MY.Bb TARGET is regexp f 1 1e309 . ( ) [ ] { && || ! ? : = == =?= ' " \ - , / % ü"""
PIECES = st.sampled_from([*WORDS.split(), " ", "\n", "\ud800"])
TEXTS = st.one_of(st.text(max_size=30), st.lists(PIECES, max_size=14).map("".join))


@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=500)
def test_whatever_users_write_ends_no_poll(written: str, own: str, machine: str) -> None:
    """What cannot be read matches nowhere; the rest is evaluated."""
    job: Record = {"aa": Expression(own), "bb": own}
    asked = condition(written, **job)
    assert isinstance(wrong_in(asked), str)
    assert conjuncts_of(asked)
    ads = MachineAds.of({"a": {"aa": Expression(machine), "cc": machine}})
    assert ads.matched(asked).tolist()[1:] in ([False], [True])
    words = SlotRequest(asked, own, "/1/5").words
    assert layout_of([Slot("a", "a")], ads).sets[words].shape == (1,)


def test_a_condition_is_evaluated_once_for_each_kind_of_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the attributes to which it refers; another process unpacks the same ads once."""
    asked: list[Any] = []
    holds = matching._holds
    monkeypatch.setattr(matching, "_holds", lambda *words: asked.append(words) or holds(*words))
    ads = MachineAds.of(
        {f"slot1@{at}": LINUX | {"name": f"slot1@{at}", "level": at % 3} for at in range(3000)}
    )
    sent = [pickle.loads(pickle.dumps(ads)) for _ in range(3)]  # noqa: S301 - of this test
    for each in (ads, ads, *sent):
        assert each.matched(f"{condition(SUBMITTED)} && Level > 1")[:-1].sum() == 1000
    assert len(asked) == 2 * 3
    assert sent[0] is sent[2] == ads
    assert ads != MachineAds.of({"slot1@0": LINUX})


def test_what_is_free_now_counts_as_all_there_is() -> None:
    """Of a partitionable slot; what changes is not kept at all."""
    ad: Record = {"partitionableslot": True, "memory": 100, "totalslotmemory": 4000, "cpus": 0}
    ad |= {"totalslotcpus": 8, "state": "Claimed", "loadavg": 3.0, "recentjobstarts": 2}
    ad |= {"totalslotlab": 2, "lab": 0, "hasmatlab": True}
    found = lasting_attributes(ad)
    assert found["memory"] == 4000
    assert (found["cpus"], found["lab"], found["hasmatlab"]) == (8, 2, True)
    assert not {"state", "loadavg", "recentjobstarts"} & found.keys()
    static: Record = {"partitionableslot": False, "memory": 100, "totalslotmemory": 4000}
    assert lasting_attributes(static)["memory"] == 100


# --- planning with them ---------------------------------------------------------------------------

MATLAB = {"a": LINUX | {"hasmatlab": True}, "b": LINUX, "c": LINUX | {"hasmatlab": True}}


def pool(*, shared: bool, rows: int = 1, ads: Mapping[str, Record] = MATLAB) -> Any:
    """Return the layout of three slots, with 2, 4 and 8 CPUs; the last has a class."""
    slots = [
        Slot(
            f"slot1@{name}",
            name,
            "big" if name == "c" else "",
            cpus,
            cpus * GB,
            units=0 if shared or rows < 2 else rows,
            jobs=cpus if shared else 0,
        )
        for name, cpus in zip(ads, (2, 4, 8), strict=True)
    ]
    return layout_of(slots, MachineAds.of({f"slot1@{name}": ad for name, ad in ads.items()}))


def described(layout: Any, **said: Any) -> Any:
    """Return what a submission with these lines means."""
    facts = CondorFacts(margin=30.0, parts=layout.parts, shared=layout.shared, sets=layout.sets)
    lines = {"Owner": '"root"', "RtDeadline": NOW + 9000, "RtRunTime": 60, "JobUniverse": 5}
    text = "".join(f"{name} = {value}\n" for name, value in (lines | said).items())
    return CondorTranslator(CondorSettings()).describe({Tag.AD: text}, facts, NOW)


def requirements(written: str) -> str:
    """Return Requirements as the library sends them."""
    escaped = written.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def rows(layout: Any, found: Any) -> list[int]:
    """Return the rows on which a job may be planned."""
    assert found.problem == ""
    cluster = layout.cluster(np.empty(0, np.int64), 1)
    code, masks = allowed_nodes(found.jobs, cluster)
    whole = [True] * len(cluster)
    return np.flatnonzero(masks[code[0]] if code[0] >= 0 else whole).tolist()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("said", "on"),
    [
        ({"Requirements": requirements(SUBMITTED)}, [0, 1, 2]),
        ({"Requirements": requirements(f"(HasMatlab =?= True) && {SUBMITTED}")}, [0, 2]),
        ({"Requirements": requirements("HasMatlab =!= True")}, [1]),
        ({"Requirements": requirements("HasMatlab"), "RequestCpus": 3}, [2]),
        ({"Requirements": requirements("MY.Want == TARGET.HasMatlab"), "Want": "true"}, [0, 2]),
        ({"Requirements": requirements("HasMatlab"), "RtClass": '"big"'}, [2]),
        ({"RequestCpus": 3}, [1, 2]),
    ],
)
def test_a_job_is_planned_where_its_requirements_match(
    shared: bool, said: dict[str, Any], on: list[int]
) -> None:
    """On slots that are large enough and of its class."""
    layout = pool(shared=shared)
    assert rows(layout, described(layout, **said)) == on


def test_units_of_a_slot_are_alike() -> None:
    """All rows of a partitionable slot match, or none."""
    layout = pool(shared=False, rows=3)
    found = described(layout, Requirements=requirements("HasMatlab"))
    assert rows(layout, found) == [0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("HasOctave && HasMatlab", "no slot meets its requirement HasOctave"),
        (f'{SUBMITTED} && (Arch == "ARM")', 'no slot meets its requirement Arch == "ARM"'),
        (
            f"(HasMatlab =?= False) && {SUBMITTED}",
            "no slot meets its requirement HasMatlab =?= false",
        ),
        ('HasMatlab && Name == "slot1@b"', 'no slot meets its requirement Name == "slot1@b"'),
        (
            "HasMatlab && isUndefined(HasMatlab)",
            "no slot meets all of its requirements (HasMatlab && isUndefined(HasMatlab))",
        ),
        ("f(HasMatlab)", "cannot plan with the function f in its requirements"),
        ("Missing", "no slot meets its requirement Missing"),
        ("Missing =?= undefined", ""),
        ("LoadAvg < 0", ""),
    ],
)
def test_what_no_slot_meets_is_rejected(shared: bool, said: str, problem: str) -> None:
    """The sentence names the condition, if one alone is to blame; undefined is no match."""
    found = described(pool(shared=shared), Requirements=requirements(said))
    assert found.problem == problem


def test_a_slot_must_also_have_what_the_job_requests() -> None:
    """A small one meets them, and a large one of another class."""
    ads = MATLAB | {"c": LINUX}
    asked = {"Requirements": requirements("HasMatlab"), "RequestCpus": 3}
    shown = "meets its requirements (HasMatlab)"
    found = described(pool(shared=False, ads=ads), **asked)
    assert found.problem == f"no slot that has what it requests {shown}"
    found = described(pool(shared=True, ads=ads), **(asked | {"RtClass": '"big"'}))
    assert found.problem == f"no slot of class 'big' that has what it requests {shown}"


def test_a_wide_job_needs_as_many_slots_that_match() -> None:
    """A parallel job, a load, and an array, which is no wider."""
    layout, asked = pool(shared=False), {"Requirements": requirements("HasMatlab")}
    wide = described(layout, **asked, JobUniverse=11, MinHosts=3, MaxHosts=3)
    assert wide.problem == "needs 3 slots at a time, the pool has 2 suitable ones"
    array = {"TotalSubmitProcs": 9, "ProcId": 0, "ClusterId": 5, "WholeCluster": "true"}
    found = described(layout, **asked, **array)
    assert found.jobs.kind.tolist() == [Kind.ARRAY]
    assert found.jobs.size_max.tolist() == [2]
    assert rows(layout, found) == [0, 2]
    load = {"RtSigma": 100, "RtCms": 0.1, "RtCps": 1, "TotalSubmitProcs": 9}
    assert described(layout, **asked, **load).jobs.size_max.tolist() == [2]


def test_requirements_count_for_jobs_with_a_deadline() -> None:
    """Others HTCondor itself starts where they match."""
    layout = pool(shared=False)
    found = described(
        layout, Requirements=requirements("Missing"), RtDeadline="undefined", RtClass='"big"'
    )
    assert found.problem == ""
    assert found.jobs.texts("node_request") == [None]


def test_what_was_promised_stays_so_when_no_slot_matches_any_more() -> None:
    """That is no change of the job; its slots may come back."""
    layout = pool(shared=False)
    facts = CondorFacts(parts=layout.parts, sets=layout.sets)
    ad: Record = {"requirements": "HasOctave", "rtdeadline": NOW, "rtruntime": 60}
    assert requirements_of(ad, facts).problem
    assert requirements_of(ad, facts, fresh=False).problem == ""


def pool_of(slots: Sequence[Record], jobs: Sequence[Record], said: Mapping[str, Record]) -> Shown:
    """Return a pool with slots and jobs, and what its machines say."""
    shown = Shown(slots, jobs)
    shown.shown_machines = machines(said)
    return shown


def machines(said: Mapping[str, Record]) -> dict[str, MachineAd]:
    """Return machines without GPUs that say this."""
    return {name: MachineAd((), dict(ad)) for name, ad in said.items()}


def slot(name: str, start: int = 5) -> Record:
    """Return the ad of a static slot."""
    ad: Record = {"name": name, "machine": name[-1], "state": "Unclaimed", "cpus": 1}
    return ad | {"memory": 512, "daemonstarttime": start, "daemonlastreconfigtime": start}


def job(cluster: int, proc: int = 0, **said: Any) -> Record:
    """Return the ad of a proc that waits and wants a deadline."""
    ad: Record = {"clusterid": cluster, "procid": proc, "jobstatus": 1, "jobuniverse": 5}
    ad |= {"owner": "root", "user": "root@pool", "qdate": int(NOW) - 100, "rtruntime": 600}
    return ad | {"rtdeadline": NOW + 5000} | said


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no time pass but by what a test writes here."""
    now = [NOW]
    monkeypatch.setattr(observers.time, "time", lambda: now[0])
    return now


def test_a_poll_shows_what_jobs_require(clock: list[float]) -> None:
    """As their submissions did; ads are read anew only where startds are, and now and then."""
    written = Expression("(TARGET.Site == MY.Want) && TARGET.Memory >= RequestMemory")
    jobs = [
        job(1, requirements=written, want=Expression("Base"), base="a", requestmemory=5),
        job(2, requirements=written, want="b"),
        {name: one for name, one in job(3).items() if name != "rtdeadline"},
    ]
    shown = pool_of(
        [slot("slot1@a"), slot("slot1@b")],
        jobs,
        {"slot1@a": {"site": "a"}, "slot1@b": {"site": "b"}},
    )
    observer = Observer(CondorSettings(), shown)
    for _ in range(3):
        seen = observer.poll().observation
        texts = seen.queued.texts("node_request")
        part = f"--partition=/1/{512 << 20}"
        assert texts == [
            f'--requirements=Site == "a" {part}',
            f'--requirements=Site == "b" {part}',
            None,
        ]
        masks = [seen.cluster.node_sets[text].tolist() for text in texts[:2] if text]
        assert masks == [[True, False], [False, True]]
    assert len(shown.wanted) == 2 + 2 + 2 * 2  # at first the attributes of jobs must be found
    assert {"want", "base"} <= {*shown.wanted[-1]}
    assert shown.read == [()]
    shown.shown_slots[1] |= {"daemonlastreconfigtime": 9}
    shown.shown_machines = machines({"slot1@b": {"site": "a"}})
    seen = observer.poll().observation
    assert seen.cluster.node_sets[texts[0] or ""].tolist() == [True, True]
    clock[0] += observers.REREAD_S
    again = observer.poll().observation.cluster
    assert shown.read == [(), ("slot1@b",), ()]
    assert again is seen.cluster


@pytest.mark.parametrize("gone", [False, True], ids=["started", "ended"])
def test_a_job_that_starts_within_a_poll_has_not_changed(clock: list[float], gone: bool) -> None:
    """It waited when jobs were read, and not when their Requirements were: it is read again."""
    jobs = [job(1, requirements="HasMatlab"), job(2, requirements="HasMatlab")]
    shown = pool_of([slot("slot1@a")], jobs, {"slot1@a": {"hasmatlab": True}})
    begun = job(1, requirements="HasMatlab", jobstatus=2, remotehost="slot1@a")
    whole, queues = shown.jobs, [jobs, jobs[1:], [] if gone else [begun]]

    def next_queue(constraint: str, attributes: Sequence[str]) -> list[Record]:
        """Return the queue, which changes after the first question."""
        shown.shown_jobs = queues.pop(0)
        return whole(constraint, attributes)

    observer = Observer(CondorSettings(), shown)
    observer.poll()
    shown.jobs = next_queue
    seen = observer.poll().observation
    assert seen.queued.labels() == ["2.0"]
    assert "HasMatlab" in (seen.queued.texts("node_request")[0] or "")
    assert seen.running.labels() == ([] if gone else ["1.0"])
    assert not queues


def test_the_ads_are_those_of_the_slots_in_their_order(clock: list[float]) -> None:
    """Whatever order the collector has; a slot of which nothing is known matches nowhere."""
    shown = pool_of(
        [slot("slot1@c"), slot("slot1@a"), slot("slot1@b")],
        [job(1, requirements="HasMatlab")],
        {"slot1@c": {"hasmatlab": True}, "slot1@a": {}},
    )
    seen = Observer(CondorSettings(), shown).poll().observation
    request = seen.queued.texts("node_request")[0] or ""
    assert seen.cluster.node_sets[request].tolist() == [False, False, True]
    held = pickle.loads(pickle.dumps(seen.cluster))  # noqa: S301 - of this test
    assert held.node_sets == seen.cluster.node_sets
    assert held.node_sets[request].tolist() == [False, False, True]


@pytest.mark.parametrize(("wants", "alike"), [(("a", "a"), True), (("a", "b"), False)])
def test_procs_that_differ_are_no_array(
    clock: list[float], wants: tuple[str, str], alike: bool
) -> None:
    """Those that nobody evaluated are each a job; those of a promise are told."""
    written = Expression("TARGET.Site == MY.Want")
    common = {"requirements": written, "totalsubmitprocs": 2}
    parked = [
        job(1, at, want=want, rtadmission="parked", **common) for at, want in enumerate(wants)
    ]
    promised = {"rtadmission": "judged", "rttoken": "t", "rtperslot": 1} | common
    begun = [job(2, at, want=want, **promised) for at, want in enumerate(wants)]
    ads = {"slot1@a": {"site": "a"}, "slot1@b": {"site": "b"}}
    slots = [slot("slot1@a"), slot("slot1@b")]
    shown = pool_of(slots, parked + begun, ads)
    seen = Observer(CondorSettings(), shown).poll().observation
    problem = None if alike else DIFFER
    assert seen.queued.labels() == (["1.0", "2.0"] if alike else ["1.0", "1.1", "2.0"])
    assert seen.marks.texts("problem")[-1] == problem


@pytest.mark.parametrize(("wants", "problem"), [("aa", None), ("ab", DIFFER)])
def test_procs_of_a_load_match_the_same_slots(
    clock: list[float], wants: str, problem: str | None
) -> None:
    """They are one job, whichever of them is asked; one that runs is not compared."""
    load = {"rtsigma": 100.0, "rtcms": 0.1, "rtcps": 1.0, "totalsubmitprocs": 2}
    load |= {"requirements": Expression("TARGET.Site == MY.Want")}
    shown = pool_of(
        [slot("slot1@a"), slot("slot1@b")],
        [job(1, at, want=want, **load) for at, want in enumerate(wants)],
        {"slot1@a": {"site": "a"}, "slot1@b": {"site": "a"}},
    )
    seen = Observer(CondorSettings(), shown).poll()
    assert seen.observation.queued.labels() == ["1.0"]
    assert seen.observation.marks.texts("problem") == [problem]


def test_the_pool_reads_what_slots_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists as expressions; no nested ads, and nothing that changes."""

    class Collector:
        def query(self, kind: object, constraint: str) -> list[Any]:
            ad = classad2.ClassAd(
                '[ Name = "slot1@a"; Sites = { "a","b" }; Twice = Level * 2; Level = 3;'
                ' State = "Claimed"; GPUs_GPU_a = [ Capability = 8.0 ]; Nothing = undefined ]'
            )
            return [ad]

    one = Pool(CondorSettings(constraint='Machine != "b"'))
    monkeypatch.setattr(one, "_collector", Collector)
    read = one.machines()
    assert read["slot1@a"].gpus == ((("Capability", 8.0),),)
    ads = MachineAds.of({name: machine.attributes for name, machine in read.items()})
    for condition_, holds in (
        ('member("b",Sites) && Twice == 6', True),
        ('member("c",Sites)', False),
        ("State isnt undefined", False),
        ("Nothing is undefined", True),
    ):
        assert ads.matched(condition_)[0] == holds


def test_slots_without_ads_are_as_before() -> None:
    """A job that says nothing of machines may have any slot of its part."""
    found = slots_of([slot("slot1@a")], CondorSettings())[0]
    layout = layout_of(found)
    assert described(layout).jobs.texts("node_request") == [None]
    assert SlotRequest(part="/1/5").words == ""
    assert SlotRequest.of(SlotRequest("a", "b", "/1/5").words) == SlotRequest("a", "b", "/1/5")

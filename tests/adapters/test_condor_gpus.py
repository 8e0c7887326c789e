"""GPUs of shared slots: which slots suit what a job requires of them."""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from condor_views import NOW, Shown
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.condor import matching, pool
from rtsched.adapters.condor import system as observers
from rtsched.adapters.condor.expressions import Gpu, gpus_in, gpus_problem, gpus_required
from rtsched.adapters.condor.facts import CondorFacts
from rtsched.adapters.condor.matching import MachineAd, MachineAds, SlotSets
from rtsched.adapters.condor.pool import Pool
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.slots import Slot, layout_of
from rtsched.adapters.condor.submission import CondorTranslator
from rtsched.adapters.condor.system import Observer
from rtsched.adapters.wire import Tag
from rtsched.logs.classads import Expression, Record
from rtsched.model.resources import allowed_nodes

classad2 = pytest.importorskip("classad2")

GB = 1 << 30
SETTINGS = CondorSettings(share_nodes=True)
PART = f"/8/{16 * GB}/2"
OLD: Gpu = (("Capability", 1.2), ("DeviceName", "GeForce GT 330"), ("GlobalMemoryMb", 1024))
NEW: Gpu = (("Capability", 8.0), ("DeviceName", "A100-SXM4-40GB"), ("GlobalMemoryMb", 47661))
KINDS = {"slot1@a": (OLD,), "slot1@b": (NEW,), "slot1@c": (OLD, NEW), "slot1@d": ()}
"""Slots with old GPUs, new ones, some of both, and some of which nothing is known."""


def slots() -> list[Slot]:
    """Return four slots with two GPUs each; the first two have classes."""
    return [
        Slot(name, name[-1], kind, 8, 16 * GB, gpus=2, jobs=8, kinds=KINDS[name])
        for name, kind in zip(KINDS, ("lab", "farm", "", ""), strict=True)
    ]


def sets_of(kinds: Sequence[tuple[Gpu, ...]]) -> SlotSets:
    """Return the node sets of slots with these kinds of GPUs."""
    names = [f"slot{at}@a" for at in range(len(kinds))]
    return SlotSets(MachineAds.of({}), names, kinds, {}, np.zeros(len(kinds), np.int64))


def suiting(request: str) -> list[bool]:
    """Return which of the slots suit a request."""
    suits: list[bool] = layout_of(slots()).sets[f"--require_gpus={request}"].tolist()
    return suits


@pytest.mark.parametrize(
    ("request_", "suits"),
    [
        ("Capability >= 8.0", [False, True, False, False]),
        ("Capability >= 1.0", [True, True, True, False]),
        ("Capability >= 9.0", [False] * 4),
        ('DeviceName == "geforce gt 330"', [True, False, False, False]),
        ("GlobalMemoryMb >= 4096 && Capability < 9", [False, True, False, False]),
        ("MY.Capability > 1 && isUndefined(Missing)", [True, True, True, False]),
        ("Missing > 1", [False] * 4),
        ("Capability", [False] * 4),
        ("true", [True, True, True, False]),
        ("Capability >= 1.0 --partition=farm/8/17179869184/2", [False, True, False, False]),
        ("Capability >= 8.0 --partition=lab/8/17179869184/2", [False] * 4),
        ("Capability >=", [False] * 4),
        ('regexp("A", DeviceName)', [False] * 4),
    ],
)
def test_a_slot_suits_where_all_its_gpus_do(request_: str, suits: list[bool]) -> None:
    """What cannot be evaluated suits nowhere."""
    assert suiting(request_) == suits


@pytest.mark.parametrize("name", ["Tesla  V100", "rev 1.500000000000000E+00"])
def test_what_is_quoted_stays_as_it_is(name: str) -> None:
    """Only blanks and numbers outside are brought into one form."""
    request_ = gpus_required({"requiregpus": f'DeviceName   ==\n"{name}" && 1.5 < 2'})
    assert request_ == f'DeviceName == "{name}" && 1.5 < 2'
    sets = sets_of([((("DeviceName", name),),)])
    assert sets[f"--require_gpus={request_}"].tolist() == [True]


def test_a_new_process_knows_what_htcondor_adds_to_classads() -> None:
    """MY and functions such as stringListMember, which classad2 lacks by itself."""
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "from rtsched.adapters.condor.expressions import suits\n"
            "gpus = (('Capability', 8.0), ('DeviceName', 'b')),\n"
            "print(suits('MY.Capability > 1 && MY.No is undefined', gpus))\n"
            "print(suits('stringListMember(DeviceName, \"a,b\")', gpus))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["True", "True"]


@given(
    st.lists(st.lists(st.sampled_from([1.0, 2.0, 3.0]), max_size=3), min_size=1, max_size=6),
    st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.5]),
)
def test_rows_counted_plainly(capabilities: list[list[float]], least: float) -> None:
    """Each row is what its own GPUs say, however many rows are alike."""
    kinds = [tuple(((("Capability", c),)) for c in each) for each in capabilities]
    sets, words = sets_of(kinds), f"--require_gpus=Capability >= {least}"
    plain = [bool(each) and all(c >= least for c in each) for each in capabilities]
    assert sets[words].tolist() == plain
    again = pickle.loads(pickle.dumps(sets))  # noqa: S301 - written by this test
    assert again[words].tolist() == plain


def test_an_expression_is_evaluated_once_for_each_set_of_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand slots that are alike are one; asked for again it is known."""
    asked: list[Any] = []
    suits = matching.suits
    monkeypatch.setattr(matching, "suits", lambda *words: asked.append(words) or suits(*words))
    sets = sets_of([(OLD,), (NEW,)] * 500)
    for _ in range(3):
        assert sets["--require_gpus=Capability >= 8.0"].sum() == 500
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        ({}, ""),
        ({"requiregpus": "Capability>=8"}, "Capability >= 8"),
        ({"requiregpus": Expression("Capability >= 1.500000000000000E+00")}, "Capability >= 1.5"),
        ({"requiregpus": "Capability   >= 1.5"}, "Capability >= 1.5"),
        (
            {"requiregpus": "Capability >= GPUsMinCapability", "gpusmincapability": 8.0},
            "Capability >= 8.0",
        ),
        (
            {"requiregpus": "GlobalMemoryMb >= MY.GPUsMinMemory", "gpusminmemory": 4096},
            "GlobalMemoryMb >= 4096.0",
        ),
        (
            {"requiregpus": "GlobalMemoryMb >= GPUsMinMemory", "gpusminmemory": 4096.0},
            "GlobalMemoryMb >= 4096.0",
        ),
        ({"requiregpus": "Capability >= GPUsMinCapability"}, "Capability >= GPUsMinCapability"),
        ({"requiregpus": True}, "true"),
        ({"requiregpus": "Capability >="}, "Capability >="),
    ],
)
def test_a_request_has_one_form(said: Record, request_: str) -> None:
    """The queue and a submission write it in different ways."""
    assert gpus_required(said) == request_


def test_what_cannot_be_evaluated_is_told() -> None:
    """Functions that may take long are among that."""
    assert gpus_problem("Capability >= 8 && (DeviceName is undefined)") == ""
    assert gpus_problem('stringListMember(DeviceName, "a(b),c") && !(Capability isnt 8)') == ""
    wrong = gpus_problem('regexp("a", B)')
    assert "cannot plan with the function regexp in its require_gpus" in wrong
    assert gpus_problem("Capability >=") == "its require_gpus (Capability >=) cannot be read"
    assert "longer than 1000 characters" in gpus_problem("A > 1 || " * 200 + "true")
    name = "'\"' is undefined"  # an attribute whose name is a quotation mark
    assert "the function regexp" in gpus_problem(f'{name} && regexp("a", DeviceName) && {name}')
    assert gpus_problem("'f(x' =?= 1 && 'a\\'b' =?= 2") == ""


def test_kinds_are_read_from_nested_ads() -> None:
    """What tells one GPU from others alike is left out, and what is of the slot."""
    own = {"Id": "GPU-a", "DeviceUuid": "a", "DevicePciBusId": "0000:40:00.0"}
    ad = {
        "GPUs_Capability": 1.2,
        "GPUs_GPU_a": classad2.ClassAd(dict(OLD) | own),
        "GPUs_GPU_b": classad2.ClassAd(dict(OLD) | own | {"Id": "GPU-b"}),
        "GPUs_GPU_c": classad2.ClassAd(dict(NEW) | own | {"Id": "GPU-c"}),
        "Other": classad2.ClassAd({"Capability": 9}),
    }
    assert gpus_in(ad) == (OLD, NEW)
    assert gpus_in({"GPUs": 2}) == ()


def facts() -> CondorFacts:
    """Return what is known of the pool."""
    layout = layout_of(slots())
    return CondorFacts(margin=30.0, parts=layout.parts, shared=True, sets=layout.sets)


def described(**said: Any) -> Any:
    """Return what a submission of a job with a GPU and these lines means."""
    lines = {"Owner": '"root"', "RtDeadline": NOW + 9000, "RtRunTime": 60, "JobUniverse": 5}
    lines |= {"RequestGPUs": 1} | said
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    return CondorTranslator(SETTINGS).describe({Tag.AD: text}, facts(), NOW)


def test_a_submission_is_allowed_slots_that_suit() -> None:
    """These are the nodes on which it is planned."""
    found = described(RequireGPUs='"Capability >= GPUsMinCapability"', GPUsMinCapability=8.0)
    assert found.problem == ""
    words = f"--require_gpus=Capability >= 8.0 --partition={PART}"
    assert found.jobs.texts("node_request") == [words]
    cluster = layout_of(slots()).cluster(np.empty(0, np.int64), 1)
    code, masks = allowed_nodes(found.jobs, cluster)
    assert masks[code[0]].tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            {"RequireGPUs": '"Capability >= 9"'},
            "no slot has only GPUs that suit its require_gpus (Capability >= 9)",
        ),
        (
            {"RequireGPUs": '"Capability >= 8"', "RtClass": '"lab"'},
            "no slot has only GPUs that suit its require_gpus (Capability >= 8)",
        ),
        ({"RequireGPUs": '"f(Capability)"'}, "cannot plan with the function f in its require_gpus"),
        ({"RequireGPUs": '"Capability >="'}, "its require_gpus (Capability >=) cannot be read"),
        ({"RequireGPUs": '"Capability >= 9"', "RequestGPUs": 0}, ""),
    ],
)
def test_what_no_slot_has_is_refused(said: dict[str, Any], problem: str) -> None:
    """Its user reads what; without GPUs it says nothing."""
    found = described(**said)
    assert found.problem.startswith(problem) if problem else not found.problem
    assert problem or found.jobs.texts("node_request") == [None]


def test_a_poll_shows_what_a_job_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the form of its submission; GPUs are read anew when their startd is, and sometimes."""
    monkeypatch.setattr(observers.time, "time", lambda: NOW)
    slot: Record = {"name": "slot1@a", "machine": "a", "state": "Unclaimed"}
    slot |= {"partitionableslot": True, "totalslotcpus": 8, "totalslotmemory": 16384}
    slot |= {"totalslotgpus": 2, "daemonstarttime": 5}
    job: Record = {"clusterid": 1, "procid": 0, "jobstatus": 1, "jobuniverse": 5, "owner": "root"}
    job |= {"user": "root@pool", "qdate": int(NOW) - 100, "rtruntime": 600, "requestgpus": 1}
    job |= {
        "rtdeadline": NOW + 5000,
        "requiregpus": Expression("Capability>=8.000000000000000E+00"),
    }
    shown = Shown([slot], [job])
    shown.shown_machines = {"slot1@a": MachineAd((NEW,), {})}
    observer = Observer(SETTINGS, shown)
    for _ in range(3):
        seen = observer.poll().observation
        words = f"--require_gpus=Capability >= 8.0 --partition={PART}"
        assert seen.queued.texts("node_request") == [words]
        assert seen.cluster.node_sets[words].tolist() == [True]
    assert len(shown.read) == 1
    slot["daemonstarttime"] = 6
    observer.poll()
    assert len(shown.read) == 2
    monkeypatch.setattr(observers.time, "time", lambda: NOW + observers.REREAD_S)
    observer.poll()
    assert len(shown.read) == 3


@pytest.mark.parametrize(
    ("least", "count", "fits"), [(1.0, 2, True), (8.0, 1, True), (8.0, 2, False), (9.0, 1, False)]
)
def test_a_job_fits_where_enough_gpus_suit(least: float, count: int, fits: bool) -> None:
    """Of all that the slot has, whoever has them now."""
    slot = classad2.ClassAd(
        '[ Name = "slot1@a"; PartitionableSlot = true; GPUs = 0; TotalSlotGPUs = 2;'
        " AvailableGPUs = {}; GPUs_GPU_a = [ Capability = 8.0 ];"
        " GPUs_GPU_b = [ Capability = 1.2 ]; Requirements = true ]"
    )
    job = classad2.ClassAd(
        f"[ RequestGPUs = {count}; GPUsMinCapability = {least};"
        " RequireGPUs = Capability >= GPUsMinCapability; Requirements ="
        " TARGET.GPUs >= 1 && (countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs) ]"
    )
    for _ in range(2):
        assert pool.fits_free(job, slot) is fits


def test_the_pool_reads_the_kinds_of_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their names, and of slots that are not parts of others."""
    asked: list[str] = []

    class Collector:
        def query(self, kind: object, constraint: str) -> list[Any]:
            asked.append(constraint)
            return [
                classad2.ClassAd({"Name": "slot1@a", "GPUs_GPU_a": classad2.ClassAd(dict(NEW))})
            ]

    one = Pool(CondorSettings())
    monkeypatch.setattr(one, "_collector", Collector)
    assert one.machines()["slot1@a"].gpus == (NEW,)
    assert one.machines(["slot1@a"])["slot1@a"].attributes == {"name": "slot1@a"}
    assert asked[0] == "SlotID =!= undefined && DynamicSlot isnt true"
    assert asked[1] == f'{asked[0]} && member(Name, {{"slot1@a"}})'

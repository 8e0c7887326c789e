"""Requests with extreme values through every door, each within a bounded number of steps.

A program of its own, since kernels run uncompiled: every line that Python runs is counted. It
prints how many requests were made, and the most steps that one of them took.
"""

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from running import ANN, FACTS, NOW
from scene import Scene

from rtsched.adapters.condor.submission import CondorTranslator
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.core.chain import Chain, Member
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.answers import job_id
from rtsched.daemon.chains import Chains
from rtsched.daemon.feasibility import _as_question
from rtsched.daemon.questions import Feasible, read_question
from rtsched.errors import RtschedError
from rtsched.kernels.compiling import COMPILING
from rtsched_plugins.portfolio import Portfolio

MOST = 200_000
"""Lines; a usual request runs some ten thousand."""
EXAMPLES = 300

NUMBERS = (0, 1, -1, 7, 2**31 - 1, 2**31, 2**32 - 2, 2**53, 2**62, 2**63 - 1, -(2**63))
REALS = (-0.0, 1e-308, 1e-3, 1.0, 1e15, 1e20, 2.0**62, 2.0**63, 1e300, 1e308)
PIECES = ("", "a", "a&", "(", "[", "n[1-999999]", "n0,", "1,", "9", "afterok:9:", "gpu:1,", "_[1,")
LENGTHS = (1, 3, 900, 60_000)
texts = st.builds(
    lambda piece, many: piece * many, st.sampled_from(PIECES), st.sampled_from(LENGTHS)
)
loads = st.builds(
    "rtsched:sigma={:g},cms={:g},cps={:g},rounds={}".format,
    *[st.sampled_from([abs(real) for real in REALS])] * 3,
    st.sampled_from([1, 2, 99]),
)


class TooManySteps(BaseException):
    """A request took more steps than it may; no `except Exception` keeps it."""


class Steps:
    """Counts the lines that run in a block, and ends it after `MOST`."""

    most = made = 0

    def __enter__(self) -> Self:
        self.count = 0
        sys.settrace(self._traced)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        Steps.most, Steps.made = max(self.most, self.count), self.made + 1

    def _traced(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        self.count += event == "line"
        if self.count > MOST:
            sys.settrace(None)
            raise TooManySteps(frame.f_code.co_qualname)
        return self._traced


class Site:
    """A site of four nodes, with a promise, a planner, and one of the two batch systems."""

    def __init__(self, planner: str) -> None:
        plugin = Portfolio() if planner == "portfolio" else None
        self.scene = Scene(plugin=plugin, member={}) if plugin else Scene(planner=planner)
        if plugin:
            chains = Chains(Chain([Member("portfolio", plugin)], "portfolio"), ())
            self.scene.chains = chains
        self.scene.poll(NOW)
        self.scene.submit(NOW, size=3, wall_time=600.0, deadline=NOW + 3600.0)

    def judge(self, translator: Any, fields: dict[int, int | str], facts: Any) -> None:
        """Evaluate a submission as the daemon does."""
        scene = self.scene
        controller = AdmissionController(scene.chains, scene.settings, scene.admission.wording)
        submission = translator.describe(fields, facts, NOW)
        result = controller.judge(scene.site, submission, NOW)
        assert result.verdict in {"admit", "reject", "defer", "pass"}
        assert result.offer == math.inf or result.offer < NOW + 11 * 366 * 86400.0


SITES = [Site("mcdf"), Site("edf"), Site("spare"), Site("portfolio")]
sites = st.sampled_from(SITES)
JOB: dict[int, int | str] = {
    Tag.USER_ID: ANN,
    Tag.SUBMIT_UID: ANN,
    Tag.TIME_LIMIT: 30,
    Tag.DEADLINE: int(NOW) + 3600,
}


@settings(deadline=None, max_examples=EXAMPLES, database=None)
@given(
    sites, st.dictionaries(st.sampled_from(list(Tag)), st.sampled_from(NUMBERS) | texts, max_size=4)
)
def by_the_submit_filter(site: Site, fields: dict[int, int | str]) -> None:
    """Submit a job of Slurm."""
    with Steps():
        site.judge(SlurmTranslator(), {**JOB, **fields}, FACTS)
        job_id({Tag.JOB_ID_STR: str(fields.get(Tag.JOB_ID_STR, ""))})


@settings(deadline=None, max_examples=EXAMPLES, database=None)
@given(sites, loads, st.sampled_from([0, 3600, 86400, 2**40, 2**62]))
def with_a_load(site: Site, load: str, ahead: int) -> None:
    """Submit a divisible load of Slurm."""
    fields = {Tag.EXTRA: load, Tag.MAX_NODES: 4, Tag.MIN_NODES: 1, Tag.DEADLINE: int(NOW) + ahead}
    with Steps():
        site.judge(SlurmTranslator(), {**JOB, **fields}, FACTS)


reals = st.sampled_from(REALS)
questions = st.fixed_dictionaries(
    {},
    optional={
        "time_s": reals,
        "deadline": reals,
        "nodes": st.sampled_from([1, 10**7]),
        "memory": st.sampled_from([0, 1 << 60]),
        "tasks": st.sampled_from([0, 10**9]),
        "sigma": reals,
        "cms": reals,
        "cps": reals,
        "array": texts,
        "constraint": texts,
        "nodelist": texts,
        "exclude": texts,
        "licenses": texts,
    },
)


@settings(deadline=None, max_examples=EXAMPLES, database=None)
@given(sites, questions)
def by_a_question(site: Site, question: dict[str, Any]) -> None:
    """Ask about a job, as by the socket, REST and the board."""
    translator = SlurmTranslator()
    with Steps():
        try:
            asked = read_question(msgspec.json.encode({"ask": "feasible", **question}))
        except msgspec.MsgspecError:
            return
        assert isinstance(asked, Feasible)
        deadline = asked.deadline if asked.deadline is not None else NOW + 1.0
        site.judge(
            translator, dict(translator.fields_of(_as_question(asked, ANN, deadline))), FACTS
        )


ATTRIBUTES = (
    *("RtDeadline", "RtRunTime", "RtSigma", "RtCms", "RtCps", "RtSetupLink", "RtRounds", "RtAfter"),
    *(
        "RequestCpus",
        "RequestMemory",
        "RequestDisk",
        "Requirements",
        "DeferralTime",
        "RtMessageTime",
    ),
    *("TotalSubmitProcs", "MinHosts", "MaxHosts", "RtMinNodes", "RtHosts", "JobUniverse"),
)
values = (
    st.sampled_from([f"{real:g}" for real in REALS])
    | st.sampled_from([str(number) for number in NUMBERS])
    | texts
    | texts.map(lambda text: '"' + text.replace('"', "") + '"')
    | st.sampled_from(["nan", "inf", "1e400", "-1e400", "error", "undefined", "1" * 60_000 + "x"])
)


@settings(deadline=None, max_examples=EXAMPLES, database=None)
@given(sites, st.dictionaries(st.sampled_from(ATTRIBUTES), values, max_size=5))
def by_the_classad_library(site: Site, attributes: dict[str, str]) -> None:
    """Submit a job of HTCondor."""
    plain = {"ProcId": "0", "JobUniverse": "5", "Owner": '"root"', "RtRunTime": "60"}
    plain["RtDeadline"] = str(int(NOW) + 3600)
    ad = "".join(f"{name} = {value}\n" for name, value in {**plain, **attributes}.items())
    with Steps():
        try:
            site.judge(CondorTranslator(), {Tag.SUBMIT_UID: 0, Tag.AD: ad}, None)
        except RtschedError:
            return


if __name__ == "__main__":
    assert not COMPILING
    by_the_submit_filter()
    with_a_load()
    by_a_question()
    by_the_classad_library()
    print(Steps.made, Steps.most)

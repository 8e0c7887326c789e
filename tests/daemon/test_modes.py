"""Modes: what shadow and warn say, that they change nothing, modes by partition and QOS."""

import pytest
from scene import ANN, T0, WORDS, Scene

from rtsched.adapters.live import Submission
from rtsched.core.chain import Chain, Member
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.chains import Chains
from rtsched.daemon.settings import DaemonSettings, Scope
from rtsched.model.jobs import Edges, Jobs
from rtsched_plugins.limits import Limits
from rtsched_plugins.mcdf import Mcdf


def judged(mode: str, problem: str = "", **columns: object):
    """Judge a job on four idle nodes by a planner of this mode."""
    chain = Chains(Chain([Member("mcdf", Mcdf(), mode)], "mcdf"), ())
    row = {"partition": None, "account": None, "qos": None, **columns}
    jobs = Jobs.build(1, **{name: [value] for name, value in row.items() if value is not None})
    submission = Submission(jobs, Edges.build(0), ANN, problem)
    admission = AdmissionController(chain, DaemonSettings(), WORDS)
    site = Scene().site
    found = admission.judge(site, submission, T0)
    assert (found.site is site) == (mode != "enforce" or bool(problem))
    return found


def test_shadow_passes_a_hopeless_job_in_silence_and_remembers_what_it_thought() -> None:
    """Its user reads nothing; the journal gets reason and counter-offer."""
    found = judged("shadow", size=2, wall_time=1000.0, deadline=T0 + 990.4)
    assert found.verdict == "pass"
    assert not found.reply.rejected
    assert found.reply.text == ""
    assert found.foreseen.startswith("mcdf (shadow) would reject it: ")
    assert found.codes
    assert found.offer == pytest.approx(T0 + 1000)


def test_warn_tells_what_would_be_accepted() -> None:
    """The warning names a feasible deadline, and how to ask for it."""
    found = judged("warn", size=2, wall_time=1000.0, deadline=T0 + 990.4)
    assert not found.reply.rejected
    assert found.reply.text.startswith("rtsched: warning: ")
    assert f"--deadline={T0 + 1100:.0f}" in found.reply.text, "a whole minute, for a minute"
    assert found.offer == T0 + 1100
    again = judged("warn", size=2, wall_time=1000.0, deadline=T0 + 1100)
    assert again.reply.text == ""


def test_what_would_be_promised_is_remembered_too() -> None:
    """So an admin can count both."""
    found = judged("shadow", size=2, wall_time=1000.0, deadline=T0 + 2000)
    assert found.foreseen == "mcdf (shadow) would admit it"


def test_a_best_effort_job_is_not_worth_a_word() -> None:
    """Where all jobs are judged the journal would be full of them."""
    assert judged("shadow", size=2, wall_time=1000.0).foreseen == ""


@pytest.mark.parametrize("mode", ["shadow", "warn", "enforce"])
def test_what_cannot_be_promised_is_rejected_by_enforcement_only(mode: str) -> None:
    """An array with a deadline passes while nothing is enforced."""
    found = judged(mode, "no promise is given to an array")
    assert found.reply.rejected == (mode == "enforce")
    assert ("no promise" in found.reply.text) == (mode != "shadow")
    assert found.codes == ("submit.unusable",)


@pytest.mark.parametrize(("mode", "verdict"), [("shadow", "pass"), ("enforce", "defer")])
def test_a_component_is_held_only_where_verdicts_count(mode: str, verdict: str) -> None:
    """A heterogeneous job is judged as a whole, when all its components are there."""
    chain = Chains(Chain([Member("mcdf", Mcdf(), mode)], "mcdf"), ())
    jobs = Jobs.build(1, wall_time=[60.0], deadline=[T0 + 2000])
    submission = Submission(jobs, Edges.build(0), ANN, component=True)
    found = AdmissionController(chain, DaemonSettings(), WORDS).judge(Scene().site, submission, T0)
    assert (found.verdict, found.reply.deferred) == (verdict, verdict == "defer")
    assert bool(found.reply.text) == (verdict == "defer")


CHAIN = Chain([Member("limits", Limits(Limits.Config())), Member("mcdf", Mcdf())], "mcdf")


def modes(scopes: list[Scope], partition: str, qos: str | None = None) -> list[str]:
    """Return the modes that hold for a job."""
    job = Jobs.build(1, partition=[partition], qos=[qos])
    chain = Chains(CHAIN, scopes).of(job)
    return [f"{member.name}={member.mode}" for member in chain.members]


def test_without_scopes_all_jobs_have_one_chain() -> None:
    """Modes are then those of the plug-in tables."""
    assert modes([], "any") == ["limits=enforce", "mcdf=enforce"]


def test_the_last_scope_that_fits_wins() -> None:
    """A scope covers what it names; a later one may say otherwise for some of it."""
    scopes = [
        Scope("shadow"),
        Scope("enforce", partition="prod"),
        Scope("warn", plugin="mcdf", partition="prod", qos="low"),
    ]
    assert modes(scopes, "test") == ["limits=shadow", "mcdf=shadow"]
    assert modes(scopes, "prod") == ["limits=enforce", "mcdf=enforce"]
    assert modes(scopes, "prod/4/1024") == ["limits=enforce", "mcdf=enforce"]
    assert modes(scopes, "prod", "low") == ["limits=enforce", "mcdf=warn"]


def test_a_plug_in_may_be_off_somewhere() -> None:
    """Without its planner a partition's jobs are promised nothing."""
    assert modes([Scope("off", plugin="mcdf", partition="test")], "test") == ["limits=enforce"]


@pytest.mark.parametrize(
    ("mode", "verdict", "said"),
    [("shadow", "pass", ""), ("warn", "pass", "rtsched: warning: "), ("enforce", "reject", "")],
)
def test_what_a_mode_does_to_a_hopeless_deadline(mode: str, verdict: str, said: str) -> None:
    """In shadow nobody notices, a warning reaches the user, enforced it is a rejection."""
    scene = Scene(nodes=1)
    scene.chains = Chains(scene.chains.chain, [Scope(mode, partition="p")])
    judged = scene.submit(size=1, wall_time=600.0, deadline=T0 + 60, partition="p")
    assert judged.verdict == verdict
    assert judged.reply.text.startswith(said)
    assert bool(judged.reply.text) == (mode != "shadow")
    assert judged.judgement.answers[-1].value is not None

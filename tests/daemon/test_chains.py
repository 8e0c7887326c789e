"""Modes by partition and QOS."""

from __future__ import annotations

import pytest
from scene import T0, Scene

from rtsched.core.chain import Chain, Member
from rtsched.daemon.chains import Chains
from rtsched.daemon.settings import Scope
from rtsched.model.jobs import Jobs
from rtsched_plugins.limits import Limits
from rtsched_plugins.mcdf import Mcdf

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
    scene.chains = Chains(scene.chains.chain, [Scope(mode, partition="p")])  # type: ignore[arg-type]
    judged = scene.submit(size=1, wall_time=600.0, deadline=T0 + 60, partition="p")
    assert judged.verdict == verdict
    assert judged.reply.text.startswith(said)
    assert bool(judged.reply.text) == (mode != "shadow")
    assert judged.judgement is not None
    assert judged.judgement.answers[-1].value is not None

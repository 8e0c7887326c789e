"""Every built-in plug-in passes the conformance test, and the test catches what it is for."""
# ruff: noqa: D101, D102, D106 - the classes are subjects of the test

from typing import ClassVar

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from rtsched.core.capabilities import Capabilities
from rtsched.core.hookspecs import hookimpl
from rtsched.core.plugins import discover
from rtsched.model.state import State
from rtsched.model.verdicts import Placement, Reason, Terms, Verdicts
from rtsched.testing import PluginConformance, check_plugin
from rtsched_plugins.fastest import Fastest
from rtsched_plugins.limits import Limits
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.multifactor import Multifactor
from rtsched_plugins.portfolio import Portfolio
from rtsched_plugins.psts import Psts
from rtsched_plugins.sed import Sed
from rtsched_plugins.spare import Spare
from rtsched_plugins.ste import Ste


class TestLimits(PluginConformance):
    plugin = Limits
    settings: ClassVar = {"size": 5, "wall_time": 9000.0, "partition": {"short": {"size": 2}}}


class TestLimitsAsTheyCome(PluginConformance):
    plugin = Limits


class TestFastest(PluginConformance):
    plugin = Fastest


class TestSed(PluginConformance):
    plugin = Sed


class TestSedOnSharedNodes(PluginConformance):
    plugin = Sed
    settings: ClassVar = {"time_sharing": True, "upgrade": False, "benefit_test": True}


class TestPsts(PluginConformance):
    plugin = Psts


class TestPstsWithBondsAndFreeScans(PluginConformance):
    plugin = Psts
    settings: ClassVar = {
        "binding": "strict",
        "comm_step": 0.0,
        "comp_step": 0.0,
        "least_imbalance": 0.0,
        "dimension": 0,
    }


class TestSlowest(PluginConformance):
    plugin = Fastest
    settings: ClassVar = {"prefer": "slow"}


class TestMcdf(PluginConformance):
    plugin = Mcdf
    planner = True


class TestSpare(PluginConformance):
    plugin = Spare
    planner = True


class TestSpareLast(PluginConformance):
    plugin = Spare
    planner = True
    settings: ClassVar = {"select": "utilisation-first"}


class TestSpareEdf(PluginConformance):
    plugin = Spare
    planner = True
    settings: ClassVar = {"form": "edf", "slot": 60.0}
    examples = 25


class TestPortfolio(PluginConformance):
    plugin = Portfolio
    planner = True


class TestPortfolioThatDeclinesEarly(PluginConformance):
    plugin = Portfolio
    planner = True
    settings: ClassVar = {"arrivals": 3, "least": 1, "overbooking": 0.01, "spared": 0, "heard": 0.4}


class TestSte(PluginConformance):
    plugin = Ste
    settings: ClassVar = {"scale": 600.0}
    name = "ste"
    examples = 25


class TestSteThatForgetsAndJudges(PluginConformance):
    plugin = Ste
    settings: ClassVar = {"half_life": 3600.0, "weight_user": 3.0, "admission": "ideal-finish"}
    name = "ste"
    examples = 25


class TestFairTree(PluginConformance):
    plugin = Multifactor
    settings: ClassVar = {
        "association_priority": {"account0": 5, "account2": 10},
        "weight_association": 100.0,
        "partition_priority": {"short": 3},
        "qos_priority": {"high": 7},
        "weight_qos": 10.0,
    }


class TestClassicFairShare(PluginConformance):
    plugin = Multifactor
    settings: ClassVar = {
        "algorithm": "classic",
        "damping": 2.0,
        "favor_small": True,
        "decay_half_life": 3600.0,
        "calc_period": 60,
    }


class TestSizeInTimeWithoutDecay(PluginConformance):
    plugin = Multifactor
    settings: ClassVar = {"decay_half_life": 0.0, "small_relative_to_time": True}


def test_every_built_in_plug_in_is_tested() -> None:
    """A new built-in plug-in needs a class above."""
    tested = {kind.plugin for kind in PluginConformance.__subclasses__()}
    built_in = {found.plugin for found in discover().values() if found.distribution == "rtsched"}
    assert built_in <= tested


class Bare:
    """Turn nothing away."""

    @hookimpl
    def rtsched_admit(self, jobs):
        return Verdicts.abstain(len(jobs))

    def __init__(self, config) -> None:
        self.config = config
        self.calls = 0


class Undocumented(Bare):
    __doc__ = None


class Undescribed(Bare):
    """Has a setting that nobody explains."""

    class Config(msgspec.Struct, forbid_unknown_fields=True):
        limit: int = 1


class Shapeless(Bare):
    """Answers about one job too many."""

    @hookimpl
    def rtsched_admit(self, jobs):
        return Verdicts.abstain(len(jobs) + 1)


class Positional(Bare):
    """Prefers the job that it is told of first."""

    @hookimpl
    def rtsched_fair_share(self, jobs):
        return Terms({"place": np.linspace(1.0, 0.0, len(jobs))}) if len(jobs) else None


class Greedy(Bare):
    """Judges a job by what else it is asked about."""

    @hookimpl
    def rtsched_partition(self, jobs):
        n = len(jobs)
        return Placement(np.full(n, n, np.int32), np.full(n, -1, np.int32))


class Forgetful(Bare):
    """Answers otherwise every time."""

    @hookimpl
    def rtsched_admit(self, jobs):
        self.calls += 1
        return Verdicts.reject_where(jobs.size >= self.calls, self.wide)

    wide = Reason("bare.wide", "is wide")


class Meddler(Bare):
    """Says that it judges deadlines, and turns away wide jobs."""

    capabilities = Capabilities(judges_only_deadlines=True)
    wide = Reason("bare.wide", "is wide")

    @hookimpl
    def rtsched_admit(self, jobs):
        return Verdicts.reject_where(jobs.size > 1, self.wide)


class Writer(Bare):
    """Changes the jobs that it is asked about."""

    @hookimpl
    def rtsched_admit(self, jobs):
        jobs.size[:] = 1


class Tongue(Bare):
    """Gives a reason that it does not declare."""

    @hookimpl
    def rtsched_admit(self, jobs):
        return Verdicts.reject_where(jobs.size > 1, Reason("bare.other", "is too wide"))


class Silent(Bare):
    """Leaves a number of its reason out."""

    wide = Reason("bare.wide", "asks for {asked} nodes")

    @hookimpl
    def rtsched_admit(self, jobs):
        return Verdicts.reject_where(jobs.size > 1, self.wide)


class Shouting(Bare):
    """Has a reason whose code is no code."""

    wide = Reason("Too Wide", "is wide")


class Count(State, frozen=True):
    """Number of calls."""

    calls: NDArray[np.int64]


class Counting(Bare):
    """Remembers how often it was called rather than what happened."""

    @hookimpl
    def rtsched_observe(self, events, state):
        if not len(events):
            return None
        return Count(np.array([1 if state is None else int(state.calls[0]) + 1]))


@pytest.mark.parametrize(
    ("plugin", "complaint"),
    [
        (Undocumented, "no docstring"),
        (Undescribed, "without a description: limit"),
        (Shapeless, "code has shape"),
        (Positional, "depend on the order of rows"),
        (Greedy, "depend on the batch"),
        (Forgetful, "a second answer differs"),
        (Meddler, "an opinion on jobs without a deadline"),
        (Writer, "read-only"),
        (Tongue, "bare.other is not declared"),
        (Silent, "bare.wide lacks a number"),
        (Shouting, "no dotted lower-case code"),
        (Counting, "depends on how events are cut"),
    ],
)
def test_a_plug_in_that_breaks_the_contract_is_told_how(plugin, complaint) -> None:
    """Each rule of the conformance test fails for a plug-in that breaks it alone."""
    with pytest.raises(AssertionError, match=complaint):
        check_plugin(plugin)


def test_a_plain_plug_in_passes() -> None:
    """A plug-in without settings and opinions is fine."""
    check_plugin(Bare)

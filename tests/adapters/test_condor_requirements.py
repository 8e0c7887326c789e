"""What a job ad means for the models."""

import math
from dataclasses import replace

import numpy as np
import pytest
from condor_views import read_ads
from hypothesis import example, given
from hypothesis import strategies as st

from rtsched.adapters.condor.accounts import accounts_of
from rtsched.adapters.condor.facts import STEPS, CondorFacts, parts_of
from rtsched.adapters.condor.ids import JobNames, cluster_of, job_id, name_of, proc_of
from rtsched.adapters.condor.observation import groups_of, jobs_of
from rtsched.adapters.condor.queue import queue_of
from rtsched.adapters.condor.requirements import (
    OURS,
    REQUEST_ATTRIBUTES,
    hosts,
    needs_rtsched,
    requirements_of,
)
from rtsched.adapters.condor.submission import CondorTranslator, ad_of, job_of
from rtsched.adapters.live import FIRST_OWN_ID, FeasibilityRequest, SubmitReply
from rtsched.adapters.wire import ACCEPT, REJECT, Tag
from rtsched.errors import AdapterError
from rtsched.logs.classads import Expression, number, parse_value
from rtsched.model.jobs import Kind

GB = 1 << 30
PARTS, MASKS = parts_of(
    ["fast", "fast", "slow", "slow", "slow"],
    np.array([4, 4, 1, 1, 2]),
    np.array([8 * GB, 8 * GB, GB, GB, 2 * GB]),
)
FACTS = CondorFacts(margin=30.0, parts=PARTS, domain="pool", associations={"ann@pool": 3})
NOW = 1_000_000.0


def ad(**attributes: object) -> dict[str, object]:
    """Return the ad of a vanilla job with these attributes."""
    whole = {"ClusterId": 12, "ProcId": 3, "JobUniverse": 5, "Owner": "root", "User": "root@pool"}
    return {name.lower(): value for name, value in (whole | attributes).items()}


def problem(**attributes: object) -> str:
    """Return what is wrong with a job."""
    return requirements_of(ad(**attributes), FACTS).problem


@given(st.integers(0, (1 << 31) - 2), st.integers(0, (1 << 20) - 1))
def test_names_and_numbers_are_one(cluster: int, proc: int) -> None:
    """Every job has a number of its own, in the order of clusters and procs, and back."""
    job = job_id(cluster, proc)
    assert JobNames().number(name_of(job)) == job
    assert (cluster_of(job), proc_of(job)) == (cluster, proc)
    assert job < job_id(cluster + 1, 0) < FIRST_OWN_ID


@given(st.text(max_size=30))
def test_any_text_is_a_name_or_none(text: str) -> None:
    """No text breaks the reading of names; `12` is the first proc of cluster 12."""
    assert JobNames().number(text) >= -1
    assert JobNames().number("12") == JobNames().number("12.0")
    assert (
        JobNames().number("12.1048576") == JobNames().number("12.x") == JobNames().number("") == -1
    )


def test_a_plain_deadline() -> None:
    """A deadline and a run time make a rigid job whose wall time contains the margin."""
    needs = requirements_of(ad(RtDeadline=NOW + 900, RtRunTime=600), FACTS)
    assert (needs.kind, needs.size, needs.wall_time) == (Kind.RIGID, 1, 630.0)
    assert needs.deadline == NOW + 900
    assert not needs.problem


def test_a_limit_counts_as_run_time() -> None:
    """AllowedExecuteDuration ends a job as surely; what is stated for rtsched comes first."""
    assert requirements_of(ad(RtDeadline=NOW, AllowedExecuteDuration=300), FACTS).wall_time == 330.0
    both = ad(RtDeadline=NOW, AllowedExecuteDuration=300, RtRunTime=100)
    assert requirements_of(both, FACTS).wall_time == 130.0


def test_without_a_run_time() -> None:
    """A job whose end nobody knows is promised nothing, and may run for ever as best effort."""
    assert "RtRunTime" in problem(RtDeadline=NOW)
    assert requirements_of(ad(), FACTS).wall_time == math.inf
    assert not problem()


@pytest.mark.parametrize(
    "name", ["CronMinute", "CronHour", "CronDayOfMonth", "CronMonth", "CronDayOfWeek"]
)
def test_a_job_of_a_crontab_is_refused(name: str) -> None:
    """It starts when the next of its times comes, again and again; without a deadline it may."""
    due = {"RtDeadline": NOW, "RtRunTime": 60}
    assert "cron_minute" in problem(**due, **{name: "30"})
    assert "cron_minute" in problem(**due, **{name: 0})
    assert not problem(RtClass="fast", RtRunTime=60, **{name: "30"})


@pytest.mark.parametrize(
    ("written", "moves"),
    [
        ("time() + 600", True),
        ("CurrentTime + 3600", True),
        ("ifThenElse(NumJobStarts > 0, 1800000000, 1700000000)", True),
        ("MY.QDate + 3600", False),
        ("int(QDate) + 3.6e3", False),
        ("1700000000 + 60 * 60", False),
    ],
)
def test_a_start_that_moves_is_refused(written: str, moves: bool) -> None:
    """As the library writes the expression, and as the queue has it."""
    due = {"RtDeadline": NOW, "RtRunTime": 60}
    sent = problem(**due, DeferralTime=NOW - 60, DeferralTimeWritten=written)
    queued = problem(**due, DeferralTime=Expression(written))
    assert sent == queued
    assert ("changes while the job waits" in sent) == moves
    assert not problem(RtRunTime=60, DeferralTimeWritten=written)


@pytest.mark.parametrize(
    ("name", "written", "refused"),
    [
        ("OnExitRemove", "false", True),
        ("OnExitRemove", "(FALSE)", True),
        ("OnExitRemove", "0", True),
        ("OnExitRemove", "!true || 1 == 2", True),
        ("OnExitRemove", "undefined", True),
        ("OnExitRemove", "true", False),
        ("OnExitRemove", "1", False),
        ("OnExitRemove", "ExitCode =?= 0", False),
        ("OnExitRemove", "false || NumJobCompletions > JobMaxRetries || ExitCode =?= 0", False),
        ("OnExitRemove", "(", False),
        ("OnExitHold", "true", True),
        ("OnExitHold", "(1)", True),
        ("OnExitHold", "false", False),
        ("OnExitHold", "ExitCode =!= 0", False),
    ],
)
def test_a_job_that_no_exit_takes_out_of_the_queue(name: str, written: str, refused: bool) -> None:
    """As the library writes the expression, and as the queue has it; edited later it is as bad."""
    due = {"RtDeadline": NOW, "RtRunTime": 60}
    sent = problem(**due, **{f"{name}Written": written})
    shown = {name: parse_value(written)}
    if written != "undefined":
        assert problem(**due, **shown) == sent
    edited = requirements_of(ad(**due, **shown), FACTS, fresh=False).problem
    assert edited == problem(**due, **shown)
    option = "on_exit_remove" if name == "OnExitRemove" else "on_exit_hold"
    assert (f"{option} = {written} " in sent and f"or write {option} = ExitCode" in sent) == refused
    assert not problem(RtRunTime=60, **{f"{name}Written": written})


def test_requests_that_only_the_match_gives_a_value() -> None:
    """They are not taken for the default amount."""
    due = {"RtDeadline": NOW, "RtRunTime": 60}
    for name in ("Cpus", "Memory", "Disk"):
        for value in ("error", "TARGET.TotalSlotCpus", "2 * MemoryUsage"):
            said = problem(**due, **{f"Request{name}": Expression(value)})
            assert said.startswith(f"request_{name.lower()} has no value until"), said
    assert not problem(**due, RequestMemory=512)


def test_a_jobs_own_vacate_time_is_planned() -> None:
    """What goes beyond the time that any job has to leave its slot, up to the machines' most."""
    facts = replace(FACTS, vacating=10.0, vacating_most=600.0)
    due = {"RtDeadline": NOW, "RtRunTime": 60}
    for own, more in ((5, 0.0), (10, 0.0), (130, 120.0), (5000, 590.0), ("soon", 0.0)):
        needs = requirements_of(ad(**due, JobMaxVacateTime=own), facts)
        assert needs.wall_time == 60 + 30 + more
        hosts = {"JobUniverse": 11, "MinHosts": 2, "MaxHosts": 2, "JobMaxVacateTime": own}
        assert requirements_of(ad(**due, **hosts), facts).wall_time == 60 + 30 + more
    assert requirements_of(ad(**due), facts).wall_time == 60 + 30
    assert requirements_of(ad(RtDeadline=NOW, AllowedJobDuration=60), facts).wall_time == 60 + 30


def test_a_job_that_asks_for_nothing_has_the_machines_vacate_time() -> None:
    """Whatever limit of HTCondor's own it has; one that states a run time leaves sooner."""
    facts = replace(FACTS, vacating=10.0, vacating_most=600.0)
    limited = ad(JobStatus=2, RemoteHost="s", AllowedJobDuration=300, RtRunTime=300)
    jobs = [limited, ad(RtRunTime=200), limited | {"jobmaxvacatetime": 60}, ad()]
    ads = [one | {"procid": at} for at, one in enumerate(jobs)]
    queue = queue_of(read_ads(ads), facts)
    assert queue.procs.vacating.tolist() == [590.0, 0.0, 50.0, 590.0]


def test_a_divisible_cluster() -> None:
    """A load is one job over as many procs as were queued, at least those that it asks for."""
    load = {"RtSigma": 100, "RtCms": 0.1, "RtCps": 10, "RtDeadline": NOW + 900}
    needs = requirements_of(ad(**load, TotalSubmitProcs=4, RtMinNodes=2), FACTS)
    assert (needs.kind, needs.size_min, needs.size_max) == (Kind.DIVISIBLE, 2, 4)
    assert needs.whole
    assert needs.load["setup_node"] == 30.0
    assert (
        requirements_of(ad(**load, TotalSubmitProcs=40), FACTS).size_max == 5
    )  # all slots there are
    assert "give all" in problem(RtSigma=100, RtDeadline=NOW + 900)


def test_the_run_time_of_a_load_bounds_its_size_from_below() -> None:
    """A chunk must not outlive the stated run time: too few procs are not planned."""
    load = {"RtSigma": 100, "RtCms": 0.01, "RtCps": 10, "RtDeadline": NOW + 9000}
    needs = requirements_of(ad(**load, TotalSubmitProcs=5, RtRunTime=400), FACTS)
    assert needs.size_min == 3  # 100 units of 10 s on two slots take some 500 s
    assert needs.wall_time <= 430.0
    short = {**load, "TotalSubmitProcs": 5, "RtRunTime": 100}
    assert "longer than its run time" in problem(**short)
    assert not requirements_of(ad(**short), FACTS, fresh=False).problem, (
        "what was promised stays so"
    )


def test_parallel_jobs() -> None:
    """MinHosts and MaxHosts make a moldable job of one that wants something; `none` forbids it."""
    hosts = {"JobUniverse": 11, "MinHosts": 2, "MaxHosts": 4, "RtRunTime": 600}
    needs = requirements_of(ad(**hosts, RtDeadline=NOW + 900), FACTS)
    assert (needs.kind, needs.size, needs.size_max) == (Kind.MOLDABLE, 2, 4)
    assert needs.wall_time == 600 + 30.0 * 4 / 2
    assert requirements_of(ad(**hosts, RtDeadline=NOW, RtSpeedup="none"), FACTS).kind == Kind.RIGID
    planned = ad(**hosts | {"MinHosts": 3, "MaxHosts": 3}, RtHosts="2-4", RtDeadline=NOW)
    assert requirements_of(planned, FACTS, fresh=False).size_max == 4
    assert "has 5 suitable ones" in problem(
        **hosts | {"MinHosts": 9, "MaxHosts": 9}, RtDeadline=NOW
    )


@pytest.mark.parametrize(
    ("least", "most", "range_"), [(3, 3, (2, 4)), (3, 6, (3, 6)), (3, 2, (2, 2)), (1, 3, (1, 3))]
)
def test_host_counts_that_a_user_changed_after_they_were_planned(
    least: int, most: int, range_: tuple[int, int]
) -> None:
    """One number is the planned one, of the range in RtHosts; two are what the user wants now."""
    found = ad(JobUniverse=11, MinHosts=least, MaxHosts=most, RtHosts="2-4")
    assert hosts(found) == range_


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("RequestCpus", "TARGET.Cpus", "request_cpus has no value until the job is matched"),
        ("RequestMemory", "1 + target.Memory", "request_memory has no value"),
        ("RequestMemory", "ifThenElse(x, 1, undefined)", ""),
        ("RequestDisk", "MyTarget.Disk", ""),
        ("DeferralTime", "time() + 100", "deferral_time (time() + 100) changes"),
        ("DeferralTime", "QDate + 100", ""),
    ],
)
def test_what_a_user_makes_to_move_after_a_promise(name: str, value: str, says: str) -> None:
    """An edit cannot make of a promised job what would be refused at its submission."""
    found = ad(RtDeadline=NOW + 900, RtRunTime=60, **{name: Expression(value)})
    problem = requirements_of(found, FACTS, fresh=False).problem
    assert problem.startswith(says) if says else not problem
    plain = ad(**{name: Expression(value)})
    assert not requirements_of(plain, FACTS, fresh=False).problem


LOAD = {"RtSigma": 1, "RtCms": 1, "RtCps": 1}


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"RtDeadline": "soon"}, "RtDeadline must be a number"),
        ({"RtDeadline": True, "RtRunTime": 60}, "RtDeadline must be a number"),
        ({"RtRunTime": 0}, "RtRunTime must be above 0"),
        ({"RtRunTime": -5}, "RtRunTime must be a number"),
        ({"RtDeadline": 10.0**15, "RtRunTime": 60}, "RtDeadline must be seconds since the epoch"),
        ({"RtDeadlin": 12}, "rtdeadlin is unknown; did you mean RtDeadline?"),
        ({"RtSpeedup": "fast"}, 'must be "linear" or "none"'),
        ({"RtCheckpoint": 1}, "must be true or false"),
        ({"RtMessageTime": 1}, "needs RtAfter"),
        ({"RtOdds": 0}, "RtOdds must be a percentage above 0 and below 100"),
        ({"RtOdds": 100}, "RtOdds must be a percentage"),
        ({"RtOdds": True}, "RtOdds must be a percentage"),
        ({"RtOdds": "95"}, "RtOdds must be a percentage"),
        ({"RtElse": "wait"}, 'RtElse must be "reject" or "run"'),
        ({"RtElse": True}, 'RtElse must be "reject" or "run"'),
        ({"RtRounds": 2}, "RtRounds needs RtSigma"),
        (
            {"RtSigma": 1, "RtCms": 1, "RtCps": 1, "RtRounds": 0},
            "RtRounds must be a whole number from 1 to 64",
        ),
        (
            {"RtSigma": 1, "RtCms": 1, "RtCps": 1, "RtRounds": 2.5},
            "RtRounds must be a whole number from 1 to 64",
        ),
        (
            {"RtSigma": 1, "RtCms": 1, "RtCps": 1, "RtRounds": True},
            "RtRounds must be a whole number from 1 to 64",
        ),
        ({"RtDeadline": NOW, "RtRunTime": 60, "RtAfter": "12.0 x"}, "RtAfter names jobs"),
        ({"RtDeadline": NOW, "RtRunTime": 60, "RtAfter": "12"}, "jobs with their procs"),
        ({"RtRunTime": 60, "RtAfter": "12.0"}, "use DAGMan"),
        ({"RtDeadline": NOW, "RtRunTime": 60, "RequestGPUs": 1}, "need GPUs"),
        ({"RtDeadline": NOW, "RtRunTime": 60, "RequestCpus": 5}, "no slot has 5 CPUs"),
        ({"RtDeadline": NOW, "RtRunTime": 60, "RequestCpus": 2**63 - 1}, "no slot has 9"),
        ({"RtDeadline": NOW, "RtRunTime": 60, "RequestMemory": 2**63 - 1}, "no slot has"),
        ({"RtDeadline": NOW, "RtRunTime": 60, "RequestMemory": 1e300}, "no slot has"),
        ({"RtDeadline": NOW, "RtRunTime": 60, "RtClass": "slow", "RequestCpus": 3}, "class 'slow'"),
        ({"RtDeadline": NOW, "RtRunTime": 60, "RtClass": "odd"}, "no slot of class 'odd'"),
        ({"RtDeadline": NOW, "RtRunTime": 60, "JobUniverse": 7}, "this universe"),
        (
            {"RtDeadline": NOW, "RtRunTime": 60, "JobUniverse": 11, "TotalSubmitProcs": 2},
            "one queue statement, with machine_count",
        ),
    ],
)
def test_what_makes_no_sense(attributes: dict[str, object], says: str) -> None:
    """One clear sentence tells the user what is wrong."""
    assert says in problem(**attributes)


def test_foreign_attributes_and_ours_are_no_requests() -> None:
    """What others call Rt..., and what rtsched itself wrote, asks for nothing."""
    assert not needs_rtsched(ad(RtMonitor=1, RtRunTime=60))
    assert not problem(RtMonitor=1, **dict.fromkeys(OURS, "x"))
    told = {"RtRunTime", "RtCheckpoint", "RtNotify", "RtElse"}
    assert all(needs_rtsched(ad(**{name: 1})) for name in set(REQUEST_ATTRIBUTES.values()) - told)


def test_parts_are_what_fits() -> None:
    """A job's part holds all slots of its class that are large enough, and no other."""
    assert MASKS[PARTS.of("", 1, 0)].all()
    assert MASKS[PARTS.of("", 2, GB)].tolist() == [True, True, False, False, True]
    assert MASKS[PARTS.of("slow", 1, 0)].tolist() == [False, False, True, True, True]
    assert PARTS.of("slow", 3, 0) == PARTS.of("", 9, 0) == PARTS.of("odd", 1, 0) == ""


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "b"]), st.integers(1, 99), st.integers(0, 99)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from(["", "a", "b"]),
    st.integers(1, 99),
    st.integers(0, 99),
)
def test_no_slot_of_a_part_is_too_small(rows, wanted, cpus, memory) -> None:
    """A part holds no slot that does not fit; where there are few sizes, it holds all that do."""
    kinds, cores, sizes = zip(*rows, strict=True)
    parts, masks = parts_of(kinds, np.array(cores), np.array(sizes))
    fits = np.array([wanted in {"", k} and c >= cpus and m >= memory for k, c, m in rows], np.bool_)
    name = parts.of(wanted, cpus, memory)
    if name:
        assert not (masks[name] & ~fits).any()
        assert parts.nodes[name] == masks[name].sum() > 0
    if len(set(cores)) <= STEPS and len(set(sizes)) <= STEPS:
        assert fits.any() == bool(name)
        assert not name or (masks[name] == fits).all()


def lines(attributes: dict[str, object]) -> str:
    """Return an ad as the library sends it."""
    return "".join(f"{name} = {value}\n" for name, value in attributes.items())


def described(**attributes: object):
    """Return what a submission of the user root means."""
    plain = {"ClusterId": 12, "ProcId": 3, "JobUniverse": 5, "Owner": '"root"'}
    return CondorTranslator().describe({Tag.AD: lines(plain | attributes)}, FACTS, NOW)


def test_a_submission() -> None:
    """The translator names job, user, part and account of a submission."""
    found = described(RtDeadline=NOW + 900, RtRunTime=600, RequestCpus=2, AcctGroup='"phys"')
    row = found.jobs
    assert not found.problem
    assert found.uid == 0
    assert row.labels() == ["12.3"]
    assert row.texts("user") == ["root"]
    assert row.texts("account") == ["phys"]
    assert row.texts("partition") == [f"/2/{GB}"]
    assert (row.deadline[0], row.wall_time[0], row.cores[0]) == (NOW + 900, 630.0, 2)


def test_who_is_nobody_here() -> None:
    """An owner who is no user of this machine is promised nothing, and told why."""
    assert "not a user of this machine" in described(Owner='"nobody-at-all"', RtRunTime=5).problem


def test_who_submits_a_job_that_is_held() -> None:
    """It waits for its user; one whose files are on their way waits for nobody."""
    wish = {"RtDeadline": NOW + 900, "RtRunTime": 600}
    assert described(**wish, JobStatus=5).held
    assert not described(**wish, JobStatus=5, HoldReasonCode=16).held
    assert not described(**wish, JobStatus=1).held


def test_a_deadline_that_is_over() -> None:
    """A deadline before the job could begin is refused as such."""
    assert "before its earliest start" in described(RtDeadline=NOW - 1, RtRunTime=600).problem


def test_jobs_that_wait_for_others() -> None:
    """RtAfter becomes edges to the job itself."""
    found = described(RtDeadline=NOW + 900, RtRunTime=60, RtAfter='"11.0, 12.1"', RtMessageTime=2)
    assert found.edges.before.tolist() == [job_id(11, 0), job_id(12, 1)]
    assert found.edges.message_time.tolist() == [2.0, 2.0]


def test_answers() -> None:
    """A promise carries its token, a deferred job its mark, a rejection only a text."""
    translator, found = CondorTranslator(), described(RtDeadline=NOW + 900, RtRunTime=60)

    def answer(**reply: object):
        return translator.answer(found, SubmitReply(**{"rejected": False, **reply}), FACTS)

    assert answer(rejected=True, text="no") == {Tag.VERDICT: REJECT, Tag.MESSAGE: "no"}
    assert answer(token="t1", text="yes")[Tag.ADMIN_COMMENT] == "rtsched:t1"  # noqa: S106
    assert answer(deferred=True)[Tag.ADMIN_COMMENT] == "rtsched:parked"
    assert answer() == {Tag.VERDICT: ACCEPT}
    found = described(RtRunTime=60, RtAfter='"11.0"')
    assert answer()[Tag.ADMIN_COMMENT] == "rtsched:parked", "it must not start before the other"
    assert "RtAfter" in answer()[Tag.MESSAGE]
    assert "cancelled" not in translator.afterwards, "HTCondor knows no deadline"
    assert translator.asking(NOW + 0.5) == f"+RtDeadline={NOW + 1:.0f}"


def test_a_question_is_described_as_a_submission_would_be() -> None:
    """`rtsched feasible` asks about the same job that a submit file would make."""
    translator = CondorTranslator()

    def asked(**given: object):
        fields = translator.fields_of(FeasibilityRequest(0, NOW + 900.0, **given))
        return translator.describe(fields, FACTS, NOW)

    assert asked(time_s=60.0).jobs.wall_time[0] == 90.0
    assert asked(time_s=60.0, nodes=2, nodes_max=4).jobs.kind[0] == Kind.MOLDABLE
    load = {"sigma": 10.0, "cms": 1.0, "cps": 5.0, "setup_link": 0.5, "rounds": 4}
    found = asked(nodes=1, nodes_max=3, load=load)
    assert found.jobs.kind[0] == Kind.DIVISIBLE
    assert found.jobs.setup_link[0] == 0.5
    assert found.jobs.rounds[0] == 4
    assert found.jobs.setup_node[0] == found.jobs.setup_once[0] == 30.0, "the margin, once"
    assert found.jobs.size_max[0] == 3
    assert asked(time_s=60.0, partition="slow").jobs.texts("partition")[0].startswith("slow/")
    assert not asked(time_s=60.0).problem
    fields = translator.fields_of(
        FeasibilityRequest(0, NOW, cpus_per_task=2, memory=(1 << 30) + 1, gpus=1)
    )
    for line in ("RequestCpus = 2", "RequestMemory = 1025", "RequestGPUs = 1"):
        assert line in str(fields[Tag.AD])
    with pytest.raises(AdapterError, match="HTCondor has no --ntasks"):
        translator.fields_of(FeasibilityRequest(0, NOW, tasks=4))
    with pytest.raises(AdapterError, match="HTCondor has no --licenses"):
        translator.fields_of(FeasibilityRequest(0, NOW, licenses="matlab"))


@given(st.text(max_size=300))
def test_no_ad_breaks_the_translator(text: str) -> None:
    """Whatever stands in an ad, it is described, or what is wrong is said."""
    ad_of(text)
    found = CondorTranslator().describe({Tag.AD: text}, FACTS, NOW)
    assert len(found.jobs) == 1


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
@example("x\u2028ClusterId = 1\u2028ProcId = 0\u2028")
@example("x\x85Owner = undefined\x85")
def test_a_text_is_one_value(text: str) -> None:
    """No text says what other attributes are, whatever ends lines in it."""
    sent = "".join(" " if letter < " " or letter == "\x7f" else letter for letter in text)
    quoted = sent.replace("\\", "\\\\").replace('"', '\\"')
    ad = ad_of(f'ClusterId = 7\nOwner = "ann"\nRtDag = "{quoted}"\n')
    assert ad == {"clusterid": 7.0, "owner": "ann", "rtdag": sent}


@pytest.mark.parametrize("name", REQUEST_ATTRIBUTES.values())
def test_what_is_no_value_is_refused(name: str) -> None:
    """Who said NaN, or what cannot be worked out, reads that; it is not taken for nothing."""
    ad = {"rtruntime": 60.0, "rtdeadline": NOW + 9000.0} | ad_of(f"{name} = error\n")
    assert name in requirements_of(ad, FACTS).problem


NUMBERS = (
    *("minhosts", "maxhosts", "totalsubmitprocs", "requestcpus", "requestmemory", "dagmanjobid"),
    *("deferraltime", "qdate", "jobuniverse", "allowedexecuteduration", "jobprio", "acctgroup"),
)
HOSTILE = [
    1.0e30,
    1.0e305,
    -1.0e305,
    3_000_000_000,
    1 << 62,
    "x" * 500,
    True,
    Expression("((1"),
    None,
]
"""Values that users can write."""


@given(st.dictionaries(st.sampled_from([*NUMBERS, *REQUEST_ATTRIBUTES]), st.sampled_from(HOSTILE)))
def test_no_value_of_a_user_ends_a_poll(given: dict[str, object]) -> None:
    """Whatever stands in a job, the queue is read, and the job described."""
    one = {name.lower(): value for name, value in (ad() | given).items()}
    facts = CondorFacts(margin=30.0, run_time=600.0)
    queue = queue_of(read_ads([one]), facts)
    for fresh in (True, False):
        needs = requirements_of(one, facts, fresh=fresh)
        job_of(one, needs, facts, submit=NOW, begin=-math.inf)
    groups = groups_of(queue, {})
    jobs_of(queue, groups, np.arange(len(groups.job)), facts)


@pytest.mark.parametrize("text", ["(" * 90 + "Foo" + ")" * 90, "-" * 191 + "1", "(-" * 60 + "1"])
def test_expressions_without_end(text: str) -> None:
    """Attributes that name each other in many parentheses are given up, not followed."""
    one = {"a": Expression(text.replace("Foo", "B")), "b": Expression("(" * 60 + "A" + ")" * 60)}
    assert not number(one, "a") > 0
    assert math.isnan(number({"a": 1.0e300}, "a"))


def test_groups_without_end() -> None:
    """A group of a thousand levels is one of eight and the rest."""
    accounts, rows = accounts_of([], [("x@pool", ".".join("a" * 1500)), ("y@pool", "p.q")], {})
    assert len(accounts) < 20
    assert set(rows) == {"x@pool", "y@pool"}

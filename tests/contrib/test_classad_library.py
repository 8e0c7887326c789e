"""HTCondor's ClassAd library without HTCondor's daemons: verdicts, under sanitizers."""

import os
import re
import time
from pathlib import Path

import pytest
from classad_workshop import LIBRARY, Library, Workshop, ad, plain
from filter_server import FilterServer, answering, hanging, sending
from filter_sources import COMMON, ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtsched.adapters.condor.requirements import OURS
from rtsched.adapters.wire import MessageKind, Tag
from rtsched.logs.classads import parse_value

ACCEPTED = ((Tag.VERDICT, 0), (Tag.MESSAGE, "promised"), (Tag.ADMIN_COMMENT, "rtsched:t1"))
REFUSED = ((Tag.VERDICT, 1), (Tag.MESSAGE, "earliest 14:32"))
WISH = ad(RtDeadline=2_000_000_000)
NONE = ("undefined",) * 3
MATERIALIZED = ad(ClusterId=7, JobMaterializeDigestFile='"/spool/7/d"', RtDeadline=9)
FACTORY = ad(ClusterId=7, JobMaterializeDigestFile='"/spool/7/d"', JobFactoryId=7, RtDeadline=9)
VERSION = re.compile(r".*?CondorVersion: (\d+)\.(\d+)\.(\d+)")
VERDICT = 'eval rtschedJudge("verdict")'
ADMISSION = 'eval rtschedJudge("admission")'
MESSAGE = 'eval rtschedJudge("message")'
WANTED = 'eval rtschedJudge("wanted")'
UNOPTIMIZED = ("CFLAGS=-O0", "CXXFLAGS=-O0", "HARDEN=")
"""For make, where it is not the speed that matters."""


def sent(server: FilterServer, question: int = 0) -> dict[str, str]:
    """Return the lines of a question, by name."""
    kind, fields = server.asked[question]
    tags = [Tag.AD, Tag.PASSED, Tag.TIMEOUT_MS, Tag.ASKED_MS]
    assert (kind, list(fields)) == (MessageKind.SUBMIT, tags)
    lines = str(fields[Tag.AD]).splitlines()
    return dict(line.split(" = ", 1) for line in lines)


def test_make_builds_a_library_that_htcondor_loads(each_workshop: Workshop) -> None:
    """`make` builds without a warning; a program with HTCondor's own classes loads the result."""
    each_workshop.built("/opt/built")
    made = "/opt/built/librtsched_classad.so"
    symbols = each_workshop.run(["nm", "-D", "--defined-only", made]).stdout
    own = re.findall(r" [A-TX-Z] (\w+)$", symbols, re.MULTILINE)
    assert [name for name in own if not name.startswith("_ZT")] == ["Init"]
    each_workshop.compile("harness", "/opt/built/harness", "-DSHARED")
    done = each_workshop.run(
        ["/opt/built/harness", made],
        input=f'job {WISH}\n{ADMISSION}\neval rtschedDelay("a")\neval rtschedKept("a", 9)\n',
    )
    assert done.stdout.splitlines() == ['"unjudged"', "1.000000000000000E+00", "0"]


def test_a_library_for_another_release_does_nothing(workshop: Workshop) -> None:
    """Where classes may be laid out otherwise nothing is called, and the log says what to do."""
    major, minor, patch = VERSION.match(workshop.run(["condor_version"]).stdout).groups()
    workshop.compile("harness", "/opt/shared", "-DSHARED")
    workshop.built("/opt/another", *UNOPTIMIZED)
    for version, kept in (
        (f"{major}.{minor}.{int(patch) + 1}", "0"),
        (f"{major}.{minor}{minor}.{patch}", "error"),
        (f"{major}.{int(minor) + 1}.{patch}", "error"),
        (f"{int(major) + 1}.{minor}.{patch}", "error"),
    ):
        workshop.run(["rm", "/opt/another/library.o"])  # it alone knows the release
        workshop.make("/opt/another", f"CONDOR_VERSION={version}", *UNOPTIMIZED)
        words = ["/opt/shared", "/opt/another/librtsched_classad.so"]
        done = workshop.run(words, input='eval rtschedKept("a", 9)\n')
        assert done.stdout == f"{kept}\n"
        told = f"built for HTCondor {version}, this is {major}.{minor}.{patch}: rebuild it"
        assert (told in done.stderr) == (kept == "error")


def test_the_release_to_build_for_must_be_known(workshop: Workshop) -> None:
    """Where nothing tells the release, make says what to give it."""
    workshop.run(["mkdir", "-p", "/opt/unknown"])
    command = ["make", "-C", LIBRARY, "BUILD=/opt/unknown", "CONDOR_VERSION="]
    done = workshop.run(command, check=False)
    assert done.returncode
    assert "say which: make CONDOR_VERSION=" in done.stderr


def test_make_installs_and_uninstalls(workshop: Workshop) -> None:
    """`make install` puts everything in its place and keeps settings that are there."""
    settings = workshop.path("/opt/root/etc/rtsched/submit.conf")
    workshop.built("/opt/install")
    for text in ("timeout_ms", "mine"):
        workshop.make("/opt/install", "DESTDIR=/opt/root", "install")
        assert text in settings.read_text()
        settings.write_text("# mine\n")
    assert workshop.path("/opt/root/usr/lib/rtsched/librtsched_classad.so").exists()
    workshop.make("/opt/install", "DESTDIR=/opt/root", "uninstall")
    found = workshop.run(["find", "/opt/root", "-type", "f"]).stdout.split()
    assert found == ["/opt/root/etc/rtsched/submit.conf"]


def test_best_effort_jobs_are_counted_with_their_run_times(library: Library) -> None:
    """As they are submitted: they may start before the next poll. Managers of DAGs take no slot."""
    jobs = [ad(), ad(RtRunTime=90), ad(JobUniverse=7, RtRunTime=9000)]
    commands = [each for job in jobs for each in (f"job {job}", WANTED)]
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        assert library.run(*commands, f"job {WISH}", ADMISSION)[:3] == ["false"] * 3
    passed = str(server.asked[0][1][Tag.PASSED]).split(",")
    assert {part.partition(":")[2] for part in passed} == {"2", "-2"}


def test_the_example_settings_are_the_defaults(library: Library) -> None:
    """The lines of submit.conf, uncommented, are read without complaint, and name every setting."""
    text = (ROOT / "contrib/condor/submit.conf").read_text()
    library.settings.write_text(re.sub(r"^#(\w+ = )", r"\1", text, flags=re.MULTILINE))
    library.judge(WISH)
    assert "the settings are unchanged" not in library.log
    keys = set(re.findall(r'strcmp\(key, "(\w+)"\)', (COMMON / "rtsched_settings.c").read_text()))
    assert set(re.findall(r"^#(\w+) = ", text, re.MULTILINE)) == keys - {
        "promised_jobs",
        "share_nodes",
    }


@pytest.mark.parametrize(
    "job",
    [
        ad(Owner='"alice"', Requirements="true"),
        ad(RtRunTime=60, RtCheckpoint="true"),
        ad(RtDeadline="undefined"),
        ad(RtDeadline="NoSuchThing + 5"),
        ad(RtAdmission='"forged"', RtNodeSet='"slot1@h"'),
        ad(Rt=5, Artifact=5),
    ],
)
def test_a_job_without_a_wish_is_let_in_unasked(library: Library, job: str) -> None:
    """A job that says no wish, or only describes itself, is none of the daemon's concern."""
    with FilterServer(library.socket, answering(*REFUSED)) as server:
        assert library.judge(job) == NONE
        assert library.run(f"job {job}", WANTED) == ["false"]
    assert server.asked == []


@pytest.mark.parametrize(
    "job", [WISH, ad(rtdeadline=5), ad(RTSIGMA=1), ad(RtDeadlin=5), ad(RtDag="error")]
)
@pytest.mark.parametrize("in_cluster", [False, True])
def test_a_job_with_a_wish_is_judged(library: Library, job: str, in_cluster: bool) -> None:
    """Any other attribute that begins with Rt is asked about, in the job's ad or its cluster's."""
    ads = ("[]", job) if in_cluster else (job, "[]")
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        assert library.run(f"job {ads[0]}", f"cluster {ads[1]}", WANTED) == ["true"]
        assert server.asked == []
        assert library.judge(*ads) == ("t1", "accept", "promised")
    assert len(server.asked) == 1


def test_all_jobs_are_judged_where_the_site_says_so(library: Library) -> None:
    """With judge = all a job without a wish is asked about too; it may stay unmarked."""
    library.set(judge="all")
    with FilterServer(library.socket, answering((Tag.VERDICT, 0))) as server:
        assert library.judge(ad(Owner='"alice"')) == ("undefined", "accept", "undefined")
        assert library.run("job []", WANTED) == ["true"]
    assert sent(server) == {"Owner": '"alice"'}


def test_the_daemon_is_told_what_the_job_says(library: Library) -> None:
    """Expressions are worked out in job and cluster; what is undefined or rtsched's is not sent."""
    job = ad(
        ProcId=1,
        RequestMemory="MemoryUsage ?: 128",
        RtDeadline="QDate + 3600",
        RtSelf="RtSelf",
        RtList="{1, 2}",
        RtReal="1.5e300",
        RtTruth="true",
        RtText=r'"say \"hi\"\n\\"',
        RtAdmission='"forged"',
        Environment='"secret"',
    )
    cluster = ad(ClusterId=12, Owner='"alice"', QDate=1000, RtDeadline=5, RtCps="10 / 4.0")
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        library.judge(job, cluster)
    assert sent(server) == {
        "ClusterId": "12",
        "ProcId": "1",
        "Owner": '"alice"',
        "QDate": "1000",
        "RequestMemory": "128",
        "RtDeadline": "4600",
        "RtCps": "2.5",
        "RtList": "error",
        "RtReal": "1.5e+300",
        "RtTruth": "true",
        "RtText": r'"say \"hi\" \\"',
    }


def test_what_is_required_of_gpus_arrives_as_it_is_written(library: Library) -> None:
    """Only a GPU gives it a value; the limits that condor_submit sets apart have theirs."""
    job = ad(
        RtDeadline=2_000_000_000,
        RequestGPUs=1,
        RequireGPUs='Capability >= GPUsMinCapability && DeviceName == "a\\"b"',
    )
    cluster = ad(GPUsMinCapability="8.0", GPUsMinMemory="1024 * 4")
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        library.judge(job, cluster)
        library.judge(ad(RtDeadline=2_000_000_000), ad(RequireGPUs="true"))
    lines = sent(server)
    assert (float(lines["GPUsMinCapability"]), lines["GPUsMinMemory"]) == (8.0, "4096")
    written = parse_value(lines["RequireGPUs"])
    assert written == 'Capability >= GPUsMinCapability && DeviceName == "a\\"b"'
    assert parse_value(sent(server, 1)["RequireGPUs"]) == "true"


def test_requirements_arrive_with_what_they_refer_to(library: Library) -> None:
    """Attributes of the job and of its cluster with their values, and no machine's."""
    written = (
        "TARGET.Site == MY.Site && Wanted && Memory >= RequestMemory && MY.Missing is undefined"
    )
    written += " && countMatches(MY.RequireGPUs,TARGET.GPUs) >= 1"
    gpus = 'DeviceName isnt "a"'  # true where there is no GPU
    job = ad(RtDeadline=2_000_000_000, Wanted="Level > 1", Other=7, RequireGPUs=gpus)
    cluster = ad(Requirements=written, Site='"a"', Level=2, RequestMemory=128)
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        library.judge(job, cluster)
        library.judge(ad(RtClass='"fast"'), cluster)
    lines = sent(server)
    assert parse_value(lines["Requirements"]) == written
    assert (lines["Site"], lines["Wanted"], lines["RequestMemory"]) == ('"a"', "true", "128")
    assert not {"Memory", "Missing", "Other", "Target"} & lines.keys()
    assert parse_value(lines["RequireGPUs"]) == gpus
    assert str(server.asked[0][1][Tag.AD]).count("RequestMemory = ") == 1
    assert "Requirements" not in sent(server, 1)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_texts_arrive_as_they_are(library: Library, texts: list[str]) -> None:
    """The daemon reads back each text, with spaces for control characters."""
    coded = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    one_line = [re.sub(r"[\n\r]", " ", text) for text in coded]
    job = ad(RtX=1, **{f"RtT{i}": f'"{text}"' for i, text in enumerate(one_line)})
    library.socket.unlink(missing_ok=True)
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        library.judge(job)
    lines = str(server.asked[0][1][Tag.AD]).split("\n")
    found = dict(line.split(" = ", 1) for line in lines if line)
    read = [parse_value(found[f"RtT{i}"]) for i in range(len(texts))]
    assert read == [re.sub(r"[\x00-\x1f\x7f]", " ", text) for text in texts]


def test_what_no_exit_changes_arrives_as_it_is_written(library: Library) -> None:
    """What depends on the exit is false as long as the job has not ended: it is not sent."""
    due = {"RtDeadline": 2_000_000_000}
    constant = ("false", "(FALSE)", "undefined", "0", "!true || 1 == 2")
    depends = ("ExitCode =?= 0", "false || NumJobCompletions > JobMaxRetries", "isUndefined(X)")
    texts = (*constant, *depends, '"false"', "1 - 1", "false || " * 20 + "false")
    jobs = [ad(**due, OnExitHold="true", ClusterId=at) for at in range(len(texts))]
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        for job, text in zip(jobs, texts, strict=True):
            library.judge(job, ad(OnExitRemove=text))
        library.judge(ad(RtClass='"fast"'), ad(OnExitRemove="false"))
    found = [sent(server, at) for at in range(len(texts))]
    assert [parse_value(lines["OnExitHoldWritten"]) for lines in found] == ["true"] * len(texts)
    written = [parse_value(lines.get("OnExitRemoveWritten", "")) for lines in found]
    some = [None if text is None else str(text).strip().lower() for text in written]
    assert some == [*(text.lower() for text in constant), *[None] * (len(texts) - len(constant))]
    assert "OnExitRemoveWritten" not in sent(server, len(texts))


def test_the_list_of_what_is_ours_is_the_adapters(library: Library) -> None:
    """What only rtsched writes is neither a wish nor sent."""
    job = ad(RtX=1, **{name: '"x"' for name in OURS if name != "RtVerdict"})
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        library.judge(job)
    assert sent(server) == {"RtX": "1"}


def test_a_rejection_carries_the_daemons_text(library: Library) -> None:
    """A rejected job has no admission, and its text is one line, whatever the daemon sent."""
    refused = answering(*ACCEPTED, (Tag.VERDICT, 1), (Tag.MESSAGE, "too late\nearliest\x1b[1m 9"))
    with FilterServer(library.socket, refused):
        assert library.judge(WISH) == ("undefined", "reject", "too late earliest [1m 9")


def test_a_rejection_without_a_text_has_one(library: Library) -> None:
    """The user reads something in any case."""
    with FilterServer(library.socket, answering((Tag.VERDICT, 1))):
        assert library.judge(WISH) == ("undefined", "reject", "rtsched: refused")


@pytest.mark.parametrize(
    "field",
    [
        (Tag.VERDICT, 2),
        (Tag.VERDICT, -1),
        (Tag.VERDICT, "0"),
        (Tag.MESSAGE, 3),
        (Tag.ADMIN_COMMENT, 3),
        (Tag.ADMIN_COMMENT, "token"),
        (Tag.ADMIN_COMMENT, "rtsched:"),
        (Tag.ADMIN_COMMENT, "rtsched:two words"),
        (Tag.ADMIN_COMMENT, 'rtsched:"'),
        (Tag.ADMIN_COMMENT, "rtsched:" + "x" * 201),
    ],
)
def test_an_answer_that_makes_no_sense_is_none(
    library: Library, field: tuple[Tag, int | str]
) -> None:
    """One value that cannot be makes the whole answer void."""
    with FilterServer(library.socket, answering((Tag.VERDICT, 0), field)):
        assert library.judge(WISH)[:2] == ("unjudged", "accept")
    assert "its answer is invalid" in library.log


def test_an_answer_may_say_more(library: Library) -> None:
    """Tags that are not known are skipped."""
    more = answering((Tag.ENV, "RTSCHED_A=1"), (Tag.DEADLINE, 3), *ACCEPTED)
    with FilterServer(library.socket, more):
        assert library.judge(WISH) == ("t1", "accept", "promised")


@pytest.mark.parametrize(
    ("policy", "job", "admission", "verdict"),
    [
        ("open", WISH, "unjudged", "accept"),
        ("hold", WISH, "parked", "accept"),
        ("closed", WISH, "undefined", "reject"),
        ("open", ad(Cmd='"x"'), "unjudged", "accept"),
        ("hold", ad(Cmd='"x"'), "parked", "accept"),
        ("closed", ad(Cmd='"x"'), "undefined", "accept"),
        ("open", MATERIALIZED, "unjudged", "accept"),
        ("hold", MATERIALIZED, "parked", "accept"),
        ("closed", MATERIALIZED, "parked", "accept"),
        ("closed", FACTORY, "undefined", "reject"),
    ],
)
@pytest.mark.parametrize("daemon", ["down", "hung", "garbage", "error"])
def test_without_a_verdict_the_sites_policy_holds(
    library: Library, policy: str, job: str, admission: str, verdict: str, daemon: str
) -> None:
    """Open lets the job in, hold parks it, closed refuses it unless a factory made it."""
    library.set(on_failure=policy, judge="all", timeout_ms=30)
    behave = {
        "hung": hanging,
        "garbage": sending(b"\0" * 100),
        "error": answering((Tag.MESSAGE, "rtsched: starting"), kind=MessageKind.ERROR),
    }.get(daemon)
    if behave:
        with FilterServer(library.socket, behave):
            found = library.judge(job)
    else:
        found = library.judge(job)
    assert found[:2] == (admission, verdict)
    if job == WISH:
        assert ("could not evaluate it" in found[2]) == (daemon == "error")
        assert ("the scheduler daemon does not answer" in found[2]) == (daemon != "error")
        assert ("tell your administrators" in found[2]) == (daemon == "error")
    told = "evaluate: starting" if daemon == "error" else "be reached: "
    assert f"rtsched: the daemon could not {told}" in library.log


def test_three_attributes_are_one_question(library: Library) -> None:
    """The last answer is kept while the transform writes it, and for two seconds."""
    asks = [ADMISSION, VERDICT, MESSAGE, ADMISSION]
    marked = ad(RtX=1, RtAdmission='"t1"')
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        library.run(f"job {ad(RtX=1)}", *asks, f"job {marked}", *asks)
        assert len(server.asked) == 1
        library.run(f"job {ad(RtX=1)}", VERDICT, "sleep 2100", VERDICT)
        assert len(server.asked) == 3
        library.run(f"job {ad(RtX=1)}", VERDICT, f"job {ad(RtX=2)}", VERDICT)
        assert len(server.asked) == 5


@pytest.mark.parametrize(
    "said", [{"RtSigma": 5}, {"JobUniverse": 11, "RtX": 1}, {"JobFactoryId": 7, "RtX": 1}]
)
@pytest.mark.parametrize("answer", [ACCEPTED, REFUSED])
def test_a_cluster_that_is_one_job_is_one_question(
    library: Library, said: dict[str, object], answer: tuple[tuple[Tag, int | str], ...]
) -> None:
    """Divisible loads, parallel jobs and factories are decided once, for all of their procs."""
    commands = [f"cluster {ad(ClusterId=7, **said)}"]
    for proc in range(20):
        commands += [f"job {ad(ProcId=proc, RtFraction=0.1)}", VERDICT]
    with FilterServer(library.socket, answering(*answer)) as server:
        verdicts = library.run(*commands, "sleep 2100", VERDICT)
        assert len(server.asked) == 1
        assert len(set(verdicts)) == 1
        library.run(
            f"job {ad(ClusterId=7, **said)}", VERDICT, f"job {ad(ClusterId=8, **said)}", VERDICT
        )
        assert len(server.asked) == 3


def test_a_factorys_answer_is_its_first_jobs(library: Library) -> None:
    """Its first proc gets the cluster's admission unasked; each other one is judged by itself."""
    first, other = (f"job {ad(ProcId=proc, JobFactoryId='undefined')}" for proc in (0, 3))
    asks = [f"cluster {MATERIALIZED}", first, ADMISSION, other, ADMISSION, MESSAGE]
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        found = library.run(f"job {FACTORY}", ADMISSION, *asks)
    assert found[:3] == ['"t1"', '"t1"', '"parked"']
    assert "evaluated in the queue" in found[3]
    assert len(server.asked) == 1


def test_a_factory_of_chunks_is_one_job(library: Library) -> None:
    """All procs of a divisible load have its admission."""
    load = ad(ClusterId=7, JobMaterializeDigestFile='"/spool/7/d"', RtSigma=9)
    with FilterServer(library.socket, answering(*ACCEPTED)):
        found = library.run(f"cluster {load}", f"job {ad(ProcId=3)}", ADMISSION)
    assert found == ['"t1"']


def test_no_cluster_has_the_schedd_wait_for_long(library: Library) -> None:
    """After a second of waiting for one cluster, its other jobs are judged later."""

    def slowly(connection: object, *question: object) -> None:
        time.sleep(0.4)
        answering(*ACCEPTED)(connection, *question)

    library.set(timeout_ms=5000)
    asks = []
    for proc in range(6):
        asks += [f"job {ad(ClusterId=7, ProcId=proc, RtX=proc)}", ADMISSION, MESSAGE]
    with FilterServer(library.socket, slowly) as server:
        found = library.run(*asks, f"job {ad(ClusterId=8, RtX=1)}", ADMISSION)
    assert found[0] == found[-1] == '"t1"'
    assert found[10] == '"parked"'
    assert "evaluated in the queue" in found[11]
    assert 4 <= len(server.asked) < 7


def test_what_is_materialised_is_never_refused(library: Library) -> None:
    """A refusal would stop the factory in silence: the daemon's "no" parks the job."""
    with FilterServer(library.socket, answering(*REFUSED)) as server:
        assert library.judge(MATERIALIZED) == ("parked", "accept", "earliest 14:32")
    assert len(server.asked) == 1


def test_a_cluster_that_nobody_judged_is_asked_about_again(library: Library) -> None:
    """While the daemon is away a cluster is unjudged; soon after it is back, it is judged."""
    library.set(breaker_ms=1)
    (first,) = library.run(f"job {MATERIALIZED}", ADMISSION)
    assert first == '"unjudged"'
    library.set(breaker_ms=1, socket=f"{library.place}/later")
    with FilterServer(library.socket.with_name("later"), answering(*ACCEPTED)):
        library.set(breaker_ms=1, socket=f"{library.place}/none")
        second = library.run(f"job {MATERIALIZED}", ADMISSION, "sleep 10", ADMISSION)
        assert second == ['"unjudged"', '"unjudged"']
        library.set(breaker_ms=1, socket=f"{library.place}/later")
        assert library.run(f"job {MATERIALIZED}", ADMISSION) == ['"t1"']


def test_a_thousand_clusters_are_remembered(library: Library) -> None:
    """What is remembered is bounded: the oldest cluster goes first."""
    commands = []
    for cluster in [*range(1025), 1024, 1, 0]:
        commands += [f"job {ad(ClusterId=cluster, RtSigma=1)}", VERDICT]
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        library.run(*commands, timeout=240)
    assert len(server.asked) == 1026


@pytest.mark.parametrize("verdict", ["undefined", '"accept"', '"reject"', "error", "5"])
def test_outside_its_transform_no_job_is_asked_about(library: Library, verdict: str) -> None:
    """Whatever expression or query calls the function later, nobody is asked."""
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        assert library.judge(ad(RtDeadline=9, RtVerdict=verdict, RtAdmission='"t0"')) == NONE
        open_one = '[ RtVerdict = "open"; RtDeadline = 9; x = rtschedJudge("verdict") ].x'
        assert library.run(f"job {ad(RtX=9, RtVerdict=verdict)}", f"eval {open_one}") == [
            "undefined"
        ]
    assert server.asked == []


def test_nobody_can_ask_in_anothers_name(library: Library) -> None:
    """An ad within the job's own expressions is not what is judged."""
    nested = 'eval [ Owner = "bob"; RtDeadline = 5; x = rtschedJudge("verdict") ].x'
    job = ad(Owner='"alice"', RtDeadline=9)
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        assert library.run(f"job {job}", nested) == ['"accept"']
    assert sent(server) == {"Owner": '"alice"', "RtDeadline": "9"}


def test_a_wish_that_asks_itself_ends(library: Library) -> None:
    """An attribute that calls the function while the job is described is an error, and no crash."""
    job = ad(RtA='rtschedJudge("verdict")', RtB='[ RtC = 1; x = rtschedJudge("message") ].x')
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        assert library.judge(job) == ("t1", "accept", "promised")
    assert sent(server) == {"RtA": "error", "RtB": "error"}


@pytest.mark.parametrize(
    "call",
    [
        "rtschedJudge()",
        'rtschedJudge("verdicts")',
        "rtschedJudge(5)",
        "rtschedJudge(undefined)",
        'rtschedJudge("verdict", [ RtDeadline = 5 ])',
        "rtschedDelay()",
        'rtschedDelay("a", "b")',
        'rtschedDelay("a", 1, 2)',
        'rtschedKept("a")',
        'rtschedKept("a", 1, 2)',
    ],
)
def test_a_wrong_call_is_an_error(library: Library, call: str) -> None:
    """Wrong arguments are told as ClassAds tell errors."""
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        assert library.run(f"job {WISH}", f"eval {call}") == ["error"]
    assert server.asked == []


def test_a_daemon_that_hangs_is_left_alone(library: Library) -> None:
    """Of 1,000 jobs two wait for the time-out; then the breaker is open."""
    library.set(timeout_ms=50)
    commands = [line for i in range(1000) for line in (f"job {ad(RtDeadline=i)}", ADMISSION)]
    with FilterServer(library.socket, hanging) as server:
        begin = time.monotonic()
        found = library.run(*commands)
        seconds = time.monotonic() - begin
    assert set(found) == {'"unjudged"'}
    assert [kind for kind, _ in server.asked].count(MessageKind.SUBMIT) == 2
    assert seconds < 3
    assert library.log.count("after 2 failures in a row") == 1


@pytest.mark.parametrize(("job", "verdict"), [("[]", "reject"), (MATERIALIZED, "accept")])
def test_a_description_that_is_too_long_is_not_sent(
    library: Library, job: str, verdict: str
) -> None:
    """A job of more than 256 KiB is refused unless a factory made it; the breaker stays closed."""
    long = ad(RtText='"' + "x" * 300_000 + '"')
    commands = [line for _ in range(5) for line in (VERDICT, MESSAGE)]
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        found = library.run(f"cluster {job}", f"job {long}", *commands)
    assert {plain(value) for value in found[::2]} == {verdict}
    assert all("longer than 256 KiB" in value for value in found[1::2])
    assert server.asked == []
    assert "error" not in library.log.replace("error: rtsched: there is no user", "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "submit.conf:5: a line must be key = value"),
        ("table = here", "submit.conf:5: table must be a path that begins with /"),
        ("table = /" + "x" * 300, "table must not be empty or too long"),
        ("tables = 5", "submit.conf:5: tables is unknown"),
    ],
)
def test_a_bad_settings_file_is_named_and_left_out(library: Library, line: str, says: str) -> None:
    """The log names file, line and what is wrong; the defaults hold."""
    library.settings.write_text(library.settings.read_text() + line + "\n")
    assert library.judge(WISH)[0] == "unjudged"
    assert says in library.log
    assert "the settings are unchanged" in library.log


def test_settings_are_read_again_when_they_change(library: Library) -> None:
    """A change holds within a second or two, without a restart of the schedd.

    The kernel's clock may not have ticked between two versions of the file.
    """
    with library.workshop.popen(
        [library.program],
        stdin=-1,
        env={"RTSCHED_SUBMIT_CONF": f"{library.place}/submit.conf"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for job, policy, verdict in ((1, "closed", "reject"), (2, "open", "accept")):
            process.stdin.write(f"sleep 1100\njob {ad(RtX=job)}\n{VERDICT}\n")
            library.set(on_failure=policy)
            os.utime(library.settings, (1e9, 1e9))
            process.stdin.flush()
            assert process.stdout.readline() == f'"{verdict}"\n'
        process.communicate()


def test_the_readme_names_every_file(library: Library) -> None:
    """What the sources are is said in the README."""
    text = (ROOT / "contrib/condor/README.md").read_text()
    files: list[Path] = sorted((ROOT / "contrib/condor").glob("*.[ch]*"))
    assert files
    for file in files:
        assert f"`{file.name}`" in text or f"`{file.stem}.*`" in text, file.name


PER_SLOT = 'eval rtschedJudge("perslot")'
DEADLINE = 'eval rtschedJudge("deadline")'
ARRAY = (*ACCEPTED, (Tag.NTASKS_PER_NODE, 2))


def proc(number: int, **said: object) -> str:
    """Return the command that names a proc of a cluster of three."""
    whole = {"ClusterId": 12, "ProcId": number, "TotalSubmitProcs": 3, "RtDeadline": 2_000_000_000}
    return f"job {ad(**(whole | {'RequestCpus': 1} | said))}"


def test_an_answer_on_a_whole_cluster(library: Library) -> None:
    """The first proc's answer is that of all; their deadline is the first one's."""
    asked = (PER_SLOT, DEADLINE, ADMISSION, VERDICT)
    commands = [
        line
        for number in range(3)
        for line in (proc(number, RtDeadline=2_000_000_000 + number), *asked)
    ]
    with FilterServer(library.socket, answering(*ARRAY)) as server:
        found = library.run(*commands)
    assert found == ["2", "2000000000", '"t1"', '"accept"'] * 3
    assert len(server.asked) == 1
    assert (sent(server)["WholeCluster"], sent(server)["TotalSubmitProcs"]) == ("true", "3")


def test_without_a_mark_each_proc_is_a_question(library: Library) -> None:
    """The daemon is told of whole clusters only by a transform that keeps what it answers."""
    commands = [line for number in range(2) for line in (proc(number), ADMISSION)]
    with FilterServer(library.socket, answering(*ACCEPTED)) as server:
        assert library.run(*commands) == ['"t1"', '"t1"']
        assert "WholeCluster" not in sent(server)
        single = library.run(proc(0), PER_SLOT, DEADLINE, proc(1), PER_SLOT)
    assert single == ["undefined"] * 3
    assert len(server.asked) == 4


def test_disk_that_follows_from_files_may_differ(library: Library) -> None:
    """So it is by default; where a number is stated, all must state the same."""
    asked = [
        proc(at, RequestDisk=disk, DiskUsage=5 + at)
        for at, disk in enumerate(("DiskUsage", "MAX({ 1,DiskUsage }) * 2", 5))
    ]
    with FilterServer(library.socket, answering(*ARRAY)) as server:
        found = library.run(asked[0], PER_SLOT, asked[1], VERDICT, asked[2], VERDICT, MESSAGE)
        assert sent(server)["RequestDisk"] == "5"
    assert found[:3] == ["2", '"accept"', '"reject"']
    assert "they differ in RequestDisk" in found[3]


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"RequestCpus": 2}, "RequestCpus"),
        ({"RequestMemory": 64}, "RequestMemory"),
        ({"RtRunTime": 60}, "RtRunTime"),
        ({"RtDeadline": 1_999_999_999}, "RtDeadline"),
        ({"TotalSubmitProcs": 4}, "TotalSubmitProcs"),
        ({"RequireGPUs": "Capability > 8"}, "RequireGPUs"),
        ({"RequestDisk": 4096}, "RequestDisk"),
        ({"Requirements": "Site == 2"}, "Requirements"),
    ],
)
def test_procs_of_a_whole_cluster_are_alike(library: Library, said, what: str) -> None:
    """One that differs is turned away; in its command and its number it may."""
    with FilterServer(library.socket, answering(*ARRAY)) as server:
        found = library.run(
            proc(0, Cmd='"a"'),
            PER_SLOT,
            proc(1, Cmd='"b"'),
            VERDICT,
            proc(2, **said),
            VERDICT,
            MESSAGE,
        )
    assert found[:3] == ["2", '"accept"', '"reject"']
    assert f"must be alike, and they differ in {what}; submit" in found[3]
    assert len(server.asked) == 1


@pytest.mark.parametrize(("needs", "what"), [("Site == MY.Want", "Want"), ("ProcId < 3", "ProcId")])
def test_their_requirements_mean_the_same(library: Library, needs: str, what: str) -> None:
    """Not only their words; sizes of files, which are not planned with, may differ."""
    asked = [
        proc(at, Requirements=f"{needs} && Disk >= DiskUsage", Want=at, DiskUsage=at)
        for at in range(2)
    ]
    alike = [
        proc(at, Requirements="Site == MY.Want && Disk >= DiskUsage", Want=1, DiskUsage=at)
        for at in range(2)
    ]
    with FilterServer(library.socket, answering(*ARRAY)) as server:
        found = library.run(asked[0], PER_SLOT, asked[1], VERDICT, MESSAGE)
        same = library.run(alike[0], PER_SLOT, alike[1], VERDICT)
    assert found[:2] == ["2", '"reject"']
    assert f"they differ in {what};" in found[2]
    assert same == ["2", '"accept"']
    assert len(server.asked) == 2

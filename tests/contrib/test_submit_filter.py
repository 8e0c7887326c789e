"""Slurm's submit filter without Slurm: every path, under sanitizers, with hostile jobs."""

import itertools
import math
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from filter_harness import DENIED, UNSET, UNSET_16, USER, Filter
from filter_server import ACCEPTED, Behaviour, FilterServer, answering, hanging, sending
from filter_sources import ADDRESSES, COMMON, FILTER, PROGRAMS, SLURM, THREADS, Build

from rtsched.adapters.wire import MessageKind, Tag


def submissions(server: FilterServer) -> int:
    """Return about how many jobs that are submitted a daemon was asked."""
    return sum(kind is MessageKind.SUBMIT for kind, _ in server.asked)


def hangs_for(count: int) -> Behaviour:
    """Do not answer about so many submitted jobs; answer all else."""
    answer, numbers = answering(*ACCEPTED), itertools.count()

    def behave(
        connection: socket.socket, kind: MessageKind, fields: Mapping[int, int | str]
    ) -> None:
        if kind is not MessageKind.SUBMIT or next(numbers) >= count:
            answer(connection, kind, fields)

    return behave


def test_it_compiles_with_the_makefile(each_slurm: Path, tmp_path: Path) -> None:
    """`make` builds the plug-in without a warning, and it exports what Slurm looks for."""
    command = ["make", "-C", SLURM, f"BUILD={tmp_path}", f"SLURM_INCLUDE={each_slurm}"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", tmp_path / "job_submit_rtsched.so"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in ("init", "fini", "job_submit", "job_modify"):
        assert f" T {name}\n" in symbols
    for name in ("plugin_name", "plugin_type", "plugin_version"):
        assert f" R {name}\n" in symbols


def test_make_installs_and_uninstalls(slurm_include: Path, tmp_path: Path) -> None:
    """`make install` puts everything in its place and keeps settings that are there."""
    places = [f"BUILD={tmp_path}", f"DESTDIR={tmp_path}/root", "PLUGINDIR=/usr/lib/slurm"]
    command = ["make", "-C", SLURM, f"SLURM_INCLUDE={slurm_include}", *places]
    settings = tmp_path / "root/etc/rtsched/submit.conf"
    for text in ("timeout_ms", "mine"):
        subprocess.run([*command, "install"], check=True, capture_output=True, timeout=120)
        assert text in settings.read_text()
        settings.write_text("# mine\n")
    installed = {
        str(path.relative_to(tmp_path / "root")) for path in (tmp_path / "root").rglob("*")
    }
    files = {
        "usr/lib/slurm/job_submit_rtsched.so",
        "usr/libexec/rtsched/task_prolog.sh",
        "usr/share/man/man7/rtsched-submit.7",
    }
    assert files < installed
    subprocess.run([*command, "uninstall"], check=True, capture_output=True, timeout=120)
    left = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert left == [settings]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("PluginDir               = /usr/lib64/slurm", "/usr/lib64/slurm"),
        ("PluginDir               = /opt/site/slurm:/opt/slurm/lib/slurm", "/opt/slurm/lib/slurm"),
    ],
)
def test_make_installs_where_the_running_slurm_looks(tmp_path: Path, line: str, place: str) -> None:
    """Without PLUGINDIR the plug-in goes into the directory of which the controller tells."""
    scontrol = tmp_path / "bin/scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f"#!/bin/sh\necho 'PluginDirectory = /x'\necho '{line}'\n")
    scontrol.chmod(0o755)
    done = subprocess.run(
        ["make", "-n", "-C", SLURM, f"BUILD={tmp_path}", "install"],
        env={"PATH": f"{scontrol.parent}:/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f" {place}/job_submit_rtsched.so" in done.stdout


def test_the_example_settings_are_the_defaults(tested: Filter) -> None:
    """The lines of submit.conf, uncommented, are read without complaint, and name every setting."""
    text = (SLURM / "submit.conf").read_text()
    tested.settings.write_text(re.sub(r"^#(\w+ = )", r"\1", text, flags=re.MULTILINE))
    tested.submit("name=plain")
    assert "submit.conf:" not in tested.log
    keys = set(re.findall(r'strcmp\(key, "(\w+)"\)', (COMMON / "rtsched_settings.c").read_text()))
    assert set(re.findall(r"^#(\w+) = ", text, re.MULTILINE)) == keys - {"table"}  # HTCondor's


def test_a_job_without_a_wish_is_let_in_unasked(tested: Filter) -> None:
    """A job without deadline and word of ours passes as it was, and nobody is asked."""
    with FilterServer(tested.socket, answering(*ACCEPTED)) as server:
        job = tested.submit("comment=mine", "name=a", "time_limit=5")
    assert (job["returned"], job["message"], job["admin_comment"]) == ("0", "", "")
    assert server.asked == []


@pytest.mark.parametrize(
    "wish", ["deadline=2000000000", "comment=x rtsched:sigma=1", "extra=rtsched:dag=d"]
)
def test_a_job_with_a_wish_is_judged(tested: Filter, wish: str) -> None:
    """A deadline or a word in comment or extra is enough to be asked about."""
    with FilterServer(tested.socket, answering(*ACCEPTED)) as server:
        assert tested.submit(wish)["message"] == "promised"
    assert server.asked[0][0] == MessageKind.SUBMIT


def test_all_jobs_are_judged_where_the_site_says_so(tested: Filter) -> None:
    """With judge = all a job without a wish is asked about too."""
    tested.set(judge="all")
    with FilterServer(tested.socket, answering(*ACCEPTED)) as server:
        tested.submit("name=plain")
    assert server.asked[0][1][Tag.NAME] == "plain"


def test_the_daemon_is_told_what_was_asked_for(tested: Filter) -> None:
    """Offsets and unit flags are taken off, unlimited is -1, and what was left open is not sent."""
    begin = math.floor(time.monotonic() * 1000.0)
    with FilterServer(tested.socket, answering(*ACCEPTED)) as server:
        tested.submit(
            *("deadline=2000000000", f"time_limit={2**32 - 1}", "min_nodes=2", "max_nodes=8"),
            *(f"nice={2**31 - 7}", f"pn_min_memory={2**63 + 100}", "script=#!/bin/sh", "env=2"),
            *("contiguous=1", "end_time=5", "clusters=a,b"),
        )
    asked = server.asked[0][1]
    assert begin <= int(asked.pop(Tag.ASKED_MS)) <= time.monotonic() * 1000.0
    assert asked == {
        Tag.SUBMIT_UID: USER,
        Tag.DEADLINE: 2_000_000_000,
        Tag.TIME_LIMIT: -1,
        Tag.MIN_NODES: 2,
        Tag.MAX_NODES: 8,
        Tag.NICE: -7,
        Tag.MEM_PER_CPU: 100,
        Tag.BATCH: 1,
        Tag.OTHER: "contiguous,clusters,end-time",
        Tag.CONTIGUOUS: 1,
        Tag.CLUSTERS: "a,b",
        Tag.PASSED: "",
        Tag.TIMEOUT_MS: 300,
    }


def test_the_layout_of_tasks_is_sent(tested: Filter) -> None:
    """How tasks lie on nodes has fields of its own, and names for a daemon that knows none."""
    with FilterServer(tested.socket, answering(*ACCEPTED)) as server:
        tested.submit(
            *("deadline=2000000000", "tres_per_task=cpu=2", "cpus_per_tres=gres/gpu:4"),
            *("mem_per_tres=gres/gpu:2048", "sockets_per_node=2", "cores_per_socket=3"),
            *("threads_per_core=1", "ntasks_per_socket=5", f"ntasks_per_core={2**16 - 1}"),
            *("ntasks_per_tres=6", "req_switch=1", "contiguous=1", "overcommit=1"),
            *("submit_line*300=sbatch ", "alloc_node=login1"),
        )
    asked = server.asked[0][1]
    del asked[Tag.TIMEOUT_MS], asked[Tag.ASKED_MS], asked[Tag.PASSED]
    assert asked == {
        Tag.SUBMIT_UID: USER,
        Tag.DEADLINE: 2_000_000_000,
        Tag.TRES_PER_TASK: "cpu=2",
        Tag.CPUS_PER_TRES: "gres/gpu:4",
        Tag.MEM_PER_TRES: "gres/gpu:2048",
        Tag.SOCKETS_PER_NODE: 2,
        Tag.CORES_PER_SOCKET: 3,
        Tag.THREADS_PER_CORE: 1,
        Tag.NTASKS_PER_SOCKET: 5,
        Tag.NTASKS_PER_CORE: -1,
        Tag.NTASKS_PER_TRES: 6,
        Tag.CONTIGUOUS: 1,
        Tag.REQ_SWITCH: 1,
        Tag.OVERCOMMIT: 1,
        Tag.SUBMIT_LINE: ("sbatch " * 300)[:1024],
        Tag.ALLOC_NODE: "login1",
        Tag.BATCH: 0,
        Tag.OTHER: "contiguous,sockets-per-node,cores-per-socket,threads-per-core,"
        "ntasks-per-socket,ntasks-per-core,ntasks-per-gpu,cpus-per-gpu,mem-per-gpu,switches",
    }


@pytest.mark.parametrize(
    ("asked", "named"),
    [("immediate=1", "immediate"), ("warn_flags=256", "signal=R"), ("warn_flags=1", None)],
)
def test_what_lets_a_job_start_otherwise_is_named(
    tested: Filter, asked: str, named: str | None
) -> None:
    """At once or not at all, or in a reservation of others; a signal to the script does not."""
    with FilterServer(tested.socket, answering(*ACCEPTED)) as server:
        tested.submit("deadline=2000000000", asked)
    assert server.asked[0][1].get(Tag.OTHER) == named


@pytest.fixture
def in_slurmctld(build: Build, slurm_include: Path, tmp_path: Path) -> Filter:
    """Return the filter in a program that has what it looks up in slurmctld."""
    flags = (*ADDRESSES, f"-I{slurm_include}", "-rdynamic")
    sources = [PROGRAMS / f"{name}.c" for name in ("harness", "fake_slurm", "fake_slurmctld")]
    place = tmp_path / "in_slurmctld"
    place.mkdir()
    return Filter(build("in_slurmctld", *sources, *FILTER, flags=flags), place)


@pytest.mark.parametrize(
    ("dependency", "unknown"),
    [
        ("afterok:7:8", None),
        ("afterok:9", "9"),
        ("afterany:7,afternotok:9:8_3:8_4?after:12+5", "9,8_4,12"),
        ("afterok:8_*:9_*:8_[1,9]", "9"),
        ("aftercorr:4294967303:4294967296", "4294967296"),
        ("singleton,afterok:", None),
        ("afterok:-1: 9:+9:x9:_1", None),
        ("afterok:" + ":".join(["9"] * 9000), ",".join(["9"] * 64)),
    ],
)
def test_the_daemon_is_told_which_jobs_of_a_dependency_slurmctld_does_not_know(
    in_slurmctld: Filter, tested: Filter, dependency: str, unknown: str | None
) -> None:
    """As slurmctld reads the numbers. Elsewhere the filter tells nothing."""
    for each, told in ((in_slurmctld, unknown), (tested, None)):
        with FilterServer(each.socket, answering(*ACCEPTED)) as server:
            each.submit("deadline=2000000000", f"dependency={dependency}")
        (fields,) = (fields for _, fields in server.asked)
        assert fields.get(Tag.UNKNOWN_JOBS) == told


def test_the_daemon_is_told_what_is_idle_now(in_slurmctld: Filter) -> None:
    """Where slurmctld has these variables; names that a request has no room for are left out."""
    tested = in_slurmctld
    with FilterServer(tested.socket, answering(*ACCEPTED)) as server:
        tested.submit("deadline=2000000000")
        tested.submit("deadline=2000000000", "comment*62500=abcd")
    first, second = (fields for _, fields in server.asked)
    assert first[Tag.IDLE_NODES] == "n[1-3,5]"
    assert first[Tag.AVAIL_NODES] == "n[1-9]"
    assert first[Tag.LAST_NODE_UPDATE] == 1_900_000_000
    assert Tag.IDLE_NODES not in second
    assert second[Tag.PASSED] == ""


@pytest.mark.parametrize(
    ("limit", "noted"), [("time_limit=5", "5"), (f"time_limit={2**32 - 1}", "-1"), ("name=a", "-2")]
)
def test_what_passes_is_noted_with_its_limit(tested: Filter, limit: str, noted: str) -> None:
    """By the second, whoever submits; the daemon may not have seen it yet."""
    with FilterServer(tested.socket, answering(*ACCEPTED)) as server:
        tested.submit(limit, "deadline=2000000000", count=2)
    passed = [str(fields[Tag.PASSED]) for _, fields in server.asked]
    assert passed[0] == ""
    assert abs(int(passed[1].partition(":")[0]) - time.time()) < 60
    assert passed[1].partition(":")[2] == noted


def test_an_answer_is_carried_out(tested: Filter) -> None:
    """Every field that the daemon may set is set, and tags that are not known are skipped."""
    answer = answering(
        *((Tag.VERDICT, 0), (Tag.MESSAGE, "promised\tby 14:10\x1b[1m")),
        *((Tag.MIN_NODES, 3), (Tag.MAX_NODES, 3), (Tag.REQ_NODES, "n[1-3]"), (Tag.FEATURES, "f")),
        *((Tag.TIME_LIMIT, 17), (Tag.SITE_FACTOR, -42), (Tag.PRIORITY, 5), (Tag.NICE, 7)),
        *((Tag.ADMIN_COMMENT, "rtsched:abc"), (Tag.COMMENT, "c"), (Tag.SHARED, 0)),
        *((Tag.RESERVATION, "rtsched_1"), (Tag.ENV, "RTSCHED_A=1"), (Tag.ENV, "RTSCHED_B=x=y")),
        *((Tag.ENV, "RTSCHED_A=2"), (Tag.LICENSES, "not settable"), (Tag.NTASKS_PER_NODE, 6)),
        *((Tag.TIME_MIN, 0), (Tag.PREFER, ""), (Tag.PARTITION, "b,a")),
    )
    with FilterServer(tested.socket, answer):
        own = ("comment=mine", "features=mine", "prefer=mine", "env=3000", "time_min=4")
        job = tested.submit("deadline=9", *own)
    assert job == {
        "returned": "0",
        "message": "promised by 14:10 [1m",
        "admin_comment": "rtsched:abc",
        "partition": "b,a",
        "comment": "c",
        "features": "f",
        "req_nodes": "n[1-3]",
        "reservation": "rtsched_1",
        "min_nodes": "3",
        "max_nodes": "3",
        "time_limit": "17",
        "priority": "5",
        "site_factor": "-42",
        "nice": "7",
        "shared": "0",
        "ntasks_per_node": "6",
        "time_min": UNSET,
        "prefer": "",
        "env": "RTSCHED_B=x=y",
        "env_size": "3002",
    }


def test_a_job_without_environment_gets_none(tested: Filter) -> None:
    """An interactive job carries no environment; variables for it are left out."""
    with FilterServer(tested.socket, answering(*ACCEPTED, (Tag.ENV, "RTSCHED_A=1"))):
        assert tested.submit("deadline=9")["env_size"] == "0"


def test_a_rejection_is_read_by_the_user(tested: Filter) -> None:
    """A rejected job is refused with the daemon's text, and none of its fields is touched."""
    answer = answering((Tag.MIN_NODES, 3), (Tag.VERDICT, 1), (Tag.MESSAGE, "earliest 14:32"))
    with FilterServer(tested.socket, answer):
        job = tested.submit("deadline=9")
    assert (job["returned"], job["message"], job["min_nodes"]) == (DENIED, "earliest 14:32", UNSET)


@pytest.mark.parametrize(
    "field",
    [
        (Tag.VERDICT, 2),
        (Tag.VERDICT, -1),
        (Tag.VERDICT, "0"),
        (Tag.MIN_NODES, 0),
        (Tag.MAX_NODES, 2**31),
        (Tag.MIN_NODES, "3"),
        (Tag.TIME_LIMIT, 0),
        (Tag.TIME_MIN, 1),
        (Tag.PREFER, "fast"),
        (Tag.TIME_LIMIT, 2**32 - 2),
        (Tag.SITE_FACTOR, 2**31 - 1),
        (Tag.NICE, -(2**40)),
        (Tag.PRIORITY, -1),
        (Tag.SHARED, 7),
        (Tag.NTASKS_PER_NODE, 0),
        (Tag.COMMENT, 3),
        (Tag.MESSAGE, 3),
        (Tag.ENV, "PATH=/tmp/evil"),
        (Tag.ENV, "LD_PRELOAD=x"),
        (Tag.ENV, "RTSCHED_A B=1"),
        (Tag.ENV, "RTSCHED_A"),
        (Tag.ENV, 1),
    ],
)
def test_an_answer_out_of_range_is_no_answer(tested: Filter, field: tuple[Tag, int | str]) -> None:
    """One value that a job cannot have makes the whole answer void: nothing of it is set."""
    answer = answering((Tag.VERDICT, 0), (Tag.FEATURES, "f"), field)
    with FilterServer(tested.socket, answer):
        job = tested.submit("deadline=9", "env=1")
    assert job["admin_comment"] == "rtsched:unjudged"
    assert (job["features"], job["min_nodes"], job["env_size"]) == ("", UNSET, "1")
    assert "its answer is invalid" in tested.log


@pytest.mark.parametrize(
    ("policy", "wish", "returned", "mark", "priority"),
    [
        ("open", "deadline=9", "0", "rtsched:unjudged", UNSET),
        ("hold", "deadline=9", "0", "rtsched:parked", "0"),
        ("closed", "deadline=9", DENIED, "", UNSET),
        ("closed", "comment=rtsched:sigma=1", DENIED, "", UNSET),
        ("closed", "name=plain", "0", "", UNSET),
        ("open", "name=plain", "0", "rtsched:unjudged", UNSET),
    ],
)
@pytest.mark.parametrize("daemon", ["down", "hung", "garbage", "error"])
def test_without_a_verdict_the_sites_policy_holds(
    tested: Filter, policy: str, wish: str, returned: str, mark: str, priority: str, daemon: str
) -> None:
    """Open lets the job in, hold parks it, closed refuses it; its user is told."""
    patience = 30 if daemon == "hung" else 10_000
    tested.set(on_failure=policy, judge="all", timeout_ms=patience)
    behave = {
        "hung": hanging,
        "garbage": sending(b"\0" * 100),
        "error": answering((Tag.MESSAGE, "rtsched: starting"), kind=MessageKind.ERROR),
    }.get(daemon)
    if behave:
        with FilterServer(tested.socket, behave):
            job = tested.submit(wish)
    else:
        job = tested.submit(wish)
    assert (job["returned"], job["admin_comment"], job["priority"]) == (returned, mark, priority)
    says = "could not evaluate it" if daemon == "error" else "does not answer"
    assert (f"the scheduler daemon {says}" in job["message"]) == (wish != "name=plain")
    told = "evaluate: starting" if daemon == "error" else "be reached: "
    assert f"rtsched: the daemon could not {told}" in tested.log


def test_a_job_that_its_user_holds_is_not_parked(tested: Filter) -> None:
    """The daemon releases what it parked, so a user's own hold must look different."""
    tested.set(on_failure="hold")
    job = tested.submit("deadline=9", "priority=0")
    assert (job["priority"], job["admin_comment"]) == ("0", "rtsched:unjudged")


@pytest.mark.parametrize(
    ("share", "asks", "shared"),
    [
        ("false", "num_tasks=1", "0"),
        ("true", "num_tasks=1", UNSET_16),
        ("true", "max_nodes=1", UNSET_16),
        ("true", "num_tasks=8", "0"),
        ("true", "num_tasks=1 begin_time=4000000000", "0"),
        ("true", "num_tasks=1 dependency=afterok:5", "0"),
        ("true", "num_tasks=1 het_job_offset=0", "0"),
        ("false", "array_inx=1-9", UNSET_16),
    ],
)
def test_which_held_jobs_get_whole_nodes(
    tested: Filter, share: str, asks: str, shared: str
) -> None:
    """All without `share_nodes`; with it those on several nodes, and those that wait."""
    tested.set(on_failure="hold", share_nodes=share)
    job = tested.submit("deadline=9", *asks.split())
    assert (job["admin_comment"], job["shared"]) == ("rtsched:parked", shared)


def test_a_daemon_that_hangs_is_left_alone(tested: Filter) -> None:
    """Of 1,000 jobs two wait for the time-out; then the breaker is open."""
    tested.set(timeout_ms=50)
    with FilterServer(tested.socket, hanging) as server:
        begin = time.monotonic()
        job = tested.submit("deadline=9", count=1000)
        seconds = time.monotonic() - begin
    assert job["admin_comment"] == "rtsched:unjudged"
    assert submissions(server) == 2
    assert len(server.asked) <= 3  # and once whether it answers again
    assert seconds < 2
    assert tested.log.count("after 2 failures in a row") == 1


def test_a_daemon_that_stood_still_for_a_moment_is_asked_again_at_once(tested: Filter) -> None:
    """Two questions had no answer; once one about nothing has, nobody waits for the breaker."""
    tested.set(timeout_ms=50, breaker_ms=600_000)
    with FilterServer(tested.socket, hangs_for(2)) as server:
        job = tested.submit("deadline=9", count=60, pause_ms=20)
    assert job["message"] == "promised"
    assert submissions(server) > 3
    assert tested.log.count("after 2 failures in a row") == 1


def test_a_daemon_that_answers_nothing_but_probes_is_left_alone(tested: Filter) -> None:
    """It is asked once more soon, and then after a while."""
    tested.set(timeout_ms=50, breaker_ms=600_000)
    with FilterServer(tested.socket, hangs_for(60)) as server:
        job = tested.submit("deadline=9", count=60, pause_ms=20)
    assert job["admin_comment"] == "rtsched:unjudged"
    assert submissions(server) == 3


@pytest.mark.parametrize(
    "field",
    [
        "reservation=rtsched_1",
        "reservation=mine,rtsched_1",
        "reservation=mine, RTSCHED_1",
        "reservation=+rtsched_1",
        "reservation=mine,rtsched_123 ",
        "admin_comment=rtsched:abc",
        "admin_comment=  rtsched:abc",
    ],
)
@pytest.mark.parametrize("kind", ["submit", "modify"])
def test_what_is_the_daemons_cannot_be_forged(tested: Filter, kind: str, field: str) -> None:
    """Users can name neither our reservations nor a token; the daemon and root can."""
    assert tested.run(kind, field)["returned"] == DENIED
    assert tested.run(kind, field, uid=4711)["returned"] == "0"
    assert tested.run(kind, field, uid=0)["returned"] == "0"


@pytest.mark.parametrize(
    "field",
    [
        *("reservation=mine", "reservation=xrtsched_1", "reservation=rtsched_maint"),
        *("reservation=rtsched_", "reservation=rtsched_7b,rtsched_x1", "admin_comment=a"),
    ],
)
def test_what_only_looks_like_ours_passes(tested: Filter, field: str) -> None:
    """Other reservations and comments are none of our business."""
    assert tested.submit(field)["returned"] == "0"


def test_the_daemons_own_requests_are_not_asked_about(tested: Filter) -> None:
    """The daemon does not wait for itself."""
    with FilterServer(tested.socket, answering((Tag.VERDICT, 1))) as server:
        assert tested.submit("deadline=9", uid=4711)["returned"] == "0"
        assert tested.modify("time_limit=9", uid=4711)["returned"] == "0"
        assert tested.modify("time_limit=9", uid=0)["returned"] == "0"
    assert server.asked == []


@pytest.mark.parametrize(
    "field",
    ["time_limit=9", "min_nodes=1", "features=f", "priority=0", "comment=rtsched:x", "end_time=9"],
)
def test_a_change_to_what_a_promise_rests_on_is_asked_about(tested: Filter, field: str) -> None:
    """The daemon decides, told who and which job; its text is what the user reads."""
    answer = answering((Tag.VERDICT, 1), (Tag.MESSAGE, "job 12 is promised"))
    with FilterServer(tested.socket, answer) as server:
        job = tested.modify(field)
    assert (job["returned"], job["message"]) == (DENIED, "job 12 is promised")
    kind, fields = server.asked[0]
    assert (kind, fields[Tag.JOB_ID_STR]) == (MessageKind.MODIFY, "12")
    assert fields[Tag.SUBMIT_UID] == USER


def test_an_accepted_change_is_not_altered(tested: Filter) -> None:
    """Fields in the answer to a change are not set: the user's change is made, or not."""
    with FilterServer(tested.socket, answering((Tag.VERDICT, 0), (Tag.MIN_NODES, 7))):
        job = tested.modify("time_limit=9")
    assert (job["returned"], job["min_nodes"], job["time_limit"]) == ("0", UNSET, "9")


def test_a_harmless_change_passes_unasked(tested: Filter) -> None:
    """A name or a comment may be changed while nobody answers, under every policy."""
    tested.set(on_failure="closed")
    assert tested.modify("comment=new", "name=new")["returned"] == "0"
    assert tested.log == ""


@pytest.mark.parametrize(
    ("policy", "returned"), [("open", "0"), ("hold", DENIED), ("closed", DENIED)]
)
def test_a_change_while_nobody_answers(tested: Filter, policy: str, returned: str) -> None:
    """Hold and closed keep what was promised; open leaves it to the daemon to notice."""
    tested.set(on_failure=policy)
    assert tested.modify("time_limit=9")["returned"] == returned


@pytest.mark.parametrize(
    "field",
    [
        b'comment*500000=\n"',
        b"name=\x01\x02'\";|`$(reboot)\\",
        b"comment*1000=\xff\xfe\xc3\x28",
        b"extra=rtsched:sigma=%s%n%n%n%n",
        b"dependency*100000=afterok:1,",
        b"features=" + bytes(range(1, 256)),
    ],
)
def test_hostile_text_breaks_nothing(tested: Filter, field: bytes) -> None:
    """Long, binary and format-like text is sent as it is, or refused as too long."""
    with FilterServer(tested.socket, answering(*ACCEPTED)) as server:
        job = tested.submit(b"deadline=9", field, b"env=5000")
        changed = tested.modify(b"deadline=9", field)
    too_long = b"*500000" in field or b"*100000" in field
    assert (job["returned"] == DENIED) == (changed["returned"] == DENIED) == too_long
    assert (len(server.asked) == 0) == too_long
    if too_long:
        assert "longer than 256 KiB" in job["message"]


def test_a_request_that_is_too_long_does_not_open_the_breaker(tested: Filter) -> None:
    """What one user sends cannot take the verdicts from the others."""
    tested.submit("deadline=9", "comment*1000000=x", count=10)
    assert tested.log == ""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "submit.conf:5: a line must be key = value"),
        ("timeout = 5", "submit.conf:5: timeout is unknown"),
        ("timeout_ms = 0", "submit.conf:5: timeout_ms must be a whole number from 1"),
        ("timeout_ms = 5s", "timeout_ms must be a whole number"),
        ("breaker_ms = 99999999999999999999", "breaker_ms must be a whole number"),
        ("on_failure = maybe", "on_failure must be open, hold or closed"),
        ("share_nodes = yes", "share_nodes must be true or false"),
        ("judge = some", "judge must be deadline or all"),
        ("socket = here", "socket must be a path that begins with /"),
        ("socket = /" + "x" * 200, "socket must not be empty or too long"),
        ("daemon_user =", "daemon_user must not be empty"),
        ("#" + "x" * 600, "the line is too long"),
    ],
)
def test_a_bad_settings_file_is_named_and_left_out(tested: Filter, line: str, says: str) -> None:
    """The log names file, line and what is wrong; the defaults hold."""
    tested.settings.write_text(tested.settings.read_text() + line + "\n")
    assert tested.submit("name=plain")["returned"] == "0"
    assert says in tested.log
    assert "the settings are unchanged" in tested.log


def test_settings_may_hold_comments_and_blanks(tested: Filter) -> None:
    """Comments, blank lines and white space around key and value are fine."""
    tested.settings.write_text("# all\n\n  on_failure =\tclosed  \n\tdaemon_user = 4711\n")
    assert tested.submit("deadline=9")["returned"] == DENIED


def test_a_daemon_user_that_does_not_exist_is_told(tested: Filter) -> None:
    """Without the user only root is taken for the daemon, and the log says so."""
    tested.set(daemon_user="no-such-user")
    tested.submit("name=plain")
    assert "there is no user no-such-user" in tested.log


@pytest.mark.parametrize("flags", [ADDRESSES, THREADS], ids=["addresses", "threads"])
def test_threads_do_not_disturb_each_other(
    build: Build, slurm_include: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Many threads submit at once, and while the daemon hangs."""
    sources = [PROGRAMS / "harness.c", PROGRAMS / "fake_slurm.c", *FILTER]
    program = build(f"harness{flags[0][11:17]}", *sources, flags=(*flags, f"-I{slurm_include}"))
    tested = Filter(program, tmp_path)
    with FilterServer(tested.socket, answering(*ACCEPTED, (Tag.ENV, "RTSCHED_A=1"))):
        job = tested.submit("deadline=9", "env=20", count=50, threads=8)
    assert job["env"] == "RTSCHED_A=1"
    tested.socket.unlink()
    with FilterServer(tested.socket, hanging):
        job = tested.submit("deadline=9", count=50, threads=8)
    assert job["admin_comment"] == "rtsched:unjudged"

"""Which jobs users may change while the daemon is away: the filter reads the list that it left."""

import os
import time
from collections.abc import Iterable

import pytest
from filter_harness import DENIED, USER, Filter
from filter_server import FilterServer, answering

from rtsched.adapters.wire import Tag
from rtsched.daemon.promises import MOST_LISTED

HEAD = "rtsched-promised-jobs 1"
UNKNOWN = "so no job can be changed until the daemon is back"
PROMISED = "this job was promised a deadline: it cannot be changed until the daemon is back"
PERHAPS = "this job may just have been promised a deadline"


def listed(tested: Filter, *jobs: int, newest: int = 100, users: Iterable[int] = ()) -> str:
    """Leave a list as the daemon does, and return it."""
    lines = [f"{HEAD} {newest}", *map(str, jobs), *(f"user {uid}" for uid in users), "end", ""]
    text = "\n".join(lines)
    tested.promised.write_text(text)
    tested.promised.chmod(0o644)
    return text


@pytest.fixture(params=["hold", "closed"], autouse=True)
def policy(request: pytest.FixtureRequest, tested: Filter) -> str:
    """Take both policies under which promised jobs are guarded; nobody listens."""
    tested.set(on_failure=request.param)
    return str(request.param)


@pytest.mark.parametrize("change", ["priority=0", "priority=5", "time_limit=9", "features=f"])
@pytest.mark.parametrize("job", ["13", "12_7", "99999"])
def test_ordinary_jobs_belong_to_their_users(tested: Filter, change: str, job: str) -> None:
    """Who was promised nothing may hold, release and change her jobs, older and newer ones."""
    listed(tested, 11, 14)
    done = tested.run("modify", f"job_id_str={job}", change)
    assert (done["returned"], done["message"]) == ("0", "")


@pytest.mark.parametrize(
    "job",
    [
        *("12", "12_3", "12_[1-5%2]", "12+1", " 012", "\v\r12"),
        *("4294967308", "+21474836492_3", "9223372032559808524"),  # slurmctld keeps 32 bits
    ],
)
def test_promised_jobs_stay_as_they_are(tested: Filter, job: str) -> None:
    """The change is refused; the text says why, and that it is for now."""
    listed(tested, 11, 12, 14)
    done = tested.run("modify", f"job_id_str={job}", "time_limit=9")
    assert done["returned"] == DENIED
    assert PROMISED in done["message"]


def test_a_harmless_change_of_a_promised_job_passes(tested: Filter) -> None:
    """Names and comments are nothing that a promise rests on."""
    listed(tested, 12)
    assert tested.modify("comment=mine", "name=new")["returned"] == "0"


def test_jobs_newer_than_the_list(tested: Filter) -> None:
    """Those of users who were promised something lately may be promised; the others' are not."""
    listed(tested, 12, newest=100, users=[USER, 1005])
    for uid, owner, job, returned in (
        (USER, USER, 101, DENIED),
        (USER, USER, 100, "0"),
        (1001, 1001, 101, "0"),
        (1001, 1005, 101, DENIED),  # an operator changes another's
    ):
        fields = (f"job_id_str={job}", f"user_id={owner}", "time_limit=9")
        done = tested.run("modify", *fields, uid=uid)
        assert done["returned"] == returned, (uid, owner, job)
        assert (PERHAPS in done["message"]) == (returned == DENIED)


def test_without_the_list_nobody_can_tell(tested: Filter) -> None:
    """As on a controller that has no daemon: the policy holds, and the file is named."""
    done = tested.modify("time_limit=9")
    assert done["returned"] == DENIED
    assert f"({tested.promised}: No such file or directory), {UNKNOWN}" in done["message"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "its first line is not"),
        (f"{HEAD} 100", "its first line is not"),
        (f"{HEAD} -1\nend\n", "its first line is not"),
        ("rtsched-promised-jobs 2 100\nend\n", "its first line is not"),
        (f"{HEAD} 4294967296\nend\n", "its first line is not"),
        (f"{HEAD} 100\n", "it is incomplete"),
        (f"{HEAD} 100\n13\nend", "it is incomplete"),
        (f"{HEAD} 100\n13\nen", "it is incomplete"),
        (f"{HEAD} 100\n13\n1", "it is incomplete"),
        (f"{HEAD} 100\n13\nend\n14\n", "it is incomplete"),
        (f"{HEAD} 100\n13 \nend\n", "it is incomplete"),
        (f"{HEAD} 100\n13\0\nend\n", "it is incomplete"),
        (f"{HEAD} 100\nuser 5\n13\nend\n", "it is incomplete"),
        (f"{HEAD} 100\n14\n13\nend\n", "its jobs are not in ascending order"),
        (f"{HEAD} 100\n13\n13\nend\n", "its jobs are not in ascending order"),
        (f"{HEAD} 100\nuser 6\nuser 5\nend\n", "its users are not in ascending order"),
    ],
)
def test_a_torn_or_malformed_list_is_none(tested: Filter, text: str, wrong: str) -> None:
    """Nothing is concluded from a part of a list."""
    tested.promised.write_text(text)
    done = tested.modify("time_limit=9")
    assert done["returned"] == DENIED
    assert wrong in done["message"]
    assert UNKNOWN in done["message"]


def test_as_many_jobs_as_the_daemon_writes_are_read(tested: Filter) -> None:
    """One more is too many; both in bounded time."""
    for most, job, text in ((MOST_LISTED, MOST_LISTED, PROMISED), (MOST_LISTED + 1, 5, "too many")):
        listed(tested, *range(1, most + 1), newest=most)
        begun = time.monotonic()
        done = tested.run("modify", f"job_id_str={job}", "time_limit=9")
        assert time.monotonic() - begun < 5  # a slow build with sanitizers, and a process
        assert text in done["message"]


def test_a_list_that_is_too_long_is_not_read(tested: Filter) -> None:
    """Slurmctld never reads more than 4 MiB."""
    tested.promised.write_bytes(b"x" * (4 << 20) + b"x")
    assert "larger than 4 MiB" in tested.modify("time_limit=9")["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    ("owner", "mode", "wrong"),
    [
        (USER, 0o644, "it belongs neither to daemon_user nor to root"),
        (4711, 0o664, "it is writable by others than its owner"),
        (4711, 0o646, "it is writable by others than its owner"),
        (4711, 0o644, ""),
        (0, 0o600, ""),
    ],
)
def test_who_may_have_written_it(tested: Filter, owner: int, mode: int, wrong: str) -> None:
    """A list that somebody else could write says nothing: it could free promised jobs."""
    listed(tested, 12)
    os.chown(tested.promised, owner, owner)
    tested.promised.chmod(mode)
    done = tested.run("modify", "job_id_str=13", "time_limit=9")
    assert done["returned"] == (DENIED if wrong else "0")
    assert wrong in done["message"]


@pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
def test_what_is_no_file(tested: Filter, kind: str) -> None:
    """It is not read, and nobody waits for it."""
    if kind == "directory":
        tested.promised.mkdir()
    elif kind == "pipe":
        os.mkfifo(tested.promised)
    else:
        listed(tested, 12)
        tested.promised.rename(tested.promised.with_name("elsewhere"))
        tested.promised.symlink_to("elsewhere")
    done = tested.modify("time_limit=9")
    assert done["returned"] == DENIED
    assert f"({tested.promised}: " in done["message"]


def test_the_daemon_decides_while_it_answers(tested: Filter) -> None:
    """The list is for its absence: the word of a daemon that is there counts."""
    listed(tested, 12)
    with FilterServer(tested.socket, answering((Tag.VERDICT, 0))):
        assert tested.modify("time_limit=9")["returned"] == "0"


def test_with_open_nothing_is_looked_up(tested: Filter) -> None:
    """Open leaves it to the daemon to notice, promised or not."""
    tested.set(on_failure="open")
    listed(tested, 12)
    assert tested.modify("time_limit=9")["returned"] == "0"


def test_many_threads_look_at_once(tested: Filter) -> None:
    """The list is replaced meanwhile, and nothing tears under sanitizers."""
    listed(tested, *range(1, 5000), newest=5000)
    done = tested.run("modify", "job_id_str=13", "time_limit=9", count=3000, threads=8)
    assert PROMISED in done["message"]

"""What users are told, when, and how often."""

import http.server
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rtsched.adapters.requirements import EVENTS, notify_choice
from rtsched.core.config import read_settings
from rtsched.daemon.questions import ClosedPromise, ClosedReport, PromiseStatus, StatusReport
from rtsched.errors import AdapterError, ConfigError
from rtsched.notices import (
    HOUR,
    MOST,
    RETRY,
    Delivery,
    Known,
    Letter,
    Memory,
    Notice,
    NoticesSettings,
    State,
    Waiting,
    chosen,
    deliver,
    key_of,
    load,
    looked,
    message_of,
    noticed,
    save,
    sent,
)

NOW = 1_800_000_000.0
QUIET = NoticesSettings(mail=[], choices="")
HOSTILE = "x\r\nBcc: all@example.org\x1b[31m"


def promise(job: str = "7", user: str = "ann", made_at: float = NOW, **more: Any) -> PromiseStatus:
    """Return a promise to a job that is in the queue."""
    given = {"state": "firm", "deadline": NOW + 7200.0, "name": "model", **more}
    return PromiseStatus(job=job, user=user, made_at=made_at, **given)


def seen(
    memory: Memory, *promises: PromiseStatus, closed: Sequence[tuple[PromiseStatus, float]] = ()
) -> tuple[Memory, list[str]]:
    """Look, and return what is remembered and the events."""
    after, found = noticed(memory, promises, closed, NOW, 3600.0)
    return after, [notice.event for notice in found]


def test_a_promise_from_its_beginning_to_its_end() -> None:
    """Each thing that happens is told once; small moves add up."""
    memory, events = seen(Memory(), promise("1", made_at=1.0, start=NOW))
    assert events == []  # the first look only remembers
    memory, events = seen(memory, promise(state="provisional"))
    assert events == []  # not in the queue yet
    memory, events = seen(memory, promise(start=NOW))
    assert events == ["promised"]
    memory, events = seen(memory, promise(start=NOW + 3000.0))
    assert events == []
    memory, events = seen(memory, promise(start=NOW + 4000.0))
    assert events == ["moved"]
    memory, events = seen(memory, promise(start=NOW + 4000.0))
    assert events == []
    memory, events = seen(memory, promise(start=NOW + 9000.0, running=True, late=True))
    assert events == ["at-risk"]
    memory, events = seen(memory, promise(start=NOW + 9000.0, running=True, late=True))
    assert events == []
    gone = promise(state="kept")
    memory, events = seen(memory, closed=[(gone, NOW + 5.0)])
    assert events == ["kept"]
    memory, events = seen(memory, closed=[(gone, NOW + 5.0)])
    assert (events, memory.open) == ([], {})


def test_promises_of_one_instant_are_told_apart() -> None:
    """As those are that were given or broken in one cycle."""
    memory, _ = seen(Memory())
    memory, events = seen(memory, promise("7"), promise("8"))
    assert events == ["promised", "promised"]
    gone = [(promise(job, state="broken"), NOW + 5.0) for job in ("7", "8")]
    memory, events = seen(memory, closed=gone)
    assert events == ["broken", "broken"]
    assert seen(memory, closed=gone)[1] == []


def test_what_an_older_release_told_is_not_told_again() -> None:
    """It told promises apart by user and instant alone."""
    old = Memory({f"ann {NOW}": Known(None, False)}, {"ann 5.0": NOW}, NOW)
    memory, events = seen(old, promise(), closed=[(promise("6", made_at=5.0), NOW)])
    assert (events, list(memory.open)) == ([], [key_of(promise())])


def test_a_likely_promise_is_called_so() -> None:
    """With its odds when it is given and when it breaks; nobody is to take it for a guarantee."""
    memory, _ = seen(Memory())
    memory, found = noticed(memory, [promise(odds=0.957)], (), NOW, 3600.0)
    (given,) = found
    assert "is likely to end by" in given.text
    assert "odds 95.7 %, not guaranteed" in given.text
    gone = promise(odds=0.957, state="missed", why="the job ended 60 s late")
    memory, found = noticed(memory, (), [(gone, NOW + 5.0)], NOW, 3600.0)
    (broken,) = found
    assert broken.event == "broken"
    assert "the likely promise (odds 95.7 %, not guaranteed) to job 7" in broken.text


def test_odds_that_have_fallen_are_told_once() -> None:
    """Whether they fall further, recover and fall again, or are not known for a while.

    Not those that had fallen when it was first looked.
    """
    memory, _ = seen(Memory(), promise("1", made_at=1.0, odds=0.95, odds_now=0.3, unlikely=True))
    memory, events = seen(memory, promise(odds=0.95, odds_now=0.4, unlikely=True))
    assert events == ["promised"]
    low = promise(odds=0.95, odds_now=0.384, unlikely=True)
    memory, found = noticed(memory, [low], (), NOW, 3600.0)
    (told,) = found
    assert told.event == "at-risk"
    by = "was likely to end by "
    assert told.text.startswith(f"job 7 (model) {by}")
    assert told.text.endswith("with odds of 95 %; they are 38.4 % now")
    high, unknown = promise(odds=0.95, odds_now=0.97), promise(odds=0.95)
    for each in (low, high, low, unknown, low):
        memory, events = seen(memory, each)
        assert events == []
    first = promise("1", made_at=1.0, odds=0.95, odds_now=0.3, unlikely=True)
    memory, _ = seen(Memory(), first)
    assert seen(memory, first)[1] == []


def test_what_an_older_release_remembered_is_read(tmp_path: Path) -> None:
    """It knew nothing of odds that fall."""
    path = tmp_path / "state.json"
    path.write_text('{"memory":{"open":{"ann 1.0":{"start":null,"late":false}},"since":5.0}}')
    assert load(path).memory.open == {"ann 1.0": Known(None, False)}


def test_a_choice_for_one_job_comes_first() -> None:
    """Before the file of its user and the site's events; `none` is nothing at all."""
    settings = NoticesSettings(mail=[], choices="", events=["broken", "kept"])
    state = State(Memory(since=NOW))
    ends = [
        promise(job, state=became, notify=notify, made_at=NOW + at)
        for at, (job, became, notify) in enumerate(
            (
                ("1", "kept", ""),
                ("2", "kept", "broken"),
                ("3", "broken", "broken+kept"),
                ("4", "broken", "none"),
            )
        )
    ]
    closed = ClosedReport(NOW, tuple(ClosedPromise(NOW + 5.0, each) for each in ends))
    state = looked(state, status(), closed, settings)
    assert [notice.job for notice in state.waiting["ann"].notices] == ["1", "3"]


def test_events_are_those_of_the_guide() -> None:
    """What a submission may name is what there is."""
    assert EVENTS == ("promised", "moved", "at-risk", "broken", "kept")
    assert notify_choice(" Kept+broken ") == "broken+kept"
    assert [notify_choice(text) for text in ("none", "", "none+kept", "all", "kept,broken")] == [
        "none",
        "",
        "",
        "",
        "",
    ]


def test_what_is_closed_between_two_looks_is_told() -> None:
    """Also one that nobody saw open, and one that was written down late; not what was given up."""
    memory, _ = seen(Memory())
    broken, missed = promise("8", state="broken", made_at=2.0), promise("9", state="missed")
    memory, events = seen(memory, closed=[(broken, NOW + 60.0)])
    assert events == ["broken"]
    late = [(missed, NOW + 10.0), (broken, NOW + 60.0)]
    memory, events = seen(memory, closed=late)
    assert events == ["broken"]
    given_up = promise("10", state="cancelled", made_at=3.0)
    memory, events = seen(memory, closed=[*late, (given_up, NOW + 70.0)])
    assert (events, memory.since) == ([], NOW + 70.0)


def test_sentences() -> None:
    """They name the job, the deadline and what changed."""
    memory = Memory({key_of(promise()): Known(NOW, False)}, since=NOW)
    _, (moved,) = noticed(memory, [promise(start=NOW - 4000.0)], [], NOW, 3600.0)
    assert "job 7 (model) is now planned to start" in moved.text
    assert "1h 07m earlier; still promised by" in moved.text
    broken = promise(state="broken", why="node n1 is down", name=HOSTILE)
    _, (told,) = noticed(memory, [], [(broken, NOW)], NOW, 3600.0)
    assert told.text.endswith("cannot be kept any more: node n1 is down")
    assert "\r" not in told.text
    assert "\x1b" not in told.text


def notice(event: Any = "moved", at: float = NOW, user: str = "ann", **more: Any) -> Notice:
    """Return a notice."""
    return Notice(user, event, "7", more.pop("name", "model"), f"{event} {at:.0f}", at, **more)


def status(*promises: PromiseStatus) -> StatusReport:
    """Return a daemon's report of all users' promises."""
    return StatusReport(
        "1", "live", "slurm", NOW, NOW, NOW, 0, 0, 1, 1, None, {}, everyone=True, promises=promises
    )


def test_what_nobody_wants_to_hear_is_not_told() -> None:
    """A promise is not among the events by default; it is remembered all the same."""
    state = State(Memory(since=NOW))
    after = looked(state, status(promise()), ClosedReport(NOW), QUIET)
    assert after.waiting == {}
    every = msgspec.structs.replace(QUIET, events=["promised", "broken"])
    broken = ClosedReport(NOW, (ClosedPromise(NOW, promise("8", "bob", state="broken")),))
    after = looked(state, status(promise()), broken, every)
    assert {user: [n.event for n in w.notices] for user, w in after.waiting.items()} == {
        "ann": ["promised"],
        "bob": ["broken"],
    }


class Post:
    """Takes letters; refuses them while it is `shut`."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.shut = False

    def __call__(self, letter: Letter, _: NoticesSettings) -> Delivery:
        """Take a letter."""
        if self.shut:
            return Delivery(False, ("closed",))
        self.letters.append(letter)
        return Delivery(True, ())


def test_a_digest_waits_and_a_broken_promise_does_not() -> None:
    """What waits goes along with what is urgent."""
    post = Post()
    state = State(waiting={"ann": Waiting((notice(at=NOW),))})
    state = sent(state, QUIET, NOW + QUIET.digest - 1, post)
    assert post.letters == []
    assert sent(state, QUIET, NOW + QUIET.digest, post).waiting["ann"].notices == ()
    assert len(post.letters) == 1
    both = State(waiting={"ann": Waiting((notice(at=NOW), notice("broken", NOW)))})
    sent(both, QUIET, NOW, post)
    assert [each.event for each in post.letters[-1].notices] == ["moved", "broken"]


def test_nobody_is_flooded_and_nothing_is_lost_uncounted() -> None:
    """So many letters in an hour; of a thousand broken promises the newest, the others counted."""
    post, state = Post(), State()
    for second in range(1000):
        queue = state.waiting.get("ann", Waiting())
        more = looked(
            State(Memory(since=NOW), {"ann": queue}),
            status(),
            ClosedReport(NOW, (ClosedPromise(NOW, promise(state="broken", made_at=second)),)),
            QUIET,
        )
        state = sent(more, QUIET, NOW + second, post)
    assert len(post.letters) == QUIET.per_hour
    assert len(state.waiting["ann"].notices) == MOST
    told = sum(len(letter.notices) for letter in post.letters)
    assert told + MOST + state.waiting["ann"].left_out == 1000
    state = sent(state, QUIET, NOW + HOUR + 1000, post)
    assert len(post.letters) == QUIET.per_hour + 1
    assert post.letters[-1].left_out == 1000 - MOST - told


def test_what_could_not_be_sent_is_sent_later() -> None:
    """And not at every look."""
    post = Post()
    post.shut = True
    state = sent(State(waiting={"ann": Waiting((notice("broken"),))}), QUIET, NOW, post)
    post.shut = False
    assert sent(state, QUIET, NOW + RETRY - 1, post) == state
    sent(state, QUIET, NOW + RETRY, post)
    assert len(post.letters) == 1


def test_a_mail_is_one_mail_whatever_a_job_is_called(tmp_path: Path) -> None:
    """No header can be put in by a name; the recipient is an argument behind `--`."""
    out, program = tmp_path / "mail", tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {out}.args\ncat > {out}\n')
    program.chmod(0o755)
    settings = NoticesSettings(mail=[str(program), "-i"], mail_domain="example.org")
    letter = Letter("ann", (notice("broken", name=HOSTILE),))
    assert deliver(letter, settings) == Delivery(True, ())
    assert Path(f"{out}.args").read_text() == "-i -- ann@example.org\n"
    head, _, body = out.read_bytes().partition(b"\r\n\r\n")
    assert b"\nBcc:" not in head
    assert b"To: ann@example.org" in head
    assert b"* broken" in body
    many = message_of(Letter("ann", (notice(),) * 150, 5), settings)
    assert many["Subject"] == "rtsched: 155 notices about your jobs"
    assert "55 more notices not listed here" in many.get_content()


def test_programs_and_webhooks_that_fail_are_said(tmp_path: Path) -> None:
    """One sentence for each way; one that works is enough."""
    program = tmp_path / "fails"
    program.write_text("#!/bin/sh\necho no such user >&2\nexit 67\n")
    program.chmod(0o755)
    letter = Letter("ann", (notice("broken"),))
    settings = NoticesSettings(
        mail=[str(program)], webhook="http://127.0.0.1:9/", command=["/bin/true"]
    )
    arrived, problems = deliver(letter, settings)
    assert arrived
    assert problems[0] == f"{program} ended with status 67: no such user"
    assert problems[1].startswith("http://127.0.0.1:9/: ")
    slow = NoticesSettings(mail=["/bin/sleep", "9"], timeout=0.05)
    assert deliver(letter, msgspec.structs.replace(slow, mail=["/bin/sh", "-c", "sleep 9"])) == (
        False,
        ("/bin/sh did not end within 0.05 s",),
    )


def test_a_webhook_gets_json() -> None:
    """The letter, as it is."""
    got: list[Any] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        settings = NoticesSettings(mail=[], webhook=url)
        assert deliver(Letter("ann", (notice("broken"),)), settings).arrived
        thread.join()
    assert (got[0]["user"], got[0]["notices"][0]["event"]) == ("ann", "broken")


def test_users_choose(tmp_path: Path) -> None:
    """By a file of their own; what is no such file changes nothing."""
    settings = NoticesSettings(mail=["/bin/true"], choices=str(tmp_path))
    assert chosen(settings, "root") == settings.events
    own = tmp_path / "root"
    own.write_text('events = ["kept"]\n')
    assert chosen(settings, "root") == ["kept"]
    for text in ('events = ["rubbish"]', "events = ", "\udcff", "x" * 9000):
        own.write_bytes(text.encode("utf-8", "surrogateescape"))
        assert chosen(settings, "root") == settings.events
    own.write_text("events = []\n")
    assert chosen(settings, "root") == []
    own.rename(tmp_path / "other")
    own.symlink_to(tmp_path / "other")
    assert chosen(settings, "root") == settings.events
    own.unlink()
    os.mkfifo(own)
    assert chosen(settings, "root") == settings.events
    for name in ("../root", ".", ""):
        assert chosen(settings, name) == settings.events


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_nobody_chooses_for_others(tmp_path: Path) -> None:
    """A file of another user's does not count."""
    settings = NoticesSettings(mail=["/bin/true"], choices=str(tmp_path))
    (tmp_path / "daemon").write_text("events = []\n")
    os.chown(tmp_path / "daemon", 65534, 65534)
    assert chosen(settings, "daemon") == settings.events
    os.chown(tmp_path / "daemon", 1, 1)
    assert chosen(settings, "daemon") == []


def test_what_is_remembered(tmp_path: Path) -> None:
    """It comes back as it was; a file that cannot be read is named."""
    file = tmp_path / "state.json"
    assert load(file) == State()
    state = State(Memory({"ann 1.0": Known(None, True)}, since=NOW), {"ann": Waiting((notice(),))})
    save(file, state)
    assert load(file) == state
    file.write_text("{")
    with pytest.raises(AdapterError, match=r"state\.json: cannot be read"):
        load(file)
    with pytest.raises(AdapterError, match="cannot be written"):
        save(tmp_path / "none" / "state.json", state)


def test_settings(tmp_path: Path) -> None:
    """Every mistake is listed."""
    file = tmp_path / "notices.toml"
    file.write_text('mail = ["/nowhere/sendmail"]\nwebhook = "ftp://x"\nevents = ["broken"]\n')
    with pytest.raises(ConfigError) as caught:
        read_settings(file, NoticesSettings)
    assert caught.value.problems == (
        "mail: /nowhere/sendmail is not a program; install it, or set mail = []",
        "webhook: 'ftp://x' is not a URL such as https://host/path",
    )
    file.write_text("mail = []\n")
    with pytest.raises(ConfigError, match="nobody would be notified"):
        read_settings(file, NoticesSettings)
    file.write_text('mail = ["/bin/true"]\nsender = "a\\nb"\n')
    with pytest.raises(ConfigError, match="sender"):
        read_settings(file, NoticesSettings)

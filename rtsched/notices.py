"""Notices to users about their promises, by a process of its own that asks the daemon.

What is to be told is written down in a file before it is sent: after a crash the last letter may
come twice, and none is lost. The daemon knows nothing of all that, and waits for none of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import threading
import time
import tomllib
import urllib.request
from collections import deque
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlsplit

import msgspec
import structlog
from msgspec import Meta

from rtsched import __version__
from rtsched.adapters.requirements import Event  # noqa: TC001 - read by msgspec
from rtsched.adapters.users import uid_of
from rtsched.daemon.query_client import ask
from rtsched.daemon.questions import Closed, ClosedReport, Status, StatusReport
from rtsched.daemon.systemd import (
    Level,
    log_events,
    notify,
)
from rtsched.errors import AdapterError, RtschedError
from rtsched.model.units import HOUR
from rtsched.report.wording import duration, shortened, visible
from rtsched.text import counted, moment, per_cent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rtsched.daemon.questions import PromiseStatus

_DEFAULT_EVENTS: tuple[Event, ...] = ("moved", "at-risk", "broken")

_LONGEST = 4096
"""Bytes of a user's choice."""


class NoticesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A notices.toml."""

    events: list[Event] = msgspec.field(default_factory=lambda: [*_DEFAULT_EVENTS])
    """Of what users are notified who chose nothing themselves."""
    choices: str = "/var/lib/rtsched-notices/choices"
    """Directory with a file for each user who chose, named like the user and owned by the user or
    root: `events = ["broken", "kept"]`. Empty: nobody may."""
    mail: list[str] = msgspec.field(default_factory=lambda: ["/usr/sbin/sendmail", "-i"])
    """Program that sends a mail which it reads, with its headers; the recipient is added. Empty: no
    mail."""
    sender: Annotated[str, Meta(pattern=r"^[^\s<>,;]{1,200}$")] = "rtsched"
    """Sender of the mails."""
    mail_domain: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.-]{0,200}$")] = ""
    """Domain of users' addresses; empty: the names alone, as the local mail system knows them."""
    webhook: str = ""
    """URL to which each notice is sent as JSON; empty: none."""
    command: list[str] = []
    """Program that reads each notice as JSON; no shell. Empty: none."""
    every: Annotated[float, Meta(gt=0)] = 15.0
    """Seconds between two looks."""
    digest: Annotated[float, Meta(ge=0)] = 300.0
    """Seconds in which what happens to a user's jobs is put into one notice; broken promises are
    sent at once."""
    moved_s: Annotated[float, Meta(gt=0)] = 3600.0
    """Seconds by which a planned start must move for a notice."""
    per_hour: Annotated[int, Meta(ge=1)] = 12
    """Notices to one user per hour at the most; the rest is put together."""
    timeout: Annotated[float, Meta(gt=0)] = 20.0
    """Seconds for a program or the webhook."""
    query_socket: str = "/run/rtsched/query.sock"
    """Socket of the daemon for queries."""
    state: str = "/var/lib/rtsched-notices/state.json"
    """File that remembers what was sent."""
    log_level: Level = "info"
    """Log level."""

    def problems(self) -> list[str]:
        """Return what is wrong with the settings as a whole, one sentence each."""
        found = []
        for name, program in (("mail", self.mail), ("command", self.command)):
            if program and not os.access(program[0], os.X_OK):
                found.append(
                    f"{name}: {program[0]} is not a program; install it, or set {name} = []"
                )
        if self.webhook and urlsplit(self.webhook).scheme not in {"http", "https"}:
            found.append(f"webhook: {self.webhook!r} is not a URL such as https://host/path")
        if not (self.mail or self.webhook or self.command):
            found.append("mail, webhook, command: all are empty, so nobody would be notified")
        return found


class Subscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one user wants to be told."""

    events: list[Event]


def chosen(settings: NoticesSettings, user: str) -> Sequence[Event]:
    """Return what a user is to be told: what the user chose, if that can be read.

    Only a file of the user's own, or of root's, counts, and no link.
    """
    if not settings.choices or "/" in user or user.startswith("."):
        return settings.events
    try:
        text = _own_text(Path(settings.choices) / user, user)
        return msgspec.convert(tomllib.loads(text), Subscription).events
    except (OSError, ValueError):
        return settings.events


def _own_text(path: Path, user: str) -> str:
    """Return the text of a file that a user, or root, wrote.

    Raises
    ------
    OSError, ValueError
        If there is none, or it is something else.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with contextlib.closing(os.fdopen(handle, "rb")) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {0, uid_of(user)}:
            raise ValueError(f"{path} is not a file of {user}'s")
        return file.read(_LONGEST).decode()


_OVERLAP = 120.0
"""Seconds before the last closed promise for which closed ones are asked about again: one may be
written down after another that was closed later."""

_CLOSED: dict[str, Event] = {"kept": "kept", "missed": "broken", "broken": "broken"}


class Notice(msgspec.Struct, frozen=True):
    """One thing that one user is to be told."""

    user: str
    event: Event
    job: str
    name: str
    text: str
    time: float
    """When it was found, seconds since the epoch."""
    deadline: float | None = None
    start: float | None = None
    notify: str = ""
    """What the user chose for this job; empty: nothing."""


class Known(msgspec.Struct, frozen=True):
    """What a user knows of an open promise."""

    start: float | None
    late: bool
    warned: bool = False
    """Whether it was found that its odds have fallen."""


class Memory(msgspec.Struct, frozen=True):
    """What was seen up to now.

    Attributes
    ----------
    open : dict of str to Known
        Promises in the queue, by `key_of`.
    closed : dict of str to float
        Those that were closed lately, and when.
    since : float or None
        The latest time at which one was closed; None: nobody looked yet.
    """

    open: dict[str, Known] = {}
    closed: dict[str, float] = {}
    since: float | None = None


def key_of(promise: PromiseStatus) -> str:
    """Return what tells a promise from all others, once its job is in the queue.

    Promises of one cycle are given at one instant.
    """
    return f"{_older_key_of(promise)} {promise.job}"


def _older_key_of(promise: PromiseStatus) -> str:
    """Return the key under which an earlier release remembered a promise."""
    return f"{promise.user} {promise.made_at}"


def noticed(
    memory: Memory,
    promises: Iterable[PromiseStatus],
    closed: Iterable[tuple[PromiseStatus, float]],
    now: float,
    moved_s: float,
) -> tuple[Memory, list[Notice]]:
    """Return what is known after another look, and what happened in between.

    The first look only remembers.

    Parameters
    ----------
    memory : Memory
        From the look before.
    promises : iterable of PromiseStatus
        The open ones of all users.
    closed : iterable of (PromiseStatus, float)
        Those that were closed since `memory.since` less `_OVERLAP`, and when, seconds since the
        epoch.
    now : float
        Seconds since the epoch.
    moved_s : float
        Seconds by which a planned start moves to be worth a notice.
    """
    first, found = memory.since is None, list[Notice]()
    state: dict[str, Known] = {}
    for promise in promises:
        if promise.state not in {"firm", "at-risk"}:
            continue
        key = key_of(promise)
        before = memory.open.get(key) or memory.open.get(_older_key_of(promise))
        if before is None:
            found.append(_notice(promise, "promised", now))
            state[key] = Known(promise.start, promise.late, first and promise.unlikely)
            continue
        start = before.start
        if not promise.running and promise.start is not None:
            if start is not None and abs(promise.start - start) > moved_s:
                found.append(_notice(promise, "moved", now, start))
                start = None
            start = promise.start if start is None else start
        fallen = promise.unlikely and not before.warned
        if fallen or (promise.late and not before.late):
            found.append(_notice(promise, "at-risk", now))
        state[key] = Known(start, promise.late, before.warned or promise.unlikely)
    latest = memory.since or 0.0
    lately = {key: at for key, at in memory.closed.items() if at > latest - _OVERLAP}
    for promise, at in closed:
        key = key_of(promise)
        if key not in lately and _older_key_of(promise) not in lately:
            lately[key], latest = at, max(latest, at)
            if event := _CLOSED.get(promise.state):
                found.append(_notice(promise, event, now))
    since = max(latest, now) if first else latest
    return Memory(state, lately, since), [] if first else found


def _notice(
    promise: PromiseStatus, event: Event, now: float, before: float | None = None
) -> Notice:
    return Notice(
        user=promise.user,
        event=event,
        job=promise.job,
        name=promise.name,
        text=_text(promise, event, now, before),
        time=now,
        deadline=promise.deadline,
        start=promise.start,
        notify=promise.notify,
    )


def _text(promise: PromiseStatus, event: Event, now: float, before: float | None) -> str:
    """Return one sentence."""
    name = f" ({shortened(promise.name, 60)})" if promise.name else ""
    job = f"job {visible(promise.job)}{name}"
    by = f"by {moment(promise.deadline, now)}" if promise.deadline is not None else "in time"
    start = f"start {moment(promise.start, now)}" if promise.start is not None else "start later"
    match event:
        case "promised" if promise.odds is not None:
            return f"{job} is likely to end {by}: odds {per_cent(promise.odds)}, not guaranteed"
        case "promised":
            return f"{job} is promised to end {by}; it is planned to {start}"
        case "moved":
            gap = (promise.start or 0.0) - (before or 0.0)
            way = "later" if gap > 0 else "earlier"
            moved = f"{duration(abs(gap))} {way}"
            return f"{job} is now planned to {start}, {moved}; still promised {by}"
        case "at-risk" if promise.odds is not None and promise.odds_now is not None:
            odds, present = per_cent(promise.odds), per_cent(promise.odds_now)
            return f"{job} was likely to end {by} with odds of {odds}; they are {present} now"
        case "at-risk":
            if promise.running or promise.end is None:
                return f"{job} runs and may end later than promised ({by})"
            end = moment(promise.end, now)
            return f"{job} is now planned to end by {end}, later than promised ({by})"
        case "kept":
            return f"{job} ended as promised, {by}"
        case "broken":
            why = f": {shortened(promise.why, 200)}" if promise.why else ""
            what = "ended too late" if promise.state == "missed" else "cannot be kept any more"
            kind = "promise"
            if promise.odds is not None:
                kind = f"likely promise (odds {per_cent(promise.odds)}, not guaranteed)"
            return f"the {kind} to {job} to end {by} {what}{why}"


def _is_urgent(notice: Notice) -> bool:
    """Return whether a notice is sent at once, and not with others."""
    return notice.event == "broken"


log = structlog.get_logger(__name__)

MOST = 200
"""Notices of one user that wait at the most; older ones are only counted."""
RETRY = 300.0
"""Seconds after which a letter is sent again that could not be."""


LISTED = 100
"""Sentences of one mail at the most."""


class Letter(msgspec.Struct, frozen=True):
    """What one user is told at a time.

    Attributes
    ----------
    user : str
        Who.
    notices : tuple of Notice
        The newest ones.
    left_out : int
        How many more there were.
    """

    user: str
    notices: tuple[Notice, ...]
    left_out: int = 0


class Delivery(NamedTuple):
    """Whether a letter arrived in one way at least, and what failed, one sentence each."""

    arrived: bool
    problems: tuple[str, ...]


def deliver(letter: Letter, settings: NoticesSettings) -> Delivery:
    """Send a letter in every way that is set."""
    arrived, problems = False, list[str]()
    ways = (
        (settings.mail, _by_mail),
        (settings.webhook, _by_webhook),
        (settings.command, _by_command),
    )
    for wanted, send in ways:
        try:
            if wanted:
                send(letter, settings)
                arrived = True
        except AdapterError as error:
            problems.append(str(error))
    return Delivery(arrived, tuple(problems))


def message_of(letter: Letter, settings: NoticesSettings) -> EmailMessage:
    """Return a letter as a mail; unprintable characters of what users named are written out."""
    message = EmailMessage(policy=SMTP)
    domain = f"@{settings.mail_domain}" if settings.mail_domain else ""
    message["From"] = settings.sender
    message["To"] = f"{letter.user}{domain}"
    message["Subject"] = _subject(letter)
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office reply
    lines = [f"* {visible(notice.text)}." for notice in letter.notices[:LISTED]]
    more = letter.left_out + max(len(letter.notices) - LISTED, 0)
    if more:
        lines.append(f"{counted(more, 'more notice')} not listed here; see `rtsched status`.")
    lines += ["", "-- ", "rtsched. `rtsched explain JOB` says more about one job."]
    message.set_content("\n".join(lines) + "\n")
    return message


def _subject(letter: Letter) -> str:
    broken = sum(notice.event == "broken" for notice in letter.notices)
    if len(letter.notices) + letter.left_out == 1:
        (notice,) = letter.notices
        name = f" ({shortened(notice.name, 40)})" if notice.name else ""
        return f"rtsched: job {shortened(notice.job, 40)}{name}: {notice.event}"
    also = f", {broken} broken" if broken else ""
    return f"rtsched: {len(letter.notices) + letter.left_out} notices about your jobs{also}"


def _by_mail(letter: Letter, settings: NoticesSettings) -> None:
    message = message_of(letter, settings)
    _run([*settings.mail, "--", str(message["To"])], message.as_bytes(), settings.timeout)


def _by_command(letter: Letter, settings: NoticesSettings) -> None:
    _run(settings.command, msgspec.json.encode(letter), settings.timeout)


def _run(words: Sequence[str], text: bytes, timeout_s: float) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - the site's program, and no shell
            words, input=text, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AdapterError(f"{words[0]} did not end within {timeout_s:g} s") from error
    except OSError as error:
        raise AdapterError(f"{words[0]}: {error.strerror}") from error
    if done.returncode:
        complaint = shortened(done.stderr.decode(errors="replace").strip(), 200)
        raise AdapterError(f"{words[0]} ended with status {done.returncode}: {complaint}")


def _by_webhook(letter: Letter, settings: NoticesSettings) -> None:
    request = urllib.request.Request(  # noqa: S310 - settings allow http and https
        settings.webhook,
        msgspec.json.encode(letter),
        {"Content-Type": "application/json", "User-Agent": f"rtsched/{__version__}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=settings.timeout):  # noqa: S310
            return
    except (OSError, ValueError) as error:
        raise AdapterError(f"{settings.webhook}: {error}") from error


class Waiting(msgspec.Struct, frozen=True):
    """What one user is still to be told.

    Attributes
    ----------
    notices : tuple of Notice
        The newest ones, oldest first.
    left_out : int
        How many older ones are not among them.
    sent : tuple of float
        When letters were sent to the user in the last hour.
    not_before : float
        No letter is tried before that, since the last one failed.
    """

    notices: tuple[Notice, ...] = ()
    left_out: int = 0
    sent: tuple[float, ...] = ()
    not_before: float = 0.0

    def due(self, settings: NoticesSettings, now: float) -> bool:
        """Return whether a letter is to be sent."""
        if not self.notices or now < self.not_before or len(self.sent) >= settings.per_hour:
            return False
        return any(map(_is_urgent, self.notices)) or now >= self.notices[0].time + settings.digest


class State(msgspec.Struct, frozen=True):
    """All that is remembered."""

    memory: Memory = Memory()
    waiting: dict[str, Waiting] = {}


def looked(
    state: State, status: StatusReport, closed: ClosedReport, settings: NoticesSettings
) -> State:
    """Return the state after a look at the daemon."""
    pairs = [(each.promise, each.at) for each in closed.closed]
    memory, found = noticed(state.memory, status.promises, pairs, status.now, settings.moved_s)
    waiting = dict(state.waiting)
    wanted = {user: set(chosen(settings, user)) for user in {notice.user for notice in found}}
    for notice in found:
        of_job = notice.notify.split("+") if notice.notify else wanted[notice.user]
        if notice.event in of_job:
            before = waiting.get(notice.user, Waiting())
            queue = deque((*before.notices, notice), MOST)
            over = len(before.notices) + 1 - len(queue)
            waiting[notice.user] = msgspec.structs.replace(
                before, notices=tuple(queue), left_out=before.left_out + over
            )
    return State(memory, waiting)


def sent(
    state: State,
    settings: NoticesSettings,
    now: float,
    send: Callable[[Letter, NoticesSettings], Delivery] = deliver,
) -> State:
    """Send the letters that are due; return the state after it."""
    waiting: dict[str, Waiting] = {}
    for user, before in state.waiting.items():
        recent = tuple(at for at in before.sent if at > now - HOUR)
        after = msgspec.structs.replace(before, sent=recent)
        if after.due(settings, now):
            arrived, problems = send(Letter(user, after.notices, after.left_out), settings)
            for problem in problems:
                log.warning("notice_not_sent", user=user, error=problem)
            if arrived:
                log.info("notice_sent", user=user, notices=len(after.notices))
                after = Waiting(sent=(*recent, now))
            else:
                after = msgspec.structs.replace(after, not_before=now + RETRY)
        if after.notices or after.sent:
            waiting[user] = after
    return State(state.memory, waiting)


def load(path: Path) -> State:
    """Return what was remembered; an empty state where nothing was.

    Raises
    ------
    AdapterError
        If the file cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return State()
    except (OSError, msgspec.MsgspecError) as error:
        raise AdapterError(
            f"{path}: cannot be read ({error}); remove it to begin anew: "
            "what happens from then on is sent"
        ) from error


def save(path: Path, state: State) -> None:
    """Write the state down, whole or not at all.

    Raises
    ------
    AdapterError
        If it cannot be written.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            file.write(msgspec.json.encode(state))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise AdapterError(f"{path}: cannot be written: {error.strerror}") from error


def once(state: State, settings: NoticesSettings, now: float) -> State:
    """Look at the daemon, write down what is to be told, and tell what is due.

    Raises
    ------
    RtschedError
        If the daemon does not answer, or nothing can be written down; then nothing was told.
    """
    status: StatusReport = ask(Status(), settings.query_socket)
    if status.mode == "standby":  # the daemon of another host has the promises
        return state
    if not status.everyone:
        raise AdapterError(
            "the daemon shows this user its own promises only; name the user that this command "
            "runs as in `admins` of site.toml"
        )
    since = max((state.memory.since or status.now) - _OVERLAP, 0.0)
    closed: ClosedReport = ask(Closed(since), settings.query_socket)
    state = looked(state, status, closed, settings)
    save(Path(settings.state), state)
    after = sent(state, settings, now)
    if after != state:
        save(Path(settings.state), after)
    return after


def run(settings: NoticesSettings) -> None:
    """Look again and again, until SIGTERM or SIGINT.

    Raises
    ------
    RtschedError
        If what was remembered cannot be read.
    """
    log_events(settings.log_level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    state, problem = load(Path(settings.state)), ""
    notify("READY=1")
    log.info("notices_started")
    while not stop.is_set():
        try:
            state = once(state, settings, time.time())
        except RtschedError as error:
            if str(error) != problem:
                log.error("notices_failed", error=str(error))
            problem = str(error)
        else:
            problem = ""
        notify("WATCHDOG=1")
        stop.wait(settings.every)
    log.info("notices_stopped")

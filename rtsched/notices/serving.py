"""The process that tells users: it asks the daemon, and remembers in a file what it told.

What is to be told is written down before it is sent: after a crash the last letter may come twice,
and none is lost. The daemon knows nothing of all that, and waits for none of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections import deque
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog

from rtsched import __version__
from rtsched.daemon.query_client import ask
from rtsched.daemon.questions import Closed, ClosedReport, Status, StatusReport
from rtsched.daemon.systemd import log_events, notify
from rtsched.errors import AdapterError, RtschedError
from rtsched.model.units import HOUR
from rtsched.notices.events import OVERLAP, Memory, Notice, is_urgent, noticed
from rtsched.notices.settings import chosen
from rtsched.report.wording import shortened, visible
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rtsched.notices.settings import NoticesSettings


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
        return any(map(is_urgent, self.notices)) or now >= self.notices[0].time + settings.digest


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
    since = max((state.memory.since or status.now) - OVERLAP, 0.0)
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

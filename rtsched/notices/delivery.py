"""Delivery of a notice: by mail, by a webhook, by a program of the site's."""

from __future__ import annotations

import subprocess
import urllib.request
from email.message import EmailMessage
from email.policy import SMTP
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rtsched import __version__
from rtsched.counting import counted
from rtsched.errors import AdapterError
from rtsched.report.wording import shortened, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.notices.events import Notice
    from rtsched.notices.settings import NoticesSettings

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

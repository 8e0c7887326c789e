"""One daemon per controller: the promises follow the controller that has control.

Where a site has backup controllers, a daemon runs on each of their hosts, over one database in a
directory that they share, as the controllers share StateSaveLocation. The daemon beside the
controller that has control is *active*: it holds a `WriterEpoch` on the database. The others are on
*standby*. A daemon on standby asks its own controller whether it has control, when the active
daemon falls silent or says that its controller has none, and when the submit filter asks; if it
has, the daemon takes the database over. The one that held it finds out at its next write at the
latest, can write nothing any more, and is on standby itself.

Each daemon writes down how it is once a second, in a file of its own beside the database. That
spares the controllers on standby questions, and shows admins whether the directory is shared. No
promise depends on it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from rtsched import __version__
from rtsched.adapters.files import replace_file
from rtsched.adapters.wire import MessageKind, Tag, encode, frame
from rtsched.daemon import questions
from rtsched.daemon.server import SocketServer
from rtsched.errors import AdapterError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from rtsched.adapters.slurm.installed import Control
    from rtsched.daemon.database import WriterEpoch
    from rtsched.daemon.server import Client, Handler
    from rtsched.daemon.store import Store

log = structlog.get_logger(__name__)

BEAT = 1.0
"""Seconds between two times at which a daemon writes down how it is."""

GLANCE = 0.1
"""Seconds after which an active daemon at the latest goes on standby that could not write."""

SILENT = 3.0
"""Seconds after which a daemon that wrote nothing counts as silent."""

SOON, LATER = 0.5, 10.0
"""Seconds between two questions to the own controller: a controller on standby logs each, so a
silence that lasts is asked about less often."""

PATIENT = 600.0
"""Seconds of silence after which that is so."""


class Controller(Protocol):
    """The batch system's controller on this host.

    Attributes
    ----------
    host : str
        The host's name, as the batch system knows it.
    peers : tuple of str
        Names of the other controllers' hosts.
    """

    @property
    def host(self) -> str: ...  # noqa: D102
    @property
    def peers(self) -> tuple[str, ...]: ...  # noqa: D102
    def control(self) -> Control:
        """Return whether it has control."""


class Heartbeat(msgspec.Struct, frozen=True):
    """What a daemon writes down of itself; `time` is seconds since the epoch."""

    state: str
    control: str
    time: float


class Heartbeats:
    """What the daemons of all controllers wrote down of themselves.

    Parameters
    ----------
    database : Path
        The files stand beside it.
    host : str
        This one.
    peers : sequence of str
        The others.
    clock : callable
        Seconds of a clock that does not step.
    """

    def __init__(
        self,
        database: Path,
        host: str,
        peers: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database, self.host, self.peers, self._clock = database, host, tuple(peers), clock
        self._seen: dict[str, tuple[Heartbeat, float]] = {}

    def write(self, state: str, control: str) -> None:
        """Write down how this daemon is; what cannot be written is not."""
        heartbeat = Heartbeat(state, control, time.time())
        with suppress(OSError):
            replace_file(self._file(self.host), msgspec.json.encode(heartbeat))

    def read(self) -> None:
        """Read how the others are."""
        now = self._clock()
        for peer in self.peers:
            try:
                heartbeat = msgspec.json.decode(self._file(peer).read_bytes(), type=Heartbeat)
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if peer not in self._seen or self._seen[peer][0] != heartbeat:
                self._seen[peer] = (heartbeat, now)

    def active(self) -> str:
        """Return the host of a daemon that is active and not silent; empty: there is none."""
        return next((host for host in self.peers if self._is(host).state == "active"), "")

    def covered(self) -> bool:
        """Return whether there is an active daemon beside a controller that has control."""
        host = self.active()
        return bool(host) and self._is(host).control == "in control"

    def shown(self) -> tuple[questions.Peer, ...]:
        """Return how the others are, for admins."""
        return tuple(
            questions.Peer(
                host=host,
                state=self._is(host).state or "silent",
                seen=self._seen[host][0].time if host in self._seen else None,
            )
            for host in self.peers
        )

    def _is(self, host: str) -> Heartbeat:
        heartbeat, at = self._seen.get(host, (Heartbeat("", "", 0.0), 0.0))
        return heartbeat if self._clock() - at <= SILENT else Heartbeat("", "", heartbeat.time)

    def _file(self, host: str) -> Path:
        return self._database.with_name(f"{self._database.name}.on-{host}")


class Standby:
    """A daemon's part in it.

    Parameters
    ----------
    database : Path
        Which the daemons share.
    controller : Controller
        The one of this host.
    system : str
        The batch system, for reports.
    superseded : callable
        Called while it is known that another controller has control: what this daemon left for
        its own is out of date from then on.

    Attributes
    ----------
    reload_problem : callable
        Returns why the last reload failed; empty: it did not.
    """

    def __init__(
        self,
        database: Path,
        controller: Controller,
        system: str,
        superseded: Callable[[], None] = lambda: None,
    ) -> None:
        self.heartbeats = Heartbeats(database, controller.host, controller.peers)
        self._controller, self._system, self._superseded = controller, system, superseded
        self._asked, self._problem = asyncio.Event(), ""
        self.reload_problem: Callable[[], str] = str
        self._started = time.time()

    async def until_in_control(self, stop: asyncio.Event) -> bool:
        """Wait until this host's controller has control; False: told to stop before."""
        log.info("on_standby", host=self.heartbeats.host, peers=list(self.heartbeats.peers))
        control, covered = "", time.monotonic()
        while not stop.is_set():
            await asyncio.to_thread(self.heartbeats.write, "standby", control)
            await asyncio.to_thread(self.heartbeats.read)
            asked = self._asked.is_set()
            self._asked.clear()  # first: what is asked from now on is looked at again
            if self.heartbeats.covered() and not asked:
                control, covered = "", time.monotonic()
            elif (control := await self._control()) == "in control":
                return True
            if self.heartbeats.covered() or control == "standby":
                self._superseded()
            long = time.monotonic() - covered > PATIENT
            await _either(self._asked, stop, LATER if long else SOON)
        return False

    async def watch(self, store: Store, writer: WriterEpoch) -> None:
        """Return when the daemon of another host has taken the database over."""
        control, asking = "in control", asyncio.create_task(self._control())
        while not writer.lost_to:
            if asking.done():  # one that does not answer must not keep us from looking at the claim
                control, asking = asking.result(), asyncio.create_task(self._control())
            await asyncio.to_thread(self.heartbeats.write, "active", control)
            await asyncio.to_thread(self.heartbeats.read)
            with suppress(StoreError):
                await asyncio.to_thread(store.confirm)
            for _ in range(round(BEAT / GLANCE)):
                if not writer.lost_to:
                    await asyncio.sleep(GLANCE)
        asking.cancel()
        log.warning("superseded", by=writer.lost_to, epoch=writer.epoch)

    async def _control(self) -> str:
        try:
            control = await asyncio.to_thread(self._controller.control)
        except AdapterError as error:
            if str(error) != self._problem:
                log.error("controller_not_asked", error=str(error))
            self._problem = str(error)
            return "down"
        self._problem = ""
        return control

    # --- answers while on standby --------------------------------------------------------------

    async def answer_filter(self, kind: MessageKind, payload: bytes, client: Client) -> bytes:  # noqa: ARG002
        """Answer the submit filter: not judged here yet; see whether that has to change."""
        self._asked.set()
        text = f"rtsched: on standby, {self._elsewhere()}; not evaluated"
        return encode(MessageKind.ERROR, [(Tag.MESSAGE, text)])

    async def answer_query(self, kind: MessageKind, payload: bytes, client: Client) -> bytes:  # noqa: ARG002
        """Answer a user: how this daemon is, and for all else where to ask."""
        try:
            question = questions.read_question(payload)
        except msgspec.MsgspecError as error:
            return frame(
                MessageKind.REPORT,
                questions.refusal_payload(f"{questions.NOT_A_QUESTION}{error}", "malformed"),
            )
        if isinstance(question, questions.Status):
            return frame(MessageKind.REPORT, questions.report_payload(self._status()))
        text = f"this daemon is on standby: {self._elsewhere()}"
        return frame(MessageKind.REPORT, questions.refusal_payload(text, "unavailable"))

    def _elsewhere(self) -> str:
        active = self.heartbeats.active()
        return f"the active daemon is on {active}" if active else "no active daemon is known"

    def _status(self) -> questions.StatusReport:
        peers = self.heartbeats.shown()
        own = filter(None, (self._problem, self.reload_problem()))
        nobody = () if self.heartbeats.active() else (NOBODY,)
        return questions.StatusReport(
            version=__version__,
            mode="standby",
            system=self._system,
            now=time.time(),
            started=self._started,
            looked=None,
            queued=0,
            running=0,
            nodes=0,
            usable=0,
            cycle_s=None,
            states={},
            problems=(*own, *nobody, *unseen(peers)),
            peers=peers,
        )


NOBODY = (
    "no active daemon: promises depend on what was last set in the batch system; start the daemon "
    "on the host of the active controller"
)


def unseen(peers: Sequence[questions.Peer]) -> tuple[str, ...]:
    """Return what is wrong with the daemons of other hosts, one sentence each."""
    never = "no daemon of {} has written next to the database: start it there, and check that the "
    return tuple(
        (never + "directory is shared by all controllers").format(peer.host)
        if peer.seen is None
        else f"the daemon on {peer.host} does not respond: if this host fails, "
        "nothing takes over its promises"
        for peer in peers
        if peer.state in {"silent", "stopped"}
    )


class SharedSocketServer(SocketServer):
    """A door that stays open while who answers at it changes.

    Parameters
    ----------
    path, kinds, uids, for_others
        As of a `SocketServer`.
    standby : callable
        Answers while the daemon is on standby.
    """

    def __init__(
        self,
        path: Path,
        kinds: Collection[MessageKind],
        standby: Handler,
        uids: Collection[int] | None = None,
        for_others: int = -1,
    ) -> None:
        super().__init__(path, kinds, standby, uids=uids, for_others=for_others)
        self._standby = self.active = standby

    async def listen(self, group: str | None = None) -> None:
        """Begin to listen; once that is so, let the active daemon answer."""
        if self._server is None:
            await super().listen(group)
        else:
            self.handler = self.active

    def close(self) -> None:
        """Let the active daemon answer no more."""
        self.handler = self._standby

    def leave(self) -> None:
        """Stop listening and remove the socket."""
        super().close()


async def _either(one: asyncio.Event, other: asyncio.Event, seconds: float) -> None:
    """Wait for one of two events, at most so many seconds."""
    waits = [asyncio.create_task(each.wait()) for each in (one, other)]
    _, left = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()

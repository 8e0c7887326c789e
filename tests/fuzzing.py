"""Hostile inputs for all that reads what others wrote, and what may become of them.

Each part has seeds, which are mutated, and a check that gives one input to the code. A check
returns whether the input was taken or refused with one of rtsched's own errors; any other
exception, and an input that takes longer than `HANGS_S`, is a finding.
"""

import asyncio
import contextlib
import os
import random
import re
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from rtsched.adapters.condor.submission import CondorTranslator
from rtsched.adapters.slurm.comments import options_in
from rtsched.adapters.slurm.requirements import JobRequest
from rtsched.adapters.slurm.submission import SlurmTranslator, edges_of
from rtsched.adapters.wire import (
    HEADER,
    MAGIC,
    VERSION,
    MessageKind,
    Tag,
    decode_fields,
    encode,
    frame,
)
from rtsched.adapters.wire import read_header as header_of
from rtsched.core.plugins import discover
from rtsched.daemon.questions import read_question
from rtsched.daemon.server import Client, SocketServer
from rtsched.daemon.settings import LiveSite
from rtsched.errors import ProtocolError, RtschedError
from rtsched.logs import ReadOptions, read_cluster, read_logs
from rtsched.logs.hostlist import expand
from rtsched.replay.policies import load_site

DATA = Path(__file__).parent / "data"
HANGS_S = 30
"""An input that takes more seconds of a processor, or waits four times as long, is a finding.

A machine description may name a million nodes, which takes about half of it."""
LONGEST = 20_000
"""Bytes of an input."""
NOW = 1.8e9


class HangError(BaseException):
    """An input takes too long; no handler of the code takes this for an error of its own."""


@dataclass(frozen=True)
class Part:
    """One piece of code that reads what others wrote.

    Attributes
    ----------
    seeds : callable
        Inputs to mutate.
    check : callable
        Take one input; return whether it was taken ("taken") or refused ("refused").
    wording : tuple of bytes
        What inputs of this kind are made of.
    """

    seeds: Callable[[], Sequence[bytes]]
    check: Callable[[bytes], str]
    wording: tuple[bytes, ...] = ()


@dataclass
class Findings:
    """What came of some inputs.

    Attributes
    ----------
    outcomes : Counter of str
        How many were taken and refused.
    wrong : dict of str to bytes
        The first input of each finding, by the exception and where it was raised.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, bytes] = field(default_factory=dict)


NUMBERS = tuple(
    text.encode()
    for text in (
        *("0", "-1", "1", "255", "65536", "2147483647", "2147483648", "4294967295", "-2147483648"),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e308", "1e999"),
        *(
            "nan",
            "inf",
            "-inf",
            "NaN",
            "0x7f",
            "1_000",
            "1e-400",
            "9" * 400,
            "1.7976931348623157e308",
        ),
        *("253402300800", "-62135596801", "00:00:00", "99999-23:59:59", "1970-01-01T00:00:00"),
        *("9999-12-31T23:59:59", "0000-00-00T00:00:00", "Unknown", "UNLIMITED", "None", "null"),
    )
)
ODD = (
    *(
        b"\0",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xe2\x80\xa8",
        b"\x1b[31m",
        b"\r",
        b"\n",
        b"\t",
    ),
    *(b"\\", b'"', b"'", b"|", b"=", b",", b";", b"[", b"]", b"{", b"}", b"(", b")", b"/", b"*"),
    *("\u0661", "\u00b2", "\u2028", "\u202e", "\U0001f600", "\u0130"),
)
ODDITIES = tuple(each.encode() if isinstance(each, str) else each for each in ODD)
A_NUMBER = re.compile(rb"\d+(?:\.\d+)?")


def mutated(chance: random.Random, seeds: Sequence[bytes], wording: Sequence[bytes] = ()) -> bytes:
    """Return an input made from the seeds by a few changes drawn at random."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 2, 3, 6, 12))):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 2, 4, 16, 64, 256)))
        match chance.randrange(9):
            case 0 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = chance.choice(ODDITIES)
            case 3 if found := list(A_NUMBER.finditer(data, at, at + 2000)):
                which = chance.choice(found)
                data[which.start() : which.end()] = chance.choice(NUMBERS)
            case 4 if wording:
                data[at:at] = chance.choice(wording)
            case 5:
                data[at:at] = bytes(data[at:end]) * chance.choice((1, 2, 50))
            case 6:
                other = chance.choice(seeds)
                begin = chance.randrange(len(other) + 1)
                data[at:end] = other[begin : begin + chance.choice((4, 64, 1024))]
            case 7:
                del data[at:]
            case _:
                data[at:end] = chance.randbytes(end - at)
    return bytes(data[:LONGEST])


def fuzz(part: Part, count: int, seed: int = 0, seconds: float = float("inf")) -> Findings:
    """Give so many inputs to a part, for so many seconds at the most after its first call."""
    chance, seeds, found = random.Random(seed), part.seeds(), Findings()  # noqa: S311
    with contextlib.suppress(Exception):
        part.check(seeds[0])  # first calls compile
    until = time.monotonic() + seconds
    before = {number: signal.signal(number, _hangs) for number in (signal.SIGALRM, signal.SIGPROF)}
    try:
        for number in range(count):
            if number % 64 == 0 and time.monotonic() > until:
                break
            data = mutated(chance, seeds, (*part.wording, *NUMBERS))
            _limit(HANGS_S)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", RuntimeWarning)  # such as a cast that overflows
                    found.outcomes[part.check(data)] += 1
            except (Exception, HangError) as error:
                found.outcomes["wrong"] += 1
                found.wrong.setdefault(_named(error), data)
            finally:
                _limit(0)
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    return found


def _limit(seconds: int) -> None:
    """Have `_hangs` called when so much time of a processor is used; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 4 * seconds)


def _hangs(*_: object) -> None:
    raise HangError(f"an input takes longer than {HANGS_S} s")


def _named(error: BaseException) -> str:
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {place}: {str(error)[:200]}"


def refusing(read: Callable[[bytes], object], *errors: type[Exception]) -> Callable[[bytes], str]:
    """Return a check by a function that returns, or refuses with one of our errors."""

    def check(data: bytes) -> str:
        try:
            read(data)
        except (RtschedError, *errors):
            return "refused"
        return "taken"

    return check


# --- the protocol ---------------------------------------------------------------------------------

LOAD = "rtsched:sigma=100,cms=0.01,cps=2"
SUBMISSIONS: tuple[tuple[tuple[Tag, int | str], ...], ...] = (
    (
        *((Tag.USER_ID, 0), (Tag.SUBMIT_UID, 0), (Tag.NAME, "job"), (Tag.DEADLINE, int(NOW) + 900)),
        *((Tag.TIME_LIMIT, 5), (Tag.MIN_NODES, 2), (Tag.MAX_NODES, 4), (Tag.MIN_CPUS, 8)),
    ),
    ((Tag.USER_ID, 0), (Tag.EXTRA, LOAD), (Tag.MAX_NODES, 9), (Tag.DEADLINE, int(NOW) + 90)),
    (
        *((Tag.USER_ID, 1), (Tag.COMMENT, "rtsched:dag=a,checkpoint=yes"), (Tag.FEATURES, "a&b|c")),
        *((Tag.DEPENDENCY, "afterok:1:2?afterany:3_4,singleton"), (Tag.ARRAY_INX, "1-9%3")),
        *((Tag.REQ_NODES, "n[1-3,07-9]"), (Tag.TRES_PER_NODE, "gres/gpu:a:2"), (Tag.SHARED, 1)),
        *((Tag.NUM_TASKS, 7), (Tag.CPUS_PER_TASK, 3), (Tag.MEM_PER_CPU, 100), (Tag.BEGIN_TIME, 1)),
        *((Tag.OTHER, "contiguous"), (Tag.LICENSES, "a:2"), (Tag.DEADLINE, int(NOW) + 9000)),
    ),
)
AD = f"""Owner = "root"
ClusterId = 12
ProcId = 0
JobUniverse = 5
QDate = {NOW:.0f}
RtDeadline = {NOW + 900:.0f}
RtRunTime = QDate - QDate + 60
RtSigma = 100
RtCms = 0.01
RtCps = 2.0
RtMinNodes = 2
RtAfter = "11.0 11.1"
RtClass = "fast"
RequestCpus = 1
RequestMemory = ifThenElse(MemoryUsage =!= undefined, MemoryUsage, 1)
TotalSubmitProcs = 6
MinHosts = 2
MaxHosts = 4
DAGManJobId = 3
DeferralTime = 5
AcctGroup = "a\\"b"
GlobalJobId = "head#12.0#5"
"""
AD_WORDS = tuple(
    f"{name} = ".encode()
    for name in (
        *("RtDeadline", "RtRunTime", "RtAfter", "RtSpeedup", "RtMessageTime", "RtClass", "RtDag"),
        *(
            "RtSetupLink",
            "RtSetupNode",
            "RtRounds",
            "JobUniverse",
            "RequestGPUs",
            "JobFactoryId",
            "HoldReason",
        ),
    )
)


@cache
def protocol_seeds() -> list[bytes]:
    """Return messages of all kinds."""
    kinds = (MessageKind.SUBMIT, MessageKind.MODIFY)
    found = [encode(kind, fields) for kind in kinds for fields in SUBMISSIONS]
    questions = (b'{"ask":"status"}', b'{"ask":"explain","job":"1","last":9}')
    found += [frame(MessageKind.QUERY, text) for text in questions]
    return [*found, encode(MessageKind.SUBMIT, [(Tag.AD, AD)])]


def read_message(data: bytes) -> None:
    """Read a message as the daemon does."""
    _, length = header_of(data[: HEADER.size])
    payload = data[HEADER.size :]
    if length != len(payload):
        raise ProtocolError("torn")
    describe(decode_fields(payload))


def read_fields(data: bytes) -> None:
    """Read the payload of a submission, whatever its header was."""
    describe(decode_fields(data))


def describe(fields: dict[int, int | str]) -> None:
    """Take in a submission on both systems."""
    SlurmTranslator().describe(fields, None, NOW)
    SlurmTranslator().protected(fields)
    CondorTranslator().describe(fields, None, NOW)


def read_ad(data: bytes) -> None:
    """Take in the lines of an ad."""
    CondorTranslator().describe({Tag.AD: data.decode(errors="replace")}, None, NOW)


QUESTIONS = (
    b'{"ask":"status","metrics":true}',
    b'{"ask":"explain","job":"12","last":3}',
    b'{"ask":"feasible","uid":0,"deadline":1800000900.0,"nodes":2,"time_s":60.0,"load":{"sigma":1}}',
    b'{"ask":"plan"}',
    b'{"ask":"chunk","job":"12","node":"fast1"}',
)


# --- a socket -------------------------------------------------------------------------------------


async def _echo(kind: MessageKind, payload: bytes, client: Client) -> bytes:
    del kind, client
    return frame(MessageKind.REPORT, payload[:100])


@dataclass
class Socket:
    """The daemon's socket, asked in pieces; after each hostile client it answers another."""

    path: Path
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    server: SocketServer | None = None

    def check(self, data: bytes) -> str:
        """Send a message in pieces; then a good one must be answered."""
        if self.server is None:
            self.server = SocketServer(self.path, (MessageKind.QUERY, MessageKind.SUBMIT), _echo)
            self.loop.run_until_complete(self.server.listen())
        return self.loop.run_until_complete(self._ask(data))

    async def _ask(self, data: bytes) -> str:
        chance = random.Random(data)  # noqa: S311
        came = await self._sent(data, chance)
        good = await self._sent(frame(MessageKind.QUERY, b"still there?"), None)
        if not good.endswith(b"still there?"):
            raise RuntimeError("after this input another client is not answered")
        return "taken" if came else "refused"

    async def _sent(self, data: bytes, chance: random.Random | None) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        try:
            while data:
                size = chance.choice((1, 7, 12, 13, 1 << 20)) if chance else len(data)
                writer.write(data[:size])
                data = data[size:]
                await asyncio.sleep(0)
            with contextlib.suppress(OSError):
                writer.write_eof()
            with contextlib.suppress(ConnectionError):
                return await reader.read(1 << 16)
            return b""
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@cache
def _socket() -> Socket:
    return Socket(Path(tempfile.mkdtemp(prefix="rtsched-fuzz-")) / "s")


def socket_seeds() -> list[bytes]:
    """Return messages whole and in a row."""
    found = protocol_seeds()
    return [
        *found,
        found[0] + found[1],
        HEADER.pack(MAGIC, VERSION, MessageKind.QUERY, 1 << 30) + b"x",
    ]


# --- files ----------------------------------------------------------------------------------------


def _file(data: bytes, read: Callable[[Path], object]) -> None:
    path = _place()
    path.write_bytes(data)
    read(path)


@cache
def _place() -> Path:
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    return Path(tempfile.mkdtemp(prefix="rtsched-fuzz-", dir=place)) / "input"


def read_log(data: bytes) -> None:
    """Read a log of any format."""
    _file(data, lambda path: read_logs([path], ReadOptions(timezone="UTC", details=True)))


def read_machine(data: bytes) -> None:
    """Read a machine's description of any format."""
    _file(data, read_cluster)


def read_site(data: bytes) -> None:
    """Read a site.toml."""
    _file(data, lambda path: load_site(path, _plugins(), LiveSite))


_plugins = cache(discover)


@cache
def _head(path: Path, size: int = 6000) -> bytes:
    return path.read_bytes()[:size]


def logs(pattern: str) -> list[bytes]:
    """Return whole samples of a format, or as much of them as an input may hold."""
    found = [_head(path, LONGEST) for path in sorted((DATA / "logs").glob(pattern))]
    assert found, pattern
    return found


SWF = b"; MaxProcs: 4\n; UnixStartTime: 1000000000\n; Queue: 1 a\n" + b"".join(
    b"%d %d 3 60 2 -1 -1 2 90 -1 1 %d 1 -1 1 -1 -1 -1\n" % (i, i * 60, i % 3) for i in range(1, 12)
)
CONF = b"""ClusterName=test
NodeName=DEFAULT CPUs=4 RealMemory=1000 State=UNKNOWN
NodeName=fast[1-2] Features=fast
NodeName=slow[01-03] Sockets=1 CoresPerSocket=1 CPUs=2 \\
    RealMemory=500 State=DRAIN   # being repaired
NodeName=later[1-9] State=FUTURE
NodeSet=quick Feature=fast
PartitionName=all Nodes=ALL Default=YES
PartitionName=slow Nodes=slow[01-02],nowhere
"""
SHOWN = b"""NodeName=fast1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=0.10
   AvailableFeatures=fast
   RealMemory=1000 AllocMem=0 State=IDLE+DRAIN ThreadsPerCore=1
   Partitions=all,fast

"""
NODES = b"""{"nodes": [{"name": "fast1", "cpus": 4, "real_memory": 1000, "state": ["IDLE"],
"features": ["fast"], "partitions": ["all"]}, {"name": "slow1", "cpus": {"number": 2},
"real_memory": {"number": 500, "set": true, "infinite": false}, "state": "DOWN"}]}"""
SLOTS = b"""MyType = "Machine"
Name = "slot1@fast1.testbed"
Machine = "fast1.testbed"
Cpus = 4
TotalSlotCpus = 4
Memory = 1000
State = "Unclaimed"
Activity = "Idle"
SlotType = "Static"

"""
SITE = Path(__file__).parents[1] / "examples" / "site.toml"
LIVE = b"""planner = "mcdf"
[[plugin]]
name = "mcdf"
mode = "enforce"
[daemon]
system = "slurm"
cycle = 1
patience = 10.0
admins = ["carol"]
[slurm]
route = "commands"
[condor]
start_delay_s = 6
[[scope]]
partition = "trial"
mode = "shadow"
"""


def _labels(texts: bytes) -> None:
    for text in texts.decode(errors="replace").split("\x1f")[:3]:
        spec = options_in(text, "")
        edges_of(JobRequest(dependency=text), spec)
        options_in("", text)


def _names(data: bytes) -> None:
    text = data.decode(errors="replace")
    with contextlib.suppress(ValueError):
        expand(text)


PARTS: dict[str, Part] = {
    "protocol": Part(protocol_seeds, refusing(read_message)),
    "fields": Part(
        lambda: [message[HEADER.size :] for message in protocol_seeds()], refusing(read_fields)
    ),
    "ads": Part(lambda: [AD.encode()], refusing(read_ad), AD_WORDS),
    "questions": Part(lambda: QUESTIONS, refusing(read_question, msgspec.MsgspecError)),
    "socket": Part(socket_seeds, lambda data: _socket().check(data)),
    "words": Part(
        lambda: [
            LOAD.encode(),
            b"rtsched:dag=a,checkpoint=yes rtsched:min=2\x1fafterok:1:2?afterany:3_4,singleton",
            b"my own words rtsched:sigma=1e3;cms=1;cps=2,setup_link=0.1,setup_node=3",
        ],
        refusing(_labels),
        (b"rtsched:", b"afterok:", b",dag=", b"sigma=", b"promise "),
    ),
    "names": Part(
        lambda: [b"n[1-3,07-9],m", b"rack[1-2]n[01-04]x", b"a,b,c[0-1][2-3]"], refusing(_names)
    ),
    "swf": Part(lambda: [SWF], refusing(read_log), (b"; MaxNodes: ", b"; TimeZone: 1\n")),
    "sacct": Part(lambda: logs("sacct*.txt"), refusing(read_log)),
    "sacct-json": Part(lambda: logs("sacct*.json"), refusing(read_log)),
    "condor-history": Part(lambda: logs("history*"), refusing(read_log), AD_WORDS),
    "machines": Part(
        lambda: [CONF, SHOWN, NODES, SLOTS * 3],
        refusing(read_machine),
        (b"NodeName=", b"PartitionName=", b"[1-4]", b"SwitchName=s1 Nodes="),
    ),
    "site": Part(
        lambda: [SITE.read_bytes(), LIVE],
        refusing(read_site),
        (b"[daemon]\n", b"[[plugin]]\n", b"[condor]\n", b"settings = { }\n"),
    ),
}
"""Every piece of Python that reads what others wrote, by name."""

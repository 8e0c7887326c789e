"""Sandboxes: a changed root over stacked directories, in namespaces of its own.

The first process of the sandbox's process namespace lives as long as its standard input is open.
Its owner holds the other end, so whatever happens to the owner, the kernel closes that end, the
first process leaves, and with it every process and every mount of the sandbox.

References
----------
Manual pages unshare(1), nsenter(1), pivot_root(2), pid_namespaces(7); overlayfs in the kernel's
documentation.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from testbed.errors import TestbedError
from testbed.waiting import NOTED, QuietClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

REMOVED_S = 300.0
"""Seconds in which what a sandbox wrote is removed: thousands of files after a burst of jobs."""

PATH = "/opt/rtsched/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"

# Runs as the first process of the new namespaces: mounts, moves into the new root, tells its
# process id as the machine sees it, and waits.
FIRST_PROCESS = """
set -eu
root=$1 layers=$2 name=$3 address=$4 wait=$5
shift 5
read -r pid rest </proc/self/stat
mount -t overlay overlay -o "$layers" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
while [ $# -gt 0 ]; do
    if [ -d "$1" ]; then
        mkdir -p "$root$2"
    elif ! [ -e "$root$2" ]; then
        mkdir -p "$(dirname "$root$2")"
        : >"$root$2"
    fi
    mount --rbind "$1" "$root$2"
    shift 2
done
cd "$root"
pivot_root . mnt
exec chroot . sh -c '
    set -eu
    umount -l /mnt
    hostname "$1"
    if [ -n "$2" ]; then
        ip link set lo up
        # With 127.0.0.1 alone, getaddrinfo takes the machine for one without IPv4.
        ip address add "$2/32" dev lo
    fi
    exec python3 -I -S -c "$3" "$0"
' "$pid" "$name" "$address" "$wait"
"""

# With SIGCHLD ignored, the kernel reaps what the sandbox's processes leave behind.
WAIT = """
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print(sys.argv[1], flush=True)
"""
FOR_OWNER = WAIT + "sys.stdin.read()"
FOR_EVER = WAIT + "while True: signal.pause()"

# Runs on the machine: removes the sandbox's directory when the sandbox has ended.
KEEPER = """
directory=$1
shift
unshare --mount --pid --uts --ipc --fork --kill-child "$@"
rm -rf --one-file-system -- "$directory"
"""


@dataclass(frozen=True)
class User:
    """One line of /etc/passwd."""

    name: str
    uid: int
    gid: int
    home: str


class Sandbox:
    """A changed root over `layers`, in namespaces of its own, from `start` to `close`.

    Parameters
    ----------
    layers : sequence of Path
        Directories that are seen through one another, the uppermost first; never written to.
    home : Path
        Directory in which the sandbox makes one of its own for what is written.
    upper : Path, optional
        Keep what is written here; without it, it goes when the sandbox ends.
    network : {"private", "host"}
        The machine's network is wanted where packages are installed.
    binds : mapping of Path to str
        Directories or files of the machine, and where they are seen inside.
    detached : bool
        Live on after the owner has ended, until `close`.
    hostname : str
        Its host name.
    address : str
        Its IPv4 address beside 127.0.0.1, where the network is private.
    beside : Sandbox, optional
        Share the network of that sandbox, as another host with files and processes of its own.
    """

    def __init__(
        self,
        layers: Sequence[Path],
        home: Path,
        *,
        upper: Path | None = None,
        network: str = "private",
        binds: Mapping[Path, str] | None = None,
        detached: bool = False,
        hostname: str = "head",
        address: str = "192.0.2.1",
        beside: Sandbox | None = None,
    ) -> None:
        self.layers = tuple(layers)
        self.home = home
        self.upper = upper
        self.network = network
        self.binds = dict(binds or {})
        self.detached = detached
        self.hostname = hostname
        self.address = address
        self.beside = beside
        self.pid = 0
        self.directory: Path | None = None
        self._keeper: subprocess.Popen[str] | None = None

    @classmethod
    def attach(cls, pid: int, home: Path) -> Self:
        """Return the detached sandbox whose first process this is."""
        box = cls([], home, detached=True)
        box.pid = pid
        return box

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Make the namespaces and mounts.

        Raises
        ------
        TestbedError
            With what mount or unshare said, if this machine allows no such thing.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        sweep(self.home)
        directory = Path(tempfile.mkdtemp(prefix="box-", dir=self.home))
        directory.chmod(0o755)
        self.directory = directory
        upper = self.upper or directory / "upper"
        for path in (directory / "root", directory / "work", upper):
            path.mkdir(exist_ok=True)
        lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            self._spawn(directory, upper, lock)
        finally:
            os.close(lock)

    def _spawn(self, directory: Path, upper: Path, lock: int) -> None:
        lower = ":".join(str(layer.resolve()) for layer in self.layers)
        layers = f"lowerdir={lower},upperdir={upper},workdir={directory / 'work'}"
        wait = FOR_EVER if self.detached else FOR_OWNER
        binds = [word for bind in self.binds.items() for word in map(str, bind)]
        private = self.network == "private"
        net = ["--net"] if private and self.beside is None else []
        join = ["nsenter", "--target", str(self.beside.pid), "--net"] if self.beside else []
        root, address = str(directory / "root"), self.address if private else ""
        first = ["sh", "-c", FIRST_PROCESS, "first", root, layers, self.hostname, address, wait]
        with tempfile.TemporaryFile("w+") as stderr:
            self._keeper = subprocess.Popen(
                [*join, "sh", "-c", KEEPER, "keeper", directory, *net, *first, *binds],
                stdin=subprocess.DEVNULL if self.detached else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                pass_fds=[lock],
                start_new_session=True,
                env={"PATH": PATH},
            )
            said = _pipe(self._keeper.stdout).readline()
            if not said.strip().isdigit():
                self.close()
                stderr.seek(0)
                text = stderr.read().strip()
                raise TestbedError(f"no sandbox can be made on this machine: {text}")
        self.pid = int(said)

    def close(self) -> None:
        """End every process in it, and remove what was written; safe to repeat."""
        if self.pid:
            _kill(self.pid)
            deadline = time.monotonic() + 30
            while Path(f"/proc/{self.pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.pid = 0
        if self._keeper is not None:
            for pipe in (self._keeper.stdin, self._keeper.stdout):
                if pipe is not None:
                    pipe.close()
            self._keeper.wait(REMOVED_S)
            self._keeper = None

    @property
    def alive(self) -> bool:
        """Whether its first process is there."""
        return self.pid != 0 and Path(f"/proc/{self.pid}/root/etc/passwd").exists()

    def path(self, inside: str) -> Path:
        """Return where the machine sees a path of the sandbox; symbolic links lead astray."""
        return Path(f"/proc/{self.pid}/root") / inside.lstrip("/")

    def listens(self, port: int) -> bool:
        """Whether somebody waits for connections at a TCP port (IPv4 or IPv6)."""
        tables = [Path(f"/proc/{self.pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table.splitlines()]
        return any(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in lines)

    def user(self, name: str) -> User:
        """Look a user up in the sandbox."""
        for line in self.path("/etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[0] == name:
                return User(name, int(fields[2]), int(fields[3]), fields[5])
        raise TestbedError(f"the sandbox has no user {name}")

    def entry(self, user: str = "root", cwd: str | None = None) -> tuple[list[str], dict[str, str]]:
        """Return what to put before a command to run it inside, and its environment."""
        whom = self.user(user)
        home = whom.home if self.path(whom.home).is_dir() else "/"
        words = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--net", "--uts"]
        words += ["--ipc", "--root", f"--setuid={whom.uid}", f"--setgid={whom.gid}"]
        variables = {"PATH": PATH, "HOME": whom.home, "USER": user, "LOGNAME": user, "LANG": "C"}
        return [*words, f"--wdns={cwd or home}", "--"], variables

    def popen(
        self,
        argv: Sequence[str | Path],
        *,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: int | IO[str] | None = subprocess.DEVNULL,
        stdout: int | IO[str] | None = subprocess.PIPE,
        stderr: int | IO[str] | None = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Start a command inside, in its user's home, in a process group of its own."""
        enter, variables = self.entry(user, cwd)
        return subprocess.Popen(
            [*enter, *map(str, argv)],
            env=variables | dict(env or {}),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float = 30,
        input: str | None = None,  # noqa: A002 # as subprocess.run calls it
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end; it costs some milliseconds.

        Raises
        ------
        TestbedError
            With what it printed, if it fails and `check` is set, or takes longer than `timeout`
            (seconds of a quiet machine).
        """
        with (
            _file_of(input) as given,
            self.popen(argv, user=user, env=env, cwd=cwd, stdin=given) as process,
        ):
            words = " ".join(map(str, argv))
            try:
                out, err = _communicate(process, timeout, words)
            except subprocess.TimeoutExpired as error:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                raise TestbedError(f"took over {timeout} s: {words}\n{out}{err}") from error
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if check and process.returncode:
            raise TestbedError(f"exit status {process.returncode}: {words}\n{out}{err}")
        return subprocess.CompletedProcess([*map(str, argv)], process.returncode, out, err)


@contextlib.contextmanager
def _file_of(text: str | None) -> Iterator[int | IO[str]]:
    """Give what a command reads: a text, which nobody need write while it is read, or nothing."""
    if text is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile("w+") as file:
        file.write(text)
        file.seek(0)
        yield file


def _communicate(process: subprocess.Popen[str], timeout: float, words: str) -> tuple[str, str]:
    """Return what a process prints until it ends, within so many seconds of a quiet machine."""
    clock, spent = QuietClock(), 0.0
    try:
        while True:
            try:
                return process.communicate(timeout=min(timeout - spent, 1.0))
            except subprocess.TimeoutExpired:
                if (spent := clock.now()) >= timeout:
                    raise
    finally:
        NOTED.add(f"command: {words}", clock.now(), timeout)


def sweep(home: Path) -> None:
    """Remove what sandboxes left that were ended by force: nobody holds their lock."""
    for directory in home.glob("box-*"):
        try:
            lock = os.open(directory / "lock", os.O_RDWR)
        except OSError:
            continue
        try:
            # A new one may not be locked yet.
            if time.time() - os.fstat(lock).st_mtime < 60:
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def unavailable(home: Path) -> str:
    """Return why no sandbox can be made here, or nothing."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("unshare", "nsenter", "pivot_root") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian package util-linux)"
    try:
        with Sandbox([Path("/")], home, network="host"):
            return ""
    except (TestbedError, OSError) as error:
        return str(error)


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

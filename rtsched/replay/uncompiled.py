"""The first replay of a short log: without compiled kernels, which are compiled beside it.

To compile what a replay runs takes minutes, once; to replay a short log without takes seconds.
Kernels, and with them numba, are imported where they are needed: the command's help needs none.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SHORT = 5000
"""Jobs, counted once for each policy that one process replays, up to which a replay does not wait
until kernels are compiled."""


class NotCompiled(BaseException):
    """A kernel is to be compiled, where nobody waits for that; no error of a plug-in."""


@contextmanager
def while_compiling(begins: Callable[[str], None], ends: Callable[[], None]) -> Iterator[None]:
    """Have `begins`, given a function's module, and `ends` called for each that numba compiles.

    In this process; what it finds in its cache it does not compile. One has others compiled.
    """
    from rtsched.kernels.compiling import COMPILING

    if not COMPILING:
        yield
        return
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, begun: Any) -> None:
            begins(begun.data["dispatcher"].py_func.__module__)

        def on_end(self, _event: object) -> None:
            ends()

    with event.install_listener("numba:compile", Listener()):
        yield


def unless_compiling(refused: bool = True) -> AbstractContextManager[None]:
    """If `refused`, have `NotCompiled` raised where numba begins to compile a kernel of rtsched.

    Others may be kept nowhere, and are compiled in each process.
    """

    def refuse(module: str) -> None:
        if module.startswith("rtsched"):
            raise NotCompiled

    return while_compiling(refuse, lambda: None) if refused else nullcontext()


def may_restart(files: Sequence[Path]) -> bool:
    """Return whether this program may be run again from its start, uncompiled, on these files.

    Not where the environment says whether to compile, where another program calls rtsched, or as
    the first process of a container, with which all others end.
    """
    from rtsched.kernels.compiling import COMPILING

    program = Path(sys.argv[0])
    is_rtsched = "rtsched" in (program.name, program.parent.name)  # or `python -m rtsched`
    is_left_open = COMPILING and "RTSCHED_COMPILE" not in os.environ
    lasts = os.getpid() != 1 and hasattr(os, "fork")
    return is_left_open and is_rtsched and lasts and all(map(os.path.isfile, files))


def compile_beside(work: Callable[[], object]) -> int:
    """Do work that compiles in a process of low priority that outlives this one; return its number.

    It writes nothing to the terminal, and ends at once where another one compiles already.

    Raises
    ------
    OSError
        If no process can be started.
    """
    number = os.fork()
    if number:
        return number
    try:
        import fcntl

        from rtsched.kernels.machine_loop import advance

        os.setsid()
        os.nice(19)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # nobody waits for this process at a pipe
        kernel: Any = advance
        turn = os.open(kernel.stats.cache_path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        work()
    finally:
        os._exit(0)


def again_uncompiled() -> NoReturn:
    """Run the program again from its start, as it was called, without compiled kernels."""
    gc.collect()  # what other processes shared with this one is given up
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ["RTSCHED_COMPILE"] = "0"
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execv(command[0], command)  # noqa: S606 - no shell: it is this program's own command

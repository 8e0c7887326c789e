"""Compile kernels where numba is installed; run the same source plainly where it is not.

Numba is an optional dependency: a head node's minimal install does without it. A kernel is
therefore written in the subset of Python that numba compiles, and its source is the readable
reference of its compiled form.

The parts of a machine's event loop (`part`, `inlined`, `outline`, `entry`) are compiled without
reference counting and inlined into the loop. A machine's state is a tuple of two dozen arrays:
handing it from function to function would count references and copy the tuple at each call, several
times the cost of the work itself. The loop allocates nothing, so neither is needed.

Compiled kernels are kept on disk. Numba looks only at the file of a kernel to see whether it has
changed, but kernels take in one another and one another's constants: `watched` has it look at all
files beside the kernel and at those of this package. Several processes may each have compiled some:
`_number_apart` keeps what these bring along from being taken for one another.

A wheel may bring compiled kernels along (`tools/kernels.py`), in a directory `compiled` beside
their sources, which is only read. They are compiled for any processor of the kind.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib
import itertools
import os
import secrets
import time
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


F = TypeVar("F", bound="Callable[..., Any]")

numba: Any = None
if os.environ.get("RTSCHED_COMPILE", "1") != "0":
    with contextlib.suppress(ImportError):
        numba = importlib.import_module("numba")
        if numba.config.DISABLE_JIT:  # by NUMBA_DISABLE_JIT: then its decorators compile nothing
            numba = None

COMPILING: bool = numba is not None
"""Whether kernels are compiled in this process (`RTSCHED_COMPILE=0` turns it off, and so does
`NUMBA_DISABLE_JIT=1`)."""


def _number_apart() -> None:
    """Have numba number what this process compiles as no other process does.

    By its number alone it tells apart functions of one name, and it counts from 1 in each process.
    What sorts numbers and what sorts their places, for one, have one name: of two kernels that were
    compiled by two processes, one could call what the other one brought along, which gives wrong
    results or crashes.
    """
    with contextlib.suppress(ImportError, AttributeError):  # a numba that numbers otherwise
        identity = importlib.import_module("numba.core.bytecode").FunctionIdentity
        identity._unique_ids = itertools.count(secrets.randbits(60))


if COMPILING:
    _number_apart()
    os.register_at_fork(after_in_child=_number_apart)


SHIPPED = "compiled"
"""The directory, beside their sources, of compiled kernels that came with the package."""

LOCK = "kernels.lock"
"""The file in numba's cache by which processes take turns."""

LONGEST_TURN = 5.0
"""Seconds that a process waits for its turn."""

ANY_PROCESSOR = ("generic", "")
"""Name and features of the processor that these are compiled for, as in `NUMBA_CPU_NAME` and
`NUMBA_CPU_FEATURES`."""


def compiled(kernel: F) -> F:
    """Return `kernel` compiled by numba, cached on disk, or as it is without numba."""
    if numba is None:
        return kernel
    return cast("F", _jitted(kernel, cache=True))


def plain(kernel: F) -> F:
    """Return the uncompiled source function of a kernel (the kernel itself without numba)."""
    return cast("F", getattr(kernel, "py_func", kernel))


def taken_in(kernel: F) -> F:
    """Return `kernel` such that compiled kernels take it in, and Python calls it as it is.

    With it the source of a whole kernel (`plain`) also runs on numbers that numba does not know,
    such as fractions.
    """
    if numba is None:
        return kernel
    return cast("F", numba.extending.register_jitable(kernel))


def _jitted(kernel: Any, *others: Callable[..., Any], **options: Any) -> Any:
    """Return numba's dispatcher of a kernel, `watched`, made to compile little for other kernels.

    They do not call what Python calls, but a twin: without what makes it callable from Python,
    which takes as long to compile as a short kernel does, and in one form for all integers, where
    numba would make one for each constant and each width.
    """
    dispatcher = watched(numba.njit(**options)(kernel), *others)
    if not hasattr(dispatcher, "get_call_template"):  # a numba that chooses forms elsewhere
        return dispatcher
    own = dispatcher.get_call_template, dispatcher.get_overload

    @cache
    def inside() -> tuple[Callable[..., Any], Callable[..., Any]]:
        if _INSIDE.keys() <= options.keys():
            return own
        twin = watched(numba.njit(**options, **_INSIDE)(_renamed(kernel, "inside")), *others)
        return twin.get_call_template, twin.get_overload

    def call_template(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        named = {name: _widest(kind) for name, kind in kws.items()}
        return inside()[0](tuple(map(_widest, args)), named)

    dispatcher.get_call_template = call_template
    dispatcher.get_overload = lambda signature: inside()[1](signature)
    return dispatcher


def _renamed(kernel: Any, suffix: str) -> Any:
    """Return a kernel under a name of its own, by which numba keeps it on disk."""
    name = f"{kernel.__name__}_{suffix}"
    own = FunctionType(
        kernel.__code__, kernel.__globals__, name, kernel.__defaults__, kernel.__closure__
    )
    own.__kwdefaults__, own.__module__ = kernel.__kwdefaults__, kernel.__module__
    own.__qualname__ = f"{kernel.__qualname__}_{suffix}"
    return own


def _widest(kind: Any) -> Any:
    """Return numba's type of any number of this kind: not of one constant, nor of a narrow one."""
    kind = numba.types.unliteral(kind)
    signed = isinstance(kind, numba.types.Integer) and kind.signed
    return numba.types.int64 if signed else kind


def watched(dispatcher: F, *others: Callable[..., Any]) -> F:
    """Return numba's dispatcher of a kernel, compiled anew if any kernel near it has changed.

    `others` are kernels that it takes in from elsewhere: those near them are looked at too.
    """
    with contextlib.suppress(AttributeError):  # a numba that keeps its cache elsewhere
        kernel: Any = dispatcher
        sources = (kernel.py_func, *map(plain, others))
        near = {Path(__file__).parent, *(Path(f.__code__.co_filename).parent for f in sources)}
        file = kernel._cache._cache_file
        # By contents alone: numba may add when the file was written, which installing changes.
        file._source_stamp = tuple(map(_stamp, sorted(near)))
        shipped = Path(kernel.py_func.__code__.co_filename).parent / SHIPPED
        if shipped.is_dir():
            _look_in(shipped, file)
        _take_turns(file)
        file._load_index = partial(_index, file._load_index)
    return dispatcher


def _take_turns(file: Any) -> None:
    """Have processes wait for one another at a kernel's file in numba's cache.

    Two that each keep a form of it at one time would call both the same, and load each other's.
    """
    load, save = file.load, file.save

    def load_in_turn(key: tuple[Any, ...]) -> Any:
        with _turn(file, "LOCK_SH"):
            return load(key)

    def save_in_turn(key: tuple[Any, ...], data: Any) -> None:
        with _turn(file, "LOCK_EX"):
            save(key, data)

    file.load, file.save = load_in_turn, save_in_turn


@contextlib.contextmanager
def _turn(file: Any, how: str) -> Iterator[None]:
    """Wait for those who hold the lock, but not for long: they may have been stopped.

    Without locks on this system, or where the directory is another user's, it goes on at once.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(ImportError, OSError):
            fcntl = importlib.import_module("fcntl")
            path = os.path.join(file._cache_path, LOCK)
            lock = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            held.callback(os.close, lock)
            until = time.monotonic() + LONGEST_TURN
            while time.monotonic() < until:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, getattr(fcntl, how) | fcntl.LOCK_NB)
                    break
                time.sleep(0.005)
        yield


def _index(load: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """Return what numba's index of a kernel has; one that names types that are gone has nothing."""
    try:
        return load()
    except (ImportError, AttributeError):
        return {}


def _look_in(shipped: Path, file: Any) -> None:
    """Have a kernel's file in numba's cache look in `shipped` for what it does not have."""
    other = copy.copy(file)
    other._cache_path, other._index_path = str(shipped), str(shipped / file._index_name)
    own = file.load

    def load(key: tuple[Any, ...]) -> Any:
        found = own(key)
        if found is None:
            signature, (kind_of_machine, *_), hashes = key
            found = other.load((signature, (kind_of_machine, *ANY_PROCESSOR), hashes))
        return found

    file.load = load


@cache
def _stamp(directory: Path) -> bytes:
    """Return a digest of a directory's sources."""
    digest = hashlib.sha256()
    for path in sorted(directory.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.digest()


_OPTIONS: dict[str, Any] = {"cache": True, "_nrt": False, "error_model": "numpy"}
_INSIDE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""A part is called by compiled code only: making it callable otherwise is half the work."""

PART_OPTIONS = {**_OPTIONS, **_INSIDE, "cache": False}
"""As a part, where numba's `overload` chooses: what calls it is kept on disk with it."""

ABSENT: Any = None
"""A part of its state that a machine does not have (`only_with`)."""


def part(kernel: F) -> F:
    """Return `kernel` compiled as a part of what calls it, or as it is without numba."""
    return _compiled(kernel, forceinline=True, **_INSIDE)


def inlined(kernel: F) -> F:
    """Return `kernel` as a part whose source is put where it is called, once; or as it is."""
    return _compiled(kernel, inline="always", **_INSIDE)


def outline(kernel: F) -> F:
    """Return `kernel` compiled as a function of its own, for what is long or called rarely."""
    return _compiled(kernel, **_INSIDE)


def entry(kernel: F) -> F:
    """Return `kernel` compiled to be called from Python."""
    return _compiled(kernel)


def only_with(field: str, otherwise: Any = None) -> Callable[[F], F]:
    """Return a decorator for a kernel that only some machines need: those with a part of the state.

    For machines whose `field` is `ABSENT` it is not compiled; their loop never comes to call it,
    and has `otherwise` in its place. So the loop of machines that neither share nodes nor preempt
    is small, and loading it, which is most of the start of a replay, is quick.
    """

    def offered(kernel: F) -> F:
        if numba is None:
            return kernel

        def nothing(_machine: Any, *_: Any) -> Any:
            return otherwise

        def choose(machine: Any, *_: Any) -> Callable[..., Any]:
            part_of_state = machine.types[machine.fields.index(field)]
            return nothing if part_of_state == numba.types.none else kernel

        numba.extending.overload(kernel, jit_options=PART_OPTIONS, strict=False)(choose)
        return kernel

    return offered


def _compiled(kernel: F, **more: Any) -> F:
    if numba is None:
        return kernel
    return cast("F", _jitted(kernel, **_OPTIONS, **more))


def specialised(kernel: F, kind: type, *others: Callable[..., Any], allocates: bool) -> F:
    """Return `kernel` compiled for arguments of one type that choose what it takes in: `others`.

    It is kept on disk under a name of its own, and compiled anew if a source of those changes.
    `allocates`: it makes arrays, or returns some that others made.
    """
    if numba is None:
        return kernel
    own = _renamed(kernel, kind.__name__)
    own.__qualname__ = f"{kind.__module__}.{own.__name__}".replace(".", "_")
    options = {"cache": True} if allocates else _OPTIONS
    return cast("F", _jitted(own, *others, **options))


def no_refcount(kernel: F) -> F:
    """Return `kernel` as `compiled` does, not counted among the users of each array it is given.

    That is an atomic operation or two per array and call: in the admission test, which calls small
    functions with a dozen arrays at every step, more than half of the time. The caller holds the
    arrays meanwhile; the kernel must not make arrays or lists, nor be given lists.
    """
    if numba is None:
        return kernel
    return cast("F", _jitted(kernel, cache=True, _nrt=False))


def address_of(kernel: Callable[[Any], int], machine: Any) -> Any:
    """Return where a kernel is that takes such machines, for `called`; without numba, the kernel.

    What calls it there is compiled without it: of a machine's event loop, that is most of the time.
    """
    if numba is None:
        return kernel
    # numba works out a type a thousand times as slowly as the form by which it knows one again
    form = importlib.import_module("numba._dispatcher").compute_fingerprint(machine)
    if (kernel, form) not in _ADDRESSES:
        found, kind = cast("Any", kernel), (numba.typeof(machine),)
        if kind not in found.overloads:
            found.compile(kind)
        result = found.overloads[kind]
        address = result.library.get_pointer_to_function(result.fndesc.mangled_name)
        _ADDRESSES[kernel, form] = address
    return _ADDRESSES[kernel, form]


_ADDRESSES: dict[tuple[Any, bytes], Any] = {}
"""Of each kernel and form of a machine."""


def _called(_: Any, address: Any, machine: Any) -> Any:
    """Return the type and the maker of the code of `called`, as numba's intrinsics do."""
    result, arguments = numba.types.int64, (machine,)

    def made(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        kind = context.call_conv.get_function_type(result, arguments).as_pointer()
        kernel = builder.inttoptr(values[0], kind)
        call = context.call_conv.call_function
        return call(builder, kernel, result, arguments, values[1:])[1]

    return result(address, machine), made


def _called_plainly(address: Any, machine: Any) -> Any:
    return address(machine)


called: Any = _called_plainly if numba is None else numba.extending.intrinsic(_called)
"""`called(address, machine)` calls the kernel at an address (`address_of`), which never fails."""

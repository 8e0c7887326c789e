"""Memory and threads of a command's process."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 20


def return_what_is_freed() -> None:
    """Have every array of a megabyte or more go back to the system when it is freed.

    glibc does so from a size on that it raises to that of the largest array freed so far. After a
    log is read, all columns of its jobs would come from a heap that never shrinks, and blank ones
    would be written to before they are used. A size that is set stays. Other C libraries have no
    such call, or none that does anything.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


def one_thread_for_arrays() -> None:
    """Have numpy's linear algebra keep to one thread, unless the environment says how many.

    When it is imported it starts a thread, with its memory, per processor of the host: a hundred on
    a large head node, and where a login node limits its users' processes, an error. Processes that
    this one starts do the same.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

"""Credentials of MUNGE: who made one, and what for, as the host's munged says.

libmunge is called directly (munge(3)); it comes with every Slurm that authenticates by munge. A
credential holds the uid and gid of its maker and a payload. munged decodes each one once, and none
after its time to live.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import NamedTuple

from rtsched.errors import AdapterError

LIBRARY = "libmunge.so.2"

_TTL, _SOCKET = 4, 8  # munge_opt_t
_NO_DAEMON = frozenset((6, 7))  # EMUNGE_SOCKET, EMUNGE_TIMEOUT


class CredentialError(AdapterError):
    """A credential that proves nothing: forged, expired, or used before."""


class Credential(NamedTuple):
    """What a valid credential says."""

    uid: int
    payload: bytes


def available() -> bool:
    """Return whether there are libmunge and munged's default socket on this host."""
    try:
        library = _library()
    except AdapterError:
        return False
    path, context = ctypes.c_char_p(), _context(library, 0, "")
    try:
        failed = library.munge_ctx_get(context, ctypes.c_int(_SOCKET), ctypes.byref(path))
        return not failed and path.value is not None and os.path.exists(path.value)
    finally:
        library.munge_ctx_destroy(context)


def encode(payload: bytes, ttl_s: int = 0, socket: str = "") -> str:
    """Return a credential of this process's user.

    Parameters
    ----------
    payload : bytes
        What it is for.
    ttl_s : int
        Seconds for which it is valid; 0: munged's default, 300.
    socket : str
        Of munged; empty: the default one.

    Raises
    ------
    AdapterError
        If there is no libmunge here, or munged does not answer.
    """
    library = _library()
    made, context = ctypes.c_char_p(), _context(library, ttl_s, socket)
    try:
        error = library.munge_encode(ctypes.byref(made), context, payload, len(payload))
        if error or made.value is None:
            raise AdapterError(f"no munge credential could be made: {_words(library, error)}")
        return made.value.decode("ascii")
    finally:
        library.munge_ctx_destroy(context)
        _free(ctypes.cast(made, ctypes.c_void_p))


def decode(text: str, socket: str = "") -> Credential:
    """Return what a credential says; it is used up then.

    Parameters
    ----------
    text : str
        The credential.
    socket : str
        Of munged; empty: the default one.

    Raises
    ------
    CredentialError
        If it is not valid, or not any more.
    AdapterError
        If there is no libmunge here, or munged does not answer.
    """
    library = _library()
    buffer, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    context = _context(library, 0, socket)
    try:
        error = library.munge_decode(
            text.encode("ascii", "replace"),
            context,
            ctypes.byref(buffer),
            ctypes.byref(length),
            ctypes.byref(uid),
            ctypes.byref(gid),
        )
        if error in _NO_DAEMON:
            raise AdapterError(f"munged does not answer: {_words(library, error)}")
        if error:  # of an expired or replayed one there is a payload all the same
            raise CredentialError(f"invalid munge credential: {_words(library, error)}")
        payload = ctypes.string_at(buffer, length.value) if buffer and length.value > 0 else b""
        return Credential(uid.value, payload)
    finally:
        library.munge_ctx_destroy(context)
        _free(buffer)


def _context(library: ctypes.CDLL, ttl_s: int, socket: str) -> ctypes.c_void_p:
    """Return the settings of one call; whoever asks destroys them."""
    context = ctypes.c_void_p(library.munge_ctx_create())
    if ttl_s:
        library.munge_ctx_set(context, ctypes.c_int(_TTL), ctypes.c_int(ttl_s))
    if socket:
        library.munge_ctx_set(context, ctypes.c_int(_SOCKET), ctypes.c_char_p(socket.encode()))
    return context


def _words(library: ctypes.CDLL, error: int) -> str:
    text: bytes = library.munge_strerror(error)
    return text.decode("ascii", "replace")


def _free(buffer: ctypes.c_void_p) -> None:
    if buffer:
        _libc().free(buffer)


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    return library


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise AdapterError(f"{LIBRARY} is not installed here; it comes with munge") from error
    c_int, pointer = ctypes.c_int, ctypes.POINTER
    library.munge_encode.argtypes = [
        pointer(ctypes.c_char_p),
        ctypes.c_void_p,
        ctypes.c_char_p,
        c_int,
    ]
    library.munge_decode.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        pointer(ctypes.c_void_p),
        pointer(c_int),
        pointer(ctypes.c_uint32),
        pointer(ctypes.c_uint32),
    ]
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_destroy.argtypes, library.munge_ctx_destroy.restype = [ctypes.c_void_p], None
    library.munge_strerror.argtypes, library.munge_strerror.restype = [c_int], ctypes.c_char_p
    return library

"""A daemon that a submit filter can be asked against: it answers, or misbehaves, as told."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from rtsched.adapters.wire import HEADER, MessageKind, Tag, decode_fields, encode, read_header

Behaviour = Callable[[socket.socket, MessageKind, Mapping[int, int | str]], None]


class FilterServer:
    """Listens at a path, keeps what it was asked, and does with each request as `behave` says.

    As root, it can listen as another user, `owner`.
    """

    def __init__(self, path: Path | str, behave: Behaviour, *, owner: int | None = None) -> None:
        self.path = str(path)
        self.behave = behave
        self.asked: list[tuple[MessageKind, dict[int, int | str]]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.path)
        before = os.geteuid()
        os.seteuid(before if owner is None else owner)
        self._socket.listen(128)
        os.seteuid(before)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> FilterServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            kind, length = read_header(received(connection, HEADER.size))
            fields = decode_fields(received(connection, length))
            self.asked.append((kind, fields))
            self.behave(connection, kind, fields)
        except OSError:
            connection.close()


def received(connection: socket.socket, length: int) -> bytes:
    """Return exactly so many bytes; OSError if the other side hangs up before."""
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(length - len(parts))
        if not part:
            raise OSError("hung up")
        parts += part
    return bytes(parts)


def answering(*fields: tuple[Tag, int | str], kind: MessageKind = MessageKind.ANSWER) -> Behaviour:
    """Answer each request with these fields."""
    return sending(encode(kind, fields))


def sending(answer: bytes, *, hang_up: bool = True) -> Behaviour:
    """Send these bytes, then hang up or keep the line."""

    def behave(
        connection: socket.socket, kind: MessageKind, fields: Mapping[int, int | str]
    ) -> None:
        connection.sendall(answer)
        if hang_up:
            connection.shutdown(socket.SHUT_RDWR)

    return behave


def dripping(answer: bytes, pause: float) -> Behaviour:
    """Send one byte after the other, so many seconds apart."""

    def behave(
        connection: socket.socket, kind: MessageKind, fields: Mapping[int, int | str]
    ) -> None:
        for byte in answer:
            connection.sendall(bytes([byte]))
            time.sleep(pause)

    return behave


def hanging(connection: socket.socket, kind: MessageKind, fields: Mapping[int, int | str]) -> None:
    """Keep the line and say nothing."""


ACCEPTED: Sequence[tuple[Tag, int | str]] = ((Tag.VERDICT, 0), (Tag.MESSAGE, "promised"))

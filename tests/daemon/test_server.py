"""The daemon's sockets: who is answered, who is sent away, and what that costs nobody else."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from rtsched.adapters.wire import HEADER, Kind, encode, frame, read_header
from rtsched.daemon.server import Door

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = frame(Kind.QUERY, b"{}")
ANSWER = encode(Kind.ANSWER, [])


class Desk:
    """Counts who asked, and answers everybody the same."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, kind: Kind, payload: bytes, uid: int) -> bytes:
        """Answer, and remember who it was."""
        self.asked.append(uid)
        return ANSWER


def talk(path: Path, *sends: bytes, close: bool = False, end: bool = False) -> socket.socket:
    """Connect and send; `end`: say that nothing more comes; `close`: do not wait for an answer."""
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(5)
    line.connect(str(path))
    for each in sends:
        line.sendall(each)
    if end:
        line.shutdown(socket.SHUT_WR)
    if close:
        line.close()
    return line


def test_who_hung_up_is_not_judged(tmp_path: Path) -> None:
    """What waited while the daemon was stopped is answered only where somebody still listens."""

    async def run() -> list[int]:
        desk, path = Desk(), tmp_path / "door"
        door = Door(path, (Kind.QUERY,), desk, uids={os.getuid()})
        await door.listen()
        for _ in range(20):
            talk(path, QUESTION, close=True)
        with talk(path, QUESTION, end=True) as line:
            await asyncio.sleep(0.2)
            assert read_header(line.recv(HEADER.size))[0] is Kind.ANSWER
        door.close()
        return desk.asked

    assert asyncio.run(run()) == [os.getuid()]

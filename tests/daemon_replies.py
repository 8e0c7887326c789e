"""A query socket that answers as a test says."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from rtsched.adapters.wire import HEADER, MessageKind, frame, read_header
from rtsched.daemon.questions import Question, Report, read_question, report_payload


def reported(report: Report) -> bytes:
    """Return the message that carries a report."""
    return frame(MessageKind.REPORT, report_payload(report))


@contextmanager
def answering(path: Path, answer: Callable[[Question], bytes]) -> Iterator[list[Question]]:
    """Answer questions on a socket while the block runs; give the list of those that came."""
    asked: list[Question] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                with line:
                    kind, length = read_header(line.recv(HEADER.size, socket.MSG_WAITALL))
                    assert kind is MessageKind.QUERY
                    asked.append(read_question(line.recv(length, socket.MSG_WAITALL)))
                    with suppress(BrokenPipeError):
                        line.sendall(answer(asked[-1]))

        thread = Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    path.unlink()

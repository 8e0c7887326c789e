"""Which of several daemons may write to the database that they share.

The daemon that takes the file over raises a number in it, the epoch, in a transaction. Every later
transaction of a daemon begins by comparing that number with its own, under SQLite's lock: a daemon
that was superseded while it stood still can write nothing any more, whenever it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtsched.errors import StoreError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path


class WriterEpoch:
    """One daemon's right to write.

    Parameters
    ----------
    host : str
        Where the daemon runs.

    Attributes
    ----------
    epoch : int
        The number that this daemon wrote; 0: it has not taken the file over yet.
    lost_to : str
        Host of the daemon that took the file over after this one; empty: none did.
    """

    def __init__(self, host: str) -> None:
        self.host, self.epoch, self.lost_to = host, 0, ""

    def take(self, base: sqlite3.Connection) -> None:
        """Take the file over, whoever has it."""
        base.execute("BEGIN IMMEDIATE")
        base.execute("UPDATE holder SET epoch = epoch + 1, host = ?", (self.host,))
        (self.epoch,) = base.execute("SELECT epoch FROM holder").fetchone()
        base.execute("COMMIT")

    def check(self, base: sqlite3.Connection, path: Path) -> None:
        """Compare the epochs; within a transaction that is to write, nobody can change them.

        Raises
        ------
        StoreError
            If another daemon took the file over.
        """
        epoch, host = base.execute("SELECT epoch, host FROM holder").fetchone()
        if epoch != self.epoch:
            self.lost_to = host or "another host"
            raise StoreError(
                path,
                f"was taken over by the daemon on {self.lost_to}; this one is on standby now",
            )

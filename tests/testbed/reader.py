"""Reads our daemon's database on a cluster, as the daemon's user, while the daemon writes it.

SQLite follows the links of a path, and those into a sandbox lead it back to the machine: so a
process inside reads for us. It is kept, since a process for each of thousands of questions takes
the tests a tenth of their processor time.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.sandbox import Sandbox

DATABASE = "/var/lib/rtsched/rtsched.db"

READER = f"""
import json, sqlite3, sys
for line in sys.stdin:
    try:
        base = sqlite3.connect("file:{DATABASE}?mode=ro", uri=True, timeout=10)
        try:
            print(json.dumps(base.execute(line).fetchall()), flush=True)
        finally:
            base.close()
    except sqlite3.Error as error:
        print(json.dumps(str(error)), flush=True)
"""


class DatabaseReader:
    """A process on a host that answers queries, from its making to `close`."""

    def __init__(self, host: Sandbox) -> None:
        self._process = host.popen(
            ["python3", "-I", "-S", "-c", READER], user="rtsched", stdin=subprocess.PIPE
        )

    def rows(self, query: str) -> list[list[Any]]:
        """Return what a query, one line of SQL, finds.

        Raises
        ------
        TestbedError
            If there is no database, or it cannot be read.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{query}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        found: list[list[Any]] | str = json.loads(answer) if answer else "its reader was killed"
        if isinstance(found, str):
            raise TestbedError(f"{DATABASE}: {found}")
        return found

    def close(self) -> None:
        """End it: its input ends."""
        self._process.communicate()

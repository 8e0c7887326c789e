"""Slurm's submit filter in a program of its own, called as slurmctld calls it."""

import os
import re
import subprocess
from pathlib import Path

UNSET, UNSET_16, DENIED = "4294967294", "65534", "2002"
USER = 1000


class Filter:
    """The filter with settings and a socket of its own."""

    def __init__(self, program: Path, place: Path) -> None:
        self.program = program
        self.socket = place / "s"
        self.promised = place / "promised_jobs"
        self.settings = place / "submit.conf"
        self.log = ""
        self.set()

    def set(self, **settings: object) -> None:
        """Write the settings file."""
        known = {
            "socket": self.socket,
            "promised_jobs": self.promised,
            "timeout_ms": 300,
            "daemon_user": 4711,
        } | settings
        self.settings.write_text("".join(f"{key} = {value}\n" for key, value in known.items()))

    def run(self, kind: str, *fields: str | bytes, uid: int = USER, **how: int) -> dict[str, str]:
        """Return what the last call returned, and what the job looks like then.

        `how`: `count` calls, by `threads` at once, with `pause_ms` between two.
        """
        environment = os.environ | {
            "RTSCHED_SUBMIT_CONF": str(self.settings),
            "THREADS": str(how.get("threads", 1)),
            "PAUSE_MS": str(how.get("pause_ms", 0)),
        }
        command: list[str | bytes] = [
            str(self.program),
            kind,
            str(uid),
            str(how.get("count", 1)),
            *fields,
        ]
        done = subprocess.run(
            command, capture_output=True, env=environment, timeout=120, check=False
        )
        self.log = done.stderr.decode(errors="replace")
        assert done.returncode == 0, self.log
        lines = done.stdout.decode(errors="replace")
        return dict(re.findall(r"^(\w+)=(.*)$", lines, re.MULTILINE))

    def submit(self, *fields: str | bytes, **how: int) -> dict[str, str]:
        """Submit a job."""
        return self.run("submit", *fields, **how)

    def modify(self, *fields: str | bytes, **how: int) -> dict[str, str]:
        """Change job 12."""
        return self.run("modify", "job_id_str=12", *fields, **how)

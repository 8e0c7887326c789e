"""What `rtsched doctor` gathers of a daemon that runs: state, metrics and database, no jobs."""

from __future__ import annotations

import asyncio
import re

from running import Running, answer_of

from rtsched.cli.doctor import Places, Section, gathered
from rtsched.daemon.database import migrations


def test_daemon_and_database(running: Running) -> None:
    """A promise is counted and its user not named; the schema is read while the daemon writes."""
    config = running.path / "site.toml"
    database = running.path / "rtsched.db"
    config.write_text(f'[daemon]\nrun = "{running.path}"\ndatabase = "{database}"\n')
    places = Places(config, running.path / "submit.conf", "", config)

    async def course() -> list[Section]:
        await running.start()
        await asyncio.to_thread(answer_of, running.asked(nodes=2))
        await running.daemon.cycle()
        return await asyncio.to_thread(gathered, places, False)

    found = {section.title: section for section in asyncio.run(course())}
    daemon = found["daemon"]
    assert daemon.error == ""
    assert daemon.facts["promises"] == "1 provisional"
    (promised,) = running.daemon.site.promises.values()
    assert promised.user == "ann"
    assert not [line for line in daemon.lines if re.search(r"\bann\b", line)]
    assert 'rtsched_promises{standing="provisional"} 1.0' in daemon.lines
    newest = migrations()[-1][0]
    assert found["database"].facts["schema"] == f"{newest}, newest known {newest}"
    assert found["files"].facts[str(running.path / "query.sock")].startswith("srw")

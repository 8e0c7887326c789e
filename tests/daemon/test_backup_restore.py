"""A backup of the database that another program takes while the daemon works, and its restoring."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import Running, answer_of

from rtsched.adapters.slurm.observation import token_of
from rtsched.adapters.wire import Tag
from rtsched.daemon.store import Store

VACUUM = "base.execute('VACUUM INTO ?', (sys.argv[2],))"
"""What `sqlite3 FILE "VACUUM INTO 'COPY'"` does."""
BACKUP = "base.backup(sqlite3.connect(sys.argv[2]))"
"""What `sqlite3 FILE ".backup COPY"` does."""


def back_up(path: Path, copy: Path, how: str) -> None:
    """Have another process copy a database that may be in use."""
    program = f"import sqlite3, sys; base = sqlite3.connect(sys.argv[1], timeout=60); {how}"
    subprocess.run([sys.executable, "-c", program, path, copy], check=True, timeout=120)


def held(running: Running) -> dict[str, tuple[object, ...]]:
    """Return the promises of a daemon by token, and the nodes that each is planned on."""
    site = running.daemon.site
    names, plan = site.snapshot.cluster.nodes.texts("name"), site.snapshot.plan
    planned = {
        job: [str(names[row]) for row in plan.nodes_of(entry).tolist()]
        for entry, job in enumerate(plan.entries.job.tolist())
    }
    return {
        record.token: (record.uid, record.deadline, record.state, planned[job])
        for job, record in site.promises.items()
    }


@pytest.mark.parametrize("how", [VACUUM, BACKUP])
async def test_a_backup_of_a_daemon_that_gives_promises(tmp_path: Path, how: str) -> None:
    """Each copy holds what was promised before it, whole; a daemon on the last one goes on."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    running = Running(first)
    answered: list[str] = []

    async def give(count: int) -> None:
        for _ in range(count):
            _, fields = await asyncio.to_thread(answer_of, running.asked())
            answered.append(token_of(str(fields[Tag.ADMIN_COMMENT])))

    await running.start()
    for number in range(4):
        before = set(answered)
        copy = second / f"copy-{number}.db"
        taking = asyncio.to_thread(back_up, running.store.path, copy, how)
        await asyncio.gather(taking, give(3))
        with Store(copy) as store:
            kept = store.load()
        assert before <= {record.token for record in kept.promises} <= set(answered)
        if kept.promises:
            planned = sorted(kept.plan.entries.job.tolist())
            assert planned == sorted(record.id for record in kept.promises)
    await asyncio.to_thread(back_up, running.store.path, second / "rtsched.db", how)
    promises = held(running)
    assert len(promises) == 12
    running.close()
    restored = Running(second)
    assert held(restored) == promises
    restored.close()


async def test_restored_where_a_daemon_was_killed(tmp_path: Path) -> None:
    """Its write-ahead log is of the lost file: with the log removed, the copy is as it was."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    running = Running(first)
    await running.start()
    for number in range(4):
        await asyncio.to_thread(answer_of, running.asked())
        if number == 0:
            back_up(running.store.path, tmp_path / "copy.db", VACUUM)
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("*.sock"))
    running.close()
    log = second / "rtsched.db-wal"
    assert log.stat().st_size
    for left in second.glob("rtsched.db-*"):
        left.unlink()
    shutil.copy(tmp_path / "copy.db", second / "rtsched.db")
    restored = Running(second)
    assert len(held(restored)) == 1
    restored.close()

"""Notices of a daemon that runs: a promise that is given, and one that is given up."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from rest_client import BOB, daemon_with_a_promise

from rtsched.daemon.query_client import ask
from rtsched.daemon.questions import Closed, RefusedError
from rtsched.notices import NoticesSettings, State, load, once
from rtsched.rest.endpoints import ask_for


def test_what_a_daemon_tells(tmp_path: Path) -> None:
    """Ann's promise breaks between two looks: she is told at once, and once."""
    out, program = tmp_path / "told", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat >> {out}\n")
    program.chmod(0o755)
    with daemon_with_a_promise(tmp_path) as running:
        settings = NoticesSettings(
            mail=[],
            command=[str(program)],
            query_socket=str(running.users.path),
            state=str(tmp_path / "state.json"),
            choices="",
        )
        with pytest.raises(RefusedError, match="only admins"):
            asyncio.run(ask_for(BOB, Closed(0.0), settings.query_socket))
        running.queries._own = os.getuid()  # the daemon's own user sees everything
        state = once(State(), settings, running.now)
        assert state.waiting == {}
        (record,) = running.daemon.site.promises.values()
        broken = msgspec.structs.replace(record, state="broken", changed_at=running.now + 5)
        running.now += 5
        asyncio.run(running.daemon._adopt(running.daemon.site.without([record.id]), [broken]))
        state = once(load(tmp_path / "state.json"), settings, running.now)
        letter = msgspec.json.decode(out.read_bytes())
        assert [each["event"] for each in letter["notices"]] == ["broken"]
        assert letter["notices"][0]["text"].startswith("the promise to job 4711")
        once(state, settings, running.now)
        assert msgspec.json.decode(out.read_bytes()) == letter
        assert [each.at for each in ask(Closed(0.0), settings.query_socket).closed] == [running.now]

"""Shares on the board and over REST: of all for admins, of the reader's own for others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rest_client import BOB, app_for, call, in_thread, local
from running import ANN, Running

from rtsched.adapters.users import user_name
from rtsched.model.snapshot import Accounts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = "<b>phys</b>\x1b[31m"


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Running]:
    """Give a daemon with one account of two users."""
    accounts = Accounts.build(
        3,
        name=[HOSTILE, user_name(ANN), user_name(BOB)],
        parent=[-1, 0, 0],
        shares=[1.0, 1.0, 3.0],
        is_user=[False, True, True],
    )

    async def course(running: Running) -> None:
        await running.start()
        site = running.daemon.site
        running.daemon.site = replace(site, snapshot=replace(site.snapshot, accounts=accounts))

    with in_thread(Running(tmp_path), course) as running:
        yield running


def page(running: Running, uid: int, target: str) -> tuple[int, str]:
    """Return what a user of this host gets."""
    return asyncio.run(call(local(app_for(running), uid), "GET", target))[:2]


def test_whose_shares_are_shown(shared: Running) -> None:
    """Ann's own and her account's; all for root."""
    status, report = page(shared, ANN, "/v1/shares")
    assert status == 200
    assert [(row["name"], row["share"]) for row in report["accounts"]] == [
        (HOSTILE, 1.0),
        (user_name(ANN), 0.25),
    ]
    assert len(page(shared, 0, "/v1/shares")[1]["accounts"]) == 3


def test_the_board_shows_them(shared: Running) -> None:
    """As text, whatever an account is called."""
    text = page(shared, ANN, "/board/now")[1]
    assert ("My shares" in text, "25 %" in text, "75 %" in text) == (True, True, False)
    assert "&lt;b&gt;phys" in text
    assert "<b>phys" not in text
    assert "\x1b" not in text
    assert "75 %" in page(shared, 0, "/board/now")[1]

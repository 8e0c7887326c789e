"""The board without a browser: who may open it, its odds and shares, also over REST."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board_pages import closed_likely
from numpy.typing import NDArray
from rest_client import BOB, JOB, app_for, call, got, in_thread, local, seen_in_queue
from running import ANN, NOW, Running, answer_of

from rtsched.adapters.users import user_name
from rtsched.daemon.estimating import Estimating, LatestEstimates
from rtsched.estimates.tables import Estimates
from rtsched.model.jobs import Jobs
from rtsched.model.snapshot import Accounts
from rtsched.rest.credential import payload_for


def asked(app: Any, method: str, target: str, **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Send one request."""
    return asyncio.run(call(app, method, target, **headers))


def credential(uid: int, method: str, target: str) -> str:
    """Return the header of a request, as `forged` reads it."""
    return f"Munge {uid} {payload_for(method, target.encode(), b'').hex()}"


def test_a_link_opens_a_session_that_reads_the_board_and_nothing_else(
    with_promise: Running,
) -> None:
    """The cookie is for scripts of no page, and only sent to the board."""
    app = app_for(with_promise)
    header = credential(ANN, "POST", "/v1/sessions")
    status, session, _ = asked(app, "POST", "/v1/sessions", authorization=header)
    assert (status, session["expires_s"]) == (201, 60.0)
    status, _, headers = asked(app, "GET", session["path"])
    assert (status, headers["location"]) == (303, "./")
    cookie, *rules = headers["set-cookie"].split("; ")
    assert {"Path=/board", "HttpOnly", "SameSite=Lax"} <= set(rules)
    status, page, headers = asked(app, "GET", "/board/", cookie=cookie)
    assert status == 200
    assert str(JOB) in page
    policy = headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    for target in ("/v1/status", "/v1/promises", f"/v1/explain/{JOB}"):
        assert asked(app, "GET", target, cookie=cookie)[0] == 401
    for method in ("POST", "DELETE"):
        assert asked(app, method, "/board/", cookie=cookie)[0] in {401, 405}
    assert asked(app, "DELETE", f"/v1/promises/{JOB}", cookie=cookie)[0] == 401
    assert asked(app, "GET", session["path"])[0] == 400


def test_without_a_session_a_browser_is_told_how_to_get_one(with_promise: Running) -> None:
    """As a page for people, and as JSON for programs; neither of a job."""
    app = app_for(with_promise)
    status, page, headers = asked(app, "GET", "/board/", accept="text/html,*/*")
    assert (status, headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "run `rtsched board`" in page
    assert "error" in asked(app, "GET", "/board/now", cookie="rtsched-session=x")[1]
    assert asked(app, "GET", "/board/board.css")[0] == 200
    assert asked(app, "GET", "/board/board.js")[0] == 200


def test_a_local_user_and_the_proxys_user_need_no_link(with_promise: Running) -> None:
    """The kernel, or the site's proxy, says who it is; each sees the own promises."""
    assert str(JOB) in asked(local(app_for(with_promise), ANN), "GET", "/board/now")[1]
    assert str(JOB) not in asked(local(app_for(with_promise), BOB), "GET", "/board/now")[1]
    status, _, headers = asked(local(app_for(with_promise), ANN), "GET", "/board")
    assert (status, headers["location"]) == (308, "board/")


def test_sites_that_may_show_it_in_a_frame(with_promise: Running) -> None:
    """Those of the setting, and no others."""
    app = local(app_for(with_promise, embedders=["https://ondemand.example.org"]), ANN)
    headers = asked(app, "GET", "/board/")[2]
    policy = headers["content-security-policy"]
    assert policy.endswith("frame-ancestors https://ondemand.example.org")


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("nodes=2&time=90", "#SBATCH --time=90"),
        ("nodes=2&time=1:30", "#SBATCH --time=90"),
        ("nodes=2&time=0-2", "#SBATCH --time=120"),
        ("nodes=2&time=1:30:00", "#SBATCH --time=90"),
        ("nodes=2&time=soon", "Time: &#39;soon&#39; is neither minutes"),
        ("nodes=-1", "Nodes: &#39;-1&#39; is not a whole number"),
        ("nodes=" + "9" * 12, "is not a whole number"),
        ("nodes=2&time=90&deadline=never", "Finish by: &#39;never&#39; is not a time"),
        ("nodes=2&time=90&deadline=" + "9" * 30, "is not a time"),
        ("nodes=2&time=90&partition=nowhere", "problem"),
    ],
)
def test_what_stands_in_the_form(with_promise: Running, query: str, answer: str) -> None:
    """It is read as sbatch reads it, or one sentence says what is wrong."""
    status, page, _ = asked(local(app_for(with_promise), ANN), "GET", f"/board/when?{query}")
    assert status == 200
    assert answer in page


class Sure:
    """Gives every job odds of 97 %."""

    async def ends(self, jobs: Jobs, timeout_s: float) -> NDArray[np.float64]:
        """Return 99 ends, of which all but three are at once; the others never come."""
        del timeout_s
        return np.tile(np.repeat([0.0, np.inf], [97, 2]), (len(jobs), 1))


@pytest.fixture(params=[True, False], ids=["past", "new"])
def likely(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Running, bool]]:
    """Give a daemon with a likely promise to ann's job, and with or without some of the past."""

    async def course(running: Running) -> None:
        running.daemon.odds = Sure()
        await running.start()
        await asyncio.to_thread(answer_of, running.asked(extra="rtsched:odds=95"))
        (record,) = running.daemon.site.likely.promises.values()
        row = running.daemon.site.likely.requested.replace(id=np.array([JOB]))
        await seen_in_queue(running, row, [record.token])
        if request.param:
            running.store.commit(list(closed_likely()), None, 0)

    with in_thread(Running(tmp_path), course) as running:
        yield running, request.param


def test_the_odds_are_shown(likely: tuple[Running, bool]) -> None:
    """To whom the promise is, in the table, and when asked why the job waits."""
    running, past = likely
    text = got(running, "/board/now")[1]
    assert "promised, likely 95 %" in text
    assert ("Of 400 promises, stated" in text, 'id="likely"' in text) == (past, past)
    why = got(running, f"/board/why?job={JOB}")[1]
    assert "Nothing is planned for it" in why
    assert "promised, likely 95 %" not in got(running, "/board/now", BOB)[1]
    status, report = got(running, f"/v1/promises/{JOB}")
    assert (status, report["promise"]["odds"] if "promise" in report else report["odds"]) == (
        200,
        0.95,
    )


def test_odds_that_have_fallen_are_shown(likely: tuple[Running, bool]) -> None:
    """Beside those stated, where an estimate knows them."""
    running, _ = likely
    estimating = Estimating(running.live, running.daemon.metrics)
    estimating.latest = LatestEstimates(Estimates.build(1, job=[JOB], odds=[0.384]), NOW)
    running.daemon.estimating = estimating
    assert "promised, likely 95 %, now 38.4 %" in got(running, "/board/now")[1]
    promise = got(running, f"/v1/promises/{JOB}")[1]
    assert (promise["odds"], promise["odds_now"], promise["unlikely"]) == (0.95, 0.384, True)


def test_the_record_is_for_all(likely: tuple[Running, bool]) -> None:
    """It says nothing of users: stated odds, how many, how many kept."""
    running, past = likely
    status, report = got(running, "/v1/reliability", BOB)
    assert status == 200
    assert sum(row["promises"] for row in report["stated"]) == (400 if past else 0)
    assert all(row["kept"] <= row["promises"] for row in report["stated"])
    assert {*report} == {"now", "stated"}


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


def test_whose_shares_are_shown(shared: Running) -> None:
    """Ann's own and her account's; all for root."""
    status, report = got(shared, "/v1/shares")
    assert status == 200
    assert [(row["name"], row["share"]) for row in report["accounts"]] == [
        (HOSTILE, 1.0),
        (user_name(ANN), 0.25),
    ]
    assert len(got(shared, "/v1/shares", 0)[1]["accounts"]) == 3


def test_the_board_shows_them(shared: Running) -> None:
    """As text, whatever an account is called."""
    text = got(shared, "/board/now")[1]
    assert ("My shares" in text, "25 %" in text, "75 %" in text) == (True, True, False)
    assert "&lt;b&gt;phys" in text
    assert "<b>phys" not in text
    assert "\x1b" not in text
    assert "75 %" in got(shared, "/board/now", 0)[1]

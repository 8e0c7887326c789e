"""Who may open the board, and what its session opens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from rest_client import BOB, JOB, app_for, call, daemon_with_a_promise, local
from running import ANN

from rtsched.rest.credential import payload_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from running import Running


@pytest.fixture(scope="module")
def with_promise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give a daemon with ann's promise."""
    with daemon_with_a_promise(tmp_path_factory.mktemp("access")) as running:
        yield running


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

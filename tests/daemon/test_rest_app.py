"""The endpoints before a real daemon: who sees what, their description, and rest.toml."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from rest_client import BOB, JOB, app_for, asked, call, daemon_with_a_promise, local
from running import ANN, Running
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from rtsched import __version__
from rtsched.core.config import read_settings
from rtsched.errors import ConfigError
from rtsched.rest.credential import payload_for
from rtsched.rest.settings import RestSettings


def test_what_a_user_sees(with_promise: Running) -> None:
    """Her own promise, verdicts, job and what nodes do; the release in a header."""
    status, report, headers = asked(with_promise, ANN, "GET", "/v1/status")
    assert (status, report["version"], report["everyone"]) == (200, __version__, False)
    assert headers["rtsched-version"] == __version__
    assert [each["job"] for each in report["promises"]] == [str(JOB)]
    promises = asked(with_promise, ANN, "GET", "/v1/promises")[1]
    assert promises["promises"] == report["promises"]
    assert asked(with_promise, ANN, "GET", f"/v1/promises/{JOB}")[1]["standing"] == "firm"
    explained = asked(with_promise, ANN, "GET", f"/v1/explain/{JOB}")[1]
    assert explained["promise"]["job"] == str(JOB)
    verdicts = asked(with_promise, ANN, "GET", "/v1/verdicts?last=3")[1]["verdicts"]
    assert [each["verdict"] for each in verdicts] == ["admit"]
    nodes = asked(with_promise, ANN, "GET", "/v1/nodes")[1]["nodes"]
    assert [(each["name"], each["planned"]) for each in nodes] == [
        ("n0", 1),
        ("n1", 1),
        ("n2", 0),
        ("n3", 0),
    ]
    found = asked(with_promise, ANN, "POST", "/v1/feasible", b'{"nodes":2,"time_s":600}')
    assert (found[0], found[1]["feasible"], len(found[1]["nodes"])) == (200, True, 2)


def test_what_another_user_does_not_see(with_promise: Running) -> None:
    """Neither ann's promise nor that there is one; nor what admins see."""
    assert asked(with_promise, BOB, "GET", "/v1/promises")[1]["promises"] == []
    for method, target in (
        ("GET", f"/v1/promises/{JOB}"),
        ("GET", f"/v1/explain/{JOB}"),
        ("GET", f"/v1/chunk/{JOB}"),
        ("DELETE", f"/v1/promises/{JOB}"),
    ):
        status, mine, _ = asked(with_promise, BOB, method, target)
        other = asked(with_promise, BOB, method, target.replace(str(JOB), "99"))
        assert (status, other[0]) == (404, 404)
        assert mine["error"].replace(str(JOB), "99") == other[1]["error"]
    for target in ("/v1/plan", "/v1/metrics"):
        status, report, _ = asked(with_promise, BOB, "GET", target)
        assert (status, "only admins" in report["error"]) == (403, True)
    assert with_promise.states() == ["firm"]


def test_what_an_admin_sees(with_promise: Running) -> None:
    """The whole plan, and the metrics in Prometheus' format."""
    assert len(asked(with_promise, 0, "GET", "/v1/plan")[1]["entries"]) == 1
    status, text, headers = asked(with_promise, 0, "GET", "/v1/metrics")
    assert (status, "rtsched_requests_total" in text) == (200, True)
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "rtsched_" in asked(with_promise, 0, "GET", "/v1/status?metrics=true")[1]["metrics"]


def test_who_is_nobody_sees_health_and_schema(with_promise: Running) -> None:
    """And nothing else; paths that there are not are refused as those that there are."""
    status, report, _ = asked(with_promise, None, "GET", "/v1/health")
    assert (status, report["daemon"]) == (200, __version__)
    assert report["status"] in {"ok", "problem"}
    status, schema, _ = asked(with_promise, None, "GET", "/schema/openapi.json")
    assert (status, schema["openapi"]) == (200, "3.1.0")
    for method, target in (
        ("GET", "/v1/status"),
        ("GET", "/nothing"),
        ("POST", "/v1/health"),
        ("GET", "/v1/health/"),
        ("DELETE", f"/v1/promises/{JOB}"),
    ):
        status, report, headers = asked(with_promise, None, method, target)
        assert (status, headers["www-authenticate"]) == (401, "Munge, IDToken")
        assert report.keys() == {"error"}


def test_a_credential_is_for_one_request(with_promise: Running) -> None:
    """With the body and query that it was made for; not for another, and not twice in a header."""
    body = b'{"nodes":1,"time_s":60}'
    made = payload_for("POST", b"/v1/feasible", body).hex()
    good = {"Authorization": f"Munge {ANN} {made}"}
    assert asked(with_promise, None, "POST", "/v1/feasible", body, **good)[0] == 200
    assert asked(with_promise, None, "POST", "/v1/feasible", b"{}", **good)[0] == 401
    assert asked(with_promise, None, "POST", "/v1/feasible?x=1", body, **good)[0] == 401
    made = payload_for("GET", b"/v1/verdicts?last=2", b"").hex()
    good = {"Authorization": f"Munge {ANN} {made}"}
    assert asked(with_promise, None, "GET", "/v1/verdicts?last=2", **good)[0] == 200
    assert asked(with_promise, None, "GET", "/v1/verdicts?last=3", **good)[0] == 401


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("POST", "/v1/feasible", b"{", 400),
        ("POST", "/v1/feasible", b"", 400),
        ("POST", "/v1/feasible", b"[" * 60000, 400),
        ("POST", "/v1/feasible", b'{"nodes":0}', 400),
        ("POST", "/v1/feasible", b'{"uid":0}', 400),
        ("POST", "/v1/feasible", b'{"ask":"plan"}', 400),
        ("POST", "/v1/feasible", b'{"partition":"nowhere"}', 422),
        ("POST", "/v1/feasible", b" " * 65537, 413),
        ("GET", "/v1/status", b" " * 65537, 413),
        ("GET", "/v1/verdicts?last=-1", b"", 400),
        ("GET", "/v1/verdicts?last=1001", b"", 400),
        ("GET", "/v2/status", b"", 404),
        ("PUT", "/v1/status", b"", 405),
        ("GET", "/v1/explain/%00", b"", 404),
        ("GET", "/v1/explain/..%2Fplan", b"", 404),
        ("GET", f"/v1/explain/{10**30}", b"", 404),
    ],
)
def test_bad_input_is_named(
    with_promise: Running, method: str, target: str, body: bytes, status: int
) -> None:
    """Each refusal is one JSON object with the right status."""
    found, report, _ = asked(with_promise, ANN, method, target, body)
    assert (found, report.keys()) == (status, {"error"})
    assert report["error"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "the body is missing"),
        (b"[]", "the body Expected `object`, got `array`"),
        (b'{"nodes":0}', "nodes Expected `int` >= 1"),
    ],
)
def test_a_refusal_names_what_is_wrong(with_promise: Running, body: bytes, why: str) -> None:
    """The body or its field, not the name of a variable here."""
    assert asked(with_promise, ANN, "POST", "/v1/feasible", body)[1] == {"error": why}


async def test_a_user_is_slowed_down(with_promise: Running) -> None:
    """Who sends too many is told when to come back; others are answered."""
    app = app_for(with_promise, rate=1.0, burst=3)
    found = [(await call(local(app, ANN), "GET", "/v1/status"))[0] for _ in range(3)]
    status, _, headers = await call(local(app, ANN), "GET", "/v1/status")
    assert (status, headers["retry-after"]) == (429, "1")
    assert [*found, (await call(local(app, BOB), "GET", "/v1/status"))[0]] == [200] * 4


def test_a_daemon_that_does_not_answer(with_promise: Running) -> None:
    """Is told as such, with the time to try again."""
    for target in ("/v1/status", "/v1/health"):
        app = app_for(with_promise)
        app._app.state.daemon._path = "/nowhere.sock"
        status, _, headers = asyncio.run(call(local(app, ANN), "GET", target))
        assert status == 503
        assert target == "/v1/health" or headers["retry-after"] == "1"


def test_a_server_that_the_daemon_does_not_trust(with_promise: Running) -> None:
    """Gets no answer for any user."""
    trusted, with_promise.users.for_others = with_promise.users.for_others, -1
    try:
        assert asked(with_promise, ANN, "GET", "/v1/status")[0] == 503
        assert asked(with_promise, 0, "GET", "/v1/status")[0] == 503
    finally:
        with_promise.users.for_others = trusted


def test_a_promise_is_cancelled(tmp_path: Any) -> None:
    """Once; what became of it is shown after that."""
    with daemon_with_a_promise(tmp_path) as running:
        status, report, _ = asked(running, ANN, "DELETE", f"/v1/promises/{JOB}")
        assert (status, report["promise"]["standing"]) == (200, "withdrawn")
        assert running.states() == []
        assert asked(running, ANN, "DELETE", f"/v1/promises/{JOB}")[0] == 404
        shown = asked(running, ANN, "GET", f"/v1/promises/{JOB}")[1]
        assert (shown["standing"], shown["why"]) == ("withdrawn", "cancelled by its user")


CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
)
OPERATIONS = (
    ("GET", "/v1/health"),
    ("GET", "/v1/status"),
    ("GET", "/v1/metrics"),
    ("GET", "/v1/promises"),
    ("GET", "/v1/promises/{job}"),
    ("GET", "/v1/timeline"),
    ("GET", "/v1/shares"),
    ("GET", "/v1/reliability"),
    ("POST", "/v1/sessions"),
    ("DELETE", "/v1/promises/{job}"),
    ("GET", "/v1/explain/{job}"),
    ("GET", "/v1/verdicts"),
    ("POST", "/v1/feasible"),
    ("POST", "/v1/hold"),
    ("GET", "/v1/choices"),
    ("GET", "/v1/when"),
    ("POST", "/v1/when"),
    ("GET", "/v1/when/{job}"),
    ("GET", "/v1/chunk/{job}"),
    ("GET", "/v1/plan"),
    ("GET", "/v1/nodes"),
)


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, BaseSchema]]:
    """Give the description as ann and as root read it, of a daemon that holds what is asked for."""
    with daemon_with_a_promise(tmp_path_factory.mktemp("fuzzed")) as daemon:
        yield {
            uid: schemathesis.openapi.from_asgi(
                "/schema/openapi.json", local(app_for(daemon, daemon_requests=60), uid)
            )
            for uid in (ANN, 0)
        }


def test_all_operations_are_fuzzed(schemas: dict[int, BaseSchema]) -> None:
    """The list here is the one of the description."""
    schema = schemas[ANN]
    assert schema.raw_schema["openapi"].startswith("3.1.")
    found = {
        (method.upper(), path)
        for path, item in schema.raw_schema["paths"].items()
        for method in item
    }
    assert found == set(OPERATIONS)
    texts = [
        operation.get("description")
        for item in schema.raw_schema["paths"].values()
        for operation in item.values()
    ]
    assert all(texts)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
@pytest.mark.parametrize("uid", [ANN, 0])
def test_answers_are_as_described(
    schemas: dict[int, BaseSchema], method: str, path: str, uid: int
) -> None:
    """No request makes an answer that the description does not have, or a server error."""

    @given(case=schemas[uid][path][method].as_strategy())
    @settings(
        max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    def fuzzed(case: schemathesis.Case) -> None:
        response = case.call()
        case.validate_response(response, checks=CHECKS)

    fuzzed()


def test_the_defaults_are_for_one_host(tmp_path: Path) -> None:
    """An empty file listens on this host alone."""
    file = tmp_path / "rest.toml"
    file.write_text("")
    assert read_settings(file, RestSettings) == RestSettings()
    assert RestSettings().address == "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('address = "0.0.0.0"', "which needs TLS"),
        ('address = "::"', "which needs TLS"),
        ('address = "head"', "'head' is not an IP address"),
        ('certificate = "/c.pem"', "key: is needed too"),
        ('key = "/k.pem"', "certificate: is needed too"),
        ('port = 0\nsocket = ""', "nobody could connect"),
        ("prot = 1", "prot: unknown setting; did you mean 'port'?"),
        ("rate = 0", "rate: expected `float` > 0"),
        ("max_body = 10", "max_body"),
        ('log_level = "loud"', "log_level: invalid value 'loud'; choose one of"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    """Each is one sentence with the file and the setting."""
    file = tmp_path / "rest.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_settings(file, RestSettings)
    assert str(file) in str(refused.value)
    assert says in str(refused.value)


def test_loopback_needs_no_tls(tmp_path: Path) -> None:
    """Nor does TCP with a certificate, whatever the address."""
    file = tmp_path / "rest.toml"
    for text in (
        'address = "::1"',
        'address = "127.1.2.3"',
        'address = "0.0.0.0"\ncertificate = "/c"\nkey = "/k"',
        'address = "0.0.0.0"\nport = 0',
    ):
        file.write_text(text)
        read_settings(file, RestSettings)

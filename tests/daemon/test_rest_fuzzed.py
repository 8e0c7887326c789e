"""The interface does what its OpenAPI description says, whatever is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from rest_client import app_for, daemon_with_a_promise, local
from running import ANN
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from running import Running
    from schemathesis.schemas import BaseSchema

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
    ("POST", "/v1/sessions"),
    ("DELETE", "/v1/promises/{job}"),
    ("GET", "/v1/explain/{job}"),
    ("GET", "/v1/verdicts"),
    ("POST", "/v1/feasible"),
    ("POST", "/v1/hold"),
    ("GET", "/v1/choices"),
    ("GET", "/v1/chunk/{job}"),
    ("GET", "/v1/plan"),
    ("GET", "/v1/nodes"),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give a daemon with ann's promise."""
    with daemon_with_a_promise(tmp_path_factory.mktemp("fuzzed")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def schemas(running: Running) -> dict[int, BaseSchema]:
    """Return the description as ann and as root read it."""
    return {
        uid: schemathesis.openapi.from_asgi(
            "/schema/openapi.json", local(app_for(running, daemon_requests=60), uid)
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
        max_examples=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def fuzzed(case: schemathesis.Case) -> None:
        response = case.call()
        case.validate_response(response, checks=CHECKS)

    fuzzed()

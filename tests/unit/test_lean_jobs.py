"""Jobs with the columns alone that a simulation ahead needs."""

from __future__ import annotations

from rtsched.estimates.ahead import lean
from rtsched.model.jobs import Jobs


def test_texts_that_no_job_has_stay_missing() -> None:
    """A column of codes without any names is no list of names."""
    jobs = Jobs.build(2, id=[1, 2], name=["a", None]).replace(node_request=[-1, -1])
    found = lean(jobs, "name", "user")
    for column in ("node_request", "partition", "user"):
        assert found.texts(column) == [None, None]
    assert found.texts("name") == ["a", None]

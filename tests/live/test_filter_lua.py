"""The submit filter in Lua, in real controllers: what it sees, and what it keeps users from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import Cluster, SlurmOptions, SubmitError
from testbed.images import SUITES


@pytest.fixture(scope="module", params=SUITES)
def lua(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a controller with the variant in Lua."""
    text = (Path(__file__).parents[2] / "contrib/slurm/job_submit.lua").read_text()
    options = SlurmOptions(fast=1, slow=1, job_submit=("lua",), job_submit_lua=text)
    with Cluster(request.param, options, software=False) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("args", "script", "parked"),
    [
        (["--comment=rtsched:sigma=1"], "true", True),
        (["--extra=x rtsched:sigma=1"], "true", True),
        ([], "#SBATCH --deadline=now+2hours\ntrue", True),
        ([], "# x\n#SBATCH -n1 --deadline now+2hours\ntrue", True),
        ([], "true\n#SBATCH --deadline=now+2hours", False),
        (["--comment=mine"], "true", False),
        (["--deadline=now+2hours"], "true", False),
    ],
)
def test_lua_parks_what_it_can_see(
    lua: Cluster, args: list[str], script: str, parked: bool
) -> None:
    """Wishes in script, comment and extra park a job, with whole nodes; others do not."""
    number = lua.sbatch(["--time=5", *args], script=script)
    job = {name: value.strip() for name, value in lua.job(number).items()}
    assert (job.get("AdminComment") == "rtsched:parked") == parked
    assert (job["Priority"] == "0") == parked
    assert lua.has_whole_nodes(number) == parked


@pytest.mark.parametrize(
    ("args", "whole"),
    [
        (["-n1"], False),
        (["-N2", "-n2"], True),
        (["-n1", "--begin=now+1hour"], True),
        (["-n1", "--dependency=singleton"], True),
        (["--array=1-3"], False),
    ],
)
def test_lua_where_jobs_share_nodes(lua: Cluster, args: list[str], whole: bool) -> None:
    """A parked job on one node asks for what it asks for, unless it may not start yet."""
    file = lua.path("/etc/slurm/job_submit.lua")
    text = file.read_text()
    file.write_text(text.replace("SHARE_NODES = false", "SHARE_NODES = true"))
    try:
        job = lua.sbatch(["--time=5", "--comment=rtsched:speedup=none", *args])
        assert lua.job(job)["AdminComment"].strip() == "rtsched:parked"
        assert lua.has_whole_nodes(job) == whole
    finally:
        file.write_text(text)


def test_lua_guards_a_parked_and_a_promised_job(lua: Cluster) -> None:
    """Users cannot change what is judged or promised; the daemon can; other jobs are free."""
    job = lua.sbatch(["--time=5", "--comment=rtsched:sigma=1"])
    update = ["scontrol", "update", f"job={job}"]
    refused = lua.run([*update, "timelimit=1"], user="alice", check=False)
    assert "time_limit cannot be changed: the job has not been evaluated yet" in refused.stderr
    assert lua.run(["scontrol", "release", str(job)], user="alice", check=False).returncode
    lua.run([*update, "admincomment=rtsched:abc"])
    refused = lua.run([*update, "numnodes=2"], user="alice", check=False)
    assert "was given a promise" in refused.stderr
    lua.run([*update, "comment=mine"], user="alice")
    lua.run(["scontrol", "release", str(job)], user="rtsched")
    other = lua.sbatch(["--time=5", "--begin=now+1hour"])
    lua.run(["scontrol", "update", f"job={other}", "timelimit=1"], user="alice")


def test_lua_refuses_forgery(lua: Cluster) -> None:
    """Our reservations cannot be named."""
    for name in ("rtsched_1", "mine,RTSCHED_1"):
        with pytest.raises(SubmitError, match="keeps nodes free for a promised job"):
            lua.sbatch([f"--reservation={name}"])

"""A site's own job_submit.lua beside the submit filter, which comes last."""

import pytest
from promising import PROMISED, in_minutes, live_cluster
from testbed.images import SUITES

PARTITIONS = """
PartitionName=all Nodes=ALL Default=YES MaxTime=60
PartitionName=small Nodes=fast1 MaxTime=60
"""
LUA = """
function slurm_job_submit(job, partitions, uid)
  slurm.log_user("site: jobs go to small")
  job.partition = "small"
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""
SAID = "site: jobs go to small"


@pytest.mark.parametrize("suite", SUITES)
def test_the_user_reads_both_and_what_lua_changes_is_planned(suite: str) -> None:
    """With Lua last its message would be all that is read, and the plan for another partition."""
    plugins = ("lua", "rtsched")
    with live_cluster(
        suite=suite, fast=2, slow=0, partitions=PARTITIONS, job_submit=plugins, job_submit_lua=LUA
    ) as live:
        live.wait_usable(2)
        reply = live.submit("-N1", "--time=1", in_minutes(20), script="true")
        assert [SAID in reply.text, PROMISED in reply.text] == [True, True]
        assert live.cluster.job(reply.job)["Partition"] == "small"
        reply = live.submit("-N2", "--time=1", in_minutes(20), script="true")
        assert (reply.job, SAID in reply.text) == (0, True)
        assert "rtsched: rejected: needs more nodes than" in reply.text
        assert live.submit("-N1", "--time=1").text.count(SAID) == 1
        live.cancel_all()

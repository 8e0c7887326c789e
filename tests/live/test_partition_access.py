"""Partitions that not all users may use: what Slurm refuses, or never starts, is not promised."""

import pytest
from promising import PROMISED, live_cluster

PARTITIONS = """
PartitionName=all Nodes=ALL Default=YES MaxTime=60
PartitionName=admin Nodes=ALL MaxTime=60 RootOnly=YES
PartitionName=booked Nodes=ALL MaxTime=60 ReqResv=YES
PartitionName=users Nodes=ALL MaxTime=60 DisableRootJobs=YES
PartitionName=remote Nodes=ALL MaxTime=60 AllocNodes=elsewhere
PartitionName=near Nodes=ALL MaxTime=60 AllocNodes=localhost
PartitionName=staff Nodes=ALL MaxTime=60 AllowGroups=bob
PartitionName=operated Nodes=ALL MaxTime=60 AllowAccounts=operators
PartitionName=science Nodes=ALL MaxTime=60 AllowAccounts=science
PartitionName=denied Nodes=ALL MaxTime=60 DenyAccounts=science
PartitionName=special Nodes=ALL MaxTime=60 DenyQos=normal
PartitionName=brief Nodes=ALL MaxTime=1
PartitionName=closed Nodes=ALL MaxTime=60 State=DOWN
"""
KEPT_OUT = {
    "admin": "alice",
    "booked": "alice",
    "users": "root",
    "remote": "alice",
    "staff": "alice",
    "operated": "alice",
    "denied": "alice",
    "special": "alice",
}


@pytest.mark.parametrize("enforced", ["NO", "ALL"])
def test_who_may_not_use_a_partition_is_promised_nothing(enforced: str) -> None:
    """In one line that names the setting; others are promised, and without a deadline nobody is."""
    settings = {
        "AccountingStorageEnforce": "associations,limits,qos",
        "EnforcePartLimits": enforced,
    }
    job = ("-N1", "--time=2")
    with live_cluster(fast=2, slow=0, partitions=PARTITIONS, settings=settings) as live:
        live.wait_usable(2)
        wrong = []
        for name, user in KEPT_OUT.items():
            reply = live.submit("-p", name, *job, "--deadline=now+1hour", user=user)
            said = f"rtsched: partition {name} accepts no jobs "
            if reply.job or said not in reply.text or PROMISED in reply.text:
                wrong.append(f"{name}: {reply.text}")
            plain = live.submit("-p", name, *job, user=user)
            if "rtsched" in plain.text:
                wrong.append(f"{name}, without a deadline: {plain.text}")
        assert wrong == []
        for name, user in (("staff", "bob"), ("near", "alice"), ("science", "alice")):
            live.promise("-p", name, *job, "--deadline=now+1hour", user=user, script="true")
        live.cancel_all()


@pytest.mark.parametrize("enforced", ["NO", "ANY", "ALL"])
def test_several_partitions(enforced: str) -> None:
    """Where Slurm accepts a list of partitions the job is promised, and runs; else it is not."""
    settings = {
        "AccountingStorageEnforce": "associations,limits,qos",
        "EnforcePartLimits": enforced,
    }
    others = ("admin", "booked", "remote", "staff", "operated", "special", "closed", "brief")
    lists = [text for name in others for text in (f"{name},all", f"all,{name}")]
    with live_cluster(fast=2, slow=0, partitions=PARTITIONS, settings=settings) as live:
        live.wait_usable(2)
        wrong = []
        for named in lists:
            job = ("-p", named, "-N1", "--time=2")
            plain = live.submit(*job, "--hold")
            reply = live.submit(*job, "--deadline=now+1hour", script="true")
            if bool(plain.job) != bool(reply.job) or reply.promised != (PROMISED in reply.text):
                wrong.append(f"{named}: {plain.text}, with a deadline: {reply.text}")
            if reply.job:
                live.wait_state(reply.job, "kept")
        assert wrong == []
        live.cancel_all()

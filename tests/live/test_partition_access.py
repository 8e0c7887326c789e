"""Partitions that not all users may use: what Slurm refuses, or never starts, is not promised."""

import pytest
from promising import PROMISED, SITE, in_minutes, live_cluster
from testbed.waiting import eventually

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


HALVES = """
PartitionName=left Nodes=fast1 Default=YES MaxTime=60
PartitionName=right Nodes=fast2 MaxTime=60 PriorityTier=5
"""


@pytest.mark.parametrize("shared", [False, True])
def test_the_promise_is_for_one_of_them(shared: bool) -> None:
    """The one where it starts first; once it is given up the job may run in all of them again."""
    site = f"{SITE}\n[slurm]\nshare_nodes = true\n" if shared else SITE
    settings = {"EnforcePartLimits": "ALL"}
    hardware = {"fast": "CPUs=4 RealMemory=4000"}
    if shared:
        settings |= {"DefMemPerCPU": "500", "SelectTypeParameters": "CR_Core_Memory"}
    with live_cluster(
        site, fast=2, slow=0, partitions=HALVES, settings=settings, hardware=hardware
    ) as live:
        live.wait_usable(2)
        named = ("-p", "right,left", "-N1", "--exclusive", "--time=5")
        busy = live.promise(*named, in_minutes(40), script="sleep 300")
        assert live.cluster.job(busy)["Partition"] == "right"
        other = live.promise(*named, in_minutes(40), script="sleep 300")
        assert live.cluster.job(other)["Partition"] == "left"
        held = live.submit(*named, in_minutes(40), "-dsingleton", script="true").job
        assert live.cluster.job(held)["Partition"] == "right,left"
        live.wait_state(held, "firm")
        eventually(lambda: live.cluster.job(held)["Partition"] == "right", 30)
        live.cluster.run(["scancel", str(held)])
        third = live.promise(*named, in_minutes(40), script="true")
        live.wait_state(third, "firm")
        live.cluster.run(["rtsched", "cancel", str(third)], user="alice")
        eventually(lambda: live.cluster.job(third)["Partition"] == "right,left", 30)
        live.cluster.run(["scancel", str(busy)])
        eventually(lambda: live.cluster.job(third)["JobState"] == "COMPLETED", 60)
        live.cancel_all()

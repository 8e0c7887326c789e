"""Jobs that want more memory than MaxMemPerCPU: they get more processors, or are refused."""

import pytest
from promising import PROMISED, SITE, live_cluster

HARDWARE = "Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000"
SETTINGS = {
    "DefMemPerCPU": "100",
    "MaxMemPerCPU": "500",
    "SchedulerParameters": "bf_interval=5,bf_continue",
}
PER_PROCESSOR = (
    ("-n3", "--mem-per-cpu=600"),
    ("-n4", "--mem-per-cpu=600"),
    ("-n1", "-c2", "--mem-per-cpu=750"),
    ("-n1", "-c3", "--mem-per-cpu=600"),
    ("-N2", "--ntasks-per-node=2", "--mem-per-cpu=600"),
)
PER_NODE = (
    ("-N1", "--mem=0"),
    ("-N1", "--exclusive", "--mem=0"),
    ("-N1", "--mem=2500"),
    ("-N1", "--exclusive", "--mem=1000"),
)


@pytest.mark.parametrize("shared", ["", "\n[slurm]\nshare_nodes = true\n"])
def test_more_memory_than_processors_have(shared: str) -> None:
    """What Slurm accepts is promised, and runs; what it refuses is not."""
    hardware = {"fast": HARDWARE, "slow": HARDWARE}
    options = {"fast": 2, "slow": 2, "hardware": hardware, "settings": SETTINGS}
    with live_cluster(SITE + shared, **options) as live:
        live.wait_usable(4)
        wrong = []
        for form in PER_PROCESSOR + PER_NODE:
            plain = live.submit(*form, "--time=1", script="true")
            reply = live.submit(*form, "--time=1", "--deadline=now+1hour", script="true")
            if bool(plain.job) != bool(reply.job) or (PROMISED in reply.text) > bool(reply.job):
                wrong.append(f"{form}: {plain.text}, with a deadline: {reply.text}")
            if reply.job:
                live.wait_state(reply.job, "kept")
        assert wrong == []
        live.cancel_all()

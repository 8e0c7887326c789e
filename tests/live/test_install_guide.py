"""The install guide, its commands run in order on a Slurm that knows nothing of rtsched."""

import re
from pathlib import Path

import pytest
from guide import blocks, follow, unpack
from testbed import Cluster, SlurmOptions
from testbed.images import SUITES
from testbed.waiting import wait_for

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "slurm" / "install.md"

# As Debian's packages leave them: no user, no word of ours in the accounting.
FORGET = """
sacctmgr -i delete user rtsched
sacctmgr -i delete account operators
userdel rtsched
rm -rf /var/lib/rtsched /etc/rtsched /usr/lib/rtsched /run/rtsched
# A busy test machine is slow; `make install` keeps a file that is there.
mkdir /etc/rtsched
echo timeout_ms = 5000 >/etc/rtsched/submit.conf
"""

BARE = SlurmOptions(
    fast=2,
    slow=4,
    admin_level="None",
    settings={"PluginDir": "", "AccountingStoreFlags": "job_comment"},
)


@pytest.mark.parametrize("suite", SUITES)
def test_the_guide_leads_from_a_bare_slurm_to_a_counter_offer_and_back(suite):
    """Its commands work as they stand; the last before the rollback is told a feasible deadline."""
    found = blocks(GUIDE)
    there = [block for block in found if block.section != "Rollback"]
    back = [block for block in found if block.section == "Rollback"]
    assert there
    assert back
    with Cluster(suite, BARE, software=False) as cluster:
        cluster.run(["sh", "-c", FORGET], check=False)
        unpack(cluster, kernels=suite != "trixie")
        conf = cluster.path("/etc/slurm/slurm.conf").read_text()
        reply, last = follow(cluster, there)
        assert "portfolio (shadow) would reject it" in reply["Shadow"]
        assert "Submitted batch job" in reply["Shadow"]
        assert "sbatch: rtsched: warning: " in reply["Warn"]
        assert "Submitted batch job" in reply["Warn"]
        assert "sbatch: rtsched: promised to end by" in reply["Enforce"]
        assert re.search(
            r"rtsched: rejected: .* Feasible: .*--deadline=uts\d+\), (not )?reserved", last
        )
        follow(cluster, back)
        assert cluster.path("/etc/slurm/slurm.conf").read_text() == conf
        assert "rtsched" not in cluster.run(["scontrol", "show", "config"]).stdout
        reservations = ["scontrol", "show", "reservation"]  # of a job that runs: ends by itself
        wait_for("none is left", lambda: "rtsched_" not in cluster.run(reservations).stdout, 60)
        assert cluster.sbatch(["-N1", "--time=1"], user="alice") > 0


def test_every_command_of_the_guide_is_run():
    """A block of shell commands that the test would pass over is a mistake in the guide."""
    assert GUIDE.read_text("utf-8").count("```sh\n") == len(blocks(GUIDE))

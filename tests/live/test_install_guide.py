"""The install guide, its commands run in order on a Slurm that knows nothing of rtsched."""

from pathlib import Path

import pytest
from guide import install
from testbed import Cluster, SlurmOptions
from testbed.images import SUITES
from testbed.waiting import wait_for

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "slurm" / "install.md"

BARE = SlurmOptions(
    fast=2,
    slow=4,
    admin_level="None",
    settings={"PluginDir": "", "AccountingStoreFlags": "job_comment"},
)


@pytest.mark.parametrize("suite", SUITES)
def test_the_guide_leads_from_a_bare_slurm_to_a_counter_offer_and_back(suite):
    """Its commands work as they stand; the last before the rollback is told a feasible deadline."""
    with Cluster(suite, BARE, software=False) as cluster:
        for what in ("user rtsched", "account operators"):
            cluster.run(["sacctmgr", "-i", "delete", *what.split()], check=False)
        submitted, offer = "Submitted batch job", r"--deadline=uts\d+\), (not )?reserved"
        kernels = suite != "trixie"
        install(cluster, GUIDE, submitted, offer, prompt="sbatch: ", kernels=kernels)
        assert "rtsched" not in cluster.run(["scontrol", "show", "config"]).stdout
        reservations = ["scontrol", "show", "reservation"]  # of a job that runs: ends by itself
        wait_for("none is left", lambda: "rtsched_" not in cluster.run(reservations).stdout, 60)
        assert cluster.sbatch(["-N1", "--time=1"], user="alice") > 0

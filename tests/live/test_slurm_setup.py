"""`rtsched slurm` on a real Slurm that knows nothing of us: ready, and back again."""

import json

import pytest
from testbed import Cluster, SlurmOptions
from testbed.images import SUITES
from testbed.slurm import PLUGINS

SITE = 'planner = "mcdf"\n\n[[plugin]]\nname = "mcdf"\n'


def check(cluster, *options):
    """Return exit status and findings of `rtsched slurm check`."""
    done = cluster.run(["rtsched", "slurm", "check", "--json", *options], check=False, timeout=60)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)


def uses(cluster) -> str:
    """Return the plug-ins that the running controller uses."""
    shown = cluster.run(["scontrol", "show", "config"]).stdout
    return next(line for line in shown.splitlines() if line.startswith("JobSubmitPlugins"))


def places(cluster) -> str:
    """Return where the running controller looks for plug-ins."""
    shown = cluster.run(["scontrol", "show", "config"]).stdout
    return next(line.split()[2] for line in shown.splitlines() if line.startswith("PluginDir"))


@pytest.mark.parametrize("suite", SUITES)
def test_from_bare_to_ready_and_back(suite):
    """What check names is put right by install and a reconfigure, and uninstall undoes it."""
    bare = {"JobSubmitPlugins": "", "PluginDir": "", "AccountingStoreFlags": "job_comment"}
    options = SlurmOptions(fast=1, slow=1, job_submit=("rtsched",), settings=bare)
    with Cluster(suite, options, files={"/etc/rtsched/site.toml": SITE}) as cluster:
        conf = cluster.path("/etc/slurm/slurm.conf")
        before = conf.read_text()
        status, found = check(cluster)
        assert status == 1
        assert any("no job_submit_rtsched.so" in each["what"] for each in found)
        cluster.run(["sh", "-c", f"cp {PLUGINS}/job_submit_rtsched.so {places(cluster)}"])
        status, found = check(cluster)
        assert status == 1
        assert any("job_submit_rtsched.so is built" in each["what"] for each in found)
        shown = cluster.run(["rtsched", "slurm", "install"], timeout=60)
        assert "+JobSubmitPlugins=rtsched" in shown.stdout
        assert conf.read_text() == before
        cluster.run(["rtsched", "slurm", "install", "--apply"], timeout=60)
        assert "rtsched" not in uses(cluster)
        cluster.run(["scontrol", "reconfigure"])
        assert "rtsched" in uses(cluster)
        status, found = check(cluster)
        assert ["no daemon answers" in x["what"] for x in found if x["state"] == "wrong"] == [True]
        cluster.start_daemon()
        status, found = check(cluster)
        assert status == 0, [each for each in found if each["state"] == "wrong"]
        cluster.run(["rtsched", "slurm", "uninstall", "--apply"], timeout=60)
        assert conf.read_text() == before
        cluster.run(["scontrol", "reconfigure"])
        assert "rtsched" not in uses(cluster)

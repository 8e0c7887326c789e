"""The RPM packages: built on Debian without a network, checked by rpmlint, unpacked, run."""

import json
import re

import pytest
from testbed import Sandbox
from testbed.distribution import PACKAGES, clean, rpms, tools
from testbed.images import CHECKOUT
from testbed.layers import boxes, forget

import rtsched

SUITE = "trixie"
ENVIRONMENT = {"RTSCHED_COMPILE": "0", "LC_ALL": "C.UTF-8"}
DOCS = f"/usr/share/doc/rtsched-{rtsched.__version__}"
UNPACK = 'cd /; for name in "$@"; do rpm2cpio "/rpms/$name" | cpio -idm --quiet; done'


@pytest.fixture(scope="module")
def directory():
    """Return the directory of built packages."""
    layer = rpms(SUITE)
    forget(layer, unused_days=1)
    return layer.ready()[0] / PACKAGES.lstrip("/")


@pytest.fixture(scope="module")
def box(directory):
    """Return a sandbox with rpm's tools, in which the packages can be seen."""
    settings = CHECKOUT / "packaging" / "rpm" / "rpmlint.toml"
    binds = {directory: "/rpms", settings: "/rpmlint.toml"}
    with Sandbox(tools(SUITE).ready(), boxes(), binds=binds) as running:
        yield running


@pytest.fixture(scope="module")
def names(directory):
    """Return the files of the packages by name."""
    files = sorted(path.name for path in directory.glob("*.rpm"))
    return {re.split(r"-\d", name)[0]: name for name in files}


def asked(box, option, name):
    """Return what rpm says of a package, line by line."""
    done = box.run(["rpm", "-qp", option, f"/rpms/{name}"], env=ENVIRONMENT, timeout=60)
    return done.stdout.splitlines()


def test_four_packages_of_this_release_are_built(names):
    """The same as for Debian."""
    assert set(names) == {"rtsched", "rtsched-client", "rtsched-slurm-plugin", "rtsched-condor"}
    assert all(f"-{rtsched.__version__}-1" in name for name in names.values())


def test_plug_ins_require_the_release_that_they_fit(box, names):
    """The filter one release of Slurm, the library one feature release of HTCondor."""
    slurm = asked(box, "--requires", names["rtsched-slurm-plugin"])
    release = box.run(["dpkg-query", "-W", "-f", "${Version}", "libslurm-dev"]).stdout
    assert f"slurm-slurmctld >= {release.partition('-')[0]}" in slurm
    condor = asked(box, "--requires", names["rtsched-condor"])
    release = box.run(["condor_version"]).stdout.split()[1]
    assert f"condor >= {'.'.join(release.split('.')[:2])}" in condor
    assert not [line for line in (*slurm, *condor) if line.startswith(("user(", "group("))]


def test_packages_share_no_file(box, names):
    """Each file is in one package, but for directories and the settings of either batch system."""
    seen = {}
    for name, file in names.items():
        for line in asked(box, "-lv", file):
            if not line.startswith("d"):
                path = line.split(maxsplit=8)[8].partition(" -> ")[0]
                seen.setdefault(path, []).append(name)
    shared = {path for path, owners in seen.items() if len(owners) > 1}
    assert shared == {"/etc/rtsched/submit.conf"}
    assert not [path for path in seen if "BUILD" in path]


def test_rpmlint_finds_no_error(box, names):
    """What it warns of is known: wheels are as their makers built them."""
    done = box.run(
        ["rpmlint", "--config", "/rpmlint.toml", *(f"/rpms/{name}" for name in names.values())],
        env=ENVIRONMENT,
        timeout=300,
        check=False,
    )
    found = re.findall(r"^\S+: E: .*$", done.stdout, re.MULTILINE)
    assert found == [], done.stdout[-3000:]


def test_what_is_unpacked_works(directory, names):
    """On Debian, whose Python they were built with: the version, a replay, the users' commands."""
    with Sandbox(clean(SUITE, "rpm", "cpio").ready(), boxes(), binds={directory: "/rpms"}) as root:
        root.run(["sh", "-euc", UNPACK, "unpack", names["rtsched-client"]], timeout=120)
        alone = root.run(["rtsched", "--help"], env=ENVIRONMENT).stdout
        assert "feasible" in alone
        assert "replay  " not in alone
        root.run(["sh", "-euc", UNPACK, "unpack", names["rtsched"]], timeout=120)
        told = root.run(["rtsched", "--version"], env=ENVIRONMENT).stdout
        assert told.split()[-1] == rtsched.__version__
        log = f"{DOCS}/examples/logs/slurm-sacct.txt"
        words = ["rtsched", "replay", log, "--policy", "easy", "--json", "--no-out", "--no-report"]
        shown = root.run(words, env=ENVIRONMENT, timeout=120, cwd="/root").stdout
        assert json.loads(shown)["log"]["jobs"] == 55
        assert root.path("/usr/lib/systemd/system/rtsched.service").exists()
        assert root.path("/usr/lib/sysusers.d/rtsched.conf").exists()

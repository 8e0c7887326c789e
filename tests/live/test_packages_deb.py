"""The Debian packages: built without a network, installed, upgraded, removed and purged.

`RTSCHED_PACKAGE_SUITES=trixie,forky` names the releases of Debian, by default trixie.
"""

import json
import os
import re
from pathlib import Path

import pytest
from testbed import Sandbox, distribution
from testbed.distribution import clean
from testbed.layers import boxes

import rtsched

TOP = Path(__file__).parents[2]
SUITES = os.environ.get("RTSCHED_PACKAGE_SUITES", "trixie").split(",")
BOTH = ("rtsched-slurm-plugin", "rtsched-condor")
MORE = {"bookworm": (), "trixie": BOTH, "forky": BOTH}
"""What else a release has batch systems for: bookworm's Slurm is older than any that is tested."""
USERS = ["board", "cancel", "chunk", "explain", "feasible", "status"]
HAND = {"DEBIAN_FRONTEND": "noninteractive", "RTSCHED_COMPILE": "0"}
NOT_OURS = (
    "/dev",
    "/etc/group",
    "/etc/gshadow",
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/etc/shadow",
    "/etc/subgid",
    "/etc/subuid",
    "/proc",
    "/run",
    "/sys",
    "/tmp",  # noqa: S108
    "/usr/src",
    "/var/cache/ldconfig",
    "/var/cache/man",
    "/var/lib/dpkg",
    "/var/log",
)
"""Where a package manager and others write that are not the packages'."""
LIST = r"find / -xdev \( {} \) -prune -o -print"


@pytest.fixture(scope="module", params=SUITES)
def debs(request):
    """Return the directory of built packages, and the suite that they are for."""
    return distribution.debs(request.param)[0], request.param


@pytest.fixture(scope="module")
def names(debs):
    """Return the files of the packages by name."""
    return distribution.debs(debs[1])[1]


def root(debs, *wanted):
    """Return a sandbox of a root without ours, in which the packages can be seen."""
    directory, suite = debs
    return Sandbox(clean(suite, *wanted).ready(), boxes(), binds={directory: "/debs"})


def ran(box, line, **more):
    """Run a line of shell as root, and return what it prints."""
    return box.run(["sh", "-euc", line], env=HAND, timeout=300, **more).stdout


def files(box):
    """Return the paths of a root."""
    prune = " -o ".join(f"-path '{path}*'" for path in NOT_OURS)
    return set(ran(box, LIST.format(prune)).splitlines())


def test_four_packages_of_this_release_are_built(debs, names):
    """Each states the Python or the batch system that it fits."""
    assert set(names) == {"rtsched", "rtsched-client", *MORE[debs[1]]}
    assert all(f"_{rtsched.__version__}-1+debian" in name for name in names.values())


def test_users_commands_alone(debs, names):
    """A host without the daemon has what users need, and says so of the rest."""
    with root(debs) as box:
        ran(box, f"dpkg -i --force-unsafe-io /debs/{names['rtsched-client']}")
        assert ran(box, "rtsched --version").split()[-1] == rtsched.__version__
        shown = re.findall(
            r"^  ([a-z]+) ", ran(box, "rtsched --help").partition("Commands")[2], re.M
        )
        assert sorted(shown) == USERS
        asked = box.run(["rtsched", "replay", "x"], env=HAND, check=False)
        assert asked.returncode == 2
        assert "No such command 'replay'" in asked.stderr
        asked = box.run(["rtsched", "status"], env=HAND, check=False)
        assert asked.returncode == 3
        pages = sorted(path.name for path in box.path("/usr/share/man/man1").glob("rtsched*"))
        assert pages == [f"rtsched-{name}.1.gz" for name in USERS]
        assert not box.path("/usr/lib/systemd/system/rtsched.service").exists()
        assert ran(box, "bash -n /usr/share/bash-completion/completions/rtsched") == ""


def test_from_installation_to_purge(debs, names):
    """What is installed works; an upgrade keeps the settings; removal and purge leave nothing."""
    slurm = [name for name in MORE[debs[1]] if "slurm" in name]
    packages = ["rtsched-client", "rtsched", *slurm]
    ours = [names[name] for name in packages]
    with root(debs, *(["slurmctld"] if slurm else [])) as box:
        before = files(box)
        ran(box, f"dpkg -i --force-unsafe-io {' '.join(f'/debs/{name}' for name in ours)}")
        works(box, slurm)
        settings = "/etc/rtsched/submit.conf"
        kept = {"/etc/rtsched", "/etc/rtsched/site.toml", *([settings] if slurm else [])}
        if slurm:
            ran(box, f"echo timeout_ms = 40 >>{settings}")
        ran(box, "echo 'planner = \"portfolio\"' >/etc/rtsched/site.toml")
        ran(box, "touch /var/lib/rtsched/promises.db /var/cache/rtsched/kernel.nbc")
        upgrade(box, *ours)
        assert ran(box, "dpkg-query -W -f '${Version}' rtsched").endswith(".1")
        if slurm:
            assert ran(box, f"tail -n 1 {settings}") == "timeout_ms = 40\n"
        assert box.path("/var/lib/rtsched/promises.db").exists()
        works(box, slurm)
        ran(box, f"dpkg --remove {' '.join(packages)}")
        left = files(box) - before
        kept |= {"/var/lib/rtsched", "/var/lib/rtsched/promises.db"}
        assert {path for path in left if "systemd" not in path} == kept
        ran(box, f"dpkg --purge {' '.join(packages)}")
        assert files(box) == before
        assert "rtsched" not in ran(box, "cat /etc/passwd /etc/group")


AGAIN = r"""
for name in "$@"; do
    dpkg-deb -R "/debs/$name" /root/again
    sed -i -e 's/^\(Version: .*\)/\1.1/' -e 's/(= \([^)]*\))/(= \1.1)/' /root/again/DEBIAN/control
    dpkg-deb -Znone -b /root/again "/root/$name" >/dev/null
    rm -r /root/again
done
cd /root
dpkg -i --force-unsafe-io --force-confold "$@"
rm "$@"
"""


def upgrade(box, *ours):
    """Install packages again as a later revision: the same files under another version."""
    box.run(["sh", "-euc", AGAIN, "again", *ours], env=HAND, timeout=300)


def works(box, slurm):
    """Check that what was installed can be used."""
    assert ran(box, "rtsched --version").split()[-1] == rtsched.__version__
    log = "/usr/share/doc/rtsched/examples/logs/slurm-sacct.txt"
    replay = f"cd /tmp && rtsched replay {log} --policy easy,mcdf --no-out --no-report --json"
    assert json.loads(ran(box, replay))["log"]["jobs"] == 55
    assert ran(box, "id -Gn rtsched").split() == ["rtsched", *(["slurm"] if slurm else [])]
    assert ran(box, "stat -c '%U %a' /var/lib/rtsched").split() == ["rtsched", "700"]
    unit = ran(box, "cat /usr/lib/systemd/system/rtsched.service")
    assert "ExecStart=/usr/bin/rtsched serve --config /etc/rtsched/site.toml" in unit
    for name in ("rtsched", "rtsched-rest", "rtsched-notices"):
        ran(box, f"systemd-analyze verify /usr/lib/systemd/system/{name}.service")
        assert ran(box, f"systemctl is-enabled {name}.service || true").strip() == "disabled"
    for page in ("rtsched.1", "rtsched-anonymise.1", "rtsched-status.1"):
        assert box.path(f"/usr/share/man/man1/{page}.gz").exists()
    assert "rtsched anonymise" in ran(box, "man --pager=cat 1 rtsched-anonymise")
    if not slurm:
        return
    (plugin,) = box.path("/usr/lib").glob("*-linux-gnu/slurm-wlm/job_submit_rtsched.so")
    assert plugin.stat().st_size > 10_000
    assert box.path("/usr/libexec/rtsched/task_prolog.sh").exists()


def test_the_library_for_htcondor(debs, names):
    """It fits the distribution's HTCondor, and its bindings are seen by the program."""
    if "rtsched-condor" not in MORE[debs[1]]:
        pytest.skip("this release has no HTCondor")
    ours = [names[name] for name in ("rtsched-client", "rtsched", "rtsched-condor")]
    with root(debs, "condor") as box:
        ran(box, f"dpkg -i --force-unsafe-io {' '.join(f'/debs/{name}' for name in ours)}")
        python = "/usr/lib/rtsched/venv/bin/python3"
        program = 'import classad2, importlib.metadata as m; print(m.version("htcondor"))'
        told = ran(box, f"{python} -c '{program}'")
        running = ran(box, "condor_version").split()[1]
        assert told.split(".")[0] == running.split(".")[0]
        assert "condor" in ran(box, "id -Gn rtsched").split()
        assert box.path("/usr/lib/rtsched/librtsched_classad.so").exists()
        assert box.path("/usr/share/rtsched/condor/50-rtsched.conf").exists()
        drop_in = "/usr/lib/systemd/system/rtsched.service.d/condor.conf"
        assert "PrivateTmp=no" in ran(box, f"cat {drop_in}")

"""A plug-in in a distribution of its own is found, configured and asked, from built wheels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.install

REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "examples" / "rtsched-quiet-hours"

PROGRAM = """
import json
import rtsched
from rtsched.core.chain import Chain
from rtsched.core.config import PluginTable
from rtsched.core.plugins import discover
from rtsched.testing import make_cluster, make_jobs, make_snapshot

found = discover()
quiet = found["quiet-hours"]
table = PluginTable("quiet-hours", settings={"begin": 8.0, "end": 18.0, "widest": 4})
chain = Chain.load([PluginTable("limits"), table], found=found)
jobs = make_jobs(size=[2, 5, 50])
judgement = chain.admit(jobs, make_snapshot(cluster=make_cluster(16), now=10 * 3600.0))
print(json.dumps({
    "home": rtsched.__file__,
    "version": quiet.version,
    "distribution": quiet.distribution,
    "hooks": quiet.hooks,
    "settings": list(quiet.config.__struct_fields__),
    "summary": quiet.summary,
    "built_in": [name for name in found if found[name].distribution == "rtsched"],
    "code": judgement.verdicts.code.tolist(),
    "said": [answer.plugin for answer in judgement.answers],
    "reasons": {
        finding.reason.code: finding.rows.tolist()
        for finding in judgement.verdicts.findings if len(finding.rows)
    },
}))
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with rtsched and the example installed from wheels."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--target", str(target), str(REPO), str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run(site: Path, *arguments: str) -> str:
    """Return what Python prints with the installed packages before all others."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=site,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_an_installed_plug_in_is_listed_and_asked(site: Path) -> None:
    """The installed example stands beside the built-in plug-ins and judges with them."""
    seen = json.loads(run(site, "-c", PROGRAM))
    assert Path(seen["home"]).is_relative_to(site)
    assert (seen["distribution"], seen["version"]) == ("rtsched-quiet-hours", "1.2.0")
    assert seen["hooks"] == ["rtsched_admit"]
    assert seen["settings"] == ["begin", "end", "widest", "utc_offset"]
    assert seen["summary"] == "Hold wide jobs until the quiet hours are over."
    assert {"fastest", "limits", "multifactor"} <= set(seen["built_in"])
    assert seen["said"] == ["limits", "quiet-hours"]
    assert seen["code"] == [0, 2, 3]
    assert seen["reasons"] == {"limits.never-fits": [2], "quiet-hours.held": [1, 2]}


def test_its_own_tests_pass(site: Path) -> None:
    """The example's tests, the conformance test among them, pass against the wheel."""
    out = run(
        site, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", str(EXAMPLE)
    )
    assert "passed" in out

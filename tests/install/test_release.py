"""A release is built from its tag alone, to the same bytes each time, and signed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rtsched

pytestmark = pytest.mark.install

REPO = Path(__file__).parents[2]
VERSION = rtsched.__version__
WHEEL = f"rtsched-{VERSION}-py3-none-any.whl"
AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
WHEN = "2026-01-02T03:04:05Z"


def run(*words: str | Path, cwd: Path, check: bool = True, **env: str) -> str:
    """Run a command; return all that it prints."""
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHON": sys.executable} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def tag(clone: Path) -> None:
    """Commit what a clone has, and tag it."""
    run("git", "add", "--all", cwd=clone)
    when = {"GIT_AUTHOR_DATE": WHEN, "GIT_COMMITTER_DATE": WHEN}
    run("git", *AUTHOR, "commit", "--quiet", "--message", "A release", cwd=clone, **when)
    run("git", *AUTHOR, "tag", "--force", f"v{VERSION}", cwd=clone)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone with the files of this checkout, tagged as a release."""
    directory = tmp_path_factory.mktemp("clone")
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=REPO)
    for name in filter(None, names.split("\0")):
        if (REPO / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, directory / name)
    run("git", "init", "--quiet", cwd=directory)
    tag(directory)
    return directory


@pytest.fixture(scope="module")
def release(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a release that an OpenSSH key has signed."""
    keys = tmp_path_factory.mktemp("keys")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "key", cwd=keys)
    run("packaging/release.sh", VERSION, keys / "key", cwd=clone)
    public = (keys / "key.pub").read_text()
    (clone.parent / "signers").write_text(f'me namespaces="rtsched-release" {public}')
    return (clone / "dist" / f"release-{VERSION}").rename(clone.parent / "first")


def verified(directory: Path, signers: Path) -> bool:
    """Return whether signature and sums of a release are good."""
    words = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", "me", "-n", "rtsched-release"]
    with (directory / "SHA256SUMS").open() as sums:
        signed = subprocess.run(
            [*words, "-s", "SHA256SUMS.sig"],
            cwd=directory,
            stdin=sums,
            capture_output=True,
            check=False,
        )
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=directory,
        capture_output=True,
        check=False,
    )
    return signed.returncode == checked.returncode == 0


def test_what_a_release_is(release: Path, clone: Path) -> None:
    """Everything is in the sums, these are signed, and a change is found."""
    names = {f"rtsched-{VERSION}.tar.gz", WHEEL, f"rtsched-{VERSION}.cdx.json"}
    listed = {line.split()[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert listed == names
    assert {path.name for path in release.iterdir()} == names | {"SHA256SUMS", "SHA256SUMS.sig"}
    signers = clone.parent / "signers"
    assert verified(release, signers)
    changed = clone.parent / "changed"
    for name in (WHEEL, "SHA256SUMS"):
        shutil.copytree(release, changed)
        with (changed / name).open("a") as file:
            file.write("\n")
        assert not verified(changed, signers), name
        shutil.rmtree(changed)


def test_the_sbom(release: Path) -> None:
    """It names the program, and the libraries that packages bring along, with versions."""
    bom = json.loads((release / f"rtsched-{VERSION}.cdx.json").read_text())
    assert bom["bomFormat"] == "CycloneDX"
    assert bom["metadata"]["component"]["name"] == "rtsched"
    found = {each["name"]: each["version"] for each in bom["components"]}
    assert {"numpy", "numba", "litestar", "plotly"} <= set(found)
    assert all(found.values())


def test_again_to_the_same_bytes(release: Path, clone: Path) -> None:
    """Whatever is changed beside the tag, and by a GnuPG key this time."""
    again = clone / "dist" / f"release-{VERSION}"
    (clone / "README.md").write_text("Something else\n")
    (clone / "rtsched" / "more.py").write_text("")
    home = clone.parent / "g"  # short: a socket is made in it
    home.mkdir(mode=0o700)
    env = {"GNUPGHOME": str(home)}
    make = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "me@e.org"]
    try:
        run(*make, "default", "default", "never", cwd=clone, **env)
        run("packaging/release.sh", VERSION, "me@e.org", cwd=clone, **env)
        assert (again / "SHA256SUMS").read_bytes() == (release / "SHA256SUMS").read_bytes()
        words = ["gpg", "--batch", "--verify", "SHA256SUMS.asc", "SHA256SUMS"]
        assert "Good signature" in run(*words, cwd=again, **env)
    finally:
        run("gpgconf", "--kill", "all", cwd=clone, check=False, **env)
        run("git", "checkout", "--quiet", "README.md", cwd=clone)
        (clone / "rtsched" / "more.py").unlink()


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("rtsched/__init__.py", f'__version__ = "{VERSION}"'),
        ("CHANGELOG.md", f"## {VERSION}"),
        ("CITATION.cff", f"version: {VERSION}"),
    ],
)
def test_versions_that_do_not_agree(clone: Path, name: str, old: str) -> None:
    """Nothing is built then, nor of a version without a tag."""
    shutil.rmtree(clone / "dist", ignore_errors=True)
    file = clone / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, old.replace(VERSION, "9.9.9"), 1))
    tag(clone)
    said = run("packaging/release.sh", VERSION, cwd=clone, check=False)
    assert f"{name} of v{VERSION} says '9.9.9'" in said
    assert not (clone / "dist").exists()
    file.write_text(text)
    tag(clone)
    assert "no tag v9.9.9" in run("packaging/release.sh", "9.9.9", cwd=clone, check=False)

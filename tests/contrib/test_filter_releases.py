"""The submit filter against the sources of Slurm's releases: headers, declarations, symbols.

`slurm_sources.py` says where they come from. Debian's two releases are in `test_submit_filter.py`.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from filter_sources import COMMON, PROGRAMS, SLURM
from slurm_sources import Release, tarballs, unpacked

STRICT = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="session", params=tarballs() or [None], ids=lambda path: path and path.name)
def release(request: pytest.FixtureRequest) -> Release:
    """Return each release whose sources there are."""
    if request.param is None:
        place = os.environ.get("RTSCHED_SLURM_SOURCES")
        if place:
            pytest.fail(f"RTSCHED_SLURM_SOURCES={place}: no slurm-*.tar.xz or slurm-*.tar.bz2")
        pytest.skip("RTSCHED_SLURM_SOURCES names no directory of Slurm's release tarballs")
    return unpacked(request.param)


@pytest.fixture
def plugin(release: Release, tmp_path: Path) -> Path:
    """Return the filter, built by its Makefile with the release's headers and nothing else."""
    command = ["make", "-C", SLURM, f"BUILD={tmp_path}", f"SLURM_INCLUDE={release.include}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return tmp_path / "job_submit_rtsched.so"


def symbols(plugin: Path, which: str) -> set[str]:
    """Return the dynamic symbols of a file, `--defined-only` or `--undefined-only`."""
    command = ["nm", "-D", which, plugin]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].partition("@")[0] for line in shown.splitlines()}


def test_it_compiles(plugin: Path) -> None:
    """`make` builds the plug-in for the release without a warning."""
    assert plugin.exists()


def test_an_older_release_is_refused(release: Release, tmp_path: Path) -> None:
    """With headers of a release before 23.11 the compiler gives the reason."""
    headers = Path(shutil.copytree(release.include, tmp_path / "older"))
    version = headers / "slurm/slurm_version.h"
    text = re.sub(r"(define SLURM_VERSION_NUMBER) .*", r"\1 0x170200", version.read_text())
    version.write_text(text)
    command = ["make", "-C", SLURM, f"BUILD={tmp_path}", f"SLURM_INCLUDE={headers}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode
    assert "rtsched's submit filter needs Slurm 23.11 or later" in done.stderr


def test_it_has_what_slurmctld_looks_for(release: Release, plugin: Path) -> None:
    """Every symbol that the release's controller asks a submit plug-in for is there."""
    calls = re.search(r"syms\[\] = \{([^}]*)\}", release.text("src/interfaces/job_submit.c"))
    assert calls is not None
    wanted = set(re.findall(r'"(\w+)"', calls[1]))
    wanted |= set(re.findall(r'dlsym\(plug, "(\w+)"\)', release.text("src/common/plugin.c")))
    assert wanted >= {"job_submit", "job_modify", "plugin_version", "init", "fini"}
    assert wanted <= symbols(plugin, "--defined-only")


def test_it_needs_nothing_that_libslurm_keeps_to_itself(release: Release, plugin: Path) -> None:
    """What it takes of Slurm is exported: libslurm shows names that begin with slurm_ only."""
    exported = release.text("src/api/Makefile.am")
    assert re.search(r"slurm_\*;", exported)
    here = {"slurm_xstrdup", "slurm_xfree", "slurm_xrecalloc", "slurm_info", "slurm_error"}
    taken = {name for name in symbols(plugin, "--undefined-only") if "slurm" in name}
    assert taken == here


def test_its_declarations_are_the_releases_own(release: Release, tmp_path: Path) -> None:
    """Compiled in one unit with slurmctld's own headers, no declaration of ours differs."""
    own = [f"-isystem{place}" for place in (release.source, release.built)]
    includes = [*own, f"-I{COMMON}", f"-I{SLURM}"]
    for program, flags in (("declarations", includes), ("logging", [f"-I{SLURM}", *own])):
        source = PROGRAMS / f"slurm_{program}.c"
        command = ["gcc", *STRICT, *flags, "-c", "-o", tmp_path / "checked.o", source]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[:4000]

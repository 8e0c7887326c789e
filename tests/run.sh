#!/bin/sh
# Set up and run every check and test of the project: ./tests/run.sh [PYTEST-ARGUMENT...]
#
# Live tests, on real Slurm clusters and HTCondor pools, come last. They need root on Debian, and skip
# elsewhere unless RTSCHED_LIVE=require. RTSCHED_JOBS stands for the number of processors, 2 if not set.
# Where RTSCHED_SLURM_SOURCES names a directory of Slurm's release tarballs (slurm-*.tar.xz or .tar.bz2,
# from https://download.schedmd.com/slurm/), the submit filter is compiled and checked against each; the
# first time that takes a quarter of a minute for each, later none; and the newest one is built, once, which takes
# some minutes, and run with rtsched. RTSCHED_SLURM_SOURCE names one of them: the live tests for Slurm then run
# on it, and others are left out (docs/releases.md).
# Some tests wait for processes of their own, so one more of them runs at a time than there are
# processors, and four more of the live ones, which mostly wait. Live tests of a file share a cluster, and
# run in the file's order. They watch clocks, and clusters that run side by side slow each other down;
# waits count time as a quiet machine would, and the summary shows those that came closest to failing.
# Tests that fail, of the live ones 19 at most, run once more, by themselves, and then they must pass. The
# summaries of both runs say which ones. An example that a property test failed with is kept, and tried
# again.
# Kernels compiled by one run are kept in ~/.cache/rtsched for other checkouts with the same kernels, and
# what mypy knows of files for those that have not changed.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE  # or each of many processes compiles anew what it imports
tests/setup.sh dev chromium debootstrap
tests/promtool.sh
PATH="$PWD/.venv/bin:$PATH"
export PATH

ruff check .
ruff format --check .
MYPY_CACHE_DIR=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/rtsched/mypy mypy
lint-imports

tests/kernels.sh restore
jobs=${RTSCHED_JOBS:-2}
# Status 1: tests failed. 5: none of the tests asked for is of this kind.
status=0
pytest -n $((jobs + 1)) -m "not live" "$@" || status=$?
if [ "$status" = 1 ]; then
    echo "Tests failed; these once more, by themselves:"
    pytest -m "not live" --last-failed --last-failed-no-failures none "$@"
else
    [ "$status" = 0 ] || [ "$status" = 5 ]
fi
tests/kernels.sh keep
status=0
pytest -n $((jobs + 4)) -m live -p no:randomly --dist loadfile --no-loadscope-reorder --maxfail 20 "$@" || status=$?
if [ "$status" = 1 ]; then
    echo "Live tests failed; these once more, by themselves:"
    pytest -m live -p no:randomly --last-failed --last-failed-no-failures none "$@"
else
    [ "$status" = 0 ] || [ "$status" = 5 ]
fi

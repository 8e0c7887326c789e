#!/bin/sh
# Set up and run every check and test of the project: ./tests/run.sh [PYTEST-ARGUMENT...]
#
# Live tests, on real Slurm clusters and HTCondor pools, run beside the others, and what they say is
# shown after those. They need root on Debian, and skip elsewhere unless RTSCHED_LIVE=require.
# RTSCHED_JOBS says how many tests run at a time; live ones mostly wait, so two more of them do.
# Where RTSCHED_SLURM_SOURCES names a directory of Slurm's release tarballs (slurm-*.tar.xz or .tar.bz2,
# from https://download.schedmd.com/slurm/), the submit filter is compiled and checked against each; the
# first time that takes a quarter of a minute for each, later none.
# Live tests of a file share a cluster, and run in the file's order. They watch clocks, and what runs
# beside them slows them down; waits count time as a quiet machine would, and the summary shows
# those that came closest to failing. Tests that fail, of the live ones 19 at most, run once more, by
# themselves, and then they must pass. The summaries of both runs say which ones. An example that a
# property test failed with is kept, and tried again.
# Kernels compiled by one run are kept in ~/.cache/rtsched for other checkouts with the same kernels.
set -eu
cd "$(dirname "$0")/.."
tests/setup.sh dev chromium debootstrap
PATH="$PWD/.venv/bin:$PATH"
export PATH

ruff check .
ruff format --check .
mypy
lint-imports
tests/kernels.sh restore

jobs=${RTSCHED_JOBS:-2}
# The two parts remember apart which tests failed.
live="-m live -p no:randomly -o cache_dir=.pytest_cache/live"
said=$(mktemp)
# shellcheck disable=SC2086 # a list of words
pytest -n $((jobs + 2)) $live --dist loadfile --maxfail 20 "$@" >"$said" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null || :; rm -f "$said"' EXIT
trap 'exit 130' INT TERM

# Status 1: tests failed. 5: none of the tests asked for is of this kind.
fast=0
pytest -n "$jobs" -m "not live" "$@" || fast=$?
slow=0
wait "$beside" || slow=$?
cat "$said"
rm -f "$said"
trap - EXIT
tests/kernels.sh keep

again="--last-failed --last-failed-no-failures none"
if [ "$fast" = 1 ]; then
    echo "Tests failed; these once more, by themselves:"
    # shellcheck disable=SC2086
    pytest -m "not live" $again "$@" && fast=0
fi
if [ "$slow" = 1 ]; then
    echo "Live tests failed; these once more, by themselves:"
    # shellcheck disable=SC2086
    pytest $live $again "$@" && slow=0
fi
for status in "$fast" "$slow"; do
    [ "$status" = 0 ] || [ "$status" = 5 ] || exit "$status"
done

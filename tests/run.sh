#!/bin/sh
# Set up and run every check and test of the project: ./tests/run.sh [PYTEST-ARGUMENT...]
#
# Live tests, on real Slurm clusters, come last. They need root on Debian, and skip elsewhere unless
# RTSCHED_LIVE=require. RTSCHED_JOBS says how many tests run at a time.
set -eu
cd "$(dirname "$0")/.."
tests/setup.sh dev chromium debootstrap
PATH="$PWD/.venv/bin:$PATH"
export PATH

ruff check .
ruff format --check .
mypy
lint-imports

# Status 5: none of the tests asked for is of this kind.
pytest -n "${RTSCHED_JOBS:-2}" -m "not live" "$@" || [ $? = 5 ]
pytest -n "${RTSCHED_JOBS:-2}" -m live --dist loadfile "$@" || [ $? = 5 ]

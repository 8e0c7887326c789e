#!/bin/sh
# Set up and run every check and test of the project: ./tests/run.sh [PYTEST-ARGUMENT...]
set -eu
cd "$(dirname "$0")/.."
tests/setup.sh dev chromium
PATH="$PWD/.venv/bin:$PATH"
export PATH

ruff check .
ruff format --check .
mypy
lint-imports
exec pytest -n "${RTSCHED_JOBS:-2}" "$@"

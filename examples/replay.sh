#!/bin/sh
# Set up and replay a shipped log: ./examples/replay.sh [RTSCHED-REPLAY-ARGUMENT...]
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
"$top/tests/setup.sh" all
if [ $# -eq 0 ]; then
    set -- "$top/examples/logs/cluster.swf.gz" --workers "$(nproc)"
fi
exec "$top/.venv/bin/rtsched" replay "$@"

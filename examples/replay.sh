#!/bin/sh
# Set up and replay a shipped log: ./examples/replay.sh [RTSCHED-REPLAY-ARGUMENT...]
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
"$top/tests/setup.sh" all
if [ $# -eq 0 ]; then
    set -- "$top/examples/logs/cluster.swf.gz" --workers "$(nproc)"
    # To compile the kernels takes minutes, once; to replay this short log without, one or two.
    if [ -z "$(find "$top/rtsched/kernels" -name '*.nbi' -print -quit)" ]; then
        export RTSCHED_COMPILE="${RTSCHED_COMPILE-0}"
    fi
fi
exec "$top/.venv/bin/rtsched" replay "$@"

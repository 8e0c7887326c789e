#!/bin/sh
# Put Prometheus' promtool into .venv/bin, where it is missing: from Debian's package prometheus, which is
# only unpacked, because an installed one starts a server. Without it the tests that need it skip.
set -eu
cd "$(dirname "$0")/.."
if command -v promtool >/dev/null || [ -x .venv/bin/promtool ]; then
    exit 0
fi
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
if (cd "$place" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb .) >"$place/said" 2>&1; then
    install "$place/usr/bin/promtool" .venv/bin/promtool
else
    echo "promtool is not available: $(tail -n 1 "$place/said")" >&2
fi

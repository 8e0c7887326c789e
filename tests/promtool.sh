#!/bin/sh
# Put Prometheus and its promtool into .venv/bin, where they are missing: from Debian's package prometheus,
# which is only unpacked, because an installed one starts a server. Without them the tests that need them skip.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH
if command -v promtool >/dev/null && command -v prometheus >/dev/null; then
    exit 0
fi
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
if (cd "$place" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb .) >"$place/said" 2>&1; then
    install "$place/usr/bin/promtool" "$place/usr/bin/prometheus" .venv/bin
else
    echo "Prometheus is not available: $(tail -n 1 "$place/said")" >&2
fi

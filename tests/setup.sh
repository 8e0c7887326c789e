#!/bin/sh
# Make the virtual environment .venv at the top of the checkout, once, with the extras named.
#   tests/setup.sh EXTRA [PACKAGE...]
# As root on Debian, PACKAGEs (and Python itself) are installed where they are missing.
set -eu
cd "$(dirname "$0")/.."
extra=$1
shift

missing=
python=${PYTHON:-python3}
"$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    missing="python3 python3-venv"
for package in "$@"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing:$missing" >&2
        apt-get update -qq
        # shellcheck disable=SC2086 # a list of words
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
    else
        echo "not installed (needs root on Debian):$missing" >&2
    fi
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extra]" >&2

#!/bin/sh
# Gathers the wheels that a package brings along, which is all of a build that needs a network.
#
#   packaging/wheelhouse.sh DIRECTORY [PYTHON-VERSION [REQUIREMENT...]]
#
# PYTHON-VERSION, such as 3.11, is of the distribution that the package is for; by default that of
# python3 here. Requirements come on top of those of pyproject.toml, such as 'htcondor==25.*'.
# Wheels run with glibc 2.28 (Enterprise Linux 8) or later. pip's own settings apply: an index, a proxy.
set -eu
directory=$1
version=${2:-$("${PYTHON:-/usr/bin/python3}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
shift
[ $# -eq 0 ] || shift
top=$(cd "$(dirname "$0")/.." && pwd)
machine=$(uname -m)
mkdir -p "$directory"

requirements=$(cd "$top/packaging" && "${PYTHON:-python3}" -m requirements "$top/pyproject.toml" \
    live report rest client build)
# shellcheck disable=SC2086  # one word each
set -- $requirements "$@"
"${PYTHON:-python3}" -m pip download --quiet --only-binary=:all: --dest "$directory" \
    --python-version "$version" --implementation cp \
    --platform "manylinux_2_28_$machine" --platform "manylinux_2_27_$machine" \
    --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
    "$@"
printf '%s\n' "$version" >"$directory/python-version"
(cd "$directory" && sha256sum ./*.whl >SHA256SUMS)

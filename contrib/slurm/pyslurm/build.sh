#!/bin/sh
# Build pyslurm for the Slurm 26.05 of this machine and install it: build.sh [PYTHON]
#
# PYTHON is the interpreter of rtsched's virtual environment. SLURM_INCLUDE_DIR (the directory that
# holds slurm/slurm.h) and SLURM_LIB_DIR (that of libslurmfull.so) say where Slurm is, if not in the
# usual places. See README.md beside this file.
set -eu

version=25.11.2
python=${1:-python3}
here=$(cd "$(dirname "$0")" && pwd)
include=${SLURM_INCLUDE_DIR:-/usr/include}

fail() {
    echo "build.sh: $*" >&2
    exit 1
}

number=$(sed -n 's/^#define SLURM_VERSION_NUMBER 0x\([0-9a-f]*\).*/\1/p' \
    "$include/slurm/slurm_version.h" 2>/dev/null) || true
case $number in
    1a05??) ;;
    '') fail "no $include/slurm/slurm_version.h: install Slurm's headers (Debian: libslurm-dev)" ;;
    *) fail "this is for Slurm 26.05, not for 0x$number; without pyslurm, rtsched runs Slurm's commands" ;;
esac

for directory in "${SLURM_LIB_DIR:-}" /usr/lib64/slurm /usr/lib/*/slurm-wlm /usr/lib/slurm; do
    [ -e "$directory/libslurmfull.so" ] && libraries=$directory && break
done
[ -n "${libraries:-}" ] || fail "no libslurmfull.so found: set SLURM_LIB_DIR to its directory"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/env"
build=$work/env/bin/python
"$build" -m pip install --quiet 'Cython>=3,<3.2' 'setuptools>=75' wheel packaging
"$build" -m pip download --quiet --no-deps --no-binary pyslurm --no-build-isolation \
    --dest "$work" "pyslurm==$version"
tar -xf "$work/pyslurm-$version.tar.gz" -C "$work"
cd "$work/pyslurm-$version"

# Its older interface is not used by rtsched, and needs functions that are gone.
rm pyslurm/deprecated.pyx
sed -i '/pyslurm\.deprecated/d' pyslurm/__init__.py

# Its setup asks for headers that call themselves 25.11.
mkdir "$work/include"
cp -RL "$include/slurm" "$work/include/slurm"
sed -i 's/^#define SLURM_VERSION_NUMBER .*/#define SLURM_VERSION_NUMBER 0x190b00/' \
    "$work/include/slurm/slurm_version.h"

export SLURM_INCLUDE_DIR="$work/include" SLURM_LIB_DIR="$libraries"
export CFLAGS="${CFLAGS:--O1} -include $here/slurm_26_05.h"
PYSLURM_BUILD_JOBS=$(getconf _NPROCESSORS_ONLN)
export PYSLURM_BUILD_JOBS
"$build" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work" .
"$python" -m pip install --quiet --no-deps --force-reinstall "$work"/pyslurm-*.whl
cd /
PYSLURM_DISABLE_AUTO_INIT=1 "$python" -c 'import pyslurm; print("installed: pyslurm", pyslurm.__version__)'

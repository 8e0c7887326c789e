#!/bin/sh
# Builds the RPM packages of this checkout, for the distribution that it runs on or, in mock, another.
#
#   packaging/build-rpm.sh [DIRECTORY] [RPMBUILD-OPTION...]      by default dist/
#
# It needs: dnf install rpm-build gcc make python3.11-pip (python3-pip from Enterprise Linux 10 on). The
# submit filter is built if Slurm's headers are installed, the ClassAd library if HTCondor's are.
# RTSCHED_PYTHON: the Python of the distribution, such as 3.11; by default that of python3 here.
# RTSCHED_WHEELS: a directory that packaging/wheelhouse.sh filled for it; without it the wheels are
# gathered first, which alone needs a network. RTSCHED_SOURCES=only makes a source package, for mock.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-$top/dist}"
output=$(cd "${1:-$top/dist}" && pwd)
[ $# -eq 0 ] || shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$top/rtsched/__init__.py")
release=${RTSCHED_PYTHON:-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')}

if [ "${RTSCHED_SOURCES:-}" = only ]; then
    kind=-bs
else
    kind=-bb
    [ -e /usr/include/slurm/slurm_version.h ] || set -- --without slurm "$@"
    [ -e /usr/include/classad/classad.h ] || set -- --without condor "$@"
fi
condor=
if command -v condor_version >/dev/null; then
    condor=$(condor_version | sed -n 's/.*CondorVersion: \([0-9]*\)\..*/\1/p')
fi
mkdir -p "$work/SOURCES" "$work/rtsched-$version"
"$top/packaging/sources.sh" | tar -x -C "$work/rtsched-$version"
tar -C "$work" -czf "$work/SOURCES/rtsched-$version.tar.gz" "rtsched-$version"
wheels=${RTSCHED_WHEELS:-$work/wheels}
[ -n "${RTSCHED_WHEELS:-}" ] ||
    "$top/packaging/wheelhouse.sh" "$wheels" "$release" ${condor:+"htcondor==$condor.*"}
tar -C "$wheels" -cf - . | gzip -1 >"$work/SOURCES/rtsched-wheels-$version.tar.gz"

rpmbuild $kind --define "_topdir $work" --define "wheels_python $release" "$@" \
    "$top/packaging/rpm/rtsched.spec"
find "$work/RPMS" "$work/SRPMS" -name '*.rpm' -exec mv {} "$output" \;
ls -1 "$output"/rtsched*-"$version"-*.rpm

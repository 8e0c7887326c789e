#!/bin/sh
# Builds the Debian packages of this checkout for the release of Debian or Ubuntu that it runs on.
#
#   packaging/build-deb.sh [DIRECTORY]          by default dist/
#
# It needs: apt-get install build-essential debhelper python3-pip python3-venv. The submit filter is
# built if libslurm-dev is installed, the ClassAd library if condor and condor-dev are.
# RTSCHED_WHEELS names a directory that packaging/wheelhouse.sh filled; without it the wheels are
# gathered first, which alone needs a network. RTSCHED_REVISION: of the packages, by default 1.
# RTSCHED_COMPRESSION: options of dpkg-deb, by default -Zxz -z2.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-$top/dist}"
output=$(cd "${1:-$top/dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$top/rtsched/__init__.py")
source=$work/rtsched-$version

installed() {
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q ' installed$'
}
profiles=
if ! installed libslurm-dev; then
    echo "left out: rtsched-slurm-plugin (libslurm-dev is not installed)"
    profiles="$profiles pkg.rtsched.noslurm"
elif dpkg --compare-versions "$(dpkg-query -W -f '${Version}' libslurm-dev)" lt 23.11; then
    echo "left out: rtsched-slurm-plugin (libslurm-dev is older than 23.11)"
    profiles="$profiles pkg.rtsched.noslurm"
fi
condor=
if installed condor && installed condor-dev; then
    condor=$(dpkg-query -W -f '${Version}' condor-dev | sed 's/^[0-9]*://; s/\..*//')
else
    echo "left out: rtsched-condor (condor and condor-dev are not installed)"
    profiles="$profiles pkg.rtsched.nocondor"
fi

mkdir "$source"
"$top/packaging/sources.sh" | tar -x -C "$source"
cp -r "$source/packaging/debian" "$source/debian"
. /etc/os-release
sed -i "1s/(.*)/($version-${RTSCHED_REVISION:-1}+$ID${VERSION_ID:-$VERSION_CODENAME})/" "$source/debian/changelog"
if [ -n "${RTSCHED_WHEELS:-}" ]; then
    cp -r "$RTSCHED_WHEELS" "$source/debian/wheels"
else
    "$top/packaging/wheelhouse.sh" "$source/debian/wheels" "" ${condor:+"htcondor==$condor.*"}
fi

cd "$source"
DEB_BUILD_PROFILES=${profiles# } dpkg-buildpackage --build=binary --no-sign
mv "$work"/*.deb "$output"
ls -1 "$output"/rtsched*_"$version"-*.deb

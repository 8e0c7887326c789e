#!/bin/sh
# Builds a release from its tag: sdist, wheel, SBOM, checksums, and a signature of these.
#
#   packaging/release.sh VERSION [KEY]          into dist/release-VERSION
#
# KEY signs SHA256SUMS: a file with an OpenSSH key (a public one if an agent has the private one), or else
# what GnuPG knows a secret key by. Without KEY nothing is signed.
#
# It needs: pip install 'rtsched[release]', git, a network for the SBOM. PYTHON: python3. Of the checkout
# only the tag vVERSION counts, so the same bytes come out of every clone; docs/releasing.md says more.
set -eu
version=${1:?say which version}
key=${2-}
python=${PYTHON:-python3}
cd "$(dirname "$0")/.."
output=$PWD/dist/release-$version
tag=v$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "release.sh: $*" >&2
    exit 1
}

git rev-parse --quiet --verify "refs/tags/$tag^{commit}" >/dev/null || fail "there is no tag $tag"
[ ! -e "$output" ] || fail "$output is there already"
umask 022
mkdir "$work/source"
git archive --format=tar "refs/tags/$tag" | tar -x -C "$work/source"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "refs/tags/$tag^{commit}")
export SOURCE_DATE_EPOCH

agrees() { # FILE, what it says
    [ "$2" = "$version" ] || fail "$1 of $tag says '$2', not $version"
}
first() { # sed program, FILE
    sed -n "$1" "$work/source/$2" | head -n 1
}
agrees rtsched/__init__.py "$(first 's/^__version__ = "\(.*\)"$/\1/p' rtsched/__init__.py)"
agrees CHANGELOG.md "$(first 's/^## \([^ ]*\).*/\1/p' CHANGELOG.md)"
agrees CITATION.cff "$(first 's/^version: "\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' CITATION.cff)"

# What built it is pinned by the extra `release`, so nothing is fetched here.
"$python" -m build --no-isolation --outdir "$work/dist" "$work/source" >&2
(cd "$work/dist" && ls "rtsched-$version.tar.gz" "rtsched-$version-py3-none-any.whl" >/dev/null)

# The wheel with what the packages bring along, in the versions of the day.
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
    "$work/dist/rtsched-$version-py3-none-any.whl[live,report,rest]" >&2
"$work/venv/bin/python" -m pip uninstall --quiet --yes pip setuptools >&2
"$python" -m cyclonedx_py environment --output-reproducible --mc-type application \
    --pyproject "$work/source/pyproject.toml" --output-format JSON \
    --output-file "$work/dist/rtsched-$version.cdx.json" "$work/venv/bin/python"

cd "$work/dist"
sha256sum -- * >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
if [ -z "$key" ]; then
    :
elif [ -f "$key" ]; then
    ssh-keygen -q -Y sign -n rtsched-release -f "$key" SHA256SUMS
else
    gpg --armor --local-user "$key" --output SHA256SUMS.asc --detach-sign SHA256SUMS
fi
mkdir -p "${output%/*}"
mv "$work/dist" "$output"
chmod 755 "$output"
ls -1 "$output"

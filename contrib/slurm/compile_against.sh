#!/bin/sh
# Compile the submit filter against the headers of Slurm releases, given as sources; nothing is installed.
#
#   contrib/slurm/compile_against.sh slurm-24.05.8.tar.xz [FILE...]
#
# It says for each whether the filter compiles without a warning, and ends with status 1 if one does not.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || {
    echo "usage: $0 SLURM-SOURCES.tar.xz [FILE...]" >&2
    exit 2
}
all=$(mktemp -d)
trap 'rm -rf "$all"' EXIT
status=0
for file; do
    rm -rf "$all/sources" "$all/include" "$all/build"
    mkdir -p "$all/sources" "$all/include" "$all/build"
    tar -xf "$file" -C "$all/sources" --strip-components 1 --wildcards '*/META' '*/slurm/*' || {
        echo "$file: these are not sources of Slurm" >&2
        exit 2
    }
    version=$(sed -n 's/^ *Version:[[:space:]]*//p' "$all/sources/META")
    mv "$all/sources/slurm" "$all/include/slurm"
    # What Slurm's own configure makes of META.
    number=$(echo "$version" | awk -F '[.-]' '{ printf "0x%02x%02x%02x", $1, $2, $3 }')
    sed "s/^#undef SLURM_VERSION_NUMBER/#define SLURM_VERSION_NUMBER $number/" \
        "$all/include/slurm/slurm_version.h.in" >"$all/include/slurm/slurm_version.h"
    if make -s -C "$here" SLURM_INCLUDE="$all/include" BUILD="$all/build" >"$all/log" 2>&1; then
        echo "$version: compiles without warnings"
    else
        echo "$version: does not compile:"
        sed 's/^/    /' "$all/log"
        status=1
    fi
done
exit $status

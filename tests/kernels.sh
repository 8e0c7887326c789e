#!/bin/sh
# Keep the kernels that tests compiled, or take kept ones over: tests/kernels.sh keep|restore
#
# Numba keeps compiled kernels beside their sources, and looks itself whether those have changed. Compiling
# all takes minutes, so a fresh checkout takes over what another with the same sources has compiled. The
# reproductions have one kernel, which is compiled anew if they differ.
set -eu
cd "$(dirname "$0")/.."
kernels="rtsched/kernels plugins/rtsched_plugins/kernels"
sources="$kernels plugins/rtsched_reproductions"
# shellcheck disable=SC2086 # a list of words
key=$(find $kernels -name '*.py' | LC_ALL=C sort | xargs cat | sha256sum | cut -c1-12)
all=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/rtsched
kept=$all/kernels-$key

copy() { # from one tree to another
    for directory in $sources; do
        [ -d "$1/$directory/__pycache__" ] || continue
        mkdir -p "$2/$directory/__pycache__"
        find "$1/$directory/__pycache__" -name '*.nb[ci]' -exec cp -p -t "$2/$directory/__pycache__" {} +
    done
}

case $1 in
restore)
    if [ -d "$kept" ]; then copy "$kept" .; fi
    ;;
keep)
    mkdir -p "$all"
    new=$(mktemp -d "$all/new-XXXXXX")
    copy . "$new"
    rm -rf "$kept"
    mv -T "$new" "$kept" 2>/dev/null || rm -rf "$new" # another run was faster
    # Those of sources that nobody tested for a week, and what a run that was killed left.
    find "$all" -mindepth 1 -maxdepth 1 -mtime +7 -exec rm -rf {} +
    ;;
esac

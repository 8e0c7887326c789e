#!/bin/sh
# Writes the files of this checkout as a tar archive to standard output: those that git knows, or all
# of an unpacked release.
set -eu
cd "$(dirname "$0")/.."
if [ -e .git ]; then
    git ls-files -z | tar -c --null --files-from=- --owner=0 --group=0
else
    tar -c --owner=0 --group=0 --exclude=./dist .
fi

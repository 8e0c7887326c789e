#!/bin/sh
# Tells the slots of this machine what is kept of them: a STARTD_CRON job of 51-rtsched-execute.conf,
# for pools without the ClassAd library. Its one argument is the daemon's table; a line of that is
# `name <tab> delay factor <tab> start:cpus,...`, or `start:cpus:memory:gpus:disk,...`,
# after `rtsched-slots 1 <written> <valid, s>`.
#
# A slot whose line is not there, and every slot once the table is too old, has nothing kept.
set -eu
test -r "$1" || exit 0
exec awk -F '\t' '
NR == 1 {
    if (split($0, head, " ") != 4 || head[1] != "rtsched-slots" || head[2] != 1) exit
    until = head[3] + head[4]
    next
}
NF == 3 && $1 !~ /["\\]/ && $2 ~ /^[0-9.eE+-]+$/ {
    kept = split($3 == "-" ? "" : $3, steps, ",")
    split(kept ? steps[1] : "4000000000:0", first, ":")
    amounts = split(kept ? steps[kept] : "4000000000:0", last, ":")
    printf "SlotMergeConstraint = TARGET.RtSlot == \"%s\"\n", $1
    printf "RtKeptFrom = %.0f\nRtKeptCpus = %.0f\nRtKeptUntil = %.0f\n", first[1], last[2], until
    if (amounts >= 4) printf "RtKeptMemory = %.0f\nRtKeptGpus = %.0f\n", last[3], last[4]
    if (amounts == 5) printf "RtKeptDisk = %.0f\n", last[5]
    printf "RtDelay = %s\n- %s\n", $2 + 0, $1
}' "$1"

#!/bin/sh
# Tells a promised job what was planned for it, as variables. For `srun --task-prolog`, or as TaskProlog
# in slurm.conf; then it must be on all nodes, since every step fails where it is missing.
#
#   RTSCHED_JOB        the job that all this was planned for
#   RTSCHED_DEADLINE   seconds since the epoch by which it was promised to finish
#   RTSCHED_NODES      how many nodes were planned
#   RTSCHED_ON         their names, joined by colons
#   RTSCHED_FRACTIONS  of a divisible load: each node's share, in their order, joined by colons
#   RTSCHED_ROUNDS     if each node takes its part in rounds: the share of it in each round
#   RTSCHED_CHUNK      this node's place in the two lists, from 0
#   RTSCHED_FRACTION   this node's share
#   RTSCHED_FROM, RTSCHED_TO   this node's part of the load, which goes from 0 to 1
#
# The daemon writes the plan into the job's Comment before the start, as its first words:
#
#   rtsched:promise deadline=EPOCH nodes=N fractions=F1:F2:... [rounds=R1:R2:...] on=NODE1:NODE2:...
#
# slurmd takes each line `export NAME=value` that this prints into the task's environment, so nothing
# is printed but numbers and names of nodes that were checked. Whatever goes wrong, the task starts.
# Only jobs that carry a variable RTSCHED_* or a reservation rtsched_N are looked up, and steps of a
# batch job use what the batch script was told: a thousand tasks do not ask slurmctld a thousand times.

record() {
	if [ -n "${SLURM_JOB_ID:-}" ] && [ "${RTSCHED_JOB:-}" = "$SLURM_JOB_ID" ]; then
		echo "Comment=rtsched:promise deadline=${RTSCHED_DEADLINE:-} nodes=${RTSCHED_NODES:-}" \
			"fractions=${RTSCHED_FRACTIONS:-} rounds=${RTSCHED_ROUNDS:-} on=${RTSCHED_ON:-}"
		return
	fi
	case ${SLURM_JOB_RESERVATION:-} in
	rtsched_[0-9]*) ;;
	*) env | grep -q '^RTSCHED_' || return ;;
	esac
	case ${SLURM_JOB_ID:-} in
	'' | *[!0-9]*) return ;;
	esac
	timeout 10 "${RTSCHED_SCONTROL:-scontrol}" show job "$SLURM_JOB_ID"
}

record 2>/dev/null | LC_ALL=C awk '
function number(text) {
	return text ~ /^[0-9]+(\.[0-9]*)?(e-?[0-9]+)?$/ && length(text) < 32
}
function whole(text) {
	return text ~ /^[0-9]+$/ && length(text) < 16
}
function all_numbers(list, count,   i) {
	for (i = 1; i <= count; i++)
		if (!number(list[i]))
			return 0
	return count > 0
}
function all_names(list, count,   i) {
	for (i = 1; i <= count; i++)
		if (list[i] !~ /^[A-Za-z0-9][A-Za-z0-9._-]*$/)
			return 0
	return count > 0
}
function tell(name, value) {
	print "export RTSCHED_" name "=" value
}
/^ *Comment=rtsched:promise / && !found {
	found = 1
	for (i = 2; i <= NF; i++)
		if (match($i, /^(deadline|nodes|fractions|rounds|on)=/) && !(substr($i, 1, RLENGTH) in value))
			value[substr($i, 1, RLENGTH)] = substr($i, RLENGTH + 1)
}
END {
	if (!found || !whole(value["deadline="]) || !whole(value["nodes="]))
		exit
	if (ENVIRON["SLURM_JOB_ID"] !~ /^[0-9]+$/)
		exit
	tell("JOB", ENVIRON["SLURM_JOB_ID"])
	tell("DEADLINE", value["deadline="])
	tell("NODES", value["nodes="])
	names = split(value["on="], name, ":")
	if (!all_names(name, names))
		exit
	tell("ON", value["on="])
	here = ENVIRON["SLURMD_NODENAME"]
	chunk = ENVIRON["SLURM_NODEID"] ~ /^[0-9]+$/ ? ENVIRON["SLURM_NODEID"] + 1 : 0
	for (i = 1; i <= names; i++)
		if (name[i] == here)
			chunk = i
	if (chunk > names)
		exit
	if (chunk)
		tell("CHUNK", chunk - 1)
	fractions = split(value["fractions="], fraction, ":")
	if (fractions != names || !all_numbers(fraction, fractions))
		exit
	tell("FRACTIONS", value["fractions="])
	rounds = split(value["rounds="], share, ":")
	if (all_numbers(share, rounds))
		tell("ROUNDS", value["rounds="])
	if (!chunk)
		exit
	tell("FRACTION", fraction[chunk])
	for (i = 1; i < chunk; i++)
		from += fraction[i]
	from = from > 1 ? 1 : from
	to = from + fraction[chunk]
	tell("FROM", sprintf("%.12g", from))
	tell("TO", sprintf("%.12g", chunk == names || to > 1 ? 1 : to))
}'
exit 0

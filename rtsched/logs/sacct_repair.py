"""Lines of `sacct -P` in which a field holds the delimiter itself.

sacct escapes nothing, so `srun a | b` in a submit line makes a line with a field too many. Most
columns have a known form (a time, a number, a state), only some are free text: the line is put
right by finding where those may begin and end so that all others keep their form.
"""

from __future__ import annotations

import re

_NUMBERS = (
    "alloccpus allocnodes associd consumedenergyraw cputimeraw dbindex elapsedraw gid jobidraw "
    "ncpus nnodes ntasks priority qosraw reqcpus reqnodes reservationid resvcpuraw restarts uid "
    "wckeyid"
)
_TIMES = "eligible end start submit"
_DURATIONS = (
    "avecpu cputime elapsed mincpu planned plannedcpu reserved resvcpu suspended systemcpu "
    "timelimit timelimitraw totalcpu usercpu"
)
_SIZES = (
    "avediskread avedisk averss avevmsize avepages consumedenergy maxdiskread maxdiskwrite "
    "maxpages maxrss maxvmsize reqmem avediskwrite"
)
_FREE = (
    "admincomment comment constraints container extra jobname licenses reason stderr stdin stdout "
    "submitline systemcomment wckey workdir"
)
_FORMS = {
    _NUMBERS: rb"\d*(?:\.\w+)?",
    _TIMES: rb"\d{4}-\d\d-\d\dT[\d:]{5,8}\S{0,6}|\d{9,11}|Unknown|None|N/A|",
    _DURATIONS: rb"(?:\d+-)?[\d:.]+|\d*|UNLIMITED|Partition_Limit|INVALID",
    _SIZES: rb"[\d.]+[KMGTPE]?[cn]?|\?|",
    "exitcode derivedexitcode": rb"(?:\d+:\d+)?",
    "state": rb"[A-Z_]+\+?(?: by \d+)?",
    "jobid": rb"\d+(?:[_+](?:\d+|\[.*\]))?(?:\.[\w+]+)?",
    "reqtres alloctres": rb"(?:[^=,]+=[^=,]+)(?:,[^=,]+=[^=,]+)*|",
}
_FORM = {
    name: re.compile(form, re.DOTALL) for names, form in _FORMS.items() for name in names.split()
}
_MAY_HOLD = frozenset(_FREE.split())

MOST_EXTRA = 60
"""More fields too many than this are not looked into."""

_MOST_WAYS = 64


def readings(columns: list[str], fields: list[bytes], delimiter: bytes) -> list[list[bytes]]:
    """Return the ways to read a line with too many fields so that each column has its form.

    Parameters
    ----------
    columns : list of str
        Names of the header, in lower case.
    fields : list of bytes
        The line, cut at every delimiter.
    delimiter : bytes
        What is put back between the pieces of one field.

    Returns
    -------
    list of list of bytes
        At most 64 of them, each with one field per column; empty if there is none.
    """
    extra = len(fields) - len(columns)
    found: list[list[bytes]] = []
    if not 0 <= extra <= MOST_EXTRA:
        return found
    hopeless: set[tuple[int, int]] = set()

    def place(column: int, at: int, read: list[bytes]) -> bool:
        """Read `fields[at:]` as `columns[column:]`; return whether that goes."""
        if column == len(columns):
            if at == len(fields):
                found.append(read)
            return at == len(fields)
        if (column, at) in hopeless or len(found) == _MOST_WAYS:
            return False
        name, goes = columns[column], False
        spare = extra - (at - column)
        for more in range(spare + 1 if name in _MAY_HOLD else 1):
            field = delimiter.join(fields[at : at + more + 1])
            form = _FORM.get(name)
            if form is None or form.fullmatch(field):
                goes |= place(column + 1, at + more + 1, [*read, field])
        if not goes:
            hopeless.add((column, at))
        return goes

    place(0, 0, [])
    return found

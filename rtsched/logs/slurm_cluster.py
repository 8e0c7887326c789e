"""The machine as Slurm describes it: slurm.conf, topology.conf, and what scontrol prints.

Licences come from slurm.conf or `scontrol show licenses`; partitions as JSON may follow the nodes
in one file, as in text.

The tree of a network becomes a hyper-grid: one axis per level of switches, the nodes of a leaf
switch along the last. Where switches have unequally many children, cells are left over. A tree too
uneven for that becomes a line in the order of the tree.

Sources: manual pages slurm.conf, topology.conf and scontrol.
"""

from __future__ import annotations

import json
import re
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np

from rtsched.errors import InputError
from rtsched.logs.hostlist import expand, names_of
from rtsched.logs.machine import Node, slurm_state
from rtsched.logs.slurm_text import gres, licenses_in
from rtsched.logs.source import readable
from rtsched.model.cluster import Topology
from rtsched.model.limits import BillingWeights
from rtsched.model.resources import LICENSE, MEMORY
from rtsched.model.units import size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PARTITIONS = re.compile(r'"partitions"\s*:\s*\[\s*[{\]]')
_SHAPE = "write the file again with `scontrol show partition --json`"


def with_partitions_as_text(path: str, text: str) -> str:
    """Return the text of a file with its JSON of partitions as `PartitionName=...` lines.

    Raises
    ------
    InputError
        If the JSON is cut short, or its partitions are of an unknown shape.
    """
    if not _PARTITIONS.search(text):
        return text
    parts, before = [], 0
    for start, end, found in documents(path, text):
        if isinstance(found.get("partitions"), list) and "nodes" not in found:
            lines = "\n".join(_line(path, each) for each in found["partitions"])
            rest = text.count("\n", start, end) - lines.count("\n")
            parts += [text[before:start], lines, "\n" * max(1, rest)]
            before = end
    return "".join([*parts, text[before:]])


def nodes_json(path: str, text: str) -> str:
    """Return the JSON of nodes in a file; empty: there is none."""
    for start, end, found in documents(path, text):
        if "nodes" in found:
            return text[start:end]
    return ""


def documents(path: str, text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield begin, end and content of each JSON object that begins a line.

    Raises
    ------
    InputError
        If one is cut short or no JSON.
    """
    decoder, at = json.JSONDecoder(), 0
    begins = re.compile(r"^[ \t]*(?=\{)", re.MULTILINE)
    while match := begins.search(text, at):
        try:
            found, at = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, match.end()) + 1
            raise InputError(path, f"no JSON of scontrol ({error}); {_SHAPE}", line=line) from error
        yield match.end(), at, found


def _line(path: str, partition: object) -> str:
    """Return the line of one partition, of what is read of it."""
    if not isinstance(partition, dict) or not isinstance(partition.get("name"), str):
        raise InputError(path, f"a partition without a name; {_SHAPE}")
    share = _at(partition, "maximums/oversubscribe")
    jobs = _at(share, "jobs") if isinstance(share, dict) else _at(partition, "maximums/shares")
    alone = _at(partition, "partition/exclusive")  # since 26.05, where `jobs` is 0 of others too
    mode = _at(partition, "preempt_mode")
    modes = ",".join(map(str, mode)) if isinstance(mode, list) else mode
    settings = {
        "PartitionName": partition["name"],
        "OverSubscribe": "EXCLUSIVE" if jobs == 0 and alone is None else "",
        "Exclusive": alone,
        "PriorityTier": _at(partition, "priority/tier"),
        "PreemptMode": "" if modes == "CLUSTER_GLOBAL" else modes,
        "QoS": _at(partition, "qos/assigned"),
        "TRESBillingWeights": _at(partition, "tres/billing_weights"),
    }
    pairs = (f"{name}={value}" for name, value in settings.items() if value not in (None, "", {}))
    return " ".join("".join(pair.split()) for pair in pairs)


def _at(partition: Mapping[str, Any], path: str) -> Any:
    """Return what is at a path such as `priority/tier`; None: nothing. A number is told plainly."""
    found: Any = partition
    for name in path.split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, dict) and "number" in found:
        return found["number"] if found.get("set", True) else None
    return found


_PAIR = re.compile(r"([A-Za-z][\w:]*)=(\"[^\"]*\"|\S*)")
_INCLUDE = re.compile(r"include\s+(\S+)", re.IGNORECASE)
_WEIGHT = re.compile(r"([^=\s]+)=(\d+(?:\.\d*)?|\.\d+)([KMGTPkmgtp]?)")
_DEEPEST = 10
_MEGABYTE = 2**20

_ALONE = {"shared": "EXCLUSIVE", "oversubscribe": "EXCLUSIVE", "exclusive": "NODE"}
"""Settings of partitions that give jobs whole nodes."""

FORCED = re.compile(r"FORCE(?!:1$).*", re.IGNORECASE)
"""OverSubscribe of partitions in which several jobs may have the same cores."""

Pairs = dict[str, str]


class Described(NamedTuple):
    """The nodes that a file describes; its licences and the rest as `Cluster` has them."""

    nodes: list[Node]
    licenses: dict[str, int]
    billing: BillingWeights | None = None
    whole_nodes: bool = False


def from_conf(path: str, text: str, notes: list[str]) -> Described:
    """Return the nodes and licences of a slurm.conf, included files read as well.

    Parameters
    ----------
    path : str
        Where `text` comes from: included files are looked for beside it.
    text : str
        The file.
    notes : list of str
        Is given what had to be assumed.
    """
    nodes: dict[str, Node] = {}
    licenses: dict[str, int] = {}
    partitions: list[tuple[int, Pairs]] = []
    sets: dict[str, Pairs] = {}
    defaults: dict[str, Pairs] = {"nodename": {}, "partitionname": {}}
    for number, line in conf_lines(Path(path), text, notes):
        pairs = pairs_of(line)
        kind = next(iter(pairs), "")
        if kind == "nodeset":
            sets[pairs[kind]] = pairs
        if kind == "licenses":
            licenses |= licenses_in(pairs[kind])
        if kind not in defaults:
            continue
        if pairs[kind].upper() == "DEFAULT":
            defaults[kind] |= {name: value for name, value in pairs.items() if name != kind}
            continue
        pairs = {**defaults[kind], **pairs}
        if kind == "partitionname":
            partitions.append((number, pairs))
            continue
        for name in expanded(path, number, pairs[kind]):
            if pairs.get("state", "").upper() != "FUTURE":
                nodes[name] = _node(name, pairs)
    for number, pairs in partitions:
        for name in _members(path, number, pairs.get("nodes", ""), sets, nodes):
            if name in nodes:
                nodes[name].partitions.add(pairs["partitionname"])
    return Described(list(nodes.values()), licenses)


def conf_lines(path: Path, text: str, notes: list[str], depth: int = 0) -> list[tuple[int, str]]:
    """Return the numbered lines of a configuration file, comments left out, included files in.

    JSON of partitions is read as its text.
    """
    lines: list[tuple[int, str]] = []
    text = with_partitions_as_text(str(path), text)
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        first = first if pending else number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        line, pending = (pending + line).strip(), ""
        match = _INCLUDE.fullmatch(line)
        if match is None:
            lines.append((first, line))
            continue
        other = path.parent / match[1]
        try:
            if depth == _DEEPEST:
                raise OSError("files include each other")
            lines += conf_lines(other, readable(other.read_bytes()), notes, depth + 1)
        except (OSError, ValueError) as error:
            notes.append(f"the included file {match[1]} is left out ({error})")
    if pending:
        lines.append((first, pending.strip()))
    return lines


def partition_settings(lines: list[tuple[int, str]], name: str) -> dict[str, tuple[int, str]]:
    """Return what one setting of each partition is, with its line; empty: as none sets it.

    Parameters
    ----------
    lines : list of (int, str)
        Of a slurm.conf, or of what `scontrol show partition` prints; see `conf_lines`.
    name : str
        The setting, in lower case.
    """
    found: dict[str, tuple[int, str]] = {}
    partition, default = "", (0, "")
    for number, line in lines:
        pairs = pairs_of(line)
        kind = next(iter(pairs), "")
        if kind == "partitionname":
            partition = pairs[kind]
            found[partition] = default
        elif kind == "nodename":
            partition = ""
        if partition and name in pairs:
            found[partition] = number, pairs[name]
        if partition.upper() == "DEFAULT":
            default = found.pop(partition, default)
    return found


def billing_of(path: str, text: str) -> BillingWeights | None:
    """Return what jobs are billed for, of a slurm.conf or what `scontrol show partition` prints.

    None: the file tells of no partition.

    Raises
    ------
    InputError
        If weights are not `RESOURCE=NUMBER`.
    """
    lines = conf_lines(Path(path), text, [])
    settings = partition_settings(lines, "tresbillingweights")
    flags = ",".join(pairs_of(line).get("priorityflags", "") for _, line in lines)
    return billing_by(path, settings, flags) if settings else None


def gives_whole_nodes(path: str, text: str) -> bool:
    """Return whether every job gets whole nodes, by a slurm.conf or `scontrol show partition`."""
    lines = conf_lines(Path(path), text, [])
    if any(pairs_of(line).get("selecttype", "").lower() == "select/linear" for _, line in lines):
        return True
    whole: dict[str, bool] = {}
    for setting in _ALONE:
        for name, (_, value) in partition_settings(lines, setting).items():
            whole[name] = whole.get(name, False) or has_whole_nodes({setting: value})
    return bool(whole) and all(whole.values())


def shares_cores(path: str, text: str) -> list[str]:
    """Return the partitions in which several jobs may have the same cores, as `FORCED`."""
    lines = conf_lines(Path(path), text, [])
    return sorted(
        name
        for setting in ("shared", "oversubscribe")
        for name, (_, value) in partition_settings(lines, setting).items()
        if FORCED.fullmatch(value)
    )


def has_whole_nodes(partition: Mapping[str, str]) -> bool:
    """Return whether jobs have whole nodes by the settings of their partition, in lower case.

    Since Slurm 26.05 scontrol shows `OverSubscribe=EXCLUSIVE` of a slurm.conf as `Exclusive=NODE`.
    """
    return any(partition.get(name, "").upper().startswith(word) for name, word in _ALONE.items())


def billing_by(path: str, settings: Mapping[str, tuple[int, str]], flags: str) -> BillingWeights:
    """Return what jobs are billed for.

    Parameters
    ----------
    path : str
        Where the settings come from.
    settings : mapping of str to (int, str)
        TRESBillingWeights by partition, each with its line, 0 if that is not known.
    flags : str
        PriorityFlags.

    Raises
    ------
    InputError
        If weights are not `RESOURCE=NUMBER`.
    """
    weights = {
        name: _weights(path, number, value)
        for name, (number, value) in settings.items()
        if value and value.upper() not in {"N/A", "(NULL)"}
    }
    words = flags.upper().split(",")
    rule: Literal["sum", "max", "max-gres"] = "sum"
    if "MAX_TRES_GRES" in words:
        rule = "max-gres"
    elif "MAX_TRES" in words:
        rule = "max"
    return BillingWeights(weights, rule)


def _weights(path: str, number: int, text: str) -> dict[str, float]:
    """Return the weights in `CPU=1.0,Mem=0.25G,GRES/gpu=2.0`, of memory per byte.

    A unit behind the number says of how much it is the weight; memory without one counts in MB.
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        match = _WEIGHT.fullmatch(part.strip())
        if match is None:
            raise InputError(
                path,
                f"TRESBillingWeights has {part.strip()!r}, which is not RESOURCE=NUMBER such as "
                "Mem=0.25G; put it right",
                line=number,
            )
        name, unit = match[1].lower(), match[3] or ""
        weights[name] = float(match[2]) / size_bytes(f"1{unit}", "M" if name == MEMORY else "")
    return weights


def pairs_of(line: str) -> Pairs:
    """Return the `Name=value` pairs of a line, names in lower case, quotes taken off."""
    return {name.lower(): value.strip('"') for name, value in _PAIR.findall(line)}


def expanded(path: str, number: int | None, text: str) -> list[str]:
    """Return the names in a node list; a wrong one is an `InputError` with its line."""
    try:
        return expand(text)
    except ValueError as error:
        raise InputError(path, f"{error}; put the node list right", line=number) from error


def _members(
    path: str, number: int, text: str, sets: dict[str, Pairs], nodes: dict[str, Node]
) -> list[str]:
    """Return the nodes of a partition; `ALL` and node sets are resolved."""
    if text.upper() == "ALL":
        return list(nodes)
    members: list[str] = []
    for name in expanded(path, number, text):
        if name.upper() == "ALL":
            members += nodes
        elif name in sets:
            chosen = sets[name]
            feature = chosen.get("feature", "")
            members += expanded(path, number, chosen.get("nodes", ""))
            members += [node.name for node in nodes.values() if feature in node.features]
        else:
            members.append(name)
    return members


def _node(name: str, pairs: Pairs) -> Node:
    """Return the node that a NodeName line describes."""
    sockets = _integer(pairs, "sockets", _integer(pairs, "socketsperboard", 1))
    sockets *= _integer(pairs, "boards", 1) if "socketsperboard" in pairs else 1
    cores = _integer(pairs, "corespersocket", 1)
    threads = _integer(pairs, "threadspercore", 1)
    configured = _integer(pairs, "cpus", _integer(pairs, "procs", sockets * cores * threads))
    cpus, memory = _for_jobs(pairs, configured)
    features = _features(pairs.get("features", pairs.get("feature", "")))
    return Node(
        name,
        cpus=cpus,
        memory=memory,
        state=slurm_state(pairs.get("state", "UNKNOWN").split("+")),
        tres=gres(pairs.get("gres", "")),
        features=features,
    )


def _for_jobs(pairs: Pairs, cpus: int) -> tuple[int, int]:
    """Return processors and memory of a node without what is kept for the system (`...Spec...`)."""
    kept = _integer(pairs, "corespeccount", 0) * _integer(pairs, "threadspercore", 1)
    kept = kept or len(names_of(f"[{pairs.get('cpuspeclist', '')}]"))
    memory = _integer(pairs, "realmemory", 0) - _integer(pairs, "memspeclimit", 0)
    left = _integer(pairs, "cpuefctv", max(cpus - kept, 0))
    return left, memory * _MEGABYTE if memory > 0 else -1


def _features(text: str | list[str]) -> set[str]:
    words = text.split(",") if isinstance(text, str) else text
    return {word for word in words if word and word != "(null)"}


def shown_licenses(text: str) -> dict[str, int]:
    """Return the licences of `scontrol show licenses`, with or without `-o`: how many there are.

    Without those that other clusters have, and those in reservations.
    """
    licenses: dict[str, int] = {}
    for part in re.split(r"(?m)^(?=LicenseName=|NodeName=|PartitionName=)", text):
        pairs = pairs_of(part)
        if "licensename" in pairs:
            free = _integer(pairs, "total", 0) - _integer(pairs, "reserved", 0)
            licenses[f"{LICENSE}{pairs['licensename']}"] = max(free, 0)
    return licenses


def _integer(pairs: Pairs, name: str, otherwise: int) -> int:
    text = pairs.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise


def as_shown(text: str) -> Described:
    """Return the nodes of `scontrol show nodes`, with or without `-o`.

    Partitions and licences may follow.
    """
    nodes: list[Node] = []
    for part in re.split(r"(?m)^(?=NodeName=|PartitionName=|LicenseName=)", text):
        pairs = {name.lower(): value for name, value in reversed(_PAIR.findall(part))}
        if "nodename" not in pairs:
            continue
        cpus, memory = _for_jobs(pairs, _integer(pairs, "cputot", 1))
        nodes.append(
            Node(
                pairs["nodename"],
                cpus=cpus,
                memory=memory,
                state=slurm_state(pairs.get("state", "").split("+")),
                tres=gres(pairs.get("gres", "")),
                partitions=set(filter(None, pairs.get("partitions", "").split(","))),
                features=_features(pairs.get("activefeatures", "")),
            )
        )
    return Described(nodes, shown_licenses(text))


class _Count(msgspec.Struct):
    set: bool = True
    number: int = 0


class _JsonNode(msgspec.Struct):
    name: str
    cpus: int | _Count | None = None
    effective_cpus: int | _Count | None = None
    real_memory: int | _Count | None = None
    specialized_memory: int | _Count | None = None
    gres: str | None = None
    state: str | list[str] | None = None
    partitions: list[str] | None = None
    active_features: str | list[str] | None = None


class _JsonNodes(msgspec.Struct):
    nodes: list[_JsonNode]


def from_json(path: str, text: str) -> Described:
    """Return the nodes of `scontrol show nodes --json` (Slurm 21.08 to 26.05)."""
    try:
        found = msgspec.json.decode(text, type=_JsonNodes).nodes
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(
            path, f"no `scontrol show nodes --json` ({error}); write the file again"
        ) from error
    nodes = [
        Node(
            node.name,
            cpus=max(0, _count(node.effective_cpus) or _count(node.cpus)),
            memory=max(0, _count(node.real_memory) - _count(node.specialized_memory)) * _MEGABYTE
            or -1,
            state=slurm_state(_words(node.state)),
            tres=gres(node.gres or ""),
            partitions=set(node.partitions or ()),
            features=_features(node.active_features or ""),
        )
        for node in found
    ]
    return Described(nodes, {})


def _words(state: str | list[str] | None) -> list[str]:
    return state.split("+") if isinstance(state, str) else state or []


def _count(value: int | _Count | None) -> int:
    if isinstance(value, _Count):
        value = value.number if value.set else None
    return value if value is not None and abs(value) < 2**40 else 0


MOST_CELLS = 8
"""Cells per row of the cluster above which a grid is too empty to be of use."""

Place = tuple[int, ...]


def topology_places(path: str, text: str, notes: list[str]) -> dict[str, Place]:
    """Return each node's place in the tree: which child at each level, from the root down.

    Parameters
    ----------
    path, text : str
        The topology.conf; a wrong line is named with its path.
    notes : list of str
        Is given what had to be assumed.

    Raises
    ------
    InputError
        If a switch is below itself, or a list of names cannot be read.
    """
    leaves: dict[str, list[str]] = {}
    children: dict[str, list[str]] = {}
    for number, line in conf_lines(Path(path), text, notes):
        pairs = pairs_of(line)
        name = pairs.get("switchname", pairs.get("blockname", ""))
        if not name:
            continue
        if "nodes" in pairs:
            leaves[name] = expanded(path, number, pairs["nodes"])
        if "switches" in pairs:
            children[name] = expanded(path, number, pairs["switches"])
    below = {child for names in children.values() for child in names}
    roots = [name for name in [*children, *leaves] if name not in below]
    places: dict[str, Place] = {}
    pending: list[tuple[str, Place]] = [(name, (k,)) for k, name in enumerate(dict.fromkeys(roots))]
    deepest = len(children) + len(leaves) + 1
    while pending:
        name, at = pending.pop()
        if len(at) > deepest:
            raise InputError(path, f"the switch {name} is below itself; put the tree right")
        for k, node in enumerate(leaves.get(name, ())):
            places[node] = (*at, k)
        pending += [(child, (*at, k)) for k, child in enumerate(children.get(name, ()))]
    if not places and (leaves or children):
        raise InputError(path, "no switch leads to a node, or every one is below another")
    return places


def topology_of(places: dict[str, Place], nodes: Sequence[Node], notes: list[str]) -> Topology:
    """Return the grid of a cluster whose rows are the processors of `nodes`, in their order.

    Nodes that the tree does not know come last, as one more switch at the top.
    """
    depth = max(map(len, places.values()))
    top = 1 + max(place[0] for place in places.values())
    rows: list[Place] = []
    strangers = 0
    for node in nodes:
        place = places.get(node.name, (top, strangers))
        strangers += node.name not in places
        padded = (*place[:-1], *(0,) * (depth - len(place)), place[-1])
        rows += [(*padded, cpu) for cpu in range(node.cpus)]
    if strangers:
        notes.append(f"nodes that topology.conf leaves out form their own switch ({strangers:,})")
    table = np.array(rows, np.int64)
    shape = tuple((table.max(0) + 1).tolist())
    if prod(shape) > MOST_CELLS * len(table):
        notes.append("the tree of switches is too uneven for a grid; its nodes form a line")
        cell = np.empty(len(table), np.int64)
        cell[np.lexsort(table.T[::-1])] = np.arange(len(table))
        return Topology((len(table),), cell=cell)
    used = [axis for axis, side in enumerate(shape) if side > 1] or [len(shape) - 1]
    sides = tuple(shape[axis] for axis in used)
    return Topology(sides, cell=np.ravel_multi_index(tuple(table[:, used].T), sides))

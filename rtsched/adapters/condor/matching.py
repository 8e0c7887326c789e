"""Matches of jobs' Requirements with slots: the node sets of a pool.

What a job says in its Requirements of itself is filled in, so that an expression over attributes
of machines is left. It is evaluated once for each different combination of the attributes that it
refers to, not for each slot, and UNDEFINED is no match.

Conditions on what changes while jobs run are left out: the plan, and HTCondor itself when the job
starts, decide on these. They are the load and the state of a machine, the time, the history of a
job, and what it requests (`RequestMemory`), which plans hold against what the slots have. The free
amounts of a partitionable slot count as all that it has (`TotalSlotMemory` for `Memory`), whoever
has parts of it now.

Sources: HTCondor's manual, "Machine ClassAd Attributes", "Job ClassAd Attributes" and
"condor_submit" (requirements); Requirements as condor_submit 23.9 and 25.14 write them.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.adapters.condor.expressions import (
    KEYWORDS,
    MOST_KEPT,
    PLAIN_CALLS,
    Token,
    as_written,
    bindings,
    in_one_form,
    parsed,
    suits,
    tokens_of,
)
from rtsched.logs.classads import Expression
from rtsched.model.table import read_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence, Set

    from numpy.typing import NDArray

    from rtsched.adapters.condor.expressions import Gpu
    from rtsched.logs.classads import Record, Value

    Mask = NDArray[np.bool_]

LONGEST = 8000
"""Characters of Requirements that are evaluated."""
_DEEPEST = 50
"""Parentheses within one another, likewise."""

_OF_MACHINES = """
    state activity enteredcurrentstate enteredcurrentactivity loadavg condorloadavg totalloadavg
    totalcondorloadavg keyboardidle consoleidle cpubusy cpubusytime cpuisbusy cpususage gpususage
    virtualmemory totaldisk vm_availnum vm_memory start requirements rank isowner currentrank
    withinresourcelimits offline remoteowner remoteuser remotegroup remoteaccountinggroup
    remotenegotiatinggroup remotescheddname preemptingowner preemptinguser preemptingrank
    clientmachine jobid globaljobid jobstart publicclaimid publicclaimids numdynamicslots
    pslotrollupinformation maxjobretirementtime retirementtimeremaining updatesequencenumber
    lastheardfrom lastbenchmark lastdrainstarttime lastdrainstoptime daemonstarttime
    daemonlastreconfigtime authenticatedidentity mycurrenttime currenttime servertime clockmin
    clockday rtdelay activationrequests claimrequests jobstarts jobpreemptions
    jobrankpreemptions jobuserpriopreemptions newdslotnotmatch numdynamicslotstime totalslots
    numpids daemoncoredutycycle lastfetchworkcompleted lastfetchworkspawned nextfetchworkdelay
"""
"""The state and the load of a machine, who has it, and what time it is."""

_OF_JOBS = """
    jobstatus lastjobstatus jobprio enteredcurrentstatus jobstartdate jobcurrentstartdate
    jobcurrentstartexecutingdate joblaststartdate completiondate currenthosts numjobstarts
    numjobmatches numjobcompletions numjobreconnects numshadowstarts numrestarts numsystemholds
    numholds numvacates numckpts jobruncount lastmatchtime lastrejmatchtime lastvacatetime
    lastsuspensiontime lastckpttime remotehost remotewallclocktime cumulativesuspensiontime
    remoteusercpu remotesyscpu cumulativeremoteusercpu exitcode exitbysignal holdreasoncode
    memoryusage diskusage imagesize residentsetsize proportionalsetsizekb executablesize
    scratchdirfilecount transferinputsizemb
"""
"""How a job went so far, and sizes that follow from its files."""

_CHANGING = frozenset(f"{_OF_MACHINES} {_OF_JOBS}".split())
_CHANGING_FORM = re.compile(
    r"request\w+|recent\w+|child\w+|machineattr\w+|lastremote\w+|slot\d+_\w+|monitorself\w+"
    r"|gpus_\w+|(?:assigned|available)(?:cpus|memory|disk|gpus)\w*"
    r"|total(?:claim|job|time|preempt)\w+|drain\w+|expectedmachine\w+|updates\w+"
    r"|rt(?:token|admission|verdict|message|nodeset|rankset|promise|plannedstart|fraction|node|why)"
    r"|rt(?:limit|hosts|jobprio|perslot|slots)",
    re.ASCII,
)
_CHANGING_CALLS = frozenset({"time", "random", "daytime"})

_CALLS = PLAIN_CALLS | frozenset(
    {"isstring", "isinteger", "isreal", "isboolean", "iserror", "islist", "member", "int", "real"}
    | {"identicalmember", "anycompare", "allcompare", "size", "strcmp", "stricmp", "strcat"}
    | {"substr", "string", "bool", "floor", "ceiling", "round", "min", "max", "versioncmp"}
    | {"version_in_range", "stringlistsize", "stringlistsubsetmatch", "stringlistisubsetmatch"}
    | {"stringlistmin", "stringlistmax", "stringlistsum", "stringlistavg", "split"}
    | {"stringlistsintersect", "splitslotname", "splitusername", "quantize", "sum", "avg"}
)
_MATCHES = frozenset({"regexp", "regexpmember", "stringlist_regexpmember"})
"""Functions whose first argument is a regular expression, and whose second is matched."""
_QUANTIFIED = re.compile(r"[*+?{]")
_QUANTIFIED_GROUP = re.compile(r"\)[*+{?]")
_MOST_QUANTIFIERS = 2
_GREATEST = 2.0**53

_OPTIONS = ("partition", "require_gpus", "requirements")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


# --- what a job says ------------------------------------------------------------------------------


class _Own(NamedTuple):
    """Where a value of the job is filled in; `otherwise`: what stands there if it has none."""

    name: str
    otherwise: str


class SlotRequest(NamedTuple):
    """What a job asks of slots, each text empty if it asks nothing.

    `requirements` with the job's own values, `gpus` as of `gpus_required`, `part` the partition.
    """

    requirements: str = ""
    gpus: str = ""
    part: str = ""

    @property
    def words(self) -> str:
        """The request as `Jobs.node_request`; empty where it is no more than a partition."""
        asked = {"requirements": self.requirements, "require_gpus": self.gpus}
        if not any(asked.values()):
            return ""
        asked["partition"] = self.part
        return " ".join(f"--{option}={value}" for option, value in asked.items() if value)

    @classmethod
    def of(cls, words: str) -> SlotRequest:
        """Return the request of these words."""
        rest, found = f" {words}", []
        for option in _OPTIONS:
            before, mark, value = rest.rpartition(f" --{option}=")
            found.append(value if mark else "")
            rest = before if mark else rest
        part, gpus, requirements = found
        return cls(requirements, gpus, part)


def condition_in(ad: Record) -> str:
    """Return what a job's Requirements say of machines, in one form; empty: it has none.

    `ad` has all attributes of the job to which they refer (`names_in`).
    """
    requirements = ad.get("requirements")
    if requirements is None:
        return ""
    pieces = _template(as_written(requirements))
    if isinstance(pieces, str):
        return pieces
    return "".join(each if isinstance(each, str) else _filled(each, ad) for each in pieces)


def names_in(written: str) -> frozenset[str]:
    """Return the attributes of a job to which its Requirements may refer, in lower case."""
    pieces = _template(written)
    return frozenset(each.name for each in pieces if isinstance(each, _Own))


def wrong_in(condition: str) -> str:
    """Return why a condition cannot be evaluated, one sentence; empty: it can."""
    if len(condition) > LONGEST:
        return f"its requirements are longer than {LONGEST} characters"
    return _wrong(condition)


def conjuncts_of(condition: str) -> list[str]:
    """Return the conditions that must all hold for one to hold."""
    return ["".join(token.text for token in part) for part in _conjuncts(tokens_of(condition))]


@lru_cache(MOST_KEPT)
def _template(written: str) -> tuple[str | _Own, ...] | str:
    """Return the parts of Requirements; as they are written if they cannot be read."""
    expression = in_one_form(written, LONGEST)
    if len(expression) > LONGEST or parsed(expression) is None:
        return expression
    tokens = tokens_of(expression)
    if _depth(tokens) > _DEEPEST:
        return expression
    pieces: list[str | _Own] = []
    for token in _bare(_lasting(tokens)):
        pieces.append(_piece(token, pieces[-1] if pieces else ""))
    return tuple(pieces)


def _piece(token: Token, before: str | _Own) -> str | _Own:
    """Return what stands for a part: of a machine's attribute its name without the scope."""
    word = token.text.lower()
    if word in {"is", "isnt"}:
        return "=?=" if word == "is" else "=!="
    if token.kind != "name" or token.calls or word in KEYWORDS or before == ".":
        return token.text
    scope, _, rest = token.text.partition(".")
    if scope.lower() == "target" and rest:
        return rest
    if scope.lower() == "my" and rest:
        return _Own(rest.partition(".")[0].lower(), "undefined")
    return _Own(scope.lower(), token.text)


def _filled(own: _Own, ad: Record) -> str:
    """Return the literal of a value of the job."""
    value = ad.get(own.name)
    if isinstance(value, Expression):
        value = _worked_out(value, ad)
    if value is None:
        return own.otherwise
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        whole = abs(value) <= _GREATEST and value == int(value)
        return f"{int(value)}" if whole else f"{float(value)!r}"
    escaped = _CONTROL.sub(" ", value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _worked_out(written: Expression, ad: Record) -> Value:
    """Return the value of an attribute of a job that is an expression; None: it has none."""
    tree = parsed(written)
    if tree is None:
        return None
    names = _referred([written], ad.keys(), lambda name: [ad[name]])
    value = tree.eval(_classad({name: ad[name] for name in names}))
    return value if type(value) in {str, int, float, bool} else None


def _lasting(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """Return what of a condition does not change while jobs run; the rest counts as true."""
    if not any(map(_changes, tokens)):
        return tuple(_trimmed(tokens))
    operator, parts = _operands(_bare(tokens))
    return _joined([_lasting(part) for part in parts], operator) if operator else _TRUE


def _joined(parts: list[tuple[Token, ...]], operator: str) -> tuple[Token, ...]:
    """Return the parts of a condition that are left, in parentheses where they need them."""
    if operator == "||" and _TRUE in parts:
        return _TRUE
    left = [part for part in parts if part != _TRUE]
    if len(left) < 2:
        return left[0] if left else _TRUE
    open_, close, blank = (Token("operator", each) for each in "() ")
    joined = [
        token for part in left for token in (blank, Token("operator", operator), blank, *part)
    ]
    return (open_, *joined[3:], close)


_TRUE = (Token("name", "true"),)


def _changes(token: Token) -> bool:
    """Return whether a part of an expression changes while jobs run."""
    if token.kind != "name":
        return False
    words = token.text.lower().split(".")
    if token.calls:
        return words[-1] in _CHANGING_CALLS
    return _is_changing(words[1] if words[0] in {"my", "target"} and words[1:] else words[0])


@lru_cache(4 * MOST_KEPT)
def _is_changing(name: str) -> bool:
    return name in _CHANGING or _CHANGING_FORM.fullmatch(name) is not None


def _bare(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return an expression without the blanks and the parentheses around it."""
    while True:
        tokens = _trimmed(tokens)
        depths = [depth for _, depth in _with_depth(tokens)]
        if not (tokens and tokens[0].text == "(" and min(depths[:-1], default=0) > 0):
            return tokens
        tokens = tokens[1:-1]


def _conjuncts(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Return the operands of `&&`, of those in parentheses too; others keep their parentheses."""
    operator, parts = _operands(_bare(tokens))
    if operator == "&&":
        return [each for part in parts for each in _conjuncts(part)]
    return [_trimmed(tokens) if operator else _bare(tokens)]


def _trimmed(tokens: Sequence[Token]) -> Sequence[Token]:
    solid = [at for at, token in enumerate(tokens) if token.kind != "blank"]
    return tokens[solid[0] : solid[-1] + 1] if solid else tokens[:0]


def _operands(tokens: Sequence[Token]) -> tuple[str, list[Sequence[Token]]]:
    """Return by which of `||` and `&&` a condition is joined, and of what; empty: by neither."""
    if not any(each.text in {"?", "?:"} for each, depth in _with_depth(tokens) if depth == 0):
        for operator in ("||", "&&"):  # the first binds less
            parts = _split(tokens, operator)
            if len(parts) > 1:
                return operator, parts
    return "", [tokens]


def _split(tokens: Sequence[Token], operator: str) -> list[Sequence[Token]]:
    """Return the operands of an operator outside of parentheses; one, if it is not there."""
    cuts = [
        at
        for at, (token, depth) in enumerate(_with_depth(tokens))
        if depth == 0 and token.kind == "operator" and token.text == operator
    ]
    edges = [-1, *cuts, len(tokens)]
    return [tokens[start + 1 : end] for start, end in pairwise(edges)]


def _with_depth(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Yield the parts and in how many parentheses they stand, an opening one included."""
    depth = 0
    for token in tokens:
        opens, closes = token.text in {"(", "[", "{"}, token.text in {")", "]", "}"}
        depth += opens - closes
        yield token, depth


def _depth(tokens: Sequence[Token]) -> int:
    return max((depth for _, depth in _with_depth(tokens)), default=0)


@lru_cache(MOST_KEPT)
def _wrong(condition: str) -> str:
    tokens = tokens_of(condition)
    if _depth(tokens) > _DEEPEST or parsed(condition) is None:
        return f"its requirements ({condition[:80]}) cannot be read"
    words = [token for token in tokens if token.kind != "blank"]
    for at, token in enumerate(words):
        if token.calls and token.text.lower() not in _CALLS | _MATCHES:
            return f"cannot plan with the function {token.text[:60]} in its requirements"
        matches = token.calls and token.text.lower() in _MATCHES
        if matches and not _is_quick(words[at + 2 : at + 6]):
            return (
                f"cannot plan with this {token.text} in its requirements; match an attribute of "
                f"the machine with a text of at most {_MOST_QUANTIFIERS} of * + ? {{, none after )"
            )
        if token.text == "[" and at + 2 < len(words) and words[at + 2].text == "=":
            return "cannot plan with an ad in its requirements"
        if not token.calls and token.kind == "name" and token.text.lower() in {"my", "target"}:
            return f"cannot plan with {token.text} itself in its requirements; name an attribute"
    return ""


def _is_quick(arguments: Sequence[Token]) -> bool:
    """Return whether a regular expression is one of a kind that never takes long."""
    if [each.kind for each in arguments[:3]] != ["quoted", "operator", "name"]:
        return False
    pattern, plain = arguments[0].text, arguments[3].text in {")", ","}
    few = len(_QUANTIFIED.findall(pattern)) <= _MOST_QUANTIFIERS
    return plain and few and not _QUANTIFIED_GROUP.search(pattern)


# --- what slots say -------------------------------------------------------------------------------


class MachineAd(NamedTuple):
    """What a slot says of its machine: the kinds of its GPUs, and `lasting_attributes`."""

    gpus: tuple[Gpu, ...]
    attributes: Record


def lasting_attributes(ad: Record) -> Record:
    """Return the attributes of a slot that do not change while jobs run.

    Of a partitionable slot all that it has counts as free.
    """
    found = {name: value for name, value in ad.items() if not _is_changing(name)}
    if ad.get("partitionableslot") is True:
        found |= {name: ad[f"totalslot{name}"] for name in list(found) if f"totalslot{name}" in ad}
    return found


class MachineAds:
    """What the slots of a pool say of themselves, a column for each attribute.

    Parameters
    ----------
    columns : mapping of str to (tuple of values, int32[n])
        By the attribute's name in lower case: its different values, None where it is undefined,
        and which of them each slot has.
    slots : tuple of str
        The names of the slots.
    """

    def __init__(
        self,
        columns: Mapping[str, tuple[tuple[Value, ...], NDArray[np.int32]]],
        slots: tuple[str, ...],
    ) -> None:
        self._columns, self._slots = columns, slots
        self._at = {name: at for at, name in enumerate(slots)}
        self.matched = lru_cache(MOST_KEPT)(self._matched)
        self._packed = b""

    @classmethod
    def of(cls, ads: Mapping[str, Record]) -> MachineAds:
        """Return the columns of the ads of slots, by the slots' names."""
        names = sorted({name for ad in ads.values() for name in ad})
        return cls(
            {name: _column([ad.get(name) for ad in ads.values()]) for name in names}, tuple(ads)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make it again: another process unpacks each once, and keeps its masks."""
        if not self._packed:
            self._packed = pickle.dumps((self._columns, self._slots))
        return _unpacked, (self._packed,)

    def __eq__(self, other: object) -> bool:
        """Return whether the same slots say the same."""
        if self is other or not isinstance(other, MachineAds):
            return self is other
        return self.__reduce__() == other.__reduce__()

    def rows_of(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the places of slots in a mask; the last one for a slot that says nothing."""
        return np.array([self._at.get(name, len(self._slots)) for name in names], np.int64)

    def _matched(self, condition: str) -> Mask:
        """Return bool[n + 1]: for which slots a condition holds; the last is that of no slot."""
        mask = np.zeros(len(self._slots) + 1, np.bool_)
        tree = None if wrong_in(condition) else parsed(condition)
        if tree is None or not self._slots:
            return read_only(mask)
        columns = self._columns
        names = sorted(_referred([condition], columns.keys(), lambda name: columns[name][0]))
        codes = np.zeros((len(self._slots), len(names)), np.int32)
        for at, name in enumerate(names):
            codes[:, at] = columns[name][1]
        kinds, of = np.unique(codes, axis=0, return_inverse=True) if names else (codes[:1], 0)
        values = [columns[name][0] for name in names]
        holds = [
            _holds(
                tree,
                {name: some[code] for name, some, code in zip(names, values, kind, strict=True)},
            )
            for kind in kinds.tolist()
        ]
        mask[:-1] = np.array(holds, np.bool_)[np.ravel(of)]
        return read_only(mask)


def _classad(values: Mapping[str, Value]) -> Any:
    """Return the ad of some attributes; what cannot be read is left out."""
    read = {
        name: parsed(value) if isinstance(value, Expression) else value
        for name, value in values.items()
    }
    return bindings().ClassAd({name: value for name, value in read.items() if value is not None})


def _referred(
    expressions: Iterable[str], known: Set[str], values: Callable[[str], Iterable[Value]]
) -> set[str]:
    """Return the attributes on which expressions depend, of those that are known.

    `values` returns what an attribute may be: another expression perhaps.
    """
    found = set[str]()
    new = {name for each in expressions for name in _attributes_in(each)} & known
    while new:
        found |= new
        expressions = (
            value for name in new for value in values(name) if isinstance(value, Expression)
        )
        new = ({name for each in expressions for name in _attributes_in(each)} & known) - found
    return found


def _holds(tree: Any, values: Mapping[str, Value]) -> bool:
    """Return whether a condition holds for a slot with these attributes; UNDEFINED does not."""
    value = tree.eval(_classad(values))
    return value is True or (type(value) in {int, float} and value != 0)


@lru_cache(MOST_KEPT)
def _attributes_in(expression: str) -> frozenset[str]:
    """Return the attributes that an expression may refer to, in lower case."""
    tokens = tokens_of(expression)
    named = {token.text.lower() for token in tokens if token.kind == "name" and not token.calls}
    quoted = {token.text[1:-1].lower() for token in tokens if token.text.startswith("'")}
    words = {word.removeprefix("my.").removeprefix("target.") for word in named}
    return frozenset({word.partition(".")[0] for word in words} | quoted) - KEYWORDS


def _column(values: list[Value]) -> tuple[tuple[Value, ...], NDArray[np.int32]]:
    """Return the different values and which of them each is; 1, 1.0 and true are different."""
    code: dict[tuple[type, Value], int] = {}
    codes = [code.setdefault((type(value), value), len(code)) for value in values]
    return tuple(value for _, value in code), np.array(codes, np.int32)


@lru_cache(2)
def _unpacked(packed: bytes) -> MachineAds:
    """Return the ads that another process has packed; the same ones as long as they stay so.

    Who unpacks them will evaluate conditions soon, while somebody waits: the bindings are loaded.
    """
    parsed("true")
    return MachineAds(*pickle.loads(packed))  # noqa: S301 - of our own process


class SlotSets(Mapping[str, "Mask"]):
    """Which rows of the cluster meet requests for slots, each worked out when it is asked for.

    Parameters
    ----------
    ads : MachineAds
        What the slots say of themselves.
    slots : sequence of str
        The slot of each row.
    gpus : sequence of tuple of Gpu
        The kinds of GPUs of each row.
    parts : mapping of str to bool[n]
        The rows of each partition.
    disk : int64[n]
        Bytes of disk of each row.
    """

    def __init__(
        self,
        ads: MachineAds,
        slots: Sequence[str],
        gpus: Sequence[tuple[Gpu, ...]],
        parts: Mapping[str, Mask],
        disk: NDArray[np.int64],
    ) -> None:
        self._ads, self._slots, self._gpus = ads, tuple(slots), tuple(gpus)
        self._parts, self._disk = parts, disk
        self._rows = ads.rows_of(self._slots)
        self._known: dict[str, Mask] = {}

    def __reduce__(self) -> tuple[type[SlotSets], tuple[Any, ...]]:
        """Return how to make it again: what was worked out does not go to other processes."""
        return SlotSets, (self._ads, self._slots, self._gpus, self._parts, self._disk)

    def __eq__(self, other: object) -> bool:
        """Return whether the rows are those of the same slots, of which the same is known."""
        if not isinstance(other, SlotSets):
            return NotImplemented
        mine, theirs = self._parts, other._parts
        same = (self._slots, self._gpus) == (other._slots, other._gpus)
        same = same and self._ads == other._ads and np.array_equal(self._disk, other._disk)
        same = same and mine.keys() == theirs.keys()
        return same and all(np.array_equal(mine[name], theirs[name]) for name in mine)

    def __getitem__(self, words: str) -> Mask:
        if words not in self._known:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[words] = read_only(self._meeting(SlotRequest.of(words)))
        return self._known[words]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def count(self, words: str, disk: int = 0) -> int:
        """Return how many rows meet a request and have so much disk."""
        mask = self[words]
        return int((mask & (self._disk >= disk)).sum() if disk else mask.sum())

    def unmet(self, requirements: str) -> str:
        """Return the condition of some requirements that no row meets by itself; empty: none."""
        for each in conjuncts_of(requirements):
            if not self[SlotRequest(each).words].any():
                return each
        return ""

    def _meeting(self, request: SlotRequest) -> Mask:
        mask: Mask = np.ones(len(self._slots), np.bool_)
        if request.requirements:
            mask = self._ads.matched(request.requirements)[self._rows]
        if request.gpus:
            mask = mask & self._suiting(request.gpus)
        part = self._parts.get(request.part)
        return mask if part is None else mask & part

    def _suiting(self, gpus: str) -> Mask:
        code = {each: at for at, each in enumerate(dict.fromkeys(self._gpus))}
        suiting = [bool(each) and suits(gpus, each) for each in code]
        return np.array(suiting, np.bool_)[[code[each] for each in self._gpus]]

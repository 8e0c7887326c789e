"""A read-only structure of arrays, declared column by column; and rows of different length.

    class Jobs(Table):
        size = Column(np.int32, 1, "Nodes asked for.")
        user = Text("Who submitted it.")

    jobs = Jobs.build(2, size=[4, 8], user=["ann", "bob"])
    jobs.size                 # int32[2], not writable
    jobs.take([1]).user       # codes; jobs.names("user") is the table behind them

A column that is not given is its missing value, made when it is first read, and costs nothing where
tables are joined, changed or handed to another process. A view made by `take` or `with_rows`
gathers a column when that is first read, so a plug-in pays for those it uses. Arrays stand in the
instance under their columns' names, where reading them again is a plain look-up.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast, overload

import numpy as np

from rtsched.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, DTypeLike, NDArray

S = TypeVar("S", bound=np.generic)


class Column(Generic[S]):
    """One array of a table: its dtype, the value that says "missing", and what it means."""

    def __init__(self, dtype: type[S], missing: object, doc: str) -> None:
        self.dtype = np.dtype(dtype)
        self.missing = missing
        self.nothing = np.asarray(missing, self.dtype).tobytes()
        """The missing value's memory, that of every array of this column that only has that."""
        self.__doc__ = doc

    def __set_name__(self, owner: type[Table], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type[Table]) -> Self: ...
    @overload
    def __get__(self, table: Table, owner: type[Table]) -> NDArray[S]: ...
    def __get__(self, table: Table | None, owner: type[Table]) -> Self | NDArray[S]:
        if table is None:
            return self
        return cast("NDArray[S]", table.column(self.name))

    def array(self, values: ArrayLike | None, n: int) -> NDArray[S]:
        """Return `values` as a read-only array of this column, the missing value if None."""
        if values is None or self._is_missing(values):
            return np.ndarray((n,), self.dtype, self.nothing, 0, (0,))
        array = np.asarray(values)
        if array.dtype != self.dtype:
            if array.size and not np.can_cast(array.dtype, self.dtype, casting="same_kind"):
                raise ShapeError(
                    f"column {self.name!r} holds {self.dtype}, not {array.dtype}; convert it first"
                )
            array = array.astype(self.dtype)
        if array.ndim == 0:  # as `np.broadcast_to`, which takes ten times as long
            return np.ndarray((n,), self.dtype, array.tobytes(), 0, (0,))
        if array.shape != (n,):
            raise ShapeError(f"column {self.name!r} has shape {array.shape}, expected ({n},)")
        return cast("NDArray[S]", read_only(array))

    def _is_missing(self, value: object) -> bool:
        """Return whether one value for all rows is the missing one."""
        if not isinstance(value, (int, float)):
            return False
        return value == self.missing or (value != value and self.missing != self.missing)  # nan

    def is_nothing(self, array: NDArray[Any]) -> bool:
        """Return whether an array of this column was never given anything but missing values."""
        memory: object = array.base
        return memory is self.nothing


class Text(Column[np.int32]):
    """A column of texts, kept as codes into a table of names; -1 is "missing"."""

    def __init__(self, doc: str) -> None:
        super().__init__(np.int32, -1, doc)


class Amounts(Column[np.int64]):
    """Amounts of several resources per row, int64[n, r]; `Table.names` of it says which.

    The names are Slurm's of trackable resources: `cpu`, `mem` (bytes here), `gres/gpu`,
    `gres/gpu:a100`. A table in which it is missing has no resource in it, r = 0.

    References
    ----------
    Slurm manual, "Trackable Resources (TRES)".
    """

    def __init__(self, doc: str) -> None:
        super().__init__(np.int64, 0, doc)

    def array(self, values: ArrayLike | None, n: int) -> NDArray[np.int64]:
        """Return `values` as a read-only array of this column, without resources if None."""
        if values is None:
            return np.broadcast_to(np.int64(0), (n, 0))
        array = np.asarray(values)
        if array.dtype.kind not in "iu" or array.ndim != 2 or len(array) != n:
            raise ShapeError(
                f"column {self.name!r} has shape {array.shape} of {array.dtype}, expected amounts "
                f"of resources, int64[{n}, r]"
            )
        return read_only(array.astype(np.int64, copy=False))

    def is_nothing(self, array: NDArray[Any]) -> bool:
        """Return whether an array has amounts of no resource."""
        return not array.shape[1]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array` itself or a view of it, such that nobody can write through the result."""
    if array.flags.writeable:
        array = array.view()
        array.setflags(write=False)
    return array


def _as_it_is(text: str | None) -> str | None:
    """Return a text."""
    return text


def encode(texts: Iterable[str | None]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return codes and names of `texts`, names in order of first appearance; None becomes -1."""
    table: dict[str, int] = {}
    codes = [-1 if text is None else table.setdefault(text, len(table)) for text in texts]
    return np.array(codes, np.int32), tuple(table)


class Names:
    """The texts behind the codes of a column, in order of their codes.

    Where each of them stands is worked out when it is first asked, and shared with the tables that
    grow out of this one: to add some texts, only those are looked up. What other tables have added
    there meanwhile does no harm, for a text counts only if it stands here where it is said to.
    """

    __slots__ = ("_code_of", "texts")

    def __init__(self, texts: Iterable[str] = (), code_of: dict[str, int] | None = None) -> None:
        self.texts = tuple(texts)
        self._code_of = code_of

    def __len__(self) -> int:
        return len(self.texts)

    def __reduce__(self) -> tuple[type[Names], tuple[tuple[str, ...]]]:
        return Names, (self.texts,)

    def with_others(self, others: Names) -> tuple[Names, NDArray[np.int32]]:
        """Return a table that begins with this one and has all the others.

        Returns
        -------
        names : Names
            This one itself if it has them all.
        place : int32[len(others) + 1]
            Where each of the others stands there; the last element is -1.
        """
        texts, place, code_of = list(self.texts), [], self._code_of
        if code_of is None or _too_long(len(code_of), len(texts)):
            code_of = self._code_of = _codes(texts)
        for text in others.texts:
            code = code_of.setdefault(text, len(texts))
            if (code < len(texts) and texts[code] != text) or code > len(texts):
                code_of = _codes([*texts, text])  # another table that grew out of this one has it
                code = len(texts)
            if code == len(texts):
                texts.append(text)
            place.append(code)
        names = self if len(texts) == len(self.texts) else Names(texts, code_of)
        return names, np.array([*place, -1], np.int32)


_NO_NAMES = Names()


def _codes(texts: Sequence[str]) -> dict[str, int]:
    return dict(zip(texts, range(len(texts)), strict=True))


def _too_long(names: int, wanted: int) -> bool:
    """Return whether so much of a table of names is of no use that it is worth a shorter one."""
    return names > 2 * wanted + 16


MAX_PARTS = 16
"""Tables that one view puts one after the other at most."""


class Table:
    """The base of all structures of arrays. Rows are things, columns are arrays of one length."""

    _columns: ClassVar[Mapping[str, Column[Any]]] = {}

    def __init_subclass__(cls) -> None:
        found = {name: value for name, value in vars(cls).items() if isinstance(value, Column)}
        cls._columns = {**cls._columns, **found}

    _n: int
    _names: dict[str, Names]
    _base: Table | None
    _rows: NDArray[np.int64] | None
    _parts: tuple[Self, ...]
    _given: frozenset[str]
    """Columns that were given values; of the others all values are missing."""

    @classmethod
    def build(
        cls,
        n: int,
        *,
        names: Mapping[str, Sequence[str]] | None = None,
        **columns: ArrayLike | Sequence[str | None] | None,
    ) -> Self:
        """Return a table of `n` rows.

        Parameters
        ----------
        n : int
            Number of rows.
        names : mapping of column name to sequence of str, optional
            The tables behind text columns that are given as codes.
        **columns
            One array of length `n` (or a scalar) per column; a text column may also be a sequence
            of str and None. Columns left out hold their missing value.

        Raises
        ------
        ShapeError
            For an unknown column, a wrong length, or a type that would lose information.
        """
        unknown = columns.keys() - cls._columns.keys()
        if unknown:
            raise ShapeError(f"{cls.__name__} has no column {sorted(unknown)[0]!r}")
        tables = {name: Names(texts) for name, texts in (names or {}).items()}
        arrays = {}
        for name, values in columns.items():
            column = cls._columns[name]
            if isinstance(column, Text) and values is not None and name not in tables:
                values, texts = encode(cast("Iterable[str | None]", values))
                values = values if texts else None
                tables[name] = Names(texts)
            arrays[name] = column.array(cast("ArrayLike | None", values), n)
            if isinstance(column, Amounts) and arrays[name].shape[1] != len(tables.get(name, ())):
                raise ShapeError(f"column {name!r} has amounts of other resources than it names")
        return cls._make(n, arrays, tables)

    @classmethod
    def of_rows(cls, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Self:
        """Return a table of rows, each of which has a value of each of the columns.

        Raises
        ------
        ShapeError
            As `build`.
        """
        values = zip(*rows, strict=True) if rows else ((),) * len(columns)
        given: dict[str, Any] = dict(zip(columns, values, strict=True))
        return cls.build(len(rows), **given)

    @classmethod
    def _make(
        cls,
        n: int,
        arrays: dict[str, NDArray[Any]],
        names: dict[str, Names],
        base: Table | None = None,
        rows: NDArray[np.int64] | None = None,
        parts: tuple[Self, ...] = (),
    ) -> Self:
        table = cls.__new__(cls)
        table._n, table._names = n, names
        table._base, table._rows, table._parts = base, rows, parts
        table._given = frozenset() if base is None else base._given
        if arrays:
            columns = cls._columns
            own = (name for name, array in arrays.items() if not columns[name].is_nothing(array))
            table._given = table._given.union(own)
        table.__dict__.update(arrays)
        return table

    def __len__(self) -> int:
        return self._n

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._n} rows>"

    def column(self, name: str) -> NDArray[Any]:
        """Return the read-only array of one column."""
        array: NDArray[Any] | None = self.__dict__.get(name)
        if array is None:
            if name not in self._columns:
                raise ShapeError(f"{type(self).__name__} has no column {name!r}")
            if name not in self._given:
                array = self._columns[name].array(None, self._n)
            elif self._base is None:
                array, names = _gathered(self._parts, name)
                if names is not None:
                    self._names[name] = names
            else:
                array = self._base.column(name)
                if self._rows is not None:
                    array = _rows_of(array, self._rows)
            self.__dict__[name] = array
        return array

    def __getstate__(self) -> tuple[int, dict[str, Names], dict[str, NDArray[Any]]]:
        arrays = {name: self.column(name) for name in self.given()}
        single = {name: array[:1] for name, array in arrays.items() if array.strides == (0,)}
        return self._n, self._names, arrays | single

    def __setstate__(self, state: tuple[int, dict[str, Names], dict[str, NDArray[Any]]]) -> None:
        self._n, self._names, arrays = state
        self._base, self._rows, self._parts = None, None, ()
        self._given = frozenset(arrays)
        for name, array in arrays.items():  # a column that holds one value throughout came as one
            whole = array if len(array) == self._n else np.broadcast_to(array, self._n)
            self.__dict__[name] = read_only(whole)

    def given(self) -> list[str]:
        """Return the columns that were given values, in order; others have but missing ones."""
        return [name for name in self._columns if name in self._given]

    @classmethod
    def columns(cls) -> Mapping[str, Column[Any]]:
        """Return the declared columns by name, in order."""
        return cls._columns

    def names(self, column: str) -> tuple[str, ...]:
        """Return the table of names behind a text column."""
        return self._table_of(column).texts

    def _table_of(self, column: str) -> Names:
        """Return the table of names behind a text column, known once that is gathered."""
        if column not in self._names and column in self._given:
            whole: Table = self
            while whole._base is not None:
                whole = whole._base
            whole.column(column)
        return self._names.get(column, _NO_NAMES)

    def in_use(self, column: str) -> tuple[NDArray[np.int32], Names]:
        """Return codes of a text column, and names of which at least about half are in use."""
        codes, names = self.column(column), self._table_of(column)
        if not _too_long(len(names), self._n):
            return codes, names
        used, codes = np.unique(codes, return_inverse=True)
        missing = int(used.min(initial=0) < 0)
        texts = (names.texts[code] for code in used[missing:].tolist())
        return (codes - missing).astype(np.int32), Names(texts)

    def texts(self, column: str) -> list[str | None]:
        """Return a text column decoded, None where it is missing."""
        names = self.names(column)
        return [names[code] if code >= 0 else None for code in self.column(column).tolist()]

    def where(self, column: str, wanted: Callable[[str | None], bool]) -> NDArray[np.bool_]:
        """Return in which rows a text, None where it is missing, is wanted, bool[n].

        Each text is looked at once, in however many rows it stands.
        """
        codes, names = self.in_use(column)
        return np.array([*map(wanted, names.texts), wanted(None)], np.bool_)[codes]

    def take(self, rows: ArrayLike) -> Self:
        """Return a view of the given rows, in that order; its columns are gathered when read."""
        index = np.asarray(rows)
        if index.dtype == np.bool_:
            index = np.flatnonzero(index)
        index = index.astype(np.int64, copy=False)
        if self._parts and len(index):
            others = self._n - len(self._parts[-1])
            if index.min() >= others:
                return self._parts[-1].take(index - others)
        if self._rows is None:
            return self._make(len(index), {}, self._names, self, index)
        return self._make(len(index), {}, self._names, self._base, self._rows[index])

    def with_rows(self, more: Self) -> Self:
        """Return a view with more rows behind the others; its columns are gathered when read.

        What was added to a long table bit by bit is copied now and then, the long table never.
        """
        if not len(self) or not len(more):
            return self if len(self) else more
        first, *others = (*(self._parts or (self,)), *(more._parts or (more,)))
        if len(others) >= MAX_PARTS:
            others = [self.joined(others)]
        parts = (first, *others)
        view = self._make(len(self) + len(more), {}, {}, parts=parts)
        view._given = self._given | more._given
        return view

    def added_to(self, table: Self) -> Self | None:
        """Return what `with_rows` put behind the rows of a table; None if it is not known."""
        parts, before = self._parts, table._parts or (table,)
        if len(parts) != len(before) + 1:
            return None
        return parts[-1] if all(map(is_, parts, before)) else None

    def with_column(self, name: str, values: ArrayLike) -> Self:
        """Return a view with one other column; nothing else is gathered or copied."""
        array = self._columns[name].array(values, self._n)
        return self._make(self._n, {name: array}, self._names, self)

    def replace(
        self, names: Mapping[str, Sequence[str]] | None = None, /, **columns: ArrayLike | None
    ) -> Self:
        """Return a copy in which the given columns are other arrays; the rest is shared.

        None: its values are missing. `names` are the tables behind text columns and amounts.
        """
        unknown = columns.keys() - self._columns.keys()
        if unknown:
            raise ShapeError(f"{type(self).__name__} has no column {sorted(unknown)[0]!r}")
        arrays = {
            name: column.array(columns[name], self._n) if name in columns else self.column(name)
            for name, column in self._columns.items()
            if name in columns or name in self._given
        }
        tables = self._names | {name: Names(texts) for name, texts in (names or {}).items()}
        for name, values in columns.items():
            if values is None:
                tables.pop(name, None)
        return self._make(self._n, arrays, tables)

    def replace_text(self, column: str, codes: ArrayLike, names: Sequence[str]) -> Self:
        """Return a copy in which one text column has other codes and another table of names."""
        return self.replace({column: names}, **{column: codes})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, one after the other; their tables of names become one.

        A part that is a few rows of what once was a long table brings the names of those rows only.
        """
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else cls.build(0)
        arrays: dict[str, NDArray[Any]] = {}
        tables: dict[str, Names] = {}
        for name in frozenset[str]().union(*(part._given for part in parts)):
            arrays[name], names = _gathered(parts, name)
            if names is not None:
                tables[name] = names
        return cls._make(sum(map(len, parts)), arrays, tables)

    def equals(self, other: Self) -> bool:
        """Return whether both hold the same rows; a missing number equals a missing number."""
        return len(self) == len(other) and all(
            not differ(self, other, name).any()
            if isinstance(column, Text) and self.names(name) != other.names(name)
            else same_amounts(self, other, name)
            if isinstance(column, Amounts)
            else _same(self.column(name), other.column(name))
            for name, column in self._columns.items()
            if name in self._given or name in other._given
        )


def _rows_of(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return rows of a column, read-only; one value for all rows stays one."""
    if array.strides == (0,) and len(array):
        return np.broadcast_to(array[0], len(rows))
    return read_only(array[rows])


def _gathered(parts: Sequence[Table], name: str) -> tuple[NDArray[Any], Names | None]:
    """Return a column of all parts, one after the other, and the table of names behind it."""
    column = parts[0].columns()[name]
    if isinstance(column, Text):
        return _one_table(parts, name)
    if isinstance(column, Amounts):
        return _all_resources(parts, name)
    return read_only(np.concatenate([part.column(name) for part in parts])), None


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one is other:
        return True
    same = one == other
    if one.dtype.kind == "f" and not same.all():
        same |= np.isnan(one) & np.isnan(other)
    return bool(same.all())


def differ(
    one: Table, other: Table, column: str, part: Callable[[str | None], str | None] = _as_it_is
) -> NDArray[np.bool_]:
    """Return in which rows of two tables of one length a text, or a part of it, differs, bool[n].

    `part` returns that of a text; it is asked once for each.
    """
    known: dict[str | None, int] = {}
    first, second = (
        np.array([known.setdefault(part(text), len(known)) for text in (*names.texts, None)])[codes]
        for codes, names in (one.in_use(column), other.in_use(column))
    )
    return np.asarray(first != second)


def amounts_of(table: Table, name: str, resources: Sequence[str]) -> NDArray[np.int64]:
    """Return a column of amounts, int64[n, r], of `resources` in that order; 0 of those it lacks.

    Parameters
    ----------
    table : Table
        With `n` rows.
    name : str
        Its column.
    resources : sequence of str
        Names of `r` resources.
    """
    own, values = table.names(name), table.column(name)
    if own == tuple(resources):
        return values
    found = np.zeros((len(table), len(resources)), np.int64)
    for at, resource in enumerate(resources):
        if resource in own:
            found[:, at] = values[:, own.index(resource)]
    return found


def resource_columns(table: Table) -> dict[str, NDArray[np.int64]]:
    """Return the amounts of each resource as a column of its own, named `demand gres/gpu`."""
    return {
        f"{name} {resource}": table.column(name)[:, at]
        for name in table.given()
        if isinstance(table.columns()[name], Amounts)
        for at, resource in enumerate(table.names(name))
    }


def amounts_from(
    kind: type[Table], columns: Mapping[str, ArrayLike]
) -> tuple[dict[str, NDArray[np.int64]], dict[str, tuple[str, ...]]]:
    """Return the amounts and the names of resources that `resource_columns` made columns of.

    Other columns are left alone.
    """
    found: dict[str, dict[str, ArrayLike]] = {}
    for title, values in columns.items():
        name, _, resource = title.partition(" ")
        if resource and isinstance(kind.columns().get(name), Amounts):
            found.setdefault(name, {})[resource] = values
    amounts = {
        name: np.column_stack([np.asarray(values, np.int64) for values in some.values()])
        for name, some in found.items()
    }
    return amounts, {name: tuple(some) for name, some in found.items()}


def _resources(parts: Iterable[Table], name: str) -> tuple[str, ...]:
    """Return the resources of all parts, in order of first appearance."""
    return tuple(dict.fromkeys(resource for part in parts for resource in part.names(name)))


def same_amounts(one: Table, other: Table, name: str) -> bool:
    """Return whether two tables have the same amounts of all resources, in whatever order."""
    resources = _resources((one, other), name)
    return bool((amounts_of(one, name, resources) == amounts_of(other, name, resources)).all())


def no_more(one: Table, other: Table, name: str) -> bool:
    """Return whether one table has no more of any resource than another has, row by row."""
    resources = _resources((one, other), name)
    return bool((amounts_of(one, name, resources) <= amounts_of(other, name, resources)).all())


def _all_resources(parts: Sequence[Table], name: str) -> tuple[NDArray[np.int64], Names]:
    """Return the amounts of all parts, one after the other, and the resources that they name."""
    resources = _resources(parts, name)
    values = np.concatenate([amounts_of(part, name, resources) for part in parts])
    return cast("NDArray[np.int64]", read_only(values)), Names(resources)


def _one_table(parts: Sequence[Table], name: str) -> tuple[NDArray[np.int32], Names]:
    """Return the codes of one text column of all parts, and the table of names behind them.

    The first part's codes stay as they are: to add a few rows to many costs little.
    """
    first, names = parts[0].in_use(name)
    codes = [first]
    for part in parts[1:]:
        own, others = part.in_use(name)
        if others is not names and (own >= 0).any():
            names, place = names.with_others(others)
            own = place[own]
        codes.append(own)
    return cast("NDArray[np.int32]", read_only(np.concatenate(codes))), names


class Ragged(NamedTuple):
    """Row `i` is `values[offsets[i]:offsets[i + 1]]`."""

    offsets: NDArray[np.int64]
    """int64[n + 1], from 0, ascending."""
    values: NDArray[Any]

    @classmethod
    def of(cls, rows: Sequence[ArrayLike], kind: DTypeLike = np.int32) -> Self:
        """Return these rows, with values of one type."""
        parts = [np.asarray(row, kind) for row in rows]
        flat = np.concatenate(parts) if parts else np.empty(0, kind)
        return cls(offsets_of([len(part) for part in parts]), flat)

    @classmethod
    def counted(cls, lengths: ArrayLike) -> Self:
        """Return rows of these lengths with the values 0, 1, 2, ... each."""
        offsets = offsets_of(lengths)
        begins = np.repeat(offsets[:-1], offsets[1:] - offsets[:-1])
        return cls(offsets, np.arange(offsets[-1]) - begins)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Return int64[n]."""
        return self.offsets[1:] - self.offsets[:-1]

    def rows(self) -> NDArray[np.int64]:
        """Return int64[k]: the row that each value belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.lengths)

    def rows_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row that the value at each of these places in `values` belongs to."""
        return np.searchsorted(self.offsets, places, side="right") - 1

    def row(self, i: int) -> NDArray[Any]:
        """Return the values of one row."""
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def places(self, rows: NDArray[Any]) -> Self:
        """Return for some rows, in the given order, where in `values` theirs stand."""
        lengths = self.lengths[rows]
        offsets, within = self.counted(lengths)
        return self._replace(
            offsets=offsets, values=np.repeat(self.offsets[rows], lengths) + within
        )

    def runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the runs of neighbouring whole numbers among each row's values, int64[r] each.

        Their rows, their lowest values, and how many values there are in each.
        """
        row = self.rows()
        order = np.lexsort((self.values, row))
        row, value = row[order], self.values[order].astype(np.int64)
        begins = np.ones(len(value), np.bool_)
        begins[1:] = (np.diff(row) != 0) | (np.diff(value) != 1)
        at = np.flatnonzero(begins)
        return row[at], value[at], np.diff(np.append(at, len(value)))

    def take(self, rows: NDArray[Any]) -> Self:
        """Return some rows, in the given order."""
        offsets, places = self.places(rows)
        return self._replace(offsets=offsets, values=self.values[places])


def offsets_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return int64[n + 1]: where rows of these lengths begin and the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])

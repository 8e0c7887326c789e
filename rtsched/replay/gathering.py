"""Some rows of a table, with other columns in place of some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from rtsched.model.table import Table, Text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T", bound=Table)


def gathered(
    table: T,
    rows: NDArray[np.int64] | None,
    new: Mapping[str, Any] | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
    without: Collection[str] = (),
) -> T:
    """Return `rows` of a table (None: all) with other columns in place of some (None: no change).

    A column that holds one value throughout stays a single value, so it costs no memory.

    Parameters
    ----------
    table : Table
    rows : int64[k] or None
    new : mapping of str to array, optional
        Columns of `k` rows.
    names : mapping of str to sequence of str, optional
        The tables behind new columns.
    without : collection of str
        Columns to leave out.
    """
    columns: dict[str, Any] = {}
    for name, column in table.columns().items():
        values = (new or {}).get(name)
        if values is not None:
            columns[name] = values
        elif name not in without and (not isinstance(column, Text) or table.names(name)):
            old = table.column(name)
            single = len(old) > 0 and old.strides == (0,)
            columns[name] = old[0] if single else old if rows is None else old[rows]
    known = {name: table.names(name) for name in columns if table.names(name)}
    n = len(table) if rows is None else len(rows)
    return type(table).build(n, names=known | dict(names or {}), **columns)

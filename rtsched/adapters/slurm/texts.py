"""Columns of texts in which each different one is kept once, as dictionary encoding has it.

Of 100,000 jobs few accounts, states or requests differ: what a text means is worked out once for
all rows that have it, and rows are compared, taken and handed on as numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, DTypeLike, NDArray


class Vocabulary:
    """Different texts, and the number of each; it only grows."""

    __slots__ = ("_code_of", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._code_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def code(self, text: str) -> int:
        """Return the number of a text, which is added if it is new."""
        code = self._code_of.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code


class Texts:
    """One text per row.

    Parameters
    ----------
    codes : int32[n]
        The number of each in the vocabulary.
    vocabulary : Vocabulary
        The texts; other columns may share it.
    """

    __slots__ = ("codes", "vocabulary")

    def __init__(self, codes: NDArray[np.int32], vocabulary: Vocabulary) -> None:
        self.codes, self.vocabulary = codes, vocabulary

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Return a column of these texts."""
        vocabulary = Vocabulary()
        return cls(np.array([vocabulary.code(text) for text in texts], np.int32), vocabulary)

    @classmethod
    def alike(cls, text: str, count: int) -> Self:
        """Return a column of so many rows with one text."""
        vocabulary = Vocabulary()
        return cls(np.full(count, vocabulary.code(text), np.int32), vocabulary)

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Self:
        """Return the rows of some columns, of at least one, one after the other."""
        vocabulary = parts[0].vocabulary
        codes = [
            part.codes
            if part.vocabulary is vocabulary
            else np.array([vocabulary.code(text) for text in part], np.int32)
            for part in parts
        ]
        return cls(np.concatenate(codes), vocabulary)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return self.vocabulary.texts[int(self.codes[row])]

    def __setitem__(self, row: int, text: str) -> None:
        self.codes[row] = self.vocabulary.code(text)

    def __iter__(self) -> Iterator[str]:
        return map(self.vocabulary.texts.__getitem__, self.codes.tolist())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Texts | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Texts.of({list(self)!r})"

    def take(self, rows: ArrayLike) -> Texts:
        """Return some of the rows: int64[m], or a bool[n] mask."""
        return Texts(self.codes[np.asarray(rows)], self.vocabulary)

    def map(self, meaning: Callable[[str], Any], dtype: DTypeLike) -> NDArray[Any]:
        """Return what each text means, dtype[n]; each different one is looked at once."""
        used, place = self._used()
        texts = self.vocabulary.texts
        return np.array([meaning(texts[code]) for code in used], dtype)[place]

    def replaced(self, meaning: Callable[[str], str]) -> Texts:
        """Return a column of what each text means where that is a text too."""
        vocabulary = Vocabulary()
        codes = self.map(lambda text: vocabulary.code(meaning(text)), np.int32)
        return Texts(codes, vocabulary)

    def compact(self) -> Texts:
        """Return the same rows with a vocabulary of the texts that they have, in its order."""
        used, place = self._used()
        vocabulary = Vocabulary()
        for code in used:
            vocabulary.code(self.vocabulary.texts[code])
        return Texts(place.astype(np.int32), vocabulary)

    def encoded(self) -> tuple[NDArray[np.int32], list[str]]:
        """Return the rows as `Table.build` takes a text column: codes, and names.

        An empty text is -1, missing.
        """
        used, place = self._used()
        names = [self.vocabulary.texts[code] for code in used]
        codes = place.astype(np.int32)
        if "" in names:
            empty = names.index("")
            del names[empty]
            codes = np.where(codes == empty, -1, codes - (codes > empty)).astype(np.int32)
        return codes, names

    def _used(self) -> tuple[list[int], NDArray[np.int64]]:
        """Return the codes in use, in order, and which of these each row has, int64[n]."""
        is_used = np.zeros(len(self.vocabulary), np.bool_)
        is_used[self.codes] = True
        return np.flatnonzero(is_used).tolist(), (np.cumsum(is_used) - 1)[self.codes]


def pairwise(
    first: Texts, second: Texts, meaning: Callable[[str, str], Any], dtype: DTypeLike
) -> NDArray[Any]:
    """Return what the texts of two columns mean together, dtype[n]; each pair is looked at once.

    Where that are several numbers, dtype[n, k].
    """
    width = max(len(second.vocabulary), 1)
    keys = first.codes.astype(np.int64) * width + second.codes
    pairs, place = np.unique(keys, return_inverse=True)
    one, other = first.vocabulary.texts, second.vocabulary.texts
    return np.array([meaning(one[p // width], other[p % width]) for p in pairs.tolist()], dtype)[
        place
    ]

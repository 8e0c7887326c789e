"""Columns of texts behave as lists do."""

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.slurm.rows import Texts, pairwise

WORDS = st.lists(st.sampled_from(["", "a", "b", "cc", "d,e"]), max_size=8)


@given(WORDS, st.data())
def test_as_a_list(words: list[str], data: st.DataObject) -> None:
    """Rows are read, changed, taken and mapped as those of a list are."""
    texts = Texts.of(words)
    rows = data.draw(
        st.lists(st.sampled_from(range(len(words))), max_size=5) if words else st.just([])
    )
    some = texts.take(np.array(rows, np.int64))
    assert list(some) == [words[row] for row in rows]
    assert texts.map(len, np.int64).tolist() == [len(word) for word in words]
    assert some.map(len, np.int64).tolist() == [len(words[row]) for row in rows]
    assert list(some.replaced(str.upper)) == [words[row].upper() for row in rows]
    assert some == some.compact()
    assert set(some.compact().vocabulary.texts) == set(some)
    codes, names = some.encoded()
    assert [names[code] if code >= 0 else "" for code in codes.tolist()] == list(some)
    assert "" not in names
    if words:
        texts[0] = "new"
        assert list(texts) == ["new", *words[1:]]
    assert list(some) == [words[row] for row in rows], "a column that was taken is one of its own"


@given(st.lists(WORDS, min_size=1, max_size=3))
def test_one_after_the_other(parts: list[list[str]]) -> None:
    """Columns of different vocabularies, and of the same one, are joined."""
    columns = [Texts.of(words) for words in parts]
    assert list(Texts.joined([*columns, columns[0]])) == [*chain(*parts, parts[0])]


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "yy"]))))
def test_pairs(pairs: list[tuple[str, str]]) -> None:
    """Each pair is looked at once, and every row has what its own means."""
    first, second = (Texts.of(pair[at] for pair in pairs) for at in (0, 1))
    looked: list[tuple[str, str]] = []

    def meaning(one: str, other: str) -> int:
        looked.append((one, other))
        return len(one) + 10 * len(other)

    found = pairwise(first, second, meaning, np.int64)
    assert found.tolist() == [len(one) + 10 * len(other) for one, other in pairs]
    assert sorted(looked) == sorted(set(pairs))

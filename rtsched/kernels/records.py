"""Types of the records that compiled code and plain Python read alike."""

from __future__ import annotations

from typing import Any

import numpy as np


def record_type(*fields: tuple[str, str]) -> np.dtype[Any]:
    """Return an aligned record type whose rows have attributes.

    A field must not be named like an attribute of numpy's own records, such as `size`.
    """
    return np.dtype((np.record, np.dtype(list(fields), align=True)))

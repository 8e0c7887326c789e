"""Who somebody is."""

from __future__ import annotations

import pwd
from functools import lru_cache


@lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """Return the name of a user, the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

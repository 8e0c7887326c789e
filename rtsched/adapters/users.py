"""Users of this machine, by number and by name."""

from __future__ import annotations

import pwd
from functools import lru_cache


@lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """Return a user's name; the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError, ValueError):
        return str(uid)


def uid_of(name: str) -> int:
    """Return a user's number; -1 where there is no such user (yet)."""
    try:
        return _uid_of(name)
    except (KeyError, ValueError):
        return -1


@lru_cache(maxsize=4096)
def _uid_of(name: str) -> int:
    return pwd.getpwnam(name).pw_uid

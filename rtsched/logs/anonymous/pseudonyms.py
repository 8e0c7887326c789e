"""Pseudonyms for the names in a log, by a key that stays at the site, and the way back.

A pseudonym is a keyed hash (HMAC-SHA256) of a name: equal names get equal pseudonyms in all logs
that are written with one key, and without the key nobody can test a guess. A file beside the key
lists the names behind the pseudonyms.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rtsched.errors import InputError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_KEY = re.compile(rb"[0-9a-f]{64}")
_LETTERS = 8
"""Letters of a pseudonym; two names with the same ones are told apart."""
_NUMBERS = 999_999_999
_OTHERS = 0o077


class Name(NamedTuple):
    """A name of the site and what stands for it in a log for others."""

    kind: str
    pseudonym: str
    name: str


class Pseudonyms:
    """Stands in for names.

    Parameters
    ----------
    key : bytes
    known : iterable of Name, optional
        Pseudonyms that were given before with this key.
    kept : frozenset of str, optional
        Kinds, of `rtsched.logs.anonymous.pseudonyms.KEEPABLE`, whose names stay.

    Attributes
    ----------
    new : list of Name
        What is not among the known ones.
    """

    def __init__(
        self, key: bytes, known: Iterable[Name] = (), kept: frozenset[str] = frozenset()
    ) -> None:
        self._key, self.kept = key, kept
        self.new: list[Name] = []
        self._of: dict[tuple[str, str], str] = {}
        self._given: set[str] = set()
        self._used: set[tuple[str, str]] = set()
        for each in known:
            self._of[each.kind, each.name] = each.pseudonym
            self._given.add(each.pseudonym)

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name, such as `user-k4t2m7ab`; of no name none."""
        if not name or kind in self.kept:
            return name
        return self._known(kind, name) or self._add(kind, name, _in_letters)

    def number(self, kind: str, number: int) -> int:
        """Return the number that stands for another one, in a log that has no names."""
        name = str(number)
        return int(self._known(kind, name) or self._add(kind, name, _in_digits))

    def unlisted(self, kind: str, name: str) -> str:
        """Return a pseudonym without a way back."""
        return _in_letters(kind, self._hash(kind, name, 0))

    def counts(self) -> dict[str, int]:
        """Return how many names of each kind were replaced."""
        counts: dict[str, int] = {}
        for kind, _ in self._used:
            counts[kind] = counts.get(kind, 0) + 1
        return dict(sorted(counts.items()))

    def _known(self, kind: str, name: str) -> str:
        self._used.add((kind, name))
        return self._of.get((kind, name), "")

    def _add(self, kind: str, name: str, written: Callable[[str, bytes], str]) -> str:
        again = 0
        while (made := written(kind, self._hash(kind, name, again))) in self._given:
            again += 1
        self._of[kind, name] = made
        self._given.add(made)
        self.new.append(Name(kind, made, name))
        return made

    def _hash(self, kind: str, name: str, again: int) -> bytes:
        text = f"{kind}\0{again}\0{name}".encode("utf-8", "backslashreplace")
        return hmac.digest(self._key, text, "sha256")


def _in_letters(kind: str, hashed: bytes) -> str:
    return f"{kind}-{base64.b32encode(hashed)[:_LETTERS].decode().lower()}"


def _in_digits(_kind: str, hashed: bytes) -> str:
    return str(int.from_bytes(hashed[:8], "big") % _NUMBERS + 1)


class KeyFile:
    """The site's key, made when it is first needed, and beside it the list of names.

    Both are for their owner alone (mode 0600).

    Parameters
    ----------
    path : path
        The key. The list has `.names` behind that name.

    Raises
    ------
    InputError
        If a file cannot be read, is damaged, or others may read it.
    OutputError
        If the key cannot be made.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.names_path = Path(f"{self.path}.names")

    def key(self, *, make: bool) -> bytes:
        """Return the key; `make` it if there is none."""
        if make and not os.path.exists(self.path):  # false of a name that is too long, too
            self._append(self.path, f"{secrets.token_hex(32)}\n".encode(), new=True)
        text = _private_text(self.path).strip()
        if not _KEY.fullmatch(text):
            raise InputError(
                self.path, "this is not a key of rtsched (64 hexadecimal digits); name another file"
            )
        return bytes.fromhex(text.decode())

    def names(self, *, required: bool = False) -> list[Name]:
        """Return the names that were replaced before; the list may be missing if not `required`."""
        if not required and not os.path.exists(self.names_path):
            return []
        decoder, names = msgspec.json.Decoder(Name), []
        for line, text in enumerate(_private_text(self.names_path).splitlines(), 1):
            try:
                names.append(decoder.decode(text))
            except msgspec.MsgspecError as error:
                raise InputError(
                    self.names_path,
                    "the list of names is damaged here; remove the line, or restore the file",
                    line=line,
                ) from error
        return names

    def add(self, names: list[Name]) -> None:
        """Append to the list of names."""
        if names:
            text = b"".join(msgspec.json.encode(name) + b"\n" for name in names)
            self._append(self.names_path, text, new=False)

    def _append(self, path: Path, text: bytes, *, new: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | (os.O_EXCL if new else 0)
        try:
            with open(os.open(path, flags, 0o600), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(
                path, f"cannot be written ({error.strerror}); choose another with --key"
            ) from error


def _private_text(path: Path) -> bytes:
    """Return the text of a file that only its owner may read."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise InputError(path, f"others may read it; run `chmod 600 {path}`")
            return file.read()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror}); check --key") from error


KEEPABLE = ("partition", "qos", "feature", "gres", "license", "node")
"""Kinds that a site may keep: names of its machine, not of people."""

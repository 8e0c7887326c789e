"""Tokens as HTCondor makes them, which nobody signed."""

import base64
import json

NOW = 1_800_000_000.0
GOOD = {
    "sub": "alice@pool",
    "jti": "1f",
    "iat": NOW - 1,
    "exp": NOW + 59,
    "iss": "pool",
    "scope": "condor:/READ",
}
"""What a limited token says."""


def token(payload: object) -> str:
    """Return a token with this payload, bytes or an object of JSON."""
    text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return f"{_part(b'{}')}.{_part(text)}.{_part(b'signature')}"


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

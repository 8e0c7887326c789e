"""Credentials in a request's header: for that request, and no other."""

from __future__ import annotations

import hashlib

SCHEME = "Munge"
"""Of the header `Authorization: Munge CREDENTIAL`."""

CONDOR_SCHEME = "IDToken"
"""Of the header `Authorization: IDToken TOKEN`; a token of HTCondor's is for any one request."""

TTL_S = 60
"""Seconds for which credentials of our own client are valid."""

_FIRST = b"rtsched-rest 1"


def payload_for(method: str, target: bytes, body: bytes) -> bytes:
    """Return the payload of the credential for a request.

    Parameters
    ----------
    method : str
        Such as `GET`.
    target : bytes
        Path and query, as they stand in the request line.
    body : bytes
        Of the request; empty: none.

    Returns
    -------
    bytes
        Four lines: `rtsched-rest 1`, method, target, and the SHA-256 of the body in hexadecimal.
    """
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"\n".join((_FIRST, method.encode(), target, digest))

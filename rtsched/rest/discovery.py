"""Where the server is, as DNS says: the SRV records `_rtsched._tcp` of this host's domain.

Slurm finds its controller so too (`_slurmctld._tcp`). A record counts only if its target is in the
domain that was asked for: who forges an answer cannot name a host with a certificate of its own.

References
----------
RFC 2782 (SRV records: priority, weight, target). resolv.conf(5): `search`, `domain`.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dns.name import Name
    from dns.resolver import Resolver

SERVICE = "_rtsched._tcp"
LIMIT_S = 2.0
"""Seconds that all questions may take."""


@cache
def servers(file: str = "/etc/resolv.conf") -> str:
    """Return the URLs of the servers, separated by spaces, first come first; empty: none is found.

    Parameters
    ----------
    file : str
        Which name servers to ask, and for which domains: those of `search`, or of the host's name.
    """
    try:
        from dns.exception import DNSException
        from dns.resolver import Resolver
    except ImportError:
        return ""
    try:
        resolver = Resolver(file)
        return _found(resolver)
    except (DNSException, OSError, ValueError):
        return ""


def _found(resolver: Resolver) -> str:
    """Return what the first domain that has such records says."""
    from dns.exception import Timeout
    from dns.resolver import NXDOMAIN, NoAnswer, NoNameservers

    end = time.monotonic() + LIMIT_S
    for domain in resolver.search or [resolver.domain]:
        left = end - time.monotonic()
        if len(domain) < 2 or left <= 0:  # never the root
            continue
        try:
            answer = resolver.resolve(_name(domain), "SRV", lifetime=left, search=False)
        except (NXDOMAIN, NoAnswer, NoNameservers):
            continue
        except Timeout:
            return ""
        records = sorted(answer, key=lambda each: (each.priority, -each.weight))
        inside = [each for each in records if each.target.is_subdomain(domain)]
        if inside:
            return " ".join(
                f"https://{each.target.to_text(omit_final_dot=True)}:{each.port}" for each in inside
            )
    return ""


def _name(domain: Name) -> Name:
    from dns.name import from_text

    return from_text(SERVICE, domain)

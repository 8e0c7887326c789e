"""Who may use a partition: what Slurm refuses at submission, or accepts and never starts.

Sources: manual page slurm.conf; `_part_access_check` in src/slurmctld/job_mgr.c.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rtsched.adapters.users import groups_of
from rtsched.logs.hostlist import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rtsched.adapters.slurm.facts import Partition

_OPEN = {
    "RootOnly": "NO",
    "ReqResv": "NO",
    "DisableRootJobs": "NO",
    "AllocNodes": "ALL",
    "AllowGroups": "ALL",
    "AllowAccounts": "ALL",
    "DenyAccounts": "",
    "AllowQos": "ALL",
    "DenyQos": "",
}
"""Settings of a partition, and their values where all may use it."""

_IN_ANY_CASE = frozenset({"RootOnly", "ReqResv", "DisableRootJobs", "AllocNodes"})
"""Settings for which Slurm with EnforcePartLimits=ANY refuses a job that could use others, too."""


class Submitter(NamedTuple):
    """Who submits a job; what is not known is empty, and not checked.

    Attributes
    ----------
    uid, sender : int
        Of the job's user, and of who submits it.
    user : str
        The user's name.
    accounts : tuple of str
        The job's account and those above it.
    qos : str
        Its QOS.
    host : str
        Where it is submitted.
    """

    uid: int
    sender: int
    user: str
    accounts: tuple[str, ...] = ()
    qos: str = ""
    host: str = ""


def access_of(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a partition that keep somebody from it, by what Slurm says of it."""
    found = {name: pairs.get(name.lower(), otherwise) for name, otherwise in _OPEN.items()}
    return {name: text for name, text in found.items() if text.upper() != _OPEN[name]}


def refused_in_list(part: Partition, who: Submitter, enforced: str) -> str:
    """Return why Slurm refuses a user's job that names this partition among others; empty: not so.

    `enforced`: EnforcePartLimits.
    """
    if enforced == "NO":
        return ""
    counts = _IN_ANY_CASE if enforced == "ANY" else part.access.keys()
    access = {name: text for name, text in part.access.items() if name in counts}
    return no_access(replace(part, access=access), who)


def no_access(part: Partition, who: Submitter) -> str:
    """Return why a partition takes no job of a user; empty: it does."""
    accounts = {name.lower() for name in who.accounts}
    account, qos = who.accounts[0] if who.accounts else "", {who.qos.lower()} - {""}
    for setting, text in part.access.items():
        listed, allows = set(text.lower().split(",")), setting.startswith("Allow")
        if setting == "RootOnly" and who.sender:
            whose = "of users other than root"
        elif setting == "ReqResv":
            whose = "without a reservation, and no promise can be given to those with one"
        elif setting == "DisableRootJobs" and not who.uid:
            whose = "of root"
        elif setting == "AllocNodes" and who.host and who.host not in names_of(text):
            whose = f"submitted on {who.host}"
        elif setting == "AllowGroups" and who.uid and not _meets(groups_of(who.uid), text):
            whose = f"of user {who.user}"
        elif setting.endswith("Accounts") and accounts and allows == accounts.isdisjoint(listed):
            whose = f"of account {account}"
        elif setting.endswith("Qos") and qos and allows == qos.isdisjoint(listed):
            whose = f"of QOS {who.qos}"
        else:
            continue
        return f"partition {part.name} accepts no jobs {whose} ({setting}={text[:80]})"
    return ""


def _meets(own: Iterable[str], text: str) -> bool:
    return not own or not set(text.split(",")).isdisjoint(own)

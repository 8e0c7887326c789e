"""Partitions that not all users may use."""

import grp
import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rtsched.adapters import users
from rtsched.adapters.live import Submission, SubmitReply
from rtsched.adapters.slurm.access import Submitter, access_of, no_access
from rtsched.adapters.slurm.accounts import accounts_above, accounts_of
from rtsched.adapters.slurm.facts import Partition, SlurmFacts, partitions_of
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag

ANN = 1000
SHARES = "root||1|0\n science||1|0\n  physics||1|0\n   physics|ann|1|0\n chem||1|0\n"
OPEN = "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL RootOnly=NO ReqResv=NO"


@pytest.fixture(autouse=True)
def known_groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let ann be in the groups users and lab."""
    groups = {100: "users", 200: "lab"}

    def group(gid: int) -> Any:
        return SimpleNamespace(gr_name=groups[gid])

    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ann", pw_gid=100))
    monkeypatch.setattr(os, "getgrouplist", lambda _user, _gid: [100, 200, 300])
    monkeypatch.setattr(grp, "getgrgid", group)
    users.forget_users()
    yield
    users.forget_users()


def told(settings: str, **who: Any) -> str:
    """Return what ann reads about a partition with these settings."""
    given = {"accounts": ("physics", "science", "root"), "qos": "normal", "host": "login1"}
    shown, _ = partitions_of(f"PartitionName=p {settings}")
    part = Partition("p", access=access_of(shown["p"]))
    return no_access(part, Submitter(**{"uid": ANN, "sender": ANN, "user": "ann"} | given | who))


@pytest.mark.parametrize(
    ("settings", "whose"),
    [
        ("RootOnly=YES", "of users other than root"),
        ("ReqResv=YES", "without a reservation, and no promise can be given to those with one"),
        ("AllocNodes=login[2-3]", "submitted on login1"),
        ("AllowGroups=staff", "of user ann"),
        ("AllowAccounts=chem", "of account physics"),
        ("DenyAccounts=chem,science", "of account physics"),
        ("AllowQos=high", "of QOS normal"),
        ("DenyQos=low,Normal", "of QOS normal"),
    ],
)
def test_whom_a_partition_keeps_out(settings: str, whose: str) -> None:
    """The setting is named."""
    assert told(settings) == f"partition p accepts no jobs {whose} ({settings})"


@pytest.mark.parametrize(
    ("settings", "who"),
    [
        ("", {}),
        (OPEN, {}),
        ("DisableRootJobs=YES", {}),
        ("RootOnly=YES", {"sender": 0}),
        ("AllocNodes=login[1-3]", {}),
        ("AllocNodes=login2", {"host": ""}),
        ("AllowGroups=staff,lab", {}),
        ("AllowGroups=staff", {"uid": 0}),
        ("AllowAccounts=chem,Science", {}),
        ("AllowAccounts=chem", {"accounts": ()}),
        ("DenyAccounts=chem", {}),
        ("AllowQos=high,normal", {}),
        ("AllowQos=high", {"qos": ""}),
    ],
)
def test_whom_it_does_not_keep_out(settings: str, who: dict[str, Any]) -> None:
    """Nor whose account, QOS or host is not known."""
    assert told(settings, **who) == ""


def test_root() -> None:
    """Partitions may take no jobs of root."""
    said = "partition p accepts no jobs of root (DisableRootJobs=YES)"
    assert told("DisableRootJobs=YES", uid=0) == said


def test_a_submission() -> None:
    """Accounts count where Slurm enforces them, with those above; without a deadline nothing is."""
    above = accounts_above(accounts_of(SHARES)[0])
    assert above == {"science": "root", "physics": "science", "chem": "root"}

    def problem(allowed: str, *, enforced: bool = True, deadline: int = 2_000_000_000) -> str:
        part = Partition("p", 600.0, 600.0, nodes=1, access={"AllowAccounts": allowed})
        facts = SlurmFacts(partitions={"p": part}, default="p", home={"ann": "physics"})
        facts = replace(facts, above=above, enforced=enforced, users={ANN: "ann"})
        fields = {Tag.USER_ID: ANN, Tag.DEADLINE: deadline}
        return SlurmTranslator().describe(fields, facts, 1.9e9).problem

    assert "of account physics (AllowAccounts=chem)" in problem("chem")
    assert (
        problem("science") == problem("chem", enforced=False) == problem("chem", deadline=0) == ""
    )


def of_several(named: str, enforced: str) -> Submission:
    """Return a job of ann with a deadline that names partitions."""
    whole = Partition("all", 600.0, 600.0, nodes=1)
    parts = {
        "all": whole,
        "more": replace(whole, name="more"),
        "closed": replace(whole, name="closed", up=False),
        "short": replace(whole, name="short", longest_s=60.0),
        "booked": replace(whole, name="booked", access={"ReqResv": "YES"}),
        "chem": replace(whole, name="chem", access={"AllowAccounts": "chem"}),
    }
    facts = SlurmFacts(partitions=parts, default="all", home={"ann": "physics"}, enforced=True)
    facts = replace(facts, users={ANN: "ann"}, part_limits=enforced)
    fields: dict[int, str | int] = {Tag.USER_ID: ANN, Tag.DEADLINE: 2_000_000_000}
    fields |= {Tag.PARTITION: named, Tag.TIME_LIMIT: 5}
    return SlurmTranslator().describe(fields, facts, 1.9e9)


def told_of_several(named: str, enforced: str) -> tuple[str, Any]:
    """Return what ann reads who names partitions, and the list that a held job is given instead."""
    submission = of_several(named, enforced)
    given = SlurmTranslator().answer(submission, SubmitReply(False, "", deferred=True), None)
    return submission.problem, given.get(Tag.PARTITION)


@pytest.mark.parametrize(
    ("named", "enforced", "problem", "instead"),
    [
        ("all,chem", "NO", "", "all,chem"),
        ("chem,all", "NO", "", "all,chem"),
        ("chem,all", "ANY", "", "all,chem"),
        ("chem,closed,all,short", "ANY", "", "all,chem,closed,short"),
        ("all,chem", "ALL", "of account physics", None),
        ("booked,all", "NO", "", "all,booked"),
        ("all,booked", "ANY", "without a reservation", None),
        ("closed,all", "ALL", "", "all,closed"),
        ("all,short", "ANY", "", "all,short"),
        ("all", "ANY", "", None),
        ("all,short", "ALL", "its time limit exceeds the 1 min of partition short", None),
        ("chem,booked", "NO", "of account physics", None),
        ("closed,short", "NO", "partition closed is not starting jobs now", None),
        ("all,none", "NO", "there is no partition 'none'", None),
    ],
)
def test_several_partitions(named: str, enforced: str, problem: str, instead: str | None) -> None:
    """The job is planned in the first that it may use, where Slurm accepts the others with it."""
    said, given = told_of_several(named, enforced)
    assert problem in said
    assert bool(said) == bool(problem)
    assert said or given == instead


def test_a_promised_job_runs_in_the_partition_that_it_is_planned_in() -> None:
    """So no plan of another one is in its way; the list stays in its admin comment."""
    first = of_several("chem,more,all", "NO")
    assert [one.jobs.texts("partition") for one in (first, *first.elsewhere)] == [["more"], ["all"]]
    for one, name in ((first, "more"), (first.elsewhere[0], "all")):
        given = SlurmTranslator().answer(one, SubmitReply(False, "", False, "t1"), None)
        assert given[Tag.PARTITION] == name
        assert given[Tag.ADMIN_COMMENT] == "rtsched:t1 --partition=chem,more,all"
    likely = SubmitReply(False, "", False, "t1", likely=True)
    assert SlurmTranslator().answer(first, likely, None)[Tag.PARTITION] == "more,chem,all"
    assert not of_several("chem,all", "NO").elsewhere

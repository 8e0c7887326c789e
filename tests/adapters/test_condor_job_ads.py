"""The ads of procs from poll to poll: equal ones are read once, and known ones not again."""

import math
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from condor_views import read_ads

from rtsched.adapters.condor import job_ads
from rtsched.adapters.condor.job_ads import AdReader, ProcAds, TextReader
from rtsched.adapters.condor.schedd import Bindings, Schedd
from rtsched.logs.classads import Expression, Record

classad2 = pytest.importorskip("classad2")


class Given(Schedd):
    """A schedd that hands over the ads that it is given, written in the new syntax."""

    def __init__(self, *ads: str) -> None:
        super().__init__(Bindings(20.0))
        self.ads = list(ads)

    def _job_ads(self, constraint: str, attributes: Sequence[str]) -> list[Any]:
        return [classad2.ClassAd(ad) for ad in self.ads]


def test_procs_that_differ_in_their_numbers_only_are_read_once() -> None:
    """So are those that were read before; the time of the answer tells them apart as little."""
    pool = Given(*(f'[A = "x"; ProcId = {proc}; ServerTime = {7 + proc}]' for proc in range(3)))
    first = pool.procs("true", (), {})
    assert first.proc == [0, 1, 2]
    assert list(first.new.values()) == [{"a": "x"}]
    texts = TextReader()
    before = texts.read(first)
    pool.ads = ['[A = "x"; ProcId = 9; ServerTime = 99]', '[A = "y"; ProcId = 4]']
    second = pool.procs("true", (), texts.known)
    assert second.proc == [9, 4]
    assert list(second.new.values()) == [{"a": "y"}]
    assert texts.read(second)[0] is before[0]
    assert list(texts.known.values()) == [{"a": "x"}, {"a": "y"}]


@pytest.mark.parametrize(
    ("ad", "proc", "record"),
    [
        ("[procid = 3; A = 1]", 3, {"a": 1}),
        ('[ProcId = "3"; A = 1]', -1, {"a": 1}),
        ("[A = 1]", -1, {"a": 1}),
        ('[A = "x\\n  \\"ProcId\\": 5,\\n"; ProcId = 3]', 3, {"a": 'x\n  "ProcId": 5,\n'}),
        ('[A = "\\377"; B = 2; ProcId = 3]', 3, {"b": 2}),
        ("[A = 1 + b; ProcId = 3]", 3, {"a": Expression("1 + b")}),
        ('[A = "/Expr(1 + b)/"; ProcId = 3]', 3, {"a": "/Expr(1 + b)/"}),
        ("[RequestCpus = 1 + 1; ProcId = 3]", 3, {"requestcpus": 2}),
    ],
)
def test_odd_ads(ad: str, proc: int, record: Record) -> None:
    """Whatever users write, a number is that of the proc, and different ads have other texts."""
    found = Given(ad).procs("true", (), {})
    assert found.proc == [proc]
    assert list(found.new.values()) == [record]
    assert type(record.get("a")) is type(next(iter(found.new.values())).get("a"))


def test_texts_tell_expressions_and_types_apart() -> None:
    """`"1"`, 1, 1.0 and true are four values, a text is no expression."""
    words = ('"1 + b"', "1 + b", '"1"', "1", "1.0", "true", '"/Expr(1 + b)/"')
    found = Given(*(f"[ProcId = 0; A = {word}]" for word in words)).procs("true", (), {})
    assert len(set(found.text)) == len(words)
    records: list[Record] = [{"a": "1"}, {"a": Expression("1")}, {"a": 1}, {"a": 1.0}, {"a": True}]
    assert len(set(ProcAds.of(records).text)) == len(records)


def test_what_ads_mean_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three procs of one ad and one of another are two readings, and none at the next poll."""
    worked_out: list[int] = []
    real = job_ads.ads_of
    monkeypatch.setattr(job_ads, "ads_of", lambda ads: worked_out.append(len(ads)) or real(ads))
    one: Record = {"clusterid": 7, "requestcpus": 2, "owner": "ann", "user": "ann@pool"}
    other: Record = one | {"rtruntime": 60}
    reader = AdReader()
    for records in ([one, one, other, one], [other, one], [one]):
        reader.jobs(range(len(records)), records)
    assert worked_out == [0, 2, 0, 0]
    jobs = reader.jobs([5, 6], [one, {"clusterid": 8}])
    assert jobs.ads.cluster[jobs.kind].tolist() == [7, 8]
    assert jobs.whole(0) == one | {"procid": 5}
    assert worked_out == [0, 2, 0, 0, 1]


def test_details_of_equal_procs_make_one_ad() -> None:
    """It is the same object at the next poll; what the ad itself has stays."""
    ad: Record = {"clusterid": 7, "qdate": 1}
    more: Record = {"clusterid": 7, "qdate": 2, "environment": "A=1"}
    reader = AdReader()
    first, second = [ad, ad, ad], [ad, ad]
    reader.merge(first, {0: more, 2: more})
    reader.merge(second, {1: more})
    assert first == [ad | {"environment": "A=1"}, ad, ad | {"environment": "A=1"}]
    assert first[0] is first[2] is second[1]
    reader.merge(second[:1], {0: dict(more)})
    assert second[0] is ad


def test_another_process_reads_anew() -> None:
    """Objects are told apart by identity, which means nothing there."""
    reader = AdReader()
    reader.jobs([0], [{"clusterid": 7}])
    there = pickle.loads(pickle.dumps(reader))  # noqa: S301 - our own
    jobs = there.jobs([1], [{"clusterid": 8}])
    assert jobs.ads.cluster.tolist() == [8]


def test_texts_are_those_of_requests() -> None:
    """The library writes a control character as a blank; else an account would seem to change."""
    ads = read_ads([{"clusterid": 1, "procid": 0, "acctgroup": "tab\there\x07\u00fc"}]).ads
    assert ads.texts("account") == ["tab here \u00fc"]


def test_what_a_site_adds_is_no_part_of_an_ad() -> None:
    """Its default run time, and the pool's domain, may change between two polls."""
    ads = read_ads([{"clusterid": 1, "procid": 0, "owner": "ann"}]).ads
    assert math.isnan(ads.run_time[0])
    assert ads.texts("submitter") == ["ann"]

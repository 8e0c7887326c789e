"""What is the same on Slurm and HTCondor: each class is tested by a module of either system.

The module has the fixture `live`; its class says what differs.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from promised_pool import LivePool
from promising import BOUND, UNPROMISED, Live, Reply, lost_and_invented
from testbed.waiting import attempts, eventually

HOUR = 3600.0


@contextmanager
def stream(live: Live | LivePool) -> Iterator[list[Reply]]:
    """Submit jobs with deadlines meanwhile; give what was said."""
    stop, replies = threading.Event(), list[Reply]()

    def submit() -> None:
        while not stop.is_set():
            replies.append(live.wish(4 * HOUR, seconds=0.5))
            time.sleep(0.05)

    client = threading.Thread(target=submit)
    client.start()
    try:
        yield replies
    finally:
        time.sleep(0.5)
        stop.set()
        client.join()


def settled(live: Live | LivePool) -> None:
    """Wait until no promise is provisional."""
    eventually(lambda: all(each.state != "provisional" for each in live.kept()), 25)


class Faults:
    """What may fail: no promise is lost, none is invented, and nobody waits at the prompt."""

    kills = 10
    unbroken: tuple[str, ...] = ("firm", "kept")
    """States that a promise may have after a fault that was firm before."""

    def waiting(self, live: Live | LivePool) -> int:
        """Return a promised job that waits for others to end."""
        return self.promised(live)[-1]

    def promised(self, live: Live | LivePool) -> list[int]:
        """Return promised jobs, of which the last waits for others to end."""
        raise NotImplementedError

    def first(self, live: Live | LivePool) -> int:
        """Return a promised job."""
        return self.waiting(live)

    def test_killed_in_the_middle_of_a_stream(self, live: Live | LivePool) -> None:
        """The daemon is killed while jobs come: what was promised stands, and no more."""
        before = {each.token for each in live.kept()}
        with stream(live) as replies:
            for number in range(self.kills):
                live.wait_promise()
                time.sleep(0.4 * number / self.kills)
                live.box.kill_daemon()
                live.box.start_daemon()
        settled(live)
        assert lost_and_invented(live, replies, before) == []
        assert sum(each.promised for each in replies) >= self.kills
        assert all(each.job for each in replies)
        assert live.slowest(replies) < BOUND

    @pytest.mark.parametrize("point", ["committed", "answered"])
    def test_killed_at_the_worst_moment(self, live: Live | LivePool, point: str) -> None:
        """It dies with the promise on the disk: before its user is told, or the job is seen.

        A promise that nobody was told of lapses; one that its user has read is there afterwards.
        """
        live.box.stop_daemon()
        live.box.start_daemon(env={"RTSCHED_FAILPOINT": point})
        reply = live.wish(HOUR, limit=120, seconds=40)
        eventually(lambda: not live.box.services.alive("rtsched"))
        assert reply.promised == (point == "answered")
        live.box.start_daemon()
        settled(live)
        assert live.state(reply.job) == ("firm" if reply.promised else "")
        assert lost_and_invented(live, [reply]) == []
        if not reply.promised:
            assert "without a promise" in reply.text
            assert any(each.why == "the job never appeared" for each in live.kept())
        assert live.slowest([reply]) < BOUND

    def test_a_stopped_daemon_stalls_nobody(self, live: Live | LivePool) -> None:
        """Stopped, it costs each question some patience; going on, it invents no promise."""
        first = self.first(live)
        live.box.services.signal("rtsched", "STOP")
        replies = []
        for _ in range(20):
            replies.append(live.wish(HOUR))
            assert live.takes(*live.LOOK) < BOUND
        many = live.wish(HOUR, live.several(50))
        live.box.services.signal("rtsched", "CONT")
        assert all(UNPROMISED in each.text for each in (*replies, many))
        assert live.slowest([*replies, many]) < BOUND
        eventually(lambda: live.wish(HOUR).promised)
        settled(live)
        assert live.state(first) in self.unbroken
        assert lost_and_invented(live, replies) == []

    @pytest.mark.parametrize("signal", ["KILL", "STOP"])
    def process_that_polls_fails(self, live: Live | LivePool, signal: str) -> None:
        """Killed or hung, it is replaced; meanwhile submissions are judged from memory."""
        first = self.first(live)
        live.box.run(["kill", f"-{signal}", str(live.child())])
        reply = live.wish(HOUR)
        assert reply.promised
        live.wait_state(reply.job, *self.unbroken, seconds=30)
        assert live.state(first) in self.unbroken
        assert live.slowest() < BOUND

    def test_a_full_disk(self, live: Live | LivePool) -> None:
        """Where a promise cannot be written down none is given; with room it works again."""
        box, place = live.box, "/var/lib/rtsched"
        box.stop_daemon()
        box.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700,uid=rtsched", "tmpfs", place])
        try:
            box.start_daemon()
            first = self.first(live)
            box.run(["dd", "if=/dev/zero", f"of={place}/fill", "bs=4k"], check=False)
            replies = [live.wish(HOUR) for _ in range(60)]
            assert any(UNPROMISED in each.text for each in replies)
            assert live.slowest(replies) < BOUND
            assert box.services.alive("rtsched")
            assert live.ask("status")["promises"]
            box.run(["rm", f"{place}/fill"])
            eventually(lambda: live.wish(HOUR).promised)
            settled(live)
            assert live.state(first) in self.unbroken
            assert lost_and_invented(live, replies) == []
        finally:
            live.cancel_all()
            box.stop_daemon()
            box.run(["umount", place])

    def test_a_clock_that_steps(self, live: Live | LivePool) -> None:
        """An hour forth and back breaks no promise that has more than an hour left."""
        live.box.stop_daemon()
        live.box.start_daemon(stepping=True)
        try:
            jobs = self.promised(live)
            for step in (3600.0, 0.0, -3600.0, 0.0):
                live.box.step_clock(step)
                live.wait_clock(step)
                live.polled()
                assert {live.state(job) for job in jobs} <= {"firm", "kept"}
                assert live.box.services.alive("rtsched")
            assert eventually(lambda: live.wish(3 * HOUR, seconds=1).promised)
            live.wait_state(jobs[-1], "kept", seconds=90)
        finally:
            live.box.stop_daemon()


NO_ESTIMATE = "no odds can be stated"


class Likely:
    """Promises with odds: accepted, rejected with odds and a later deadline, kept."""

    nodes, width, soon = 6, 1, 60.0
    """How many there are, on how many a job runs, and in how many seconds it cannot end."""
    rejected = ""
    """What stands before the reason of a rejection."""
    choices = frozenset(("likely-later", "later"))
    """Kinds of which one is among the choices of a rejected job."""

    def wish(self, live: Live | LivePool, due: float, *more: str, **options: Any) -> Reply:
        """Submit a job that asks for odds, as soon as there are estimates."""
        for _ in attempts(60, "starts are estimated"):
            reply = live.wish(due, live.odds(95), *more, **options)
            if NO_ESTIMATE not in reply.text:
                return reply
            time.sleep(0.5)
        raise AssertionError(reply.text)

    def promise(self, live: Live | LivePool, job: int) -> dict[str, Any]:
        """Return what its user is shown of a promise."""
        return dict(live.ask("explain", live.name(job), "--live")["promise"])

    def check_plain(self, live: Live | LivePool, job: int) -> None:
        """Check that a job waits as any other."""
        raise NotImplementedError

    def check_counts(self, standings: dict[str, int]) -> None:
        """Check how the promises are counted after the first one was kept."""
        assert standings["likely kept"] >= 1
        assert "kept" not in standings

    def test_accepted_when_the_queue_is_short_and_kept(self, live: Live | LivePool) -> None:
        """The user reads odds; nothing is planned or kept free; it starts as any other."""
        reply = self.wish(live, 4 * HOUR, seconds=5)
        assert reply.job, reply.text
        odds = re.search(r"likely to end by [\d: -]+ \+0000: odds (\d[\d.]*) %", reply.text)
        assert odds, reply.text
        assert "not guaranteed" in reply.text
        assert 95 <= float(odds[1]) < 100
        assert not live.planned()
        assert not live.kept_free()
        self.check_plain(live, reply.job)
        live.wait_state(reply.job, "kept", seconds=90)
        shown = self.promise(live, reply.job)
        assert (shown["standing"], shown["odds"] >= 0.95) == ("kept", True)
        self.check_counts(live.ask("status")["standings"])

    def test_rejected_with_odds_and_a_later_deadline_when_the_queue_is_long(
        self, live: Live | LivePool
    ) -> None:
        """Beside a guaranteed promise, which stays as it is."""
        guaranteed = live.fulfilled(1.5 * HOUR, seconds=5)
        live.occupy(3 * self.nodes, 1200, limit=1200)
        before = live.ask("plan", user="root")["entries"]
        for _ in attempts(60, "the estimates know the queue"):
            refused = self.wish(live, self.soon, nodes=self.width)
            if not refused.job:
                break
            live.remove(refused.job)
        reason = r"odds of ending by this deadline are \d[\d.]* %, 95 % were"
        assert re.search(self.rejected + reason, refused.text)
        later = re.search(
            r"With odds of [\d.]+ %: .* \((?:--deadline=uts|\+RtDeadline=)(\d+)\), not res",
            refused.text,
        )
        assert later, refused.text
        assert float(later[1]) > time.time() + self.soon
        entries = live.ask("plan", user="root")["entries"]
        after = [entry for entry in entries if entry["standing"] != "offered"]
        assert {entry["job"] for entry in after} <= {entry["job"] for entry in before}
        assert live.state(guaranteed) in {"firm", "kept"}
        menu = live.ask("take")["choices"]
        assert {each["kind"] for each in menu} & self.choices
        assert all(each["odds"] is None or not each["held"] for each in menu)

    def test_a_guaranteed_promise_is_untouched(self, live: Live | LivePool) -> None:
        """Its start, nodes and deadline are the same before and after likely ones were sold."""
        live.occupy(self.nodes, 50)
        guaranteed = live.fulfilled(1200, seconds=1)
        live.polled()
        before = live.planned()
        assert [entry[0] for entry in before] == [live.name(guaranteed)]
        likely = [self.wish(live, 4 * HOUR, seconds=5) for _ in range(3)]
        assert all(reply.job for reply in likely), likely
        live.polled()
        assert live.planned() == before
        for job in (guaranteed, *(reply.job for reply in likely)):
            live.wait_state(job, "kept", seconds=150)

    def test_it_survives_a_restart_and_can_be_cancelled(self, live: Live | LivePool) -> None:
        """The daemon that comes back knows it; the user gives it up, and the job goes on."""
        job = self.wish(live, 4 * HOUR, limit=180, seconds=150).job
        live.wait_state(job, "firm")
        odds = self.promise(live, job)["odds"]
        live.box.stop_daemon()
        live.box.start_daemon()
        eventually(lambda: live.daemon_time() > 0, 30, "the daemon answers")
        promise = self.promise(live, job)
        assert (promise["standing"], promise["odds"]) == ("firm", odds)
        known = eventually(
            lambda: float(self.promise(live, job)["odds_now"] or 0.0), 60, "odds are estimated"
        )
        assert 0.5 * odds < known < 1.0
        live.box.run(["rtsched", "cancel", live.name(job)], user="alice")
        assert live.state(job) == "withdrawn"
        assert live.status(job) in {"running", "idle"}

    def test_what_cannot_have_odds_is_rejected_in_a_sentence(self, live: Live | LivePool) -> None:
        """Odds too low, odds that are none, and an array."""
        low = live.wish(540, live.odds(50))
        assert "the lowest here are 80 %" in low.text
        array = self.wish(live, 540, live.several(4))
        assert "an array or a divisible load gets no promise with odds" in array.text
        wrong = live.wish(540, live.odds(200))
        assert "must be a percentage above 0 and below 100" in wrong.text


class When:
    """Estimates of starts: jobs of known run times start within their intervals."""

    slots, slack = 4, 15.0
    """How many there are, and seconds by which jobs start after they could."""
    asked = ("-t", "5")
    """What is asked of a job that is not submitted."""

    def known(self, live: Live | LivePool, count: int) -> list[int]:
        """Submit jobs of which users' past says how long they run, though they may run longer."""
        raise NotImplementedError

    def running(self, live: Live | LivePool, jobs: list[int]) -> None:
        """Wait until as many jobs run as there are slots."""

        def full() -> bool:
            return sum(live.status(job) != "idle" for job in jobs) >= self.slots

        eventually(full, 60, "jobs run")

    def test_starts_lie_within_their_intervals(self, live: Live | LivePool) -> None:
        """Twelve jobs wait behind four; what was estimated of each at first comes true."""
        for job in self.known(live, 8):
            live.wait_status(job, "completed", seconds=120)
        live.box.stop_daemon()  # its process of estimates reads the past when it starts
        live.box.start_daemon()
        eventually(lambda: live.ask("when", user="root")["past"] >= 8, 60, "the past is read")
        live.wait_usable(self.slots)
        jobs = self.known(live, 4 * self.slots)
        self.running(live, jobs)
        live.polled()
        found = estimates(live, jobs[self.slots :])
        seen = {job: each for job, each in found.items() if each["basis"] == "estimate"}
        outside = []
        for job, each in seen.items():
            live.wait_status(job, "completed", seconds=180)
            start, low, high = live.began(job), each["start_low_95"], each["start_high_95"]
            if start < low - self.slack or (high is not None and start > high + self.slack):
                outside.append((job, start - low, None if high is None else high - low))
        assert len(outside) <= 1, outside  # one in twenty may
        assert len(seen) >= 8

    def test_a_job_that_is_not_submitted(self, live: Live | LivePool) -> None:
        """Behind a full machine it starts later than now; others' jobs are not shown."""
        jobs = self.known(live, 12)
        self.running(live, jobs)
        estimates(live, jobs[self.slots :])

        def answered() -> dict[str, Any]:
            (found,) = live.ask("when", *self.asked)["jobs"]
            return dict(found) if found["basis"] == "estimate" else {}

        found = eventually(answered, 60, "a job that is not submitted is estimated")
        assert found["state"] == "unsubmitted"
        assert found["start"] is None or found["start"] > live.daemon_time() - 5
        last = live.name(jobs[-1])
        assert live.command("rtsched", "when", last).startswith("2 ")  # it is bob's
        assert live.command("rtsched", "when", last, user="bob").startswith(f"0 job {last} starts")

    def test_a_killed_process_comes_back(self, live: Live | LivePool) -> None:
        """Submissions are not held up; estimates go on, and the log has a sentence."""
        estimates(live, self.known(live, 8))
        killed = eventually(lambda: live.child(estimates=True))
        live.box.run(["kill", "-KILL", str(killed)])
        reply = live.wish(HOUR, seconds=1)
        assert reply.promised, reply.text
        since = live.daemon_time()
        eventually(
            lambda: (live.ask("when", user="root")["estimated"] or 0.0) > since,
            90,
            "starts are estimated again",
        )
        assert live.child(estimates=True) not in {0, killed}
        assert "not_estimated" in live.box.services.log_tail("rtsched", 2000)
        assert live.slowest() < BOUND


def estimates(live: Live | LivePool, jobs: list[int]) -> dict[int, dict[str, Any]]:
    """Wait until all jobs are estimated; return how, all of one time."""
    since = live.daemon_time()

    def found() -> dict[int, dict[str, Any]]:
        report = live.ask("when", user="root")
        if (report["estimated"] or 0.0) < since:
            return {}
        rows = {each["job"]: each for each in report["jobs"]}
        known = {job: rows.get(live.name(job), {"basis": "running"}) for job in jobs}
        return {} if any(each["basis"] == "none" for each in known.values()) else known

    return dict(eventually(found, 120, "all jobs are estimated"))

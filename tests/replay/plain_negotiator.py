"""HTCondor's negotiation loop once more, as plainly as it can be written: every cycle is made."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

WIDE = "DedicatedScheduler"


class Ask(NamedTuple):
    """A job: submission, run time, CPUs, user, the user's own priority, memory per CPU."""

    submit: float
    run: float
    size: int = 1
    user: str = "a"
    priority: int = 0
    memory: float = 0.0


class Rules(NamedTuple):
    """Settings of the loop."""

    interval: float = 60.0
    delay: float = 20.0
    half_life: float = 86400.0
    worklife: float = 1200.0
    factors: dict[str, float] = {}  # noqa: RUF012 - read only


@dataclass
class Cpu:
    """One CPU of a slot; who claims it, since when, with which memory, and what runs there."""

    slot: int
    owner: str | None = None
    payer: str = ""
    since: float = 0.0
    memory: float = 0.0
    job: int | None = None


@dataclass
class Plain:
    """A pool of slots, given as CPUs and memory each, best slot first."""

    jobs: list[Ask]
    slots: list[tuple[int, float]]
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        """Begin with unclaimed CPUs and users of the best priority."""
        self.cpus = [Cpu(slot) for slot, (count, _) in enumerate(self.slots) for _ in range(count)]
        self.start = [math.nan] * len(self.jobs)
        self.on: list[list[int]] = [[] for _ in self.jobs]
        self.waiting: list[int] = []
        self.real: dict[str, float] = {}
        self.at: dict[str, float] = {}
        self.now = 0.0

    def run(self) -> list[float]:
        """Return when each job starts, nan if it never does."""
        left = sorted(range(len(self.jobs)), key=lambda row: (self.jobs[row].submit, row))
        last, asked, idle = -self.rules.interval, False, 0
        while left or self.running() or (self.waiting and idle < 3):
            due = last + self.rules.interval
            if asked:
                due = min(due, max(self.now, last + self.rules.delay))
            ends = [self.end(row) for row in self.running()]
            self.now = min([due, *ends, *(self.jobs[row].submit for row in left[:1])])
            over = sorted((self.end(row), row) for row in self.running())
            vacated = [self.stop(row) for end, row in over if end <= self.now]
            while left and self.jobs[left[0]].submit <= self.now:
                self.waiting.append(left.pop(0))
                asked = True
            self.hand_on(vacated)
            self.start_wide()
            due = min(last + self.rules.interval, last + self.rules.delay if asked else math.inf)
            if due <= self.now:
                idle = 0 if self.cycle() or left or self.running() else idle + 1
                last, asked = self.now, False
        return self.start

    def running(self) -> list[int]:
        """Return the jobs that run."""
        return sorted({cpu.job for cpu in self.cpus if cpu.job is not None})

    def end(self, row: int) -> float:
        """Return when a job that has started ends."""
        return self.start[row] + self.jobs[row].run

    def is_wide(self, row: int) -> bool:
        """Return whether a job has more CPUs than any slot."""
        return self.jobs[row].size > max(count for count, _ in self.slots)

    def owner(self, row: int) -> str:
        """Return the submitter of a job."""
        return WIDE if self.is_wide(row) else self.jobs[row].user

    def queue(self, who: str) -> list[int]:
        """Return whose jobs wait, in the order in which they are considered."""
        mine = [row for row in self.waiting if self.owner(row) == who]
        return sorted(mine, key=lambda row: (-self.jobs[row].priority, row))

    def used(self, who: str) -> int:
        """Return how many CPUs a user pays for."""
        return sum(cpu.owner is not None and cpu.payer == who for cpu in self.cpus)

    def age(self, who: str) -> float:
        """Return a user's real priority now, after bringing it up to date."""
        beta = 0.5 ** ((self.now - self.at.get(who, 0.0)) / self.rules.half_life)
        real = beta * self.real.get(who, 0.5) + (1 - beta) * self.used(who)
        self.real[who], self.at[who] = max(0.5, real), self.now
        return self.real[who]

    def claim(self, cpu: Cpu, row: int) -> None:
        """Give a CPU to the owner of a job."""
        self.age(self.jobs[row].user)
        cpu.owner, cpu.since, cpu.memory = self.owner(row), self.now, self.jobs[row].memory
        cpu.payer = self.jobs[row].user

    def give_up(self, cpu: Cpu) -> None:
        """Take a CPU away from its owner."""
        self.age(cpu.payer)
        cpu.owner = None

    def begin(self, row: int, chosen: list[int]) -> None:
        """Start a waiting job on these CPUs."""
        for k in chosen:
            if self.cpus[k].owner is None:
                self.claim(self.cpus[k], row)
            for user in (self.cpus[k].payer, self.jobs[row].user):
                self.age(user)
            self.cpus[k].job, self.cpus[k].payer = row, self.jobs[row].user
        self.waiting.remove(row)
        self.start[row], self.on[row] = self.now, chosen

    def stop(self, row: int) -> list[int]:
        """End a job and return its CPUs, which stay claimed."""
        for k in self.on[row]:
            self.cpus[k].job = None
        return self.on[row]

    def hand_on(self, vacated: list[list[int]]) -> None:
        """Give each vacated claim to the user's next job that it suits, or give it up."""
        for chosen in vacated:
            claims = [self.cpus[k] for k in chosen]
            who, since = claims[0].owner, claims[0].since
            assert who is not None
            lives = self.rules.worklife < 0 or self.now - since < self.rules.worklife
            if who == WIDE and lives:
                continue
            least = min(cpu.memory for cpu in claims)
            fitting = [
                row
                for row in self.queue(who)
                if lives and self.jobs[row].size == len(chosen) and self.jobs[row].memory <= least
            ]
            if fitting:
                self.begin(fitting[0], chosen)
            else:
                for cpu in claims:
                    self.give_up(cpu)

    def held(self) -> list[int]:
        """Return the CPUs held for wide jobs."""
        return [k for k, cpu in enumerate(self.cpus) if cpu.owner == WIDE and cpu.job is None]

    def first_wide(self) -> int | None:
        """Return the first wide job that the machine is large enough for."""
        for row in self.queue(WIDE):
            each = self.jobs[row].memory
            room = [min(n, memory // each) if each else n for n, memory in self.slots]
            if self.jobs[row].size <= sum(room):
                return row
        return None

    def drop_useless(self) -> None:
        """Give up held CPUs that the first wide job cannot use."""
        row = self.first_wide()
        for k in self.held():
            if row is None or self.cpus[k].memory < self.jobs[row].memory:
                self.give_up(self.cpus[k])

    def start_wide(self) -> None:
        """Start wide jobs for which enough is held."""
        while (row := self.first_wide()) is not None:
            if len(self.held()) < self.jobs[row].size:
                return
            self.drop_useless()
            if len(self.held()) < self.jobs[row].size:
                return
            self.begin(row, self.held()[: self.jobs[row].size])
        self.drop_useless()

    def find(self, row: int, size: int) -> list[int] | None:
        """Return CPUs of the first slot that has room for a job, or for one CPU of a wide one."""
        for slot, (_, memory) in enumerate(self.slots):
            mine = [k for k, cpu in enumerate(self.cpus) if cpu.slot == slot]
            free = [k for k in mine if self.cpus[k].owner is None]
            taken = sum(self.cpus[k].memory for k in mine if self.cpus[k].owner is not None)
            if len(free) >= size and memory - taken >= size * self.jobs[row].memory:
                return free[:size]
        return None

    def cycle(self) -> bool:
        """Make a negotiation cycle; return whether it claimed anything."""
        self.drop_useless()
        self.dealt = 0
        before = sum(cpu.owner is not None for cpu in self.cpus)
        begun = len(self.waiting)
        names = sorted({self.owner(row) for row in self.waiting})
        factors = self.rules.factors
        effective = {who: self.age(who) * factors.get(who, 1000.0) for who in names}
        active = sorted(names, key=lambda who: effective[who])
        first = True
        while active:
            worst = max(effective[who] for who in active)
            parts = sum(worst / effective[who] for who in active)
            limits = {
                who: max(
                    0.0,
                    worst / (effective[who] * parts) * len(self.cpus)
                    - (self.dealt if who == WIDE else self.used(who)),
                )
                for who in active
            }
            pie, progress = sum(limits.values()), False
            for who in list(active):
                limit = min(limits[who], pie)
                if limit <= 0 or (not first and limit + 1e-9 < 1):
                    continue
                taken, done = self.serve_wide(limit) if who == WIDE else self.serve(who, limit)
                pie -= taken
                progress = progress or taken > 0 or done
                if done:
                    active.remove(who)
            first = False
            if not progress:
                break
        after = sum(cpu.owner is not None for cpu in self.cpus)
        return after != before or begun != len(self.waiting)

    def serve(self, who: str, limit: float) -> tuple[float, bool]:
        """Start a user's jobs up to the limit; return the CPUs taken, and whether all were seen."""
        taken = 0.0
        for row in self.queue(who):
            size = self.jobs[row].size
            if (chosen := self.find(row, size)) is not None:
                if taken > 0 and taken + size > limit + 1e-9:
                    return taken, False
                self.begin(row, chosen)
                taken += size
        return taken, True

    def serve_wide(self, limit: float) -> tuple[float, bool]:
        """Claim CPUs for wide jobs, first come first served, up to the limit."""
        taken = 0.0
        while (row := self.first_wide()) is not None:
            self.drop_useless()
            while len(self.held()) < self.jobs[row].size:
                chosen = self.find(row, 1)
                if chosen is None:
                    return taken, True
                if taken > 0 and taken + 1 > limit + 1e-9:
                    return taken, False
                self.claim(self.cpus[chosen[0]], row)
                self.dealt += 1
                taken += 1
            self.begin(row, self.held()[: self.jobs[row].size])
        return taken, True

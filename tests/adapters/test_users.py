"""Users by number and name, from a name service that is slow or away."""

import asyncio
import os
import pwd
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rtsched.adapters import users
from rtsched.adapters.users import NotKnownYetError, known, uid_of, user_name


class Service:
    """A name service that can be away or hang: no real one does so when asked to."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self.name = "ann"

    def getpwuid(self, uid: int) -> Any:
        """Answer as pwd does; it raises KeyError too where the service is away."""
        self.asked += 1
        assert self.go_on.wait(120.0)
        if self.away or uid != 1001:
            raise KeyError(uid)
        return pwd.struct_passwd((self.name, "", 1001, 1001, "", "/", ""))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Put a name service in the place of this machine's."""
    for uid in list(users._NAMES._running):  # of a test before
        until_looked_up(uid)
    users.forget_users()
    one = Service()
    monkeypatch.setattr(users.pwd, "getpwuid", one.getpwuid)
    yield one
    one.go_on.set()
    users.forget_users()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give a clock that the test sets."""
    now = [1000.0]
    monkeypatch.setattr(users, "clock", lambda: now[0])
    return now


def until_looked_up(uid: int) -> None:
    """Wait for a look-up that runs in the background."""
    while (running := users._NAMES._running.get(uid)) is not None:
        running.result(120.0)


def test_users_of_this_machine() -> None:
    """A user has a name; one who is not there has a number, and a name nobody has none."""
    name = pwd.getpwuid(os.getuid()).pw_name
    assert (user_name(os.getuid()), uid_of(name)) == (name, os.getuid())
    assert (user_name(987_654_321), uid_of("no such user")) == ("987654321", -1)
    assert user_name(1 << 70) == str(1 << 70)


def test_a_transient_failure_is_not_kept(service: Service, clock: list[float]) -> None:
    """A user who was not found is looked for again, and not each time."""
    service.away = True
    assert user_name(1001) == "1001"
    service.away = False
    assert (user_name(1001), service.asked) == ("1001", 1)
    clock[0] += users.RETRY
    assert user_name(1001) == "ann"


def test_a_name_outlives_the_name_service(service: Service, clock: list[float]) -> None:
    """It is looked up again in the background: a new one is taken, a failure is not."""
    assert user_name(1001) == "ann"
    service.away = True
    clock[0] += users.FRESH + 1
    assert user_name(1001) == "ann"
    until_looked_up(1001)
    assert (user_name(1001), service.asked) == ("ann", 2)
    service.away, service.name = False, "anna"
    clock[0] += users.FRESH + 1
    assert user_name(1001) == "ann"
    until_looked_up(1001)
    assert user_name(1001) == "anna"


def test_a_loop_never_waits(service: Service) -> None:
    """Nothing is looked up on an event loop; a service that hangs is waited for by a bound."""

    async def course() -> None:
        with pytest.raises(NotKnownYetError) as missing:
            user_name(1001)
        assert service.asked == 0
        service.go_on.clear()
        with pytest.raises(NotKnownYetError, match="name service"):
            await known(missing.value, 0.01)
        service.go_on.set()
        await known(missing.value, 120.0)
        assert (user_name(1001), service.asked) == ("ann", 1)

    asyncio.run(course())


def test_who_was_not_found_is_not_waited_for_each_time(
    service: Service, clock: list[float]
) -> None:
    """A service that hangs costs the bound once in a while; until then there is no such user."""

    async def course() -> None:
        service.go_on.clear()
        with pytest.raises(NotKnownYetError) as missing:
            user_name(1001)
        await known(missing.value, 0.01)
        assert user_name(1001) == "1001"

    service.away = True
    assert user_name(1001) == "1001"
    clock[0] += users.RETRY
    asyncio.run(course())


def test_a_hanging_service_takes_a_few_threads(service: Service) -> None:
    """While some look-ups hang, others are not begun."""
    service.go_on.clear()
    assert [user_name(uid, 0.0) for uid in range(20)] == [str(uid) for uid in range(20)]
    assert threading.active_count() <= users.RUNNING + 4
    service.go_on.set()
    for uid in range(users.RUNNING):
        until_looked_up(uid)
    assert service.asked == users.RUNNING

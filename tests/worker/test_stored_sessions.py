"""Which changes of sessions the engine has when their owner gives a partition back, or forgets a session."""

import asyncio

import pytest

from crawler.errors import EngineDown
from crawler.frontier.owner import Fence
from crawler.hosts import sessions as module
from crawler.hosts.sessions import NotEntitledError, Session, Sessions, seal_of
from crawler.model import AckOutcome, Claim, Request
from crawler.rules.cookies import Jar
from crawler.settings import CookieSettings
from tests.support.patience import others_run
from tests.worker.turn_lab import held_with

SITES = frozenset({"a.test", "b.test"})
PARTITIONS = {"a.test": 1, "b.test": 2}


class FakeFrontier:
    """Keeps jars, after `fails` errors, while it `may_answer`."""

    def __init__(self) -> None:
        self.jars: dict[tuple[int, str], bytes] = {}
        self.fails = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def jar(self, partition: int, key: str) -> bytes | None:
        return self.jars.get((partition, key))

    async def store_jar(self, fence: Fence, key: str, sealed: bytes) -> AckOutcome:
        if self.fails:
            self.fails -= 1
            raise EngineDown("no answer")
        await self.may_answer.wait()
        self.jars[fence.partition, key] = sealed
        return AckOutcome.COMMITTED


@pytest.fixture
def frontier() -> FakeFrontier:
    return FakeFrontier()


@pytest.fixture
def sessions(frontier: FakeFrontier) -> Sessions:
    return sessions_of(frontier)


def sessions_of(frontier: FakeFrontier) -> Sessions:
    seal = seal_of(CookieSettings(key_env="KEY"), {"KEY": "0123456789abcdef"})
    return Sessions(frontier, held_with(1, 2), seal, (), SITES, crawl="main")  # type: ignore[arg-type]


def claim(site: str, name: str = "", epoch: int = 1) -> Claim:
    return Claim(
        url=f"http://{site}/", fingerprint="1", visit=1, partition=PARTITIONS[site], epoch=epoch, token="1.s.1",
        domain=site, queue=site, depth=0, redirects=0, attempts=0, deliveries=0, seed=False,
        request=Request(session=name) if name else None,
    )  # fmt: skip


def answer(sessions: Sessions, session: Session, value: str) -> None:
    sessions.take(session, f"http://{session.site}/", [(b"Set-Cookie", f"sid={value}".encode())])


def values(jar: Jar) -> list[str]:
    return [cookie.value for cookie in jar.cookies]


async def test_the_sessions_of_a_partition_are_stored_before_it_is_given_back(
    sessions: Sessions, frontier: FakeFrontier
) -> None:
    for site in PARTITIONS:
        answer(sessions, await sessions.of(claim(site)), "new")
    await sessions.store(1)
    assert [*frontier.jars] == [(1, "a.test ")]
    next_owner = sessions_of(frontier)
    assert values((await next_owner.of(claim("a.test"))).jar) == ["new"]
    frontier.jars.clear()
    await sessions.store(1)
    assert frontier.jars == {}, "once"


async def test_the_time_of_a_partition_that_another_owns_is_not_told(sessions: Sessions) -> None:
    session = await sessions.of(claim("a.test"))
    assert sessions.now_ms(session) >= 0
    earlier = await sessions.of(claim("a.test", epoch=7))
    with pytest.raises(NotEntitledError):
        sessions.now_ms(earlier)
    sessions._held.lose(1)
    with pytest.raises(NotEntitledError):
        sessions.now_ms(session)


async def test_a_session_that_could_not_be_stored_is_stored_later(sessions: Sessions, frontier: FakeFrontier) -> None:
    answer(sessions, await sessions.of(claim("a.test")), "new")
    frontier.fails = 1
    with pytest.raises(EngineDown):
        await sessions.store(1)
    await sessions.store(1)
    assert len(frontier.jars) == 1


async def test_a_session_whose_storing_is_cancelled_is_stored_at_the_end(
    sessions: Sessions, frontier: FakeFrontier
) -> None:
    """A stop cancels the loop that stores, and gives the partitions back then."""
    answer(sessions, await sessions.of(claim("a.test")), "new")
    frontier.may_answer.clear()
    storing = asyncio.create_task(sessions.store())
    await others_run()
    storing.cancel()
    await asyncio.wait([storing])
    frontier.may_answer.set()
    await sessions.store(1)
    assert len(frontier.jars) == 1


async def test_who_gives_a_partition_back_waits_for_what_is_being_stored(
    sessions: Sessions, frontier: FakeFrontier
) -> None:
    answer(sessions, await sessions.of(claim("a.test")), "new")
    frontier.may_answer.clear()
    storing = asyncio.create_task(sessions.store())
    await others_run()
    giving_back = asyncio.create_task(sessions.store(1))
    await others_run()
    assert not giving_back.done(), "the lease must not be released before"
    frontier.may_answer.set()
    await asyncio.gather(storing, giving_back)
    assert len(frontier.jars) == 1


async def test_a_session_that_is_forgotten_and_wanted_again_has_its_last_cookies(
    sessions: Sessions, frontier: FakeFrontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 1)
    answer(sessions, await sessions.of(claim("a.test", "one")), "new")
    await sessions.of(claim("a.test", "two"))
    assert frontier.jars == {}
    again = await sessions.of(claim("a.test", "one"))
    assert values(again.jar) == ["new"]


async def test_a_late_answer_to_a_lease_that_was_lost_does_not_replace_what_the_next_one_has(
    sessions: Sessions, frontier: FakeFrontier
) -> None:
    before = await sessions.of(claim("a.test", epoch=0))
    now = await sessions.of(claim("a.test"))
    answer(sessions, now, "new")
    answer(sessions, before, "old")
    await sessions.store()
    again = await sessions.of(claim("a.test"))
    assert again is now
    sessions._known.clear()
    assert values((await sessions.of(claim("a.test"))).jar) == ["new"]

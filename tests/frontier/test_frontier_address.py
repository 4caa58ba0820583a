"""One address, another server behind it: what is noticed, and that no call reaches a server it was not meant for."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.exceptions as rex

from crawler.engine import server
from crawler.engine.client import ANSWERS, Engine, translate
from crawler.engine.server import Change
from crawler.errors import EngineDown, EngineError, EngineFull, EngineUnfit
from crawler.frontier.keys import Keys
from crawler.frontier.members import UNDER_WAY, Member, Members, engine_digest
from crawler.frontier.scripts import library
from crawler.membership.heartbeat import SessionLiveness
from crawler.settings import MembershipSettings
from tests.frontier.resp_server import engine_like, serving
from tests.support.patience import PATIENCE_S, until
from tests.support.proxy import Proxy, tcp_proxy

BEAT = ("heartbeat", ("{main}:members", "{main}:evicted"), "s", "b")


class Behind:
    """A server that answers as a primary, or as what it has become."""

    def __init__(self, run_id: str) -> None:
        self.run_id, self.role, self.refusal, self.calls = run_id, "master", b"", 0

    def __call__(self, command: list[bytes]) -> bytes:
        if command[0].upper() == b"FCALL":
            self.calls += 1
            if self.refusal:
                return self.refusal
        return engine_like(run_id=self.run_id, role=self.role)(command)

    def follow(self, refusal: bytes = b"-READONLY You can't write against a read only replica.\r\n") -> None:
        self.role, self.refusal = "slave", refusal


class Place:
    """Two servers, and an address that leads to one of them."""

    def __init__(self, proxy: Proxy, engine: Engine, old: Behind, new: Behind, urls: tuple[str, str]) -> None:
        self.proxy, self.engine, self.old, self.new, self._urls = proxy, engine, old, new, urls
        self.changes: list[Change] = []

    def lead_to(self, number: int) -> None:
        self.proxy.upstream = self._urls[number]


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(server, "REST_S", 0.01)
    old, new = Behind("old"), Behind("new")
    async with serving(old) as first, serving(new) as second:
        with tcp_proxy(first) as proxy:
            engine = Engine(proxy.url, library(), call_timeout_s=PATIENCE_S)
            there = Place(proxy, engine, old, new, (first, second))
            with engine.restarts.listen(there.changes.append):
                await engine.connect()
                yield there
            await engine.close()


async def test_a_demoted_primary_is_left_for_the_one_behind_its_address(place: Place) -> None:
    place.old.follow()
    place.lead_to(1)
    with pytest.raises(EngineUnfit, match="read-only replica"):
        await place.engine.run(*BEAT)
    assert place.engine.is_in_doubt  # at once: what rests on the old one's answers starts nothing
    await until(lambda: not place.engine.is_in_doubt)
    assert place.engine.run_id == "new"
    assert [change.may_have_lost for change in place.changes] == [True]
    await place.engine.run(*BEAT)
    assert (place.old.calls, place.new.calls) == (1, 1)


@pytest.mark.parametrize(
    ("refusal", "doubts"),
    [
        (b"-READONLY You can't write against a read only replica.\r\n", True),
        (b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n", True),
        (b"-LOADING Redis is loading the dataset in memory\r\n", True),  # a replica that copies its new primary
        (b"-NOREPLICAS Not enough good replicas to write.\r\n", True),  # a primary that was cut off
        (b"-BUSY Redis is busy running a script.\r\n", False),
        (b"-MISCONF Errors writing to the AOF file\r\n", False),
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", False),
    ],
)
async def test_only_what_a_primary_does_not_answer_casts_doubt_on_it(
    place: Place, refusal: bytes, doubts: bool
) -> None:
    place.old.refusal = refusal
    with pytest.raises(EngineError):
        await place.engine.run(*BEAT)
    assert place.engine.is_in_doubt is doubts


async def test_doubt_lasts_until_a_primary_answers_and_is_over_if_it_is_the_same(place: Place) -> None:
    place.old.follow()
    with pytest.raises(EngineUnfit):
        await place.engine.run(*BEAT)
    await asyncio.sleep(0.1)
    assert place.engine.is_in_doubt  # the address leads to the replica still
    place.old.role, place.old.refusal = "master", b""
    await until(lambda: not place.engine.is_in_doubt)
    assert (place.engine.run_id, place.changes) == ("old", [])
    await place.engine.run(*BEAT)


async def test_a_replica_behind_the_address_is_not_taken_for_the_primary(place: Place) -> None:
    place.new.follow()
    place.lead_to(1)
    place.proxy.end_idle()
    await asyncio.sleep(0.05)
    with pytest.raises(EngineUnfit, match="connect to its primary"):
        await place.engine.run(*BEAT)
    assert (place.engine.is_in_doubt, place.engine.run_id, place.changes) == (True, "old", [])
    assert place.new.calls == 0


async def test_calls_that_were_prepared_for_one_server_never_reach_another(place: Place) -> None:
    """Many are under way when the address changes. Whichever finds out: the others were meant for the old one, too."""
    await asyncio.gather(*(place.engine.run(*BEAT) for _ in range(40)))
    before = place.old.calls
    place.lead_to(1)
    place.proxy.cut()
    calls = [asyncio.create_task(place.engine.run(*BEAT)) for _ in range(100)]
    await asyncio.sleep(0)  # all are prepared
    place.proxy.heal()
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(reply) for reply in replies} == {EngineDown}
    assert (place.old.calls, place.new.calls) == (before, 0)
    while not place.new.calls:  # one more may find a connection that was cut, and one finds out
        with contextlib.suppress(EngineError):
            await place.engine.run(*BEAT)
    assert (place.engine.run_id, place.old.calls) == ("new", before)


async def test_an_answer_of_a_server_that_was_replaced_meanwhile_is_not_taken(place: Place) -> None:
    place.proxy.hold_replies_of(b"heartbeat", 0.2)
    call = asyncio.create_task(place.engine.run(*BEAT))
    await until(lambda: place.old.calls)
    place.lead_to(1)
    place.engine.doubt()
    await until(lambda: place.engine.run_id == "new")
    with pytest.raises(EngineDown, match="has taken over"):
        await call


async def test_connections_that_a_balancer_closed_cost_no_call(place: Place) -> None:
    await asyncio.gather(*(place.engine.run(*BEAT) for _ in range(20)))
    place.proxy.end_idle()
    await asyncio.sleep(0.05)
    await asyncio.gather(*(place.engine.run(*BEAT) for _ in range(20)))
    assert place.changes == []


async def test_connections_that_a_balancer_forgot_cost_one_call_and_not_one_each(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes back on them, and nobody says so."""
    await asyncio.gather(*(place.engine.run(*BEAT) for _ in range(20)))
    place.proxy.forget()
    with monkeypatch.context() as patch:
        patch.setattr(place.engine._servers.primaries[0], "_timeout_s", 0.1)
        with pytest.raises(EngineDown):
            await place.engine.run(*BEAT)
    began = time.monotonic()
    for _ in range(20):
        await place.engine.run(*BEAT)
    assert time.monotonic() - began < PATIENCE_S  # of one call without an answer


def test_idle_connections_are_kept_alive_over_the_network_only() -> None:
    over_tcp = Engine("redis://127.0.0.1:1", library())._servers.primaries[0].client.connection_pool
    assert over_tcp.connection_kwargs["socket_keepalive"]
    local = Engine("unix:///tmp/none.sock", library())._servers.primaries[0].client.connection_pool
    assert "socket_keepalive" not in local.connection_kwargs


async def test_nothing_starts_while_the_server_is_in_doubt() -> None:
    doubts = [False]
    liveness = SessionLiveness(MembershipSettings(), clock_ms=lambda: 1000, is_in_doubt=lambda: doubts[0])
    liveness.sent_ms = 1000
    assert liveness.may_start()
    doubts[0] = True
    assert not liveness.may_start()


@pytest.mark.parametrize(
    ("named", "doubts"), [("", False), (UNDER_WAY, False), (engine_digest("old"), False), (engine_digest("new"), True)]
)
async def test_a_member_that_names_another_primary_makes_us_look(
    place: Place, monkeypatch: pytest.MonkeyPatch, named: str, doubts: bool
) -> None:
    """Readers, too, who get no READONLY."""
    member = Member(session="ann", node="n", counter=1, engine=named)

    async def listed(*_: Any) -> list[bytes]:
        from msgspec.json import encode

        return [b"ann", encode(member)]

    place.lead_to(1)
    monkeypatch.setattr(place.engine, "command", listed)
    assert await Members(place.engine, Keys("main")).read() == {"ann": member}
    assert place.engine.is_in_doubt is doubts
    if doubts:
        await until(lambda: place.engine.run_id == "new")


# What engines say, by the first word: whose fault it is, and a line that says what to do.

TABLE: list[tuple[Exception, type[EngineError], str]] = [
    (rex.ReadOnlyError("You can't write against a read only replica."), EngineUnfit, "connect to its primary"),
    (rex.MasterDownError("Link with MASTER is down"), EngineUnfit, "connect to the primary"),
    (rex.BusyLoadingError("Redis is loading the dataset in memory"), EngineDown, "reads its files"),
    (rex.ResponseError("BUSY Redis is busy running a script."), EngineDown, "somebody's script"),
    (rex.ResponseError("MISCONF Errors writing to the AOF file: No space left"), EngineFull, "free space there"),
    (rex.ResponseError("NOREPLICAS Not enough good replicas to write."), EngineDown, "too few replicas"),
    (rex.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), EngineFull, "raise maxmemory"),
    (rex.AuthenticationError("Authentication required."), EngineUnfit, "give user and password"),
    (rex.ResponseError("NOAUTH Authentication required."), EngineUnfit, "give user and password"),
    (rex.AuthenticationError("invalid username-password pair or user is disabled."), EngineUnfit, "give user and"),
    (
        rex.NoPermissionError("this user has no permissions to run the 'fcall' command"),
        EngineUnfit,
        "lacks a permission",
    ),
    (rex.ClusterDownError("The cluster is down"), EngineDown, "CLUSTERDOWN"),
    (rex.TryAgainError("Multiple keys request during rehashing of slot"), EngineDown, "TRYAGAIN"),
    (rex.ConnectionError("Connection closed by server."), EngineDown, "no answer from the engine"),
    (rex.TimeoutError("nothing within 2 s"), EngineDown, "no answer from the engine"),
    (rex.ResponseError("WRONGTYPE Operation against a key"), EngineError, "the engine answered: WRONGTYPE"),
]


@pytest.mark.parametrize(("error", "kind", "said"), TABLE, ids=lambda value: str(value)[:30])
def test_each_answer_has_a_line_that_says_what_to_do(error: Exception, kind: type[EngineError], said: str) -> None:
    ours = translate(error)
    assert type(ours) is kind
    assert said in str(ours)
    assert "\n" not in str(ours)


def test_the_table_has_each_word_that_is_known() -> None:
    words = {translate(rex.ResponseError(f"{word} because")).args[0] for word in ANSWERS}
    assert len(words) == len(ANSWERS)
    assert {str(translate(error)) for error, _, _ in TABLE} >= {w for w in words if "NOPERM" not in w}


def test_what_the_library_hides_behind_the_end_of_a_connection_is_told() -> None:
    """With Sentinel it does so with READONLY."""
    hidden = rex.ConnectionError("The previous master is now a slave")
    hidden.__context__ = rex.ReadOnlyError("You can't write against a read only replica.")
    assert isinstance(translate(hidden), EngineUnfit)


# What is wrong, for how long: what people are told rests on it.


async def test_trouble_lasts_until_the_same_kind_of_call_is_answered(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica answers reads: that says nothing of writes."""
    assert place.engine.trouble is None
    place.old.refusal = b"-MISCONF Errors writing to the AOF file\r\n"
    for _ in range(3):
        with pytest.raises(EngineFull):
            await place.engine.run(*BEAT)
        await place.engine.command("GET", "x")
    found = place.engine.trouble
    assert found is not None
    assert (found.calls, "MISCONF" in found.text) == (3, True)
    assert time.monotonic() - found.since_s < 60
    place.old.refusal = b""
    await place.engine.run(*BEAT)
    assert place.engine.trouble is None
    (record,) = [vars(r) for r in caplog.records if r.getMessage() == "engine.serves_again"]
    assert record["failed_calls"] == 3


async def test_a_full_memory_is_no_trouble_and_a_wrong_type_is_ours(place: Place) -> None:
    for refusal in (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", b"-WRONGTYPE Operation\r\n"):
        place.old.refusal = refusal
        with pytest.raises(EngineError):
            await place.engine.run(*BEAT)
        assert place.engine.trouble is None

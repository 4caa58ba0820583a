"""The bodies that an instance holds are bounded together, and none waits for ever."""

import asyncio
import gc
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from crawler.model import FailureKind, FetchResult
from crawler.web import in_flight as of_bytes
from crawler.web.fetcher import Fetcher
from crawler.web.in_flight import FREE_BYTES, READ_BYTES, BytesInFlight, Share
from tests.support.hostile_server import Close, Hold, HostileServer, Reset, Step
from tests.support.patience import PATIENCE_S
from tests.support.tls import Authority
from tests.web.fetching import HELLO, fetching, response_of

KIB, MIB = 1024, 1024 * 1024
BODY = MIB
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BODY + b"a" * BODY
HALF = PAGE[: -BODY // 2]
CODED = gzip.compress(bytes(BODY))
CODED_PAGE = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(CODED) + CODED
LIMIT = 2 * MIB


def in_flight(fetcher: Fetcher) -> BytesInFlight:
    assert fetcher._pool is not None
    return fetcher._pool.bytes_in_flight


class Peak(BytesInFlight):
    """Notes how much was held at most."""

    peak = 0

    def _held(self, share: Share, held: int) -> Share:
        found = super()._held(share, held)
        self.peak = max(self.peak, self.total)
        return found


@asynccontextmanager
async def bounded(limit: int = LIMIT, **fetch: object) -> AsyncIterator[tuple[Fetcher, Peak]]:
    settings = {"total_timeout_s": 20.0, "idle_timeout_s": 5.0, "connect_timeout_s": 10.0} | fetch
    async with fetching(bytes_in_flight_max=limit, **settings) as fetcher:
        assert fetcher._pool is not None
        fetcher._pool.bytes_in_flight = peak = Peak(limit)
        yield fetcher, peak
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (peak.total, peak._kept, peak._shares, peak._stopped) == (0, 0, {}, {}), "all of it is given back"


async def body_of(fetcher: Fetcher, url: str) -> int:
    """How long a body was; nobody keeps it."""
    return len(response_of(await fetcher.fetch(url)).body)


async def test_many_large_bodies_at_once_stay_within_the_bound_and_come_whole() -> None:
    async with HostileServer(PAGE) as server, bounded() as (fetcher, peak):
        found = await asyncio.gather(*(body_of(fetcher, server.url) for _ in range(40)))
        assert found == [BODY] * 40
        assert LIMIT < peak.peak <= LIMIT + BODY + 40 * (FREE_BYTES + READ_BYTES)
        assert peak.peak < 40 * BODY / 2


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_bodies_over_tls_are_paused_and_come_whole_too(run: Callable[..., None], tmp_path: Path) -> None:
    async def all_at_once() -> None:
        tls = Authority(tmp_path).server()
        async with HostileServer(PAGE, tls=tls) as server, bounded(insecure_tls=True) as (fetcher, peak):
            assert await asyncio.gather(*(body_of(fetcher, server.url) for _ in range(20))) == [BODY] * 20
            assert LIMIT < peak.peak < 20 * BODY / 2

    run(all_at_once())


async def test_a_body_larger_than_the_bound_comes_whole_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """And slowly, while all that came before is kept by somebody."""
    monkeypatch.setattr(of_bytes, "PATIENCE_S", 0.02)
    async with HostileServer(PAGE) as server, bounded(100 * KIB) as (fetcher, _):
        results = await asyncio.gather(*(fetcher.fetch(server.url) for _ in range(4)))
        assert [len(response_of(result).body) for result in results] == [BODY] * 4
        del results


async def test_a_response_counts_until_nobody_has_it() -> None:
    async with HostileServer(PAGE, per_request=[[PAGE], [CODED_PAGE]]) as server, bounded() as (fetcher, peak):
        result: FetchResult | None = await fetcher.fetch(server.url)
        assert peak.total == BODY
        coded: FetchResult | None = await fetcher.fetch(server.url)
        assert peak.total == 2 * BODY + len(CODED)
        result = coded = None
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (result, coded, peak.total) == (None, None, 0)


async def test_none_is_read_on_while_a_response_is_kept_that_may_be_dropped_soon() -> None:
    """The archive takes longer for a body than the network: what it has not taken would gather."""
    async with HostileServer(PAGE) as server, bounded(100 * KIB) as (fetcher, peak):
        kept: FetchResult | None = await fetcher.fetch(server.url)
        other = asyncio.create_task(fetcher.fetch(server.url))
        await asyncio.sleep(0.1)
        assert not other.done()
        assert peak.total <= BODY + FREE_BYTES + READ_BYTES
        kept = None
        assert len(response_of(await asyncio.wait_for(other, PATIENCE_S)).body) == BODY
        assert kept is None
        del other


async def test_bodies_that_stop_before_their_end_leave_room_for_smaller_ones() -> None:
    """As many as would fill it alone, and more: they hold what they have until they are given up."""
    limit, small = 32 * MIB, 300 * KIB
    page = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % small + b"a" * small
    stalled: list[Step] = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % limit + bytes(4 * MIB), Hold()]
    async with (
        HostileServer(page, per_request=[stalled] * 16) as server,
        bounded(limit, idle_timeout_s=60.0, total_timeout_s=60.0) as (fetcher, peak),
    ):
        tarpits = [asyncio.create_task(fetcher.fetch(server.url)) for _ in range(16)]
        async with asyncio.timeout(PATIENCE_S):
            while len(peak._shares) < 16 or peak.total < limit / 2:
                await asyncio.sleep(0.01)
            for _ in range(3):
                assert await body_of(fetcher, server.url) == small
        assert not any(one.done() for one in tarpits)
        assert peak.total <= limit
        for one in tarpits:
            one.cancel()
        await asyncio.gather(*tarpits, return_exceptions=True)


async def test_pages_of_usual_size_pass_while_there_is_no_room() -> None:
    text = gzip.compress(b"hello")
    coded = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(text) + text
    small = {"/small": [HELLO], "/coded": [coded]}
    async with HostileServer(HALF, Hold(), by_path=small) as server, bounded(300 * KIB) as (fetcher, peak):
        large = [asyncio.create_task(fetcher.fetch(server.url)) for _ in range(4)]
        while len(peak._stopped) < 3:
            await asyncio.sleep(0.01)
        for path in small:
            assert (
                response_of(await asyncio.wait_for(fetcher.fetch(server.url[:-1] + path), PATIENCE_S)).body == b"hello"
            )
        assert peak.is_full
        for task in large:
            task.cancel()
        await asyncio.gather(*large, return_exceptions=True)


@pytest.mark.parametrize("ending", [(Close(),), (Reset(),), (b"", Hold()), (b"\0" * 10, Close())])
async def test_room_is_given_back_however_an_exchange_ends(
    ending: tuple[Step, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_bytes, "PATIENCE_S", 0.02)
    async with HostileServer(HALF, 0.05, *ending) as server, bounded(100 * KIB, idle_timeout_s=0.2) as (fetcher, _):
        results = await asyncio.gather(*(fetcher.fetch(server.url) for _ in range(4)))
        assert {response_of(result).truncated for result in results} <= {"time", "disconnect"}
        del results


async def test_room_is_given_back_when_fetches_are_cancelled() -> None:
    async with HostileServer(HALF, Hold()) as server, bounded(100 * KIB) as (fetcher, peak):
        tasks = [asyncio.create_task(fetcher.fetch(server.url)) for _ in range(4)]
        while len(peak._stopped) < 3:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert peak.total == 0


async def test_an_answer_is_decoded_when_there_is_room_for_it() -> None:
    """A kilobyte may become ten megabytes."""
    by_path = {"/coded": [CODED_PAGE], "/large": [HALF, Hold()]}
    async with HostileServer(by_path=by_path) as server, bounded(300 * KIB, idle_timeout_s=30) as (fetcher, peak):
        large = asyncio.create_task(fetcher.fetch(f"{server.url}large"))
        while not peak.is_full:
            await asyncio.sleep(0.01)
        coded = asyncio.create_task(fetcher.fetch(f"{server.url}coded"))
        while not peak._stopped:
            await asyncio.sleep(0.01)
        assert not coded.done()
        large.cancel()
        assert response_of(await asyncio.wait_for(coded, PATIENCE_S)).body == bytes(BODY)
        coded = large
        await asyncio.gather(coded, return_exceptions=True)


async def test_a_wait_for_decoding_can_be_cancelled() -> None:
    by_path = {"/coded": [CODED_PAGE], "/large": [HALF, Hold()]}
    async with HostileServer(by_path=by_path) as server, bounded(300 * KIB) as (fetcher, peak):
        tasks = [asyncio.create_task(fetcher.fetch(f"{server.url}large"))]
        while not peak.is_full:
            await asyncio.sleep(0.01)
        tasks.append(asyncio.create_task(fetcher.fetch(f"{server.url}coded")))
        while not peak._stopped:
            await asyncio.sleep(0.01)
        for task in reversed(tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_time_in_which_we_did_not_read_is_not_the_servers() -> None:
    """Paused for longer than its idle time and its total time together would allow, a body comes whole."""
    by_path = {"/first": [HALF, 1.5, PAGE[-BODY // 2 :]], "/second": [PAGE]}
    async with (
        HostileServer(by_path=by_path) as server,
        bounded(100 * KIB, idle_timeout_s=2.2, total_timeout_s=2.5) as (fetcher, peak),
    ):
        first = asyncio.create_task(body_of(fetcher, f"{server.url}first"))
        while not peak.is_full:
            await asyncio.sleep(0.01)
        began = asyncio.get_running_loop().time()
        second = response_of(await fetcher.fetch(f"{server.url}second"))
        assert asyncio.get_running_loop().time() - began > 1.0
        assert (len(second.body), second.truncated) == (BODY, "")
        assert await first == BODY
        del second


async def test_a_pause_ends_when_it_was_as_long_as_a_fetch_may_take() -> None:
    async with HostileServer(PAGE) as server, bounded(100 * KIB, total_timeout_s=0.3) as (fetcher, peak):
        share = peak.received(None, _Reader(), MIB)
        result = await asyncio.wait_for(fetcher.fetch(server.url), PATIENCE_S)
        assert response_of(result).truncated == "time"
        assert result.fetch_ms >= 550
        peak.ended(share)
        del result


async def test_a_pause_before_the_head_is_none() -> None:
    async with HostileServer(Hold()) as server, bounded(1, idle_timeout_s=0.1) as (fetcher, peak):
        share = peak.received(None, _Reader(), MIB)
        result = await fetcher.fetch(server.url)
        assert result.failure is not None
        assert result.failure.kind is FailureKind.TIMEOUT
        peak.ended(share)


class _Reader:
    def __init__(self) -> None:
        self.is_paused = False

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False


async def test_those_that_wait_go_on_in_the_order_in_which_they_came() -> None:
    bytes_in_flight = BytesInFlight(MIB)
    readers = [_Reader() for _ in range(6)]
    shares = [bytes_in_flight.received(None, reader, 80 * KIB) for reader in readers]
    assert [reader.is_paused for reader in readers] == [False, False, False, False, True, True]
    bytes_in_flight.ended(shares[1])
    assert [reader.is_paused for reader in readers[4:]] == [True, True], "still too much"
    bytes_in_flight.ended(shares[0])
    assert [reader.is_paused for reader in readers[4:]] == [False, True], "it may get a whole read"
    bytes_in_flight.ended(shares[2])
    assert [reader.is_paused for reader in readers[4:]] == [False, False]
    shares += [bytes_in_flight.received(None, _Reader(), 2 * MIB)]
    assert [
        bytes_in_flight.received(share, reader, MIB).held
        for share, reader in zip(shares[3:5], readers[3:5], strict=True)
    ]
    assert [reader.is_paused for reader in readers[3:5]] == [False, True], "the oldest goes on in any case"
    for share in shares:
        bytes_in_flight.ended(share)
    assert bytes_in_flight.total == 0

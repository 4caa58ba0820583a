"""Server-sent events: snapshots, entries once each, resumption, one reader for all, clients that do not read."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from crawler.api import event_hub as events_module
from crawler.api.event_hub import Place
from crawler.api.problem import Limits
from crawler.frontier.leases import Takeover, Takeovers
from crawler.frontier.operator_log import Actor, Via
from tests.api.api_lab import QUICK, CountedReads, Served, served
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.views.views_lab import ANN, seeded

Event = tuple[str, str, dict[str, object]]  # id, kind, data


@contextlib.asynccontextmanager
async def listening(api: Served, last_id: str = "") -> AsyncIterator[AsyncIterator[Event]]:
    """The events as they come."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with api.http.get(api.url("/v1/events"), headers=headers) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        yield _events(response)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    fields: dict[str, str] = {}
    async for line in response.content:
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield fields["id"], fields["event"], msgspec.json.decode(fields["data"])
            fields = {}


async def first(events: AsyncIterator[Event], kind: str) -> Event:
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            if event[1] == kind:
                return event
    raise AssertionError(f"no {kind}")


def takeover(n: int) -> Takeover:
    return Takeover(node=f"n{n}", session="s", by_node="m", by_session="t", partitions=n, silent_ms=7000, at=float(n))


async def test_snapshots_come_at_once_and_again(api: Served) -> None:
    async with listening(api) as events:
        place, _, members = await first(events, "members")
        assert (members, Place.read(place)) == ({"members": []}, Place(0, "0"))
        _, _, one = await first(events, "overview")
        _, _, two = await first(events, "overview")
        assert (one["crawl"], one["pending"]) == ("main", 5)
        assert two["at"] > one["at"]  # type: ignore[operator]


async def test_entries_of_logs_come_once_each(api: Served) -> None:
    takeovers = Takeovers(api.crawl.engine, api.crawl.keys)
    await api.crawl.operator_log.add(ANN, "pause", "old.example")
    await takeovers.note(takeover(1))
    async with listening(api) as events:
        await first(events, "overview")
        for n in range(3):
            await api.crawl.operator_log.add(ANN, "pause", f"d{n}.example")
            await takeovers.note(takeover(2 + n))
        log = [await first(events, "log")]
        both = [log[0]]
        async with asyncio.timeout(PATIENCE_S):
            while len([one for one in both if one[1] != "overview"]) < 6:
                both.append(await anext(events))
    assert [one[2]["target"] for one in both if one[1] == "log"] == ["d0.example", "d1.example", "d2.example"]
    assert [one[2]["node"] for one in both if one[1] == "takeover"] in (["n2", "n3", "n4"], ["n3", "n4"])


async def test_a_client_that_comes_back_gets_what_it_missed(api: Served) -> None:
    takeovers = Takeovers(api.crawl.engine, api.crawl.keys)
    await api.crawl.operator_log.add(ANN, "pause", "seen.example")
    await takeovers.note(takeover(1))
    async with listening(api) as events:
        last_id, _, _ = await first(events, "overview")
    for n in range(2):
        await api.crawl.operator_log.add(ANN, "block", f"missed{n}.example")
    for n in range(2, 40):
        await takeovers.note(takeover(n))
    async with listening(api, last_id) as events:
        found = [await first(events, "log"), await first(events, "log")]
        found += [await first(events, "takeover") for _ in range(2, 40)]
    assert [one[2]["target"] for one in found if one[1] == "log"] == ["missed0.example", "missed1.example"]
    assert [one[2]["node"] for one in found if one[1] == "takeover"] == [f"n{n}" for n in range(2, 40)]
    async with listening(api, found[-1][0]) as events:
        assert (await anext(events))[1] in ("members", "overview"), "nothing was missed"
    between = next(one[0] for one in found if one[1] == "takeover")
    async with listening(api, between) as events:
        assert (await anext(events))[2]["node"] == "n3"


@pytest.mark.parametrize("text", ["x", "-1.0", "1", "1.", "9" * 30 + ".0", "\u0661.0", "1.0\x00"])
async def test_a_place_that_is_none_begins_at_the_end(api: Served, text: str) -> None:
    await api.crawl.operator_log.add(ANN, "pause", "old.example")
    assert text.startswith("1.0") or Place.read(text) is None
    if text.isascii() and text.isprintable():
        async with listening(api, text) as events:
            assert (await anext(events))[1] in ("members", "overview")


async def test_a_place_beyond_the_end_is_the_end(api: Served) -> None:
    """As after a wipe of the engine: the next entry comes, whatever its number."""
    async with listening(api, "5000.0") as events:
        await first(events, "overview")
        await api.crawl.operator_log.add(ANN, "pause", "new.example")
        assert (await first(events, "log"))[2]["target"] == "new.example"


async def test_one_reader_serves_all_and_rests_when_nobody_listens(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = CountedReads(monkeypatch)
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(listening(api)) for _ in range(20)]
        for _ in range(3):
            await asyncio.gather(*(first(events, "overview") for events in clients))
        assert 3 <= reads.count < 20
    async with asyncio.timeout(PATIENCE_S):
        before = -1
        while before != reads.count:
            before = reads.count
            await asyncio.sleep(QUICK.events_every_s * 5)


async def test_an_outage_is_an_event_and_its_end_too(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from crawler.errors import EngineDown

    is_down = False
    overview = events_module.overview_with_losses

    async def sometimes(crawl: object) -> object:
        if is_down:
            raise EngineDown("no answer from the engine")
        return await overview(crawl)  # type: ignore[arg-type]

    monkeypatch.setattr(events_module, "overview_with_losses", sometimes)
    async with listening(api) as events:
        await first(events, "overview")
        is_down = True
        assert (await first(events, "outage"))[2] == {"detail": "no answer from the engine"}
        is_down = False
        await first(events, "overview")


async def test_a_bug_in_reading_ends_neither_stream_nor_server(
    api: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    overview = events_module.overview_with_losses
    left = 3

    async def broken(crawl: object) -> object:
        nonlocal left
        left -= 1
        if left > 0:
            raise ValueError("secret of the inside")
        return await overview(crawl)  # type: ignore[arg-type]

    monkeypatch.setattr(events_module, "overview_with_losses", broken)
    async with listening(api) as events:
        assert "secret" not in str((await first(events, "outage"))[2])
        await first(events, "overview")
    assert "api.bug" in caplog.messages


async def test_heartbeats_come_while_nothing_happens(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(events_every_s=30, heartbeat_s=0.02, shutdown_s=0.5)
    async with (
        asyncio.timeout(PATIENCE_S),
        seeded(tmp_path / "c", engine) as crawl,
        served(crawl, limits=limits) as api,
        api.http.get(api.url("/v1/events")) as response,
    ):
        async for line in response.content:
            if line == b": heartbeat\n":
                break


async def test_more_clients_than_allowed_are_503(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(event_clients=4, shutdown_s=0.5)  # of which one client has at most half
    async with (
        seeded(tmp_path / "c", engine) as crawl,
        served(crawl, limits=limits) as api,
        listening(api) as one,
        listening(api) as two,
    ):
        await asyncio.gather(first(one, "overview"), first(two, "overview"))
        status, _, headers = await api.send("GET", "/v1/events")
        assert (status, headers["Retry-After"]) == (503, "60")


async def test_a_client_that_does_not_read_is_dropped(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(events_every_s=0.01, write_s=0.2, event_buffer_bytes=4096, shutdown_s=0.5)
    async with seeded(tmp_path / "c", engine) as crawl, served(crawl, limits=limits) as api:
        for n in range(300):
            await crawl.operator_log.add(Actor(who="ann", via=Via.API), "pause", f"{n}" + "x" * 190)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)  # noqa: FBT003
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, ("127.0.0.1", api.port))
            head = f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nLast-Event-ID: 0.0\r\n\r\n"
            await loop.sock_sendall(sock, head.encode())
            async with asyncio.timeout(PATIENCE_S), listening(api) as events:
                for _ in itertools.count():
                    await first(events, "overview")
                    if len(sockets_of(api)) == 1:
                        break


def sockets_of(api: Served) -> list[int]:
    """The connections that the server has open, by the port of the client."""
    port = f":{api.port:04X}"
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return [int(row[2].rpartition(":")[2], 16) for row in rows if row[1].endswith(port) and row[3] == "01"]


async def test_the_end_of_the_server_ends_the_streams(tmp_path: Path, engine: Engine) -> None:
    async with seeded(tmp_path / "c", engine) as crawl, aiohttp.ClientSession() as http, asyncio.timeout(PATIENCE_S):
        async with served(crawl, limits=Limits(shutdown_s=60)) as api:
            response = await http.get(api.url("/v1/events"))
            assert (await response.content.readline()).startswith(b"id: ")
        async with response:
            assert b"event: overview" in await response.read()

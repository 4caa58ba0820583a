"""Reading robots.txt along redirects: a request a turn, elsewhere as a borrower, and none where the answer is known."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.hosts import robots_cache
from crawler.hosts.robots_cache import RobotsCache
from crawler.hosts.robots_reader import REDIRECTS_MAX, RobotsReader, RobotsResult
from crawler.hosts.sessions import NotEntitledError
from crawler.model import Claim, Failure, FailureKind, FetchResult, Response
from crawler.rules.robots import RobotsRules
from crawler.rules.urls import host_of
from crawler.settings import Settings

RULES = b"User-agent: *\nCrawl-delay: 3\nDisallow: /no\n"
CLAIM = Claim(
    url="http://a.test/", fingerprint="1", visit=1, partition=1, epoch=1, token="t", domain="a.test", queue="a.test",
    depth=0, redirects=0, attempts=0, deliveries=0, seed=False,
)  # fmt: skip


class Lab:
    """A reader on a web of dictionaries. `shared` is what the frontier has; `waits` are the answers to borrowers."""

    def __init__(self, *, patience_ms: int = 60_000) -> None:
        self.web: dict[str, str | bytes] = {}  # a redirect's target or a body
        self.shared: dict[str, bytes] = {}
        self.waits: list[int] = []
        self.stale: dict[str, int] = {}  # requests of a URL that meet a stale connection
        self.seen: list[str] = []  # what went on, in order
        self.frontier: Any = SimpleNamespace(robots=self._robots)
        self.cache = RobotsCache(self.frontier, Settings())
        deps: Any = self
        self.reader = RobotsReader(self.cache, deps, deps, patience_ms=patience_ms)

    async def read(self, before_send: Callable[[], None] | None = None) -> RobotsResult:
        return await self.reader.read(CLAIM.queue, "http://a.test", before_send)

    async def _robots(self, partition: int, origin: str) -> bytes | None:
        return self.shared.get(origin)

    # The fetcher

    async def fetch(
        self, url: str, *, body_bytes_max: int, before_send: Callable[[], None] | None, working: Any = None
    ) -> FetchResult:
        if before_send is not None:
            before_send()
        self.seen.append(f"GET {url}")
        if self.stale.get(url, 0):
            self.stale[url] -= 1
            failure = Failure(kind=FailureKind.DISCONNECTED)
            return FetchResult(url=url, failure=failure, stale_connection=True, fetch_ms=7)
        answer = self.web[url]
        is_redirect = isinstance(answer, str)
        response = Response(
            url=url, status=301 if is_redirect else 200, reason="", http_version="1.1",
            headers=((b"location", answer.encode()),) if isinstance(answer, str) else (),
            raw_body=b"", body=b"" if isinstance(answer, str) else answer, request_head=b"", remote_ip="",
            started_at=0.0, fetch_ms=7,
        )  # fmt: skip
        return FetchResult(url=url, response=response, fetch_ms=7)

    # The slot borrower and its only slot

    def place(self, url: str) -> tuple[str, int]:
        return host_of(url).removeprefix("www."), 1

    def slot(self, url: str) -> Any:
        self.seen.append(f"borrower of {host_of(url)}")
        return SimpleNamespace(ask=self._ask, end=self._end)

    async def _ask(self) -> int:
        return self.waits.pop(0)

    async def _end(self) -> None:
        self.seen.append("end")


async def test_a_redirect_within_the_queue_takes_a_second_turn_of_it() -> None:
    lab = Lab()
    lab.web = {"http://a.test/robots.txt": "http://www.a.test/robots.txt", "http://www.a.test/robots.txt": RULES}
    assert await lab.read() == RobotsResult(None, is_requested=True, fetch_ms=7)
    reading = await lab.read()
    assert reading.entry is not None
    assert (reading.entry.crawl_delay_s, reading.is_requested) == (3, True)
    assert lab.seen == ["GET http://a.test/robots.txt", "GET http://www.a.test/robots.txt"]
    assert lab.cache.known("http://a.test") is lab.cache.known("http://www.a.test") is reading.entry


async def test_a_redirect_to_another_queue_waits_for_a_borrowed_slot() -> None:
    lab = Lab()
    lab.web = {"http://a.test/robots.txt": "http://b.test/r", "http://b.test/r": RULES}
    lab.waits = [700, 30, 0]
    await lab.read()
    assert [(r := await lab.read()).wait_ms for _ in range(2)] == [700, 30]
    assert (r.entry, r.is_requested) == (None, False)
    reading = await lab.read()
    assert reading.entry is not None
    assert reading.entry.rules is not None
    assert not reading.is_requested, "not on the claim's queue"
    assert not reading.entry.rules.allows("http://a.test/no")
    assert lab.seen[1:] == ["borrower of b.test", "GET http://b.test/r", "end"]


@pytest.mark.parametrize("how", ["known", "shared", "read for another"])
async def test_a_known_redirect_target_is_not_requested_again(how: str) -> None:
    lab = Lab()
    lab.web = {"http://a.test/robots.txt": "http://b.test/robots.txt", "http://b.test/robots.txt": RULES}
    other = Lab()
    other.web = {"http://b.test/robots.txt": RULES, "http://a.test/robots.txt": RULES}
    other.waits = [0]
    if how == "known":
        await lab.cache.judge(
            "http://b.test", await other.fetch("http://b.test/robots.txt", body_bytes_max=1, before_send=None)
        )
    elif how == "shared":
        lab.shared["http://b.test"] = (await other.read()).blob
    else:
        lab.web["http://c.test/robots.txt"] = "http://b.test/robots.txt"
        lab.waits = [0, 0]
        for _ in range(2):
            await lab.reader.read(CLAIM.queue, "http://c.test")
        lab.seen.clear()
    await lab.read()
    reading = await lab.read()
    assert reading.entry is not None
    assert (reading.entry.crawl_delay_s, reading.is_requested) == (3, False)
    assert lab.seen[-1:] == ["GET http://a.test/robots.txt"]
    third = Lab()
    third.shared["http://a.test"] = reading.blob
    entry = await third.cache.shared(1, "http://a.test")
    assert entry is not None
    assert entry.rules is not None
    assert (entry.crawl_delay_s, entry.rules.allows("http://a.test/no")) == (3, False)


async def test_robots_txt_is_unreachable_without_a_slot_for_too_long() -> None:
    lab = Lab(patience_ms=-1)
    lab.web = {"http://a.test/robots.txt": "http://b.test/r"}
    lab.waits = [1000]
    await lab.read()
    reading = await lab.read()
    assert reading.entry is not None
    assert (reading.entry.rules, reading.entry.detail) == (None, "no request slot for http://b.test/r")


async def test_after_too_many_redirects_everything_is_allowed() -> None:
    lab = Lab()
    lab.web = {"http://a.test/robots.txt": "http://a.test/r", "http://a.test/r": "http://a.test/robots.txt"}
    assert [(await lab.read()).entry for _ in range(REDIRECTS_MAX)] == [None] * REDIRECTS_MAX
    reading = await lab.read()
    assert reading.entry is not None
    assert reading.entry.rules is not None
    assert reading.entry.rules.allows("http://a.test/no")


async def test_a_turn_in_which_nothing_may_be_sent_is_ended() -> None:
    def refuse() -> None:
        raise NotEntitledError

    lab = Lab()
    lab.web = {"http://a.test/robots.txt": "http://b.test/r", "http://b.test/r": RULES}
    lab.waits = [0, 0]
    await lab.read()
    with pytest.raises(NotEntitledError):
        await lab.read(refuse)
    assert (await lab.read()).entry is not None
    assert lab.seen[1:] == ["borrower of b.test", "end", "borrower of b.test", "GET http://b.test/r", "end"]


async def test_of_two_claims_of_an_origin_one_reads_and_the_other_waits() -> None:
    lab = Lab()
    lab.web = {"http://a.test/robots.txt": RULES}
    others = []

    def meanwhile() -> None:
        with pytest.raises(StopIteration) as stop:  # it does not even have to wait for the loop
            lab.reader.read(CLAIM.queue, "http://a.test").send(None)
        others.append(stop.value.value)

    assert (await lab.read(meanwhile)).entry is not None
    assert [(r.entry, r.wait_ms > 0) for r in others] == [(None, True)]
    assert len(lab.seen) == 1


@pytest.mark.parametrize("slot", [False, True])
async def test_a_stale_connection_costs_one_more_turn_and_no_attempt(slot: bool) -> None:
    lab = Lab()
    url = "http://b.test/r" if slot else "http://a.test/robots.txt"
    lab.web = {"http://a.test/robots.txt": "http://b.test/r", "http://b.test/r": RULES}
    if not slot:
        lab.web["http://a.test/robots.txt"] = RULES
    lab.waits = [0, 0, 0, 0]
    lab.stale = {url: 1}
    readings = [await lab.read() for _ in range(3 if slot else 2)]
    assert [r.entry for r in readings[:-1]] == [None] * (len(readings) - 1)
    assert readings[-2].is_requested is not slot, "the request counts on the queue that it was made on"
    assert readings[-1].entry is not None
    assert readings[-1].entry.rules is not None
    assert lab.seen.count(f"GET {url}") == 2


async def test_stale_connections_twice_in_a_row_are_a_failure() -> None:
    lab = Lab()
    lab.web = {"http://a.test/robots.txt": RULES}
    lab.stale = {"http://a.test/robots.txt": 2}
    assert (await lab.read()).entry is None
    reading = await lab.read()
    assert reading.entry is not None
    assert reading.entry.failure is FailureKind.DISCONNECTED


@pytest.mark.parametrize("blob", [b"", b"x", b"1 # our group only\nUser-agent: *\n", b"9" * 5000 + b" "])
async def test_a_shared_blob_of_unknown_format_is_read_as_none(blob: bytes) -> None:
    lab = Lab()
    lab.shared["http://a.test"] = blob
    assert await lab.cache.shared(0, "http://a.test") is None


LONG = RULES + b"".join(b"Disallow: /%d/\xc3\xa9\nAllow: /%d/*/x$\n" % (n, n) for n in range(4_000))


@pytest.mark.slow(ci=True)
async def test_the_event_loop_does_not_wait_for_long_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the CPU time of its thread: read, asked by short and long URLs, shared, and read back."""
    urls = ("http://a.test/no", "http://a.test/" + "y" * 8000)
    lab = Lab()
    lab.web["http://a.test/robots.txt"] = LONG

    async def read(claims: int) -> tuple[float, RobotsRules]:
        lab.cache = lab.reader._cache = RobotsCache(lab.frontier, Settings())
        began = time.thread_time()
        reading = await lab.read()
        assert reading.entry is not None
        assert reading.entry.rules is not None
        assert [reading.entry.rules.allows(url) for url in urls] == [False, True]
        lab.shared["http://b.test"] = reading.blob
        entries = await asyncio.gather(*[lab.cache.shared(1, "http://b.test") for _ in range(claims)])
        assert len(set(map(id, entries))) == 1, "read once for all of them"
        assert entries[0] is not None
        assert entries[0].rules is not None
        assert [entries[0].rules.allows(url) for url in urls] == [False, True]
        return time.thread_time() - began, entries[0].rules

    aside_s, rules = await read(3)
    monkeypatch.setattr(robots_cache, "LONG_BYTES", 10 * len(LONG))
    here_s, same = await read(1)
    assert aside_s < here_s / 4
    assert rules == same


async def test_shared_rules_of_a_hostile_robots_txt_survive_the_round_trip() -> None:
    lab = Lab()
    lab.web["http://a.test/robots.txt"] = b"# our group only\nUser-agent: *\nDisallow: /a #" + b"9" * 5000
    reading = await lab.read()
    assert reading.entry is not None
    lab.shared["http://a.test"] = reading.blob
    shared = await lab.cache.shared(0, "http://a.test")
    assert shared is not None
    assert shared.rules == reading.entry.rules


async def test_a_redirect_to_a_forgotten_domain_is_not_followed_and_nothing_is_allowed() -> None:
    lab = Lab()
    deps: Any = lab
    lab.reader = RobotsReader(lab.cache, deps, deps, is_forgotten=lambda url: host_of(url) == "gone.test")
    lab.web = {"http://a.test/robots.txt": "http://gone.test/robots.txt", "http://gone.test/robots.txt": RULES}
    reading = await lab.read()
    assert reading.entry is not None
    assert reading.entry.rules is None
    assert "forgotten" in reading.entry.detail
    assert (reading.blob, lab.seen) == (b"", ["GET http://a.test/robots.txt"])

"""What an instance remembers of sites is bounded in bytes, however many there are and whatever they serve."""

from types import SimpleNamespace
from typing import Any

import pytest

from crawler.hosts import robots_cache
from crawler.hosts.robots_cache import RobotsCache
from crawler.model import FetchResult, Response
from crawler.settings import Settings
from crawler.worker import cookie_walls
from crawler.worker import work as due_partitions
from crawler.worker.cookie_walls import CookieWalls
from crawler.worker.open_claims import OpenClaims
from crawler.worker.work import DuePartitions


def response(url: str, body: bytes = b"", **headers: str) -> Response:
    return Response(
        url=url, status=200, reason="", http_version="1.1",
        headers=tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()),
        raw_body=body, body=body, request_head=b"", remote_ip="", started_at=0.0, fetch_ms=1,
    )  # fmt: skip


async def test_large_robots_txt_push_each_other_out_and_small_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots_cache, "CACHED_BYTES_MAX", 400_000)
    unused: Any = SimpleNamespace()
    cache = RobotsCache(unused, Settings())
    lines = b"".join(b"Disallow: /%d/*x\n" % n for n in range(100))  # some 70 KB of memory
    for n in range(20):
        url = f"http://s{n}.test/robots.txt"
        await cache.judge(f"http://s{n}.test", FetchResult(url=url, response=response(url, b"User-agent: *\n" + lines)))
    kept = [n for n in range(20) if cache.known(f"http://s{n}.test")]
    assert kept == list(range(15, 20)), "the latest, as many as there is room for"
    for n in range(100):
        cache.allow_all(f"http://small{n}.test")
    assert sum(cache.known(f"http://small{n}.test") is not None for n in range(100)) == 100
    big = b"User-agent: *\n" + lines * 20
    url = "http://huge.test/robots.txt"
    entry, _ = await cache.judge("http://huge.test", FetchResult(url=url, response=response(url, big)))
    assert cache.known("http://huge.test") is entry, "one that is too large for all is still obeyed"


def test_an_origin_that_is_read_again_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots_cache, "CACHED_BYTES_MAX", 2500)
    unused: Any = SimpleNamespace()
    cache = RobotsCache(unused, Settings())
    for _ in range(50):
        cache.allow_all("http://a.test")
    cache.allow_all("http://b.test")
    assert cache.known("http://a.test")
    assert cache.known("http://b.test")


def test_cookies_of_tries_that_never_came_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cookie_walls, "KEPT_MAX", 3)
    walls = CookieWalls()
    claims: list[Any] = [SimpleNamespace(fingerprint=str(n), url="http://a.test/", request=None) for n in range(5)]
    for claim in claims:
        assert walls.starts(claim, response("http://a.test/", set_cookie="k=v"), "http://a.test/", lambda url: False)
    steps = [walls.take(claim) for claim in claims]
    assert [step and step.jar.cookies[0].value for step in steps] == [None, None, *["v"] * 3]


def test_outdated_due_times_are_dropped_when_more_is_due_than_served() -> None:
    """The claimer never comes to them then: some partition has been due for longer."""
    due = DuePartitions(OpenClaims(1000))
    for now_ms in range(10_000, 30_000):
        partition = now_ms % 64
        due.schedule(partition, now_ms + due_partitions.LEAD_MS)
        due.schedule(partition, now_ms - 5_000)
        assert due.take(1) == [partition]
        assert len(due._heap) <= due_partitions.OUTDATED_MAX + 64
    due.schedule(7, 40_000)
    due.schedule(8, 39_999)
    assert [due.take(1) for _ in range(3)] == [[8], [7], []]

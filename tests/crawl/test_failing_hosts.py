"""Failures neither hammer a site nor vanish: the retry table on servers that fail, and hosts that go down."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from crawler.crawl.instance import Instance
from crawler.model import FailureKind
from crawler.rules.health import JITTER, policy_of
from crawler.settings import RetrySettings
from crawler.worker.outcomes import Failed, Outcome
from tests.crawl.failing_lab import SCALE, courses, watch_outcomes
from tests.crawl.harness import crawl, settings_of

PAGES = 40
NO_FAILURE = {"not-found": "kept, 404", "lying-gzip": "kept, 200"}  # what is kept at once


@pytest.mark.slow
async def test_each_kind_of_failure_gets_its_attempts_and_pauses(tmp_path: Path) -> None:
    found = await courses(tmp_path / "c")
    for way, course in found.items():
        assert len(set(course.kinds)) <= 1, way
        kind = FailureKind(course.kinds[0]) if course.kinds else None
        if kind is None:
            assert (course.attempts, course.end) == (1, NO_FAILURE[way])
            continue
        policy = policy_of(kind, RetrySettings())
        least_s = [policy.backoff_ms(n) * (1 - JITTER) / 1000 / SCALE for n in range(1, policy.attempts)]
        assert course.attempts == policy.attempts, way
        assert [p for p, least in zip(course.pauses, least_s, strict=True) if p < least - 0.01] == [], way
        assert course.end == ("kept, 200" if kind is FailureKind.BODY else "dead letter"), way
    assert min(found["busy-503-after-1s"].pauses) >= 1.0
    assert {way for way, course in found.items() if "connect" in course.kinds} == {"refused"}


class Site:
    """One page with links to forty, on a server that can go down: then it drops each connection, and counts them."""

    def __init__(self) -> None:
        self.is_down = False
        self.connections_while_down = 0
        self.answered: list[float] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        links = b"".join(b"<a href=/p%d>x</a>" % n for n in range(PAGES))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
        try:
            await reader.readuntil(b"\r\n\r\n")
            if self.is_down:
                self.connections_while_down += 1
            else:
                self.answered.append(time.monotonic())
                await asyncio.sleep(0.02)
                writer.write(head + links)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def settings_for(folder: Path, **own: Any) -> Any:
    return settings_of(folder, robots__obey=False, hosts__failures=3, hosts__probe_s=0.5, **own)


@pytest.mark.parametrize("at_once", [1, pytest.param(8, marks=pytest.mark.slow)])
async def test_a_host_that_is_down_is_probed_by_one_url(tmp_path: Path, at_once: int) -> None:
    kinds: Counter[str] = Counter()
    in_memory: list[int] = []
    back_at = 0.0

    async with Site() as site:

        async def meanwhile(instances: list[Instance]) -> None:
            nonlocal back_at
            instance = instances[0]
            watch_outcomes(instance, lambda o: kinds.update([kind_of(o)]))
            while len(site.answered) < 5:
                await asyncio.sleep(0.005)
            site.is_down = True
            await asyncio.sleep(0.5)
            until = time.monotonic() + 2.7
            while time.monotonic() < until:
                await asyncio.sleep(0.01)
                in_memory.append(instance.work.scheduler.waiting)
            site.is_down, back_at = False, time.monotonic()

        settings = settings_for(tmp_path / "c", politeness__concurrency_per_queue=at_once)
        done = await crawl(settings, [site.url], meanwhile=meanwhile)
    assert len(done.entries) == PAGES + 1, "a URL was given up while its host was down"
    # What was in flight, what was begun before the third failure was known, and probes after 0.5, 1 and 2 s.
    assert site.connections_while_down <= at_once + max(2, at_once) + 3
    assert kinds["disconnected"] == site.connections_while_down
    assert min(in_memory) == 0, "claims were kept although their queue is set aside"
    later = [at for at in site.answered if at > back_at]
    assert later[-1] - later[0] < 2 * len(later), "one answer brought the queue back: a probe for each takes longer"


async def test_urls_of_a_silent_host_are_given_up_and_the_crawl_ends(tmp_path: Path) -> None:
    ends: list[Failed] = []

    async with Site() as site:

        async def meanwhile(instances: list[Instance]) -> None:
            watch_outcomes(instances[0], lambda o: ends.append(o) if isinstance(o, Failed) else None)
            while len(site.answered) < 5:
                await asyncio.sleep(0.005)
            site.is_down = True

        settings = settings_for(tmp_path / "c", hosts__give_up_s=1.0, politeness__delay_s=0.01)
        done = await crawl(settings, [site.url], meanwhile=meanwhile)
    given_up = [failed for failed in ends if failed.kind is FailureKind.HOST_DEAD]
    assert len(done.entries) + len([f for f in ends if f.retry_in_ms < 0]) == PAGES + 1
    assert len(given_up) >= PAGES - 10
    assert site.connections_while_down <= 7
    assert f"no answer from {site.url[:-1]} in" in given_up[0].detail


def kind_of(outcome: Outcome) -> str:
    return str(outcome.kind) if isinstance(outcome, Failed) else "kept"

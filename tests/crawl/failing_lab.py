"""A server for each way to fail, and a crawl that meets them all: how often each is asked, and after which pauses.

    python -m tests.crawl.failing_lab        # prints the table; pauses are a hundredth of the usual ones

One URL and one queue for each; what is counted is what the fetch stage made of each attempt.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from crawler.crawl.instance import Instance
from crawler.rules.health import TABLE
from crawler.settings import RetrySettings
from crawler.terminal.tables import table
from crawler.worker.outcomes import Committable, Failed, Outcome
from tests.crawl.harness import crawl, settings_of
from tests.support.dns_server import NXDOMAIN, SERVFAIL, DnsAnswer, DnsServer
from tests.support.hostile_server import Close, Hold, HostileServer, Repeat, Reset, Step

SCALE = 100.0  # times quicker than the defaults
KINDS = RetrySettings()
GZIP_LIE = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"
WAYS: dict[str, tuple[Step, ...]] = {
    "reset": (Reset(),),
    "no-reply": (Close(),),
    "silence": (Hold(),),
    "no-http": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Close()),
    "busy-429": (b"HTTP/1.1 429 Slow Down\r\nContent-Length: 0\r\n\r\n",),
    "busy-503-after-1s": (b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",),
    "busy-503-nonsense": (b"HTTP/1.1 503 Busy\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n",),
    "error-500": (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",),
    "cut-off": (HALF, Close()),
    "too-slow": (HALF, Repeat(b".", 0.05)),
    "lying-gzip": (GZIP_LIE,),
    "big-headers": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",),
    "not-found": (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",),
}
NAMES = {
    "no-such-host": DnsAnswer(rcode=NXDOMAIN),
    "dns-broken": DnsAnswer(rcode=SERVFAIL),
    "dns-silent": DnsAnswer(silent=True),
}


@dataclass
class Course:
    """What became of one URL: the kind of failure of each attempt, when each ended (s), and how it ended."""

    kinds: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    end: str = ""

    @property
    def attempts(self) -> int:
        return len(self.times)

    @property
    def pauses(self) -> list[float]:
        return [round(later - earlier, 2) for earlier, later in zip(self.times, self.times[1:], strict=False)]


@contextlib.asynccontextmanager
async def failing_servers() -> AsyncIterator[dict[str, str]]:
    """A URL for each way to fail; its host is named after it."""
    async with contextlib.AsyncExitStack() as stack:
        urls = {}
        for way, steps in WAYS.items():
            server = await stack.enter_async_context(HostileServer(*steps))
            urls[way] = f"http://{way}.test:{server.port}/"
        gone = HostileServer()
        async with gone:
            urls["refused"] = f"http://refused.test:{gone.port}/"
        plain = await stack.enter_async_context(HostileServer(b"this is no TLS", Close(), wait_for_request=False))
        urls["no-tls"] = f"https://no-tls.test:{plain.port}/"
        yield urls | {name: f"http://{name}.test:{gone.port}/" for name in NAMES}


async def courses(folder: Path) -> dict[str, Course]:
    """Crawl them all; by way to fail."""
    seen: dict[str, Course] = {}

    async def watch(instances: list[Instance]) -> None:
        watch_outcomes(instances[0], partial(_note, seen))

    known = {f"{name}.test": answer for name, answer in NAMES.items()}
    async with failing_servers() as urls, DnsServer({"*.test": ["127.0.0.1"]} | known) as dns:
        quick = {f"retry__{kind}__backoff_s": own / SCALE for kind, own in _own_backoffs().items()}
        settings = settings_of(
            folder, **quick, dns__nameservers=[dns.address], dns__timeout_s=1.0, dns__tries=1, dns__negative_ttl_s=0.01,
            dns__ttl_min_s=0.0, retry__backoff_s=KINDS.backoff_s / SCALE, retry__backoff_factor=KINDS.backoff_factor,
            fetch__idle_timeout_s=0.6, fetch__total_timeout_s=1.2, fetch__connect_timeout_s=0.6, robots__obey=False,
            hosts__probe_s=0.3,
        )  # fmt: skip
        await crawl(settings, list(urls.values()), meanwhile=watch)
    return {way: seen[url] for way, url in urls.items()}


def watch_outcomes(instance: Instance, note: Callable[[Outcome], None]) -> None:
    """Have `note` called with the end of each attempt."""
    deliver = instance.stages.fetching._turns._deliver

    def spy(outcome: Outcome) -> None:
        note(outcome)
        deliver(outcome)

    instance.stages.fetching._turns._deliver = spy


def _own_backoffs() -> dict[str, float]:
    return {kind: row.backoff_s for kind, row in TABLE.items() if row.backoff_s is not None}


def _note(seen: dict[str, Course], outcome: Outcome) -> None:
    course = seen.setdefault(outcome.claim.url, Course())
    course.times.append(time.monotonic())
    if isinstance(outcome, Failed):
        course.kinds.append(str(outcome.kind))
        course.end = "dead letter" if outcome.retry_in_ms < 0 else "retry"
    elif isinstance(outcome, Committable):
        course.end = f"kept, {outcome.response.status}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = await courses(Path(folder))
    rows = [
        (way, course.kinds[0] if course.kinds else "-", str(course.attempts), str(course.pauses or "-"), course.end)
        for way, course in sorted(found.items(), key=lambda item: (item[1].kinds, item[0]))
    ]
    print(table(("server", "kind", "attempts", f"pauses, s (defaults / {SCALE:g})", "end"), rows, left=2))


if __name__ == "__main__":
    asyncio.run(main())

"""What one host does wrong stays with it: the living hosts of its domain, and all others, are crawled meanwhile."""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from crawler.crawl.instance import Instance
from crawler.worker import address_limit, fetch, slow_hosts
from tests.crawl.harness import Crawled, crawl, settings_of
from tests.support.dns_server import SERVFAIL, DnsAnswer, DnsServer
from tests.support.patience import PATIENCE_S

PAGES, DEAD = 12, 30
DELAY_S = 0.02
OPEN = "open"  # an answer that never comes

Answer = bytes | str
Web = Callable[[str, str], Answer]


def page(body: str = "page", status: str = "200 OK", more: str = "") -> bytes:
    return (f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n{more}\r\n{body}").encode()


def links(*urls: str) -> bytes:
    return page("".join(f"<a href='{url}'>x</a>" for url in urls))


class Server:
    """Answers by host and path; `open`: requests that got no answer and whose client has not gone."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self.requests: list[tuple[float, str, str]] = []
        self.open = 0
        self.most_open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                host = next(line[6:] for line in head.split("\r\n") if line.startswith("Host: ")).partition(":")[0]
                self.requests.append((time.monotonic(), host, path))
                answer = self._web(host, path)
                if isinstance(answer, str):
                    self.open += 1
                    self.most_open = max(self.most_open, self.open)
                    try:
                        await reader.read()
                    finally:
                        self.open -= 1
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def of(self, host: str) -> list[float]:
        return [at for at, name, path in self.requests if name == host and path != "/robots.txt"]


async def crawled(
    folder: Path,
    web: Web,
    names: Mapping[str, DnsAnswer],
    seeds: Callable[[int], list[str]],
    *,
    until: Callable[[Server], bool],
    **options: object,
) -> tuple[Server, Crawled, int]:
    """Crawl until that holds, at most for some time; the server, what came, and the port."""
    server = Server(web)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = int(listening.sockets[0].getsockname()[1])

    async def meanwhile(instances: list[Instance]) -> None:
        patience = time.monotonic() + PATIENCE_S
        while not until(server) and time.monotonic() < patience:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # for the last ones to be committed
        instances[0].stop()

    everything = {"*.test": DnsAnswer(addresses=("127.0.0.1",)), **names}
    async with listening, DnsServer(everything) as dns:
        settings = settings_of(
            folder, dns__nameservers=[dns.address], scope__mode="any", **{"politeness__delay_s": DELAY_S} | options
        )
        return server, await crawl(settings, seeds(port), meanwhile=meanwhile), port


def dead_urls(kind: str, port: int) -> list[str]:
    if kind == "ports":
        return [f"http://victim.test:{n}/" for n in range(2, 2 + DEAD)]
    return [f"http://{kind}{n}.victim.test:{port}/" for n in range(DEAD)]


NAMES = {
    "absent": DnsAnswer(rcode=3),
    "failing": DnsAnswer(rcode=SERVFAIL),
    "silent": DnsAnswer(silent=True),
}
BUSY = {"r503": "503 Service Unavailable", "r429": "429 Too Many Requests"}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("linked_by", ["evil.test", "victim.test"])
@pytest.mark.parametrize("kind", [*NAMES, "ports", *BUSY])
async def test_the_living_hosts_of_a_domain_are_crawled_beside_its_dead_ones(
    tmp_path: Path, kind: str, linked_by: str
) -> None:
    port = 0

    def web(host: str, path: str) -> Answer:
        nonlocal port
        if path == "/robots.txt":
            dead = kind in BUSY and host.startswith(kind)
            return page("no", BUSY[kind], "Retry-After: 3600\r\n") if dead else page("", "404 Not Found")
        if path != "/":
            return page()
        found = dead_urls(kind, port) if host == linked_by else []
        return links(*found, *(f"/{n}" for n in range(PAGES))) if host == "victim.test" else links(*found)

    def seeds(of: int) -> list[str]:
        nonlocal port
        port = of
        return [f"http://evil.test:{port}/", f"http://victim.test:{port}/"]

    names = {f"{kind}{n}.victim.test": NAMES[kind] for n in range(DEAD)} if kind in NAMES else {}
    _, done, _ = await crawled(
        tmp_path / "c", web, names, seeds, until=lambda s: len(s.of("victim.test")) > PAGES,
        dns__timeout_s=1.0, dns__tries=1,
    )  # fmt: skip
    fine = [e for e in done.entries if e.url.startswith(f"http://victim.test:{port}/") and e.status == 200]
    assert len(fine) == PAGES + 1
    sent = sorted(entry.fetched_at for entry in fine)
    assert min(b - a for a, b in itertools.pairwise(sent)) >= DELAY_S, "too fast"


async def test_a_path_that_answers_503_for_an_hour_stops_no_other(tmp_path: Path) -> None:
    def web(host: str, path: str) -> Answer:
        if path == "/robots.txt":
            return page("", "404 Not Found")
        if path == "/busy":
            return page("no", "503 Service Unavailable", "Retry-After: 3600\r\n")
        return links("/busy", *(f"/{n}" for n in range(PAGES))) if path == "/" else page()

    server, done, _ = await crawled(
        tmp_path / "c", web, {}, lambda port: [f"http://victim.test:{port}/"],
        until=lambda s: len(s.of("victim.test")) > PAGES + 1, hosts__probe_s=0.2,
    )  # fmt: skip
    assert sum(e.status == 200 for e in done.entries) == PAGES + 1
    assert [path for _, _, path in server.requests].count("/busy") == 1, "it was told to wait"


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("robots", ["tarpit", "quick"])
async def test_more_tarpits_than_workers_leave_some_to_the_others(
    tmp_path: Path, robots: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that answer their robots.txt at once, and then nothing more."""
    tarpits = 40
    for module in (slow_hosts, fetch):
        monkeypatch.setattr(module, "PROMPT_MS", 300)
    monkeypatch.setattr(address_limit, "MAKE_WAY_MS", 200)
    monkeypatch.setattr(slow_hosts, "MAKE_WAY_MS", 200)

    def web(host: str, path: str) -> Answer:
        if host.startswith("tarpit") and (path != "/robots.txt" or robots == "tarpit"):
            return OPEN
        if path == "/robots.txt":
            return page("", "404 Not Found")
        return links(*(f"/{n}" for n in range(PAGES))) if path == "/" else page()

    def seeds(port: int) -> list[str]:
        return [*(f"http://tarpit{n}.test:{port}/" for n in range(tarpits)), f"http://fine.test:{port}/"]

    server, done, _ = await crawled(
        tmp_path / "c", web, {}, seeds, until=lambda s: len(s.of("fine.test")) > PAGES and s.open > 0,
        fetch__concurrency=8, fetch__idle_timeout_s=60.0, fetch__total_timeout_s=60.0,
        membership__drain_timeout_s=0.3,
    )  # fmt: skip
    assert sum(e.status == 200 for e in done.entries) == PAGES + 1
    assert server.most_open >= 1

"""What do twelve sites that do one thing wrong cost an innocent one? With the default settings.

Crawls an innocent site for some seconds, first alone, then beside the others, for each kind:

    names      pages that link to sixty names of the innocent domain that do not exist
    silent     the same, and no name server answers for them
    ports      pages that link to sixty closed ports of the innocent host
    robots     the innocent domain has ten hosts whose robots.txt answers 429 with Retry-After 3600
    paths      pages that link to one of the innocent host that answers 503 with Retry-After 3600
    tarpits    hosts at eight addresses that send a byte every four seconds, thirty for each of the twelve
    nameless   hosts whose names nobody answers for, thirty for each of the twelve
    links      pages of 600 links of 2 KB to as many domains
    address    forty tarpits at the address of the innocent site
    refused    pages that link to sixty https hosts each, for which the proxy of all answers CONNECT with 302
    unsocked   the same with a SOCKS5 proxy that says "not allowed"
    bodies     360 hosts at eight addresses whose pages stop before the end of 9 MB; the innocent one's have 400 kB
    challenged pages that link to sixty of their own, which a firewall's challenge answers

Prints pages per minute of the innocent site, and its share of what it has alone.
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

from crawler.crawl.build import open_instance
from crawler.crawl.opening import make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.settings import load
from crawler.testing.dns_server import DnsAnswer, DnsServer
from scripts.bench_lib import arguments
from tests.support.web_proxy import WebProxy

KINDS = (
    "names",
    "silent",
    "ports",
    "robots",
    "paths",
    "tarpits",
    "nameless",
    "links",
    "address",
    "refused",
    "unsocked",
    "challenged",
    "bodies",
)
PROXIES: dict[str, Literal["http", "socks5"]] = {"refused": "http", "unsocked": "socks5"}
SITES, EACH, INNOCENT = 12, 30, "innocent.test"
LONG, HUGE = 400_000, 9_000_000  # bytes of a body
AT_ONE = 40  # tarpits at one address
DRIP_S = 4.0
CHALLENGE = "<html><script>sucuri_cloudproxy_js='';w=String.fromCharCode</script></html>"


class Web:
    """The web server; `pages`: how many the innocent site has sent."""

    def __init__(self, kind: str) -> None:
        self.kind, self.port, self.pages = kind, 0, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled when the bench ends: nobody is to be told.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path, host = head.split(" ", 2)[1], head.partition("\r\nHost: ")[2].partition(":")[0]
                if self.kind == "bodies" and host.startswith("tarpit") and path != "/robots.txt":
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % HUGE)
                    for _ in range(HUGE // LONG - 1):
                        writer.write(b" " * LONG)
                        await writer.drain()
                    await asyncio.sleep(3600)
                if self.kind != "bodies" and host.startswith("tarpit"):
                    while not writer.is_closing():
                        writer.write(b"H")
                        await asyncio.sleep(DRIP_S)
                    return
                writer.write(self._answer(host, path))
                await writer.drain()
        writer.close()

    def _answer(self, host: str, path: str) -> bytes:
        if path == "/robots.txt":
            busy = host.startswith("busy")
            return _page("", "429 Too Many Requests" if busy else "404 Not Found", "Retry-After: 3600\r\n" * busy)
        if host == INNOCENT and path.startswith("/busy"):
            return _page("", "503 Service Unavailable", "Retry-After: 3600\r\n")
        if host == INNOCENT:
            self.pages += 1
            words = "some words" if self.kind != "bodies" else "some words ".ljust(LONG)
            return _page("".join(f"<a href=/{n}>x</a>" for n in range(2000)) if path == "/" else words)
        if self.kind == "challenged" and path != "/":
            return _page(CHALLENGE)
        return _page("".join(f"<a href='{url}'>x</a>" for url in self._targets(host)))

    def _targets(self, host: str) -> list[str]:
        if self.kind == "ports":
            return [f"http://{INNOCENT}:{n}/{host}" for n in range(2, 62)]
        if self.kind == "paths":
            return [f"http://{INNOCENT}:{self.port}/busy/{host}"]
        if self.kind == "links":
            return [f"http://{n}-{host}.invalid/{'a' * 2000}" for n in range(600)]
        if self.kind == "challenged":
            return [f"/{n}" for n in range(60)]
        if self.kind in PROXIES:
            return [f"https://{one}/" for one in _refused(host)]
        name = {"names": "gone", "silent": "silent", "robots": "busy"}.get(self.kind)
        return [f"http://{name}{n}.{INNOCENT}:{self.port}/{host}" for n in range(60)] if name else []


def _refused(host: str) -> list[str]:
    return [f"no{n}-{host}" for n in range(60)]


def _page(body: str, status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return (head + body).encode()


async def pages(kind: str, seconds: float, *, alone: bool = False) -> int:
    """How many pages of the innocent site come in this time beside sites of a kind, or alone."""
    web = Web(kind)
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0, backlog=1024)
    port = web.port = int(server.sockets[0].getsockname()[1])
    others = await asyncio.start_server(web.serve, [f"127.0.1.{n}" for n in range(8)], port, backlog=1024)
    silent, gone, here = DnsAnswer(silent=True), DnsAnswer(rcode=3), DnsAnswer(addresses=("127.0.0.1",))
    names = {"*.test": here, f"*.{INNOCENT}": here}
    names |= {f"tarpit{n}.test": DnsAnswer(addresses=(f"127.0.1.{n % 8}",)) for n in range(SITES * EACH)}
    names |= {
        f"{name}{n}.{INNOCENT}": answer for name, answer in (("gone", gone), ("silent", silent)) for n in range(60)
    }
    names |= {f"nameless{n}.test": silent for n in range(SITES * EACH)}
    names |= {f"tarpit-{n}.test": here for n in range(AT_ONE)}
    count = dict.fromkeys(("tarpits", "nameless", "bodies"), SITES * EACH).get(
        kind, AT_ONE if kind == "address" else SITES
    )
    name = {"tarpits": "tarpit", "bodies": "tarpit", "address": "tarpit-"}.get(kind, kind)
    hosts = [f"{name}{n}.test" for n in range(0 if alone else count)]
    seeds = [f"http://{host}:{port}/" for host in (*hosts, INNOCENT)]
    with tempfile.TemporaryDirectory(prefix="neighbours-") as home:
        async with AsyncExitStack() as stack:
            for one in (server, others):
                await stack.enter_async_context(one)
            dns = await stack.enter_async_context(DnsServer(names))
            options: dict[str, object] = {
                "fetch.allow_private": True, "dns.nameservers": [dns.address], "archive.dir": str(Path(home, "c")),
                "scope.mode": "any", "crawl.time_max_s": seconds, "membership.drain_timeout_s": 0.5,
            }  # fmt: skip
            if kind in PROXIES:
                proxy = await stack.enter_async_context(WebProxy(PROXIES[kind]))
                proxy.faults = {one: 302 if proxy.kind == "http" else 2 for host in hosts for one in _refused(host)}
                options["fetch.proxy"] = proxy.url
            async with open_crawl(load(environment={}, options=options), create=True) as crawl:
                await make_seeder(crawl).add_all([GivenUrl(f"seed {n}", url) for n, url in enumerate(seeds)])
                async with open_instance(await crawl.reloaded(), node="bench", until_finished=True) as instance:
                    await instance.run()
    return web.pages


def main(words: Sequence[str]) -> int:
    """Run the kinds one after the other."""
    parser = arguments.parser("neighbours", __doc__)
    parser.add_argument(
        "--kind", action="append", choices=KINDS, metavar="KIND", help=f"only this one: {', '.join(KINDS)} (repeatable)"
    )
    parser.add_argument("--seconds", type=arguments.positive_float, default=60, help="time that is measured")
    options: argparse.Namespace = parser.parse_args(words)
    began, alone_of = time.monotonic(), dict[str, int]()
    kinds: Sequence[str] = options.kind or KINDS
    for kind in ("", *(kind for kind in kinds if kind in PROXIES or kind == "bodies")):
        alone_of[kind] = asyncio.run(pages(kind, options.seconds, alone=True))
        print(f"alone{f' ({kind})' * bool(kind)}: {alone_of[kind] * 60 / options.seconds:.0f} pages/min", flush=True)
    for kind in kinds:
        alone = alone_of.get(kind, alone_of[""])
        found = asyncio.run(pages(kind, options.seconds))
        print(f"beside {kind}: {found * 60 / options.seconds:.0f} pages/min ({found / alone:.0%})", flush=True)
    print(f"took {time.monotonic() - began:.0f} s")
    return 0

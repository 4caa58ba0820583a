"""An endless web on one port, generated on request, at some 30 us of CPU a request.

    python -m scripts.bench_lib.generated_web --grow 2        prints its port, serves until its standard input ends

The sites are dN.test. Page /p/K links to --grow pages that no other page links to (so a site is a tree without leaves),
to some fifty pages near the beginning of its own and other sites, and every --host-every th page to a new site. With
--grow 0 a page links to known pages only. Sites bigN.test have pages of --big-bytes. With --close each response ends
its connection. Needs only the standard library and uvloop.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from pathlib import Path
from typing import TextIO, cast

BODIES = 64
LINKS_OWN, LINKS_AWAY = 40, 10
KNOWN = 20  # pages of a site that all pages link to: 0 to 19
NEW_HOSTS = 10_000_000  # numbers from here on are of sites that the crawl discovers
WORDS = ("a", "site", "page", "of", "the", "web", "that", "leads", "where", "words", "stand", "for", "text", "and")
ROBOTS = b"User-agent: *\nDisallow: /private/\n"
HTML_END = b"</body></html>\n"


class Web:
    """What the server answers. `hosts`: sites that pages link to; 0: only their own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.port = 0
        self._grow, self._host_every, self._hosts = options.grow, options.host_every, options.hosts
        self._bodies: list[bytes] = []
        self._big = b""
        self._big_bytes = options.big_bytes

    def open(self, port: int) -> None:
        self.port = port
        self._bodies = [self._body(random.Random(f"body {n}")) for n in range(BODIES)]

    def answer(self, host: str, path: str) -> tuple[bytes, bytes]:
        """Content type and body."""
        if path == "/robots.txt":
            return b"text/plain", ROBOTS
        kind = b"text/html; charset=utf-8"
        title = b"<!doctype html><html lang=en><head><meta charset=utf-8><title>%b%b</title></head><body>" % (
            host.encode(), path.encode(),
        )  # fmt: skip
        page = int(tail) if (tail := path.rpartition("/")[2]).isdigit() else 0
        if host.startswith("big"):
            return kind, title + b"<a href=/p/%d>on</a>" % (page + 1) + self._big_body(page)
        number = int(digits) if (digits := host[1:].partition(".")[0]).isdigit() else 0
        return kind, title + self._new_links(number, page) + self._bodies[(number * 31 + page) % BODIES]

    def _new_links(self, number: int, page: int) -> bytes:
        links = [b"<a href=/p/%d>next</a>\n" % (self._grow * page + n) for n in range(1, self._grow + 1)]
        if self._host_every and page % self._host_every == self._host_every - 1:
            other = NEW_HOSTS + random.Random(f"{number} {page}").randrange(10**9)
            links.append(b"<a href='http://d%d.test:%d/'>new</a>\n" % (other, self.port))
        return b"".join(links)

    def _body(self, rng: random.Random) -> bytes:
        links = [f"/p/{rng.randrange(KNOWN)}" for _ in range(LINKS_OWN)]
        links += [
            f"http://d{rng.randrange(self._hosts)}.test:{self.port}/p/{rng.randrange(KNOWN)}"
            for _ in range(LINKS_AWAY if self._hosts else 0)
        ]
        rng.shuffle(links)
        rows = "".join(f"<li><a href='{link}'>{_words(rng, 3)}</a><p>{_words(rng, 60)}</p>\n" for link in links)
        return f"<ul>{rows}</ul>".encode() + HTML_END

    def _big_body(self, page: int) -> bytes:
        """Made at the first request: few crawls need it."""
        if not self._big:
            small = self._body(random.Random("big")).removesuffix(HTML_END)
            self._big = small * (self._big_bytes // len(small)) + HTML_END
        return self._big + b"<!-- %d -->" % page


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, web: Web, log: TextIO | None, *, closes: bool) -> None:
        self._web, self._log, self._pending = web, log, b""
        self._close = b"Connection: close\r\n" if closes else b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports have no such base class

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while b"\r\n\r\n" in self._pending:
            head, _, self._pending = self._pending.partition(b"\r\n\r\n")
            self._request(head.decode("latin-1"))

    def _request(self, head: str) -> None:
        at = time.monotonic()
        path = head.split(" ", 2)[1]
        host = head.lower().partition("\nhost:")[2].partition("\n")[0].strip().partition(":")[0]
        kind, body = self._web.answer(host, path)
        assert self._transport is not None
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n" % (kind, len(body), self._close)
            + body
        )
        if self._close:
            self._transport.close()
        if self._log is not None:
            self._log.write(f"{at:.6f} {host} {path}\n")


async def serve(options: argparse.Namespace) -> None:
    loop, web = asyncio.get_running_loop(), Web(options)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.log.open("w", buffering=1 << 16)) if options.log else None
        server = await loop.create_server(
            lambda: Connection(web, log, closes=options.close), "127.0.0.1", 0, backlog=4096
        )
        web.open(server.sockets[0].getsockname()[1])
        print(web.port, flush=True)
        over = asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), over.set)
        await over.wait()
        server.close()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grow", type=int, default=2, help="pages that only this page links to (default: 2)")
    parser.add_argument("--hosts", type=int, default=100, help="sites that pages link to (default: 100)")
    parser.add_argument("--host-every", type=int, default=0, help="pages until one links to a new site; 0: none does")
    parser.add_argument("--big-bytes", type=int, default=10_000_000, help="of pages of bigN.test (default: 10 MB)")
    parser.add_argument("--close", action="store_true", help="each response ends its connection")
    parser.add_argument("--log", type=Path, help="a line for each request: monotonic seconds, host, path")
    return parser.parse_args()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(parse_arguments()))

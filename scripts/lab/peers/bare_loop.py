"""The least that a crawl in Python can cost: aiohttp, lexbor, can_ada, uvloop; a set and a queue in memory.

No frontier that survives, no archive, no politeness, no limits. Run as `bare_loop.py SEED PATTERN CONCURRENCY OUTPUT`.
"""

import asyncio
import re
import socket
import sys
from pathlib import Path

import aiohttp
import aiohttp.abc
import can_ada
import uvloop
from protego import Protego
from selectolax.lexbor import LexborHTMLParser

LINKS = "a[href],area[href]"  # reaches every page of this web


class LabResolver(aiohttp.abc.AbstractResolver):
    """Every name is this machine."""

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002
    ) -> list[aiohttp.abc.ResolveResult]:
        address: aiohttp.abc.ResolveResult = {
            "hostname": host,
            "host": "127.0.0.1",
            "port": port,
            "family": socket.AF_INET,
            "proto": 0,
            "flags": 0,
        }
        return [address]

    async def close(self) -> None:
        pass


class BareLoop:
    """Fetches all that `pattern` allows, `concurrency` at a time."""

    def __init__(self, seed: str, pattern: str, concurrency: int) -> None:
        self._wanted = re.compile(pattern).match
        self._concurrency = concurrency
        self._seen = {seed}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queue.put_nowait(seed)
        self._robots: dict[str, asyncio.Future[Protego]] = {}
        self.pages: list[str] = []

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(limit=self._concurrency, ttl_dns_cache=3600, resolver=LabResolver())
        async with aiohttp.ClientSession(connector=connector) as self._session:
            workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
            joined = asyncio.create_task(self._queue.join())
            await asyncio.wait([joined, *workers], return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                if worker.done():
                    worker.result()  # a worker never ends by itself: raises what broke it
                worker.cancel()

    async def _work(self) -> None:
        while True:
            url = await self._queue.get()
            if (await self._rules(url.split("/", 3)[2])).can_fetch(url, "bare-loop"):
                await self._page(url)
            self._queue.task_done()

    async def _rules(self, host: str) -> Protego:
        if host not in self._robots:
            self._robots[host] = asyncio.get_running_loop().create_future()
            async with self._session.get(f"http://{host}/robots.txt") as response:
                self._robots[host].set_result(Protego.parse(await response.text()))
        return await self._robots[host]

    async def _page(self, url: str) -> None:
        async with self._session.get(url, allow_redirects=False) as response:
            body = await response.read()
            if response.status != 200 or "html" not in response.headers.get("Content-Type", ""):
                return
        self.pages.append(url)
        base = can_ada.parse(url)
        hrefs = {node.attributes.get("href") or "" for node in LexborHTMLParser(body).css(LINKS)}
        for href in {href.partition("#")[0] for href in hrefs} - {""}:
            try:
                target = (base + href).href
            except ValueError:
                continue
            if target not in self._seen and self._wanted(target):
                self._seen.add(target)
                self._queue.put_nowait(target)


def main() -> None:
    seed, pattern, concurrency, output = sys.argv[1:]
    loop = BareLoop(seed, pattern, int(concurrency))
    uvloop.run(loop.run())
    Path(output).write_text("\n".join(loop.pages), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The least that a crawl in Python can cost: aiohttp, lexbor, can_ada, uvloop; a set and a queue in memory.

No persistent frontier, no archive, no politeness, no limits. Run as `bare_loop.py JOB` (job.py).
"""

import asyncio
import re

import aiohttp
import can_ada
import uvloop
from job import Job, read_job
from protego import Protego
from selectolax.lexbor import LexborHTMLParser

LINKS = "a[href],area[href]"  # reaches every page of these webs


class BareLoop:
    """Does one job. `pages` are those that it got."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._wanted = re.compile(job.pattern).match
        self._seen = set(job.seeds)
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        for seed in job.seeds:
            self._queue.put_nowait(seed)
        self._enough = asyncio.Event()
        self._robots: dict[str, asyncio.Future[Protego]] = {}
        self.pages: list[str] = []

    async def run(self) -> None:
        resolver = aiohttp.AsyncResolver(nameservers=[self._job.dns])
        connector = aiohttp.TCPConnector(limit=self._job.concurrency, ttl_dns_cache=3600, resolver=resolver)
        async with aiohttp.ClientSession(connector=connector) as self._session:
            workers = [asyncio.create_task(self._work()) for _ in range(self._job.concurrency)]
            ends = [asyncio.create_task(self._queue.join()), asyncio.create_task(self._enough.wait())]
            await asyncio.wait([*ends, *workers], return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                if worker.done():
                    worker.result()  # a worker never ends by itself: raises what broke it
            for task in (*ends, *workers):
                task.cancel()
            await asyncio.gather(*ends, *workers, return_exceptions=True)
        await resolver.close()

    async def _work(self) -> None:
        while True:
            url = await self._queue.get()
            if (await self._rules("/".join(url.split("/", 3)[:3]))).can_fetch(url, "bare-loop"):
                await self._page(url)
            self._queue.task_done()

    async def _rules(self, origin: str) -> Protego:
        if origin not in self._robots:
            self._robots[origin] = asyncio.get_running_loop().create_future()
            async with self._session.get(f"{origin}/robots.txt") as response:
                self._robots[origin].set_result(Protego.parse(await response.text()))
        return await self._robots[origin]

    async def _page(self, url: str) -> None:
        async with self._session.get(url, allow_redirects=False) as response:
            body = await response.read()
            if response.status != 200 or "html" not in response.headers.get("Content-Type", ""):
                return
        if self._enough.is_set():
            return
        self.pages.append(url)
        if self._job.is_enough(len(self.pages)):
            self._enough.set()
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
    job = read_job()
    loop = BareLoop(job)
    uvloop.run(loop.run())
    job.write_pages(loop.pages)


if __name__ == "__main__":
    main()

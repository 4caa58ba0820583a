"""One small crawl over many hostile sites at once; each row looks at its own host afterwards.

A site is a host under .test with pages as raw responses. All sites are seeds, so what one of them does to the others
shows: every row's pages that are to come must be there at the end of the one crawl.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawler.crawl.instance import Instance
from crawler.model import CommitEntry
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.hostile_server import Close, HostileServer, Step

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def ok(body: bytes | str, kind: str = "text/html", *, more: str = "", status: str = "200 OK") -> bytes:
    """A response as it should be, whatever its body is."""
    data = body if isinstance(body, bytes) else body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    return head.encode("latin-1") + data


def moved(location: bytes | str, *, more: str = "", status: str = "302 Found") -> bytes:
    to = location if isinstance(location, bytes) else location.encode("latin-1")
    return f"HTTP/1.1 {status}\r\n{more}Location: ".encode() + to + b"\r\nContent-Length: 0\r\n\r\n"


def links(*hrefs: str) -> bytes:
    """A page with links, each href as it is written."""
    return ok("".join(f'<a href="{href}">x</a>\n' for href in hrefs))


@dataclass(frozen=True)
class Site:
    """A row's host and what is to be seen of it. Paths stand for those of its own host, "other.test/x" for others.

    `wanted`: committed, with whatever status; `unwanted`: beginnings of targets that must not be asked for.
    """

    pages: Mapping[str, bytes | Sequence[Step]]
    wanted: Sequence[str] = ()
    unwanted: Sequence[str] = ()
    requests_max: int = 60


@dataclass
class Outcome:
    """What is left of the crawl."""

    entries: dict[str, CommitEntry] = field(default_factory=dict)  # by "host/path"
    requests: list[str] = field(default_factory=list)
    instance: Instance | None = None
    answered_at_once: int = 0
    port: int = 0


def crawl_all(sites: Mapping[str, Site], folder: Path, **options: Any) -> Outcome:
    """Crawl them together. Ids of rows ("R01-loop") give the hosts ("r01-loop.test")."""
    return asyncio.run(_crawl_all(sites, folder, options))


async def _crawl_all(sites: Mapping[str, Site], folder: Path, options: Mapping[str, Any]) -> Outcome:
    by_path: dict[str, Sequence[Step]] = {}
    async with HostileServer(NOT_FOUND, by_path=by_path) as server, lab_names() as dns:
        for name, site in sites.items():
            for path, answer in site.pages.items():
                key = path if not path.startswith("/") else f"{host_of(name)}{path}"
                steps = [answer] if isinstance(answer, bytes) else answer
                by_path[key] = [_with_port(step, server.port) for step in steps]
        settings = settings_of(
            folder, **{"dns__nameservers": [dns], "scope__mode": "any", "fetch__idle_timeout_s": 0.3,
                       "fetch__total_timeout_s": 1.5, "crawl__time_max_s": 60.0, **options},
        )  # fmt: skip
        done = await crawl(settings, [f"http://{host_of(name)}:{server.port}/" for name in sites])
        assert [i.stopped_because for i in done.instances] == ["finished"]
        assert done.errors == []
        assert done.twice == []
        entries = {e.url.partition("//")[2].replace(f":{server.port}", ""): e for e in done.entries}
        return Outcome(entries, server.urls, done.instances[0], server.answering_max, server.port)


def host_of(name: str) -> str:
    return f"{name.lower()}.test"


def _with_port(step: Step, port: int) -> Step:
    """PORT in a response is the server's; a length that was counted before must have as many digits."""
    return (
        step.replace(b":PORT0", b":%05d" % port if port >= 10000 else b":%d" % port)
        if isinstance(step, bytes)
        else step
    )


def check(name: str, site: Site, outcome: Outcome) -> None:
    """What every row of such a crawl has to show."""
    own = host_of(name)
    for wanted in site.wanted:
        full = f"{own}{wanted}" if wanted.startswith("/") else wanted
        assert full in outcome.entries, sorted(e for e in outcome.entries if e.startswith(own))
    for unwanted in site.unwanted:
        full = f"{own}{unwanted}" if unwanted.startswith("/") else unwanted
        assert not [r for r in outcome.requests if r.startswith(full)]
    assert len([r for r in outcome.requests if r.startswith(own)]) <= site.requests_max


__all__ = ["NOT_FOUND", "Close", "Outcome", "Site", "check", "crawl_all", "host_of", "links", "moved", "ok"]

"""The fetcher that simulated instances are given, and the requests that judge them.

Answers take virtual time; a request that was sent counts whatever happens to its sender.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from crawler.model import Failure, FailureKind, FetchResult, Response
from tests.simulation.clocks import VirtualTime
from tests.simulation.loop import NS, PROCESS, Process, VirtualLoop
from tests.simulation.web import POSTED, Gone, Kind, Site, Url, Web, host_of

AWAY_MS = 500  # what needs the network waits for so long until it tries again
SHARED_ADDRESS = "192.0.2.1"
NO_NAME = {Gone.ABSENT: FailureKind.DNS_NOT_FOUND, Gone.NAMELESS: FailureKind.DNS_ERROR}


@dataclass(frozen=True, slots=True)
class Request:
    """When it was sent, by whom; `late` if its sender slept between its last check and this."""

    at_ns: int
    process: Process
    url: str
    queue: str
    robots: bool
    late: bool


@dataclass(slots=True)
class Internet:
    """The web as it is reached; `on_request` hears of each request when it is sent."""

    web: Web
    loop: VirtualLoop
    connect_s: Callable[[], float]
    before_write: Callable[[Process], bool] = lambda _: False  # True: the process was put to sleep just there
    on_request: Callable[[Request], None] = lambda _: None
    on_cut_off: Callable[[str], None] = lambda _: None  # whoever requested it did not wait for the answer
    is_away: bool = False  # of the instances: no host can be reached
    answered_ns: dict[Process, int] = field(default_factory=dict)  # when its last request ends

    def take(self, url: str, process: Process, *, late: bool) -> tuple[float, FetchResult]:
        """The answer to a request, and after how many seconds it comes."""
        site, page = self.web.site_of(url), self.web.urls.get(url)
        is_robots = url.endswith("/robots.txt")
        queue = site.domain if site else host_of(url)
        self.on_request(Request(self.loop.now_ns, process, url, queue, is_robots, late))
        seconds = page.seconds if page is not None else 0.02
        self.answered_ns[process] = max(self.answered_ns.get(process, 0), self.loop.now_ns + round(seconds * NS))
        if is_robots and site is not None:
            return seconds, _robots(self.web, site, url)
        if page is None:
            return seconds, _response(url, 404)
        page.took += 1
        return seconds, _answer(page, has_pictures=self.web.has_pictures)


def _robots(web: Web, site: Site, url: str) -> FetchResult:
    site.took += 1
    if site.took <= site.robots_failures:
        return _response(url, 503)
    site.read.add(host_of(url))
    if site.redirected_to:
        return _response(url, 301, location=f"http://{site.redirected_to}/robots.txt")
    if not site.has_robots:
        return _response(url, 404)
    delay = "" if site.crawl_delay_s is None else f"Crawl-delay: {site.crawl_delay_s}\n"
    return _response(url, 200, f"User-agent: *\nDisallow: /private/\n{delay}", media="text/plain")


def _answer(page: Url, *, has_pictures: bool) -> FetchResult:
    if page.kind is Kind.BROKEN or (page.kind in (Kind.FLAKY, Kind.POSTED) and page.took <= page.failures):
        if page.took % 3 == 2 or page.kind is Kind.POSTED:
            return FetchResult(url=page.url, failure=Failure(kind=FailureKind.DISCONNECTED, detail="reset"))
        return _response(page.url, 500)
    if page.kind is Kind.REDIRECT:
        return _response(page.url, page.status, location=page.links[0])
    if page.kind is Kind.PICTURE:
        return _response(page.url, 200, "GIF89a", media="image/gif")
    links = "".join(map(_link_to, page.links))
    links += "".join(f'<img src="{url}">' for url in page.shows)
    icon = '<link rel="icon" href="data:,">' if has_pictures else ""  # else its site's is requested
    return _response(page.url, page.status, f"<html>{icon}<title>{page.url}</title><body>{links}</body></html>")


def _link_to(url: str) -> str:
    if POSTED in url:
        return f'<form method="post" action="{url}"><input name="n" value="1"></form>'
    return f'<p><a href="{url}">to {url}</a></p>'


def _response(url: str, status: int, text: str = "", *, location: str = "", media: str = "text/html") -> FetchResult:
    headers = [(b"Content-Type", media.encode())]
    if location:
        headers.append((b"Location", location.encode()))
    body = text.encode()
    response = Response(
        url=url, status=status, reason="", http_version="1.1", headers=tuple(headers), raw_body=body, body=body,
        request_head=b"GET / HTTP/1.1\r\n\r\n", remote_ip=SHARED_ADDRESS, started_at=0.0, fetch_ms=0,
    )  # fmt: skip
    return FetchResult(url=url, response=response)


class OwnNetwork:
    """What `crawler.web.own_network.OwnNetwork` is: it knows at once that nothing can be reached."""

    def __init__(self, internet: Internet) -> None:
        self._net = internet

    def look(self) -> None:
        """There is nobody to ask."""

    @property
    def trouble(self) -> str:
        return "no host answers" if self._net.is_away else ""


class SimFetcher:
    """What `crawler.web.fetcher.Fetcher` is to an instance."""

    def __init__(self, internet: Internet) -> None:
        self._net = internet
        self.network = OwnNetwork(internet)
        self._time = VirtualTime(internet.loop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is kept open."""

    def own_wait_ms(self, _url: str) -> int:
        return AWAY_MS if self._net.is_away else 0

    def proxy_trouble(self) -> str:
        return ""

    def note_answer(self, *_: object) -> None:
        """Nobody is blamed for what fails here."""

    def kept_head(self, url: str) -> bytes:
        return url.encode()

    async def taken(self, _body_bytes: int, read: Callable[[], Response]) -> Response:
        return read()

    def known_address_of(self, url: str) -> str | None:
        dead = self._net.web.dead.get(host_of(url))
        return None if dead is not None and dead.gone in NO_NAME else host_of(url)

    async def address_of(self, url: str) -> str | Failure:
        dead = self._net.web.dead.get(host_of(url))
        if dead is None or dead.gone not in NO_NAME:
            return host_of(url)
        await asyncio.sleep(dead.seconds)
        return Failure(kind=NO_NAME[dead.gone], detail="no such name")

    async def reach(self, url: str) -> Failure | None:
        await asyncio.sleep(self._net.connect_s())
        if self._net.is_away:
            return Failure(kind=FailureKind.NETWORK, detail="no host answers")
        dead = self._net.web.dead.get(host_of(url))
        if dead is None or not dead.refuses(asyncio.get_running_loop().time()):
            return None
        await asyncio.sleep(dead.seconds)
        return Failure(kind=FailureKind.CONNECT, detail="refused")

    async def fetch(
        self,
        url: str,
        *,
        note_sent: Callable[[], Awaitable[None]] | None = None,
        before_send: Callable[[], None] | None = None,
        **_: Any,
    ) -> FetchResult:
        net, process = self._net, PROCESS.get()
        assert process is not None
        if (failure := await self.reach(url)) is not None:
            return FetchResult(url=url, failure=failure)
        if note_sent is not None:
            await note_sent()
        if before_send is not None:
            before_send()
        late = net.before_write(process)
        if late:
            await asyncio.sleep(0)  # paused until this process is resumed; then the bytes go out
        sent_ns, started_at = net.loop.now_ns, self._time.time()
        seconds, result = net.take(url, process, late=late)
        arrived: asyncio.Future[None] = net.loop.create_future()
        net.loop.after(seconds, _set, arrived)
        try:
            await arrived
        except asyncio.CancelledError:
            net.on_cut_off(url)
            raise
        fetch_ms = (net.loop.now_ns - sent_ns) // 1_000_000
        if result.response is None:
            return FetchResult(url=url, failure=result.failure, fetch_ms=fetch_ms)
        fields: dict[str, Any] = {name: getattr(result.response, name) for name in Response.__struct_fields__}
        response = Response(**(fields | {"started_at": started_at, "fetch_ms": fetch_ms}))
        return FetchResult(url=url, response=response, fetch_ms=fetch_ms)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)

"""One archived page, opened in a browser on the archive alone: what it requested, and what of that was there."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from crawler.archive.folder import archive_error
from crawler.audit.chromium import BrowserGone, Chromium, ProtocolError, decoded, encoded
from crawler.audit.replay_archive import Answer, Asked, ReplayArchive

PAGE_S = 30.0  # then it has failed
WIDTH, HEIGHT = 1280, 800
HEIGHT_MAX = 12_000  # to which a window grows, so that pictures are requested that wait until they are scrolled to
QUIET_S = 0.5  # without a request: then a page has all that it asks for by itself
QUIET_MAX_S = 5.0  # after that nobody waits: it asks again and again
LOOK_S = 0.05
ANSWERS_AT_ONCE = 2  # of a page that are in memory
REQUESTS_MAX = 3_000  # of a page that are answered
MISSING_MAX = 100  # of a page that are named
URL_MAX = 500  # characters of these
_PREFLIGHT = "Preflight"
_ICON = "/favicon.ico"  # browsers ask every site for it, though no page names it: only where it is there does it count
_NEEDED = frozenset(("content-type", "location"))


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """A page that is to be opened."""

    url: str
    fingerprint: int
    visit: int
    fetched_at: float
    domain: str


class Missing(msgspec.Struct, frozen=True):
    """What a page requested and the archive does not have. `kind`: as browsers call it (Image, Script, Fetch)."""

    url: str
    kind: str


class PageReplay(msgspec.Struct, kw_only=True):
    """What came of a page. `failed`: why it could not be opened, or not to its end; "": it was."""

    url: str
    domain: str
    requests: int = 0
    answered: int = 0
    kinds: dict[str, int] = {}  # missing requests by kind
    missing: list[Missing] = []  # each URL once, the first ones
    failed: str = ""
    picture: str = ""

    @property
    def lacks(self) -> int:
        return self.requests - self.answered


async def replay_page(browser: Chromium, archive: ReplayArchive, page: Sampled, picture: Path | None) -> PageReplay:
    """Open it in a window that shares nothing with others. Raises BrowserGone, and ArchiveError for the picture."""
    context = (await browser.call("Target.createBrowserContext"))["browserContextId"]
    try:
        await browser.call("Browser.setDownloadBehavior", behavior="deny", browserContextId=context)
        made = await browser.call("Target.createTarget", url="about:blank", browserContextId=context)
        where = await browser.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        opened = _Opened(browser, archive, page, where["sessionId"])
        data = await opened.look(wants_picture=picture is not None)
    except ProtocolError as error:
        return PageReplay(url=page.url, domain=page.domain, failed=str(error))
    finally:
        with contextlib.suppress(ProtocolError, BrowserGone):
            await browser.call("Target.disposeBrowserContext", browserContextId=context)
    if browser.is_gone:
        raise BrowserGone("Chromium has ended")
    if picture is not None and data:
        _write(picture, data)
        opened.found.picture = picture.name
    return opened.found


def _write(picture: Path, data: bytes) -> None:
    try:
        picture.write_bytes(data)
    except OSError as error:
        raise archive_error("write", picture, error) from None


class _Opened:
    """A window with one page."""

    def __init__(self, browser: Chromium, archive: ReplayArchive, page: Sampled, session: str) -> None:
        self._browser, self._archive, self._page, self._session = browser, archive, page, session
        self._group = asyncio.TaskGroup()
        self._sessions = [session]
        self._loaded, self._crashed = asyncio.Event(), asyncio.Event()
        self._pending, self._last_s = 0, 0.0
        self._named = set[str]()
        self._answering = asyncio.Semaphore(ANSWERS_AT_ONCE)
        self.found = PageReplay(url=page.url, domain=page.domain, kinds=Counter())

    async def look(self, *, wants_picture: bool) -> bytes:
        """The picture, if it is wanted; what was found is in `found`."""
        picture = b""
        async with self._group:
            try:
                async with asyncio.timeout(PAGE_S):
                    picture = await self._open(wants_picture=wants_picture)
            except TimeoutError:
                self.found.failed = f"not done within {PAGE_S:g} s"
            except (ProtocolError, BrowserGone) as error:
                self.found.failed = str(error)
            finally:
                for session in self._sessions:
                    self._browser.ignore(session)
        return picture

    async def _open(self, *, wants_picture: bool) -> bytes:
        await self._prepare(self._session)
        await self._call("Network.enable")
        await self._call("Network.setBypassServiceWorker", bypass=True)
        await self._call("Page.enable")
        await self._resize(HEIGHT)
        opening = await self._call("Page.navigate", url=self._page.url)
        if said := opening.get("errorText"):
            self.found.failed = f"can't be opened: {said.removeprefix('net::')}"
            return b""
        await self._end_of_loading()
        size = await self._call("Page.getLayoutMetrics")
        await self._resize(min(HEIGHT_MAX, int(size["cssContentSize"]["height"])))
        await self._quiet()
        if not wants_picture:
            return b""
        await self._resize(HEIGHT)
        taken = await self._call("Page.captureScreenshot", format="png")
        return decoded(taken["data"])

    async def _end_of_loading(self) -> None:
        """Raises ProtocolError if the page has crashed."""
        while not self._loaded.is_set():
            if self._crashed.is_set():
                raise ProtocolError("the page has crashed the browser's process")
            if self._browser.is_gone:
                raise BrowserGone("Chromium has ended")
            await asyncio.sleep(LOOK_S)
        await self._quiet()

    async def _quiet(self) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        self._last_s = max(self._last_s, begun_s)
        while (now_s := loop.time()) - begun_s < QUIET_MAX_S:
            if not self._pending and now_s - self._last_s >= QUIET_S:
                return
            await asyncio.sleep(LOOK_S)

    async def _resize(self, height: int) -> None:
        await self._call(
            "Emulation.setDeviceMetricsOverride", width=WIDTH, height=max(HEIGHT, height), deviceScaleFactor=1,
            mobile=False,
        )  # fmt: skip

    async def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._browser.call(method, self._session, **parameters)

    # --- what it requests ---

    async def _prepare(self, session: str) -> None:
        """Its requests come to us before they are sent; so do those of frames and workers that it starts."""

        def heard(event: str, said: dict[str, Any]) -> None:
            self._hear(session, event, said)

        self._browser.listen(session, heard)
        await self._browser.call("Fetch.enable", session, patterns=[{"urlPattern": "*"}])
        await self._browser.call(
            "Target.setAutoAttach", session, autoAttach=True, waitForDebuggerOnStart=True, flatten=True
        )

    def _hear(self, session: str, event: str, said: dict[str, Any]) -> None:
        if event == "Fetch.requestPaused":
            self._pending += 1
            self._group.create_task(self._requested(session, said))
        elif event == "Target.attachedToTarget":
            self._group.create_task(self._attached(said["sessionId"]))
        elif event == "Page.javascriptDialogOpening":
            self._group.create_task(self._tried("Page.handleJavaScriptDialog", session, accept=False))
        elif event == "Page.loadEventFired" and session == self._session:
            self._loaded.set()
        elif event == "Inspector.targetCrashed":
            self._crashed.set()

    async def _attached(self, session: str) -> None:
        self._sessions.append(session)
        with contextlib.suppress(ProtocolError, BrowserGone):  # some kinds of workers request nothing by themselves
            await self._prepare(session)
        await self._tried("Runtime.runIfWaitingForDebugger", session)

    async def _tried(self, method: str, session: str, **parameters: Any) -> bool:
        """Was it done? What a call is about may be gone at any moment."""
        try:
            await self._browser.call(method, session, **parameters)
        except (ProtocolError, BrowserGone):
            return False
        return True

    async def _requested(self, session: str, said: dict[str, Any]) -> None:
        try:
            async with self._answering:
                await self._answer(session, said["requestId"], said["request"], said["resourceType"])
        finally:
            self._pending -= 1
            self._last_s = asyncio.get_running_loop().time()

    async def _answer(self, session: str, number: str, request: Mapping[str, Any], kind: str) -> None:
        if kind == _PREFLIGHT:
            await self._give(session, number, Answer(status=204, headers=(), body=b""), request["headers"])
            return
        answer = None
        self.found.requests += 1
        if self.found.requests <= REQUESTS_MAX:
            answer = await asyncio.to_thread(self._archive.answer, _asked(request), self._page.fetched_at)
        if answer is None:
            if kind == "Other" and urlsplit(request["url"]).path == _ICON:
                self.found.requests -= 1
            else:
                self._note_missing(request["url"], kind)
            await self._tried("Fetch.failRequest", session, requestId=number, errorReason="Failed")
            return
        self.found.answered += 1
        await self._give(session, number, answer, request["headers"])

    async def _give(self, session: str, number: str, answer: Answer, asked: Mapping[str, str]) -> None:
        headers = [(name, value) for name, value in answer.headers if not name.lower().startswith("access-control-")]
        if origin := next((value for name, value in asked.items() if name.lower() == "origin"), ""):
            # What a site lets others read was answered to a crawler, which is no other site. Replays ask no more.
            headers += [("Access-Control-Allow-Origin", origin), ("Access-Control-Allow-Credentials", "true")]
            headers += [(f"Access-Control-Allow-{what}", asked.get(f"Access-Control-Request-{what[:-1]}", "*"))
                        for what in ("Headers", "Methods")]  # fmt: skip
        body = encoded(answer.body)
        few = [one for one in headers if one[0].lower() in _NEEDED]
        for some in (headers, few):  # a browser refuses headers that it would not accept from a server
            given = [{"name": name, "value": value} for name, value in some]
            if await self._tried(
                "Fetch.fulfillRequest", session, requestId=number, responseCode=answer.status or 200,
                responseHeaders=given, body=body,
            ):  # fmt: skip
                return

    def _note_missing(self, url: str, kind: str) -> None:
        self.found.kinds[kind] = self.found.kinds.get(kind, 0) + 1
        shown = url[:URL_MAX]
        if len(self.found.missing) < MISSING_MAX and shown not in self._named:
            self._named.add(shown)
            self.found.missing.append(Missing(shown, kind))


def _asked(request: Mapping[str, Any]) -> Asked:
    parts = request.get("postDataEntries") or ()
    kind = next((value for name, value in request["headers"].items() if name.lower() == "content-type"), "")
    return Asked(
        method=request["method"], url=request["url"], body=b"".join([decoded(one.get("bytes", "")) for one in parts]),
        content_type=kind,
    )  # fmt: skip

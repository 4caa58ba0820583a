"""What Chromium makes of pages: the same bytes from loopback, one browser for all of them.

    async with Chromium() as browser:
        seen = await browser.open(url)          # Seen, or None where the browser shows an error page instead

Speaks the DevTools protocol over a websocket. The product never needs it; a test that does takes `needs_chromium`.
"""

import asyncio
import contextlib
import itertools
import json
import shutil
import tempfile
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
import pytest

BINARY = shutil.which("chromium") or ""
needs_chromium = pytest.mark.skipif(not BINARY, reason="there is no Chromium on this machine to compare with")
PAGE_S = 4.0
TABS = 6
_ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
_SEEN = """JSON.stringify({
    type: document.contentType, charset: document.characterSet, title: document.title,
    links: [...document.querySelectorAll("a[href], area[href]")].map(a => a.href),
    text: document.body ? document.body.innerText : (document.documentElement || {textContent: ""}).textContent,
})"""


class Seen(msgspec.Struct, frozen=True):
    """A document as scripts see it."""

    type: str
    charset: str
    title: str
    links: tuple[str, ...]
    text: str


class Chromium:
    """An async context manager around one browser with some tabs; `open` may be called by many tasks."""

    def __init__(self, *, javascript: bool = False) -> None:
        self._javascript = javascript
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._events: dict[str, asyncio.Queue[tuple[str, str]]] = {}  # by tab: documents, and how they ended
        self._tabs: asyncio.Queue[str] = asyncio.Queue()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        home = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True))
        process = await asyncio.create_subprocess_exec(
            BINARY, *_ARGUMENTS, f"--user-data-dir={home}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._stack.push_async_callback(_end, process)
        assert process.stderr is not None
        async with asyncio.timeout(60):
            address = ""
            while not address:
                line = (await process.stderr.readline()).decode("utf-8", "replace")
                assert line, "the browser ended at once"
                address = line.partition("DevTools listening on ")[2].strip()
        session = await self._stack.enter_async_context(aiohttp.ClientSession())
        self._socket = await self._stack.enter_async_context(session.ws_connect(address, max_msg_size=0))
        for loop in (self._read(), _drain(process.stderr)):
            task = asyncio.create_task(loop)
            self._stack.callback(task.cancel)
        for _ in range(TABS):
            await self._new_tab()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def open(self, url: str) -> Seen | None:
        """The document at a URL once it has loaded; None for an error page, a download, or no document in time."""
        tab = await self._tabs.get()
        events = self._events[tab]
        try:
            async with asyncio.timeout(PAGE_S):
                went = await self._call("Page.navigate", tab, url=url)
                if went.get("errorText") or went.get("isDownload"):
                    return None
                while (event := await events.get())[0] != went["loaderId"]:
                    pass
                if event[1] == "failed":  # within its body: there may be a part of a document, of which it says so
                    return None
                found = await self._call("Runtime.evaluate", tab, expression=_SEEN, returnByValue=True)
            return msgspec.json.decode(found["result"]["value"], type=Seen)
        except TimeoutError:
            return None
        finally:
            self._tabs.put_nowait(tab)

    async def _new_tab(self) -> None:
        target = (await self._call("Target.createTarget", url="about:blank"))["targetId"]
        tab = (await self._call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        self._events[tab] = asyncio.Queue()
        await self._call("Page.enable", tab)
        await self._call("Network.enable", tab)
        await self._call("Page.setLifecycleEventsEnabled", tab, enabled=True)
        await self._call("Emulation.setScriptExecutionDisabled", tab, value=not self._javascript)
        self._tabs.put_nowait(tab)

    async def _call(self, method: str, tab: str = "", **params: Any) -> Any:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params} | ({"sessionId": tab} if tab else {})
        await self._socket.send_str(json.dumps(message))
        return await answer

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                answer = self._answers.pop(said["id"])
                if not answer.done():
                    answer.set_result(said.get("result", {}))
            elif said.get("method") == "Page.lifecycleEvent" and said["params"]["name"] == "load":
                self._events[said["sessionId"]].put_nowait((said["params"]["loaderId"], "load"))
            elif said.get("method") == "Network.loadingFailed":
                self._events[said["sessionId"]].put_nowait((said["params"]["requestId"], "failed"))


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()

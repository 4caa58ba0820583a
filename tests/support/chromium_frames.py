"""Debian's Chromium over the same bytes: loads documents from loopback, and tells what it makes of each.

    async with chromium() as browser:
        seen = await browser.read([Document(b"<a href=x>", "text/html")])
One page reads all documents, in frames without scripts; every name leads to this server. Only for slow tests.
"""

import asyncio
import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import pytest

PROGRAM = "/usr/bin/chromium"
HOST, AT_ONCE = "site.test", 6

needs_chromium = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"there is no {PROGRAM}")

_READ = """
async (count, atOnce) => {
  const unseen = new Set(%s);
  const seen = [];
  const nodes = (root, take) => {
    for (const node of root.childNodes) {
      take(node);
      if (node.shadowRoot) nodes(node.shadowRoot, take);
      nodes(node, take);
    }
  };
  const of = doc => {
    const links = [];
    let text = '';
    nodes(doc, node => {
      const name = node.localName, has = one => node.hasAttribute(one);
      if (node.namespaceURI !== 'http://www.w3.org/1999/xhtml') {
        if (name === 'a' && node.href?.baseVal !== undefined && (has('href') || has('xlink:href')))
          links.push(Object.assign(doc.createElement('a'), {href: node.href.baseVal}).href);
      } else if ((name === 'a' || name === 'area') && has('href')) links.push(node.href);
      else if ((name === 'iframe' || name === 'frame') && node.getAttribute('src')) links.push(node.src);
      else if (name === 'link' && has('href')) {
        const rels = (node.getAttribute('rel') || '').toLowerCase().split(/[\\t\\n\\f\\r ]+/);
        const of = (...words) => words.some(one => rels.includes(one));
        if (of('next', 'prev', 'alternate') && !of('stylesheet', 'canonical')) links.push(node.href);
      }
    });
    const roots = doc.body && doc.body.localName === 'body' ? [doc.body] : [];
    const texts = root => {
      if (root.shadowRoot) roots.push(root.shadowRoot);
      for (const node of root.childNodes) {
        if (node.nodeType === 3) text += node.data;
        else if (node.nodeType === 1 && !unseen.has(node.localName)) texts(node);
      }
    };
    for (const root of roots) texts(root);
    return {charset: doc.characterSet, title: doc.title, links, text: text.replace(/\\s+/g, '')};
  };
  const read = number => new Promise(done => {
    const frame = document.createElement('iframe');
    frame.sandbox = 'allow-same-origin';
    frame.onload = () => {
      seen[number] = of(frame.contentDocument);
      frame.remove();
      done();
    };
    frame.src = '/d' + number + '/page';
    document.body.append(frame);
  });
  let next = 0;
  const worker = async () => { while (next < count) await read(next++); };
  await Promise.all(Array.from({length: atOnce}, worker));
  return JSON.stringify(seen);
}
"""


@dataclass(frozen=True)
class Document:
    """What the server sends for one URL."""

    body: bytes
    content_type: str = ""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()  # text as latin-1


def url_of(number: int) -> str:
    return f"http://{HOST}/d{number}/page"


class Browser:
    """A running Chromium with one page, and the server that it reads from."""

    def __init__(self, server: "_Server", socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._server, self._socket, self._session = server, socket, session

    async def read(self, documents: Sequence[Document], unseen: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Of each: charset, title, links (of HTML elements, in order) and text (without blanks and `unseen`)."""
        self._server.documents = list(documents)
        return json.loads(await self.evaluate(f"({_READ % json.dumps(list(unseen))})({len(documents)}, {AT_ONCE})"))

    async def target(self, document: Document) -> str:
        """Where Chromium goes from a response: the URL of the next request; "" for nowhere."""
        self._server.documents, self._server.requests = [document], []
        await self.evaluate("fetch('/d0/page', {mode: 'no-cors'}).then(r => r.text(), e => String(e))")
        return self._server.requests[1] if len(self._server.requests) > 1 else ""

    async def evaluate(self, script: str) -> Any:
        """The value of an expression on the page; promises are awaited."""
        asked = {"expression": script, "awaitPromise": True, "returnByValue": True}
        found = await _call(self._socket, "Runtime.evaluate", asked, self._session)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    documents: list[Document]
    requests: list[str]

    def handle_error(self, *_: object) -> None: ...


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        path = self.requestline.split(" ")[1]  # `self.path` has no two slashes at its beginning
        self.server.requests.append(f"http://{self.headers['host']}{path}")
        number = path.removeprefix("/d").removesuffix("/page")
        known = self.server.documents if self.headers["host"] == HOST else []
        one = known[int(number)] if number.isdigit() and int(number) < len(known) else Document(b"", "text/html")
        self.send_response(one.status)
        for name, value in (("Content-Type", one.content_type), *one.headers):
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(one.body)))
        self.end_headers()
        self.wfile.write(one.body)

    def log_message(self, *_: object) -> None: ...


_ids = iter(range(1, 1 << 30))


async def _call(
    socket: aiohttp.ClientWebSocketResponse, method: str, params: dict[str, Any], session: str = ""
) -> dict[str, Any]:
    number = next(_ids)
    to = {"sessionId": session} if session else {}
    await socket.send_json({"id": number, "method": method, "params": params, **to})
    async with asyncio.timeout(300):
        while (answer := await socket.receive_json()).get("id") != number:
            pass
    assert "error" not in answer, answer
    return answer["result"]


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser with a folder and a server of its own."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.documents, server.requests = [], []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(lambda: (server.shutdown(), server.server_close()))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        process = await asyncio.create_subprocess_exec(
            PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
            f"--user-data-dir={folder}", "--disable-background-networking", "--disable-features=HttpsUpgrades",
            f"--host-resolver-rules=MAP * 127.0.0.1:{server.server_port}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        stack.push_async_callback(process.wait)
        stack.callback(process.kill)
        file = folder / "DevToolsActivePort"
        async with asyncio.timeout(60):
            while not file.exists() or "\n" not in file.read_text():
                await asyncio.sleep(0.05)
        port, path = file.read_text().split("\n")[:2]
        client = await stack.enter_async_context(aiohttp.ClientSession())
        socket = await stack.enter_async_context(client.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0))
        target = await _call(socket, "Target.createTarget", {"url": f"http://{HOST}/"})
        session = await _call(socket, "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        browser = Browser(server, socket, session["sessionId"])
        async with asyncio.timeout(60):
            while await browser.evaluate("document.readyState + location.host") != f"complete{HOST}":
                await asyncio.sleep(0.05)
        yield browser

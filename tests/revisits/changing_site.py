"""A site whose pages change, and which tells whether they have; in threads of this process, with a log of requests."""

import contextlib
import gzip
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Asked(NamedTuple):
    """A request for a page as the site saw it."""

    path: str
    headers: dict[str, str]  # names in lower case
    status: int


class Changing:
    """`pages`: path -> HTML; `headers`: path -> what is sent with it. By default each has the ETag of its body."""

    def __init__(self, port: int, pages: dict[str, str]) -> None:
        self.port = port
        self.pages = pages
        self.headers: dict[str, list[tuple[str, str]]] = {}
        self.at_first: dict[str, list[tuple[int, bytes]]] = {}  # path -> statuses and bodies of its next answers
        self.gzips = False
        self.of_304: list[tuple[str, str]] = []  # headers of 304, next to the ETag
        self.log: list[Asked] = []

    def url(self, path: str = "/", host: str = "d0.test") -> str:
        return f"http://{host}:{self.port}{path}"

    def statuses(self) -> Counter[int]:
        return Counter(one.status for one in self.log)

    def asked(self, path: str) -> list[Asked]:
        return [one for one in self.log if one.path == path]

    def forget(self) -> None:
        self.log.clear()

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, list[tuple[str, str]], bytes]:
        if path not in self.pages:
            return 404, [], b""
        body = self.pages[path].encode()
        sent = self.headers.get(path)
        if sent is None:
            sent = [("ETag", f'"{hash(body) & 0xFFFFFF:x}"')]
        known = {name.lower(): value for name, value in sent}
        is_same = headers.get("if-none-match", "") == known.get("etag") or (
            "if-none-match" not in headers and headers.get("if-modified-since", "") == known.get("last-modified")
        )
        if self.at_first.get(path):
            status, odd = self.at_first[path].pop(0)
            return status, [*self.of_304, ("Content-Length", str(len(odd)))], odd
        if is_same:
            return 304, self.of_304 or [(k, v) for k, v in sent if k.lower() == "etag"], b""
        if self.gzips:
            return 200, [("Content-Type", "text/html"), ("Content-Encoding", "gzip"), *sent], gzip.compress(body)
        return 200, [("Content-Type", "text/html"), *sent], body


@contextlib.contextmanager
def changing_site(pages: dict[str, str]) -> Iterator[Changing]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, sent, body = site.answer(self.path, headers)
            if self.path != "/robots.txt":
                site.log.append(Asked(self.path, headers, status))
            head = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in sent)]
            if status != 304 and ("Content-Length", str(len(body))) not in sent:
                head.append(f"Content-Length: {len(body)}")
            self.wfile.write("\r\n".join([*head, "", ""]).encode("latin-1") + body)

        def log_message(self, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site = Changing(server.server_port, pages)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


def linking(*links: str, text: str = "") -> str:
    return f"<title>{text or 'page'}</title><p>{text}</p>" + "".join(f'<a href="{link}">x</a>' for link in links)

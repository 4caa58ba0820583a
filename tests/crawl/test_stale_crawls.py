"""Servers that close a kept connection without a word cost no attempt: the URL goes back to its queue once."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.crawl.harness import crawl, settings_of

PAGES = 10


class Liar:
    """Promises to keep connections, and closes each at its n-th request without an answer."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self.asked: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for n in range(self._answers + 1):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            self.asked[path] += 1
            if n == self._answers:
                break
            body = b"".join(b'<a href="/p%d">x</a>' % n for n in range(PAGES)) if path == "/" else b"a page"
            status, kind = (b"404 No", b"text/plain") if path == "/robots.txt" else (b"200 OK", b"text/html")
            writer.write(
                b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (status, kind, len(body), body)
            )
        writer.close()


@pytest.mark.parametrize("answers", [1, 2, 3])
async def test_a_connection_that_was_closed_meanwhile_costs_no_attempt(answers: int, tmp_path: Path) -> None:
    liar = Liar(answers)
    async with await asyncio.start_server(liar.serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        done = await crawl(settings_of(tmp_path / "c", retry__attempts=1, fetch__concurrency=1), [url])
    assert done.errors == []
    assert len(done.statuses) == PAGES + 1, "each of them has one attempt only"
    assert max(liar.asked.values()) <= 2

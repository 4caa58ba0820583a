"""Answers out of crawl folders by URL, as a replay gives them: of what was committed, the visit nearest to a page's."""

from collections.abc import Iterator, Sequence

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import find_url
from crawler.archive.method_query import body_query, is_by_url
from crawler.archive.warc_reader import StoredResponse, read_content
from crawler.content.coding import inflate
from crawler.errors import ArchiveError, InvalidUrl
from crawler.model import CommitEntry
from crawler.rules.urls import canonicalize

BODY_BYTES_MAX = 64 * 1024 * 1024
RATIO_MAX = 1000
# Of the connection and of the coding, which are both undone; and what a browser would keep for later visits.
_LEFT_OUT = frozenset(
    (
        "connection", "content-encoding", "content-length", "keep-alive", "proxy-authenticate", "trailer",
        "transfer-encoding", "upgrade", "alt-svc", "strict-transport-security", "clear-site-data", "nel", "report-to",
    )
)  # fmt: skip
_KEPT_AS = "x-crawler-"
_HTTP, _HTTPS = "http://", "https://"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a browser. `content_type`: of its body."""

    method: str
    url: str
    body: bytes = b""
    content_type: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`body` is decoded; `headers` are without those of a coding or a connection."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class ReplayArchive:
    """Any thread may call it; all of it blocks."""

    def __init__(self, folders: Sequence[CrawlFolder]) -> None:
        self._folders = folders

    def answer(self, asked: Asked, near: float) -> Answer | None:
        """`near`: wall time, s. None: it is not in the archive, or can't be read."""
        for url in _spellings(asked.url):
            found = [(folder, entry) for folder in self._folders for entry in self._entries(folder, url, asked)]
            for folder, entry in sorted(found, key=lambda one: abs(one[1].fetched_at - near)):
                try:
                    stored = read_content(folder, entry)
                except ArchiveError:
                    continue
                if not stored.is_withheld:
                    return _answer(stored)
        return None

    def _entries(self, folder: CrawlFolder, url: str, asked: Asked) -> Iterator[CommitEntry]:
        for entry in find_url(folder, url):
            method = entry.request.method if entry.request is not None else "GET"
            if entry.pruned or entry.is_withheld or entry.content is None:
                continue
            if is_by_url(method) and is_by_url(asked.method):
                yield entry
            elif method == asked.method:
                head = b"\r\nContent-Type: " + asked.content_type.encode("latin-1", "replace")
                if entry.request_body == body_query(method, head, asked.body):
                    yield entry


def _spellings(url: str) -> Iterator[str]:
    """The URL as the archive has it, then with the other scheme: browsers ask for pictures of http by https."""
    try:
        found = canonicalize(url)
    except InvalidUrl:
        return
    yield found
    if found.startswith(_HTTPS):
        yield _HTTP + found.removeprefix(_HTTPS)
    else:
        yield _HTTPS + found.removeprefix(_HTTP)


def _answer(stored: StoredResponse) -> Answer:
    coding = stored.listed("content-encoding")
    body = inflate(stored.payload, coding, limit=BODY_BYTES_MAX, ratio_max=RATIO_MAX).body
    headers = tuple(
        (name.strip(), value) for name, value in stored.headers
        if name.strip().lower() not in _LEFT_OUT and not name.lower().startswith(_KEPT_AS)
    )  # fmt: skip
    return Answer(status=stored.status, headers=headers, body=body)

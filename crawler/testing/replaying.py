"""An archive served as a web, in a test: what was recorded is what is answered."""

import contextlib
import os
from collections.abc import Collection, Iterator

from crawler.archive.warc_web import RecordedWeb
from crawler.testing.web_server import Answer, ServedWeb, serve


class Replayed:
    """Answers out of archives."""

    def __init__(self, recorded: RecordedWeb) -> None:
        self._recorded = recorded

    @property
    def hosts(self) -> Collection[str]:
        return self._recorded.hosts

    def answer(self, url: str) -> Answer | None:
        """Raises ArchiveError."""
        found = self._recorded.read(url)
        if found is None:
            return None
        return Answer(status=found.status, reason=found.reason, headers=found.headers, body=found.body)


@contextlib.contextmanager
def replay(*paths: str | os.PathLike[str]) -> Iterator[ServedWeb]:
    """Serve WARC files and crawl folders until the context ends. Raises UsageError when there is nothing in them."""
    with serve(Replayed(RecordedWeb(paths))) as served:
        yield served

"""Archives what was exchanged besides pages: robots.txt, steps of cookie walls, attempts that brought no page.

These records have WARC files of their own, and no line of the index names them. So nothing that is done with pages has
to pass over them: to commit, count, prune, or find a page in its file. A forgotten domain's go like its pages, by their
URLs. Nobody waits for them, and who can't write them goes on without: a crash loses those of the last second.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from crawler.archive.warc import Kind
from crawler.archive.warc_writer import WarcWriter
from crawler.errors import ArchiveError
from crawler.model import OURS, PLAIN, FetchResult, Response
from crawler.redaction import bears_login, has_logins, redact
from crawler.rules.urls import origin_of
from crawler.runtime.clocks import wall_s
from crawler.runtime.crash_points import reached
from crawler.runtime.ticks import tick
from crawler.worker.archive import DETAIL_MAX, WRITE_EVERY_S, without_cookies
from crawler.worker.outcomes import Failed

log = logging.getLogger(__name__)

# Of one kind, origin and day, before compression. Few origins fail more often within a day without saying the same
# again, and a robots.txt is read once a day, in up to six requests; the largest one has half a megabyte.
RECORDS_MAX, BYTES_MAX = 50, 1 << 20
DAY_S = 86_400.0
ORIGINS_MAX = 10_000  # whose numbers are known; those of one that is forgotten begin again
UNWRITTEN_MAX = 16 << 20  # bytes in memory, of a second


class _Spent(msgspec.Struct):
    """What was archived of an origin since a time (wall clock, s)."""

    since_s: float
    records: int = 0
    bytes: int = 0


class Exchanges:
    """Those of one session."""

    def __init__(
        self,
        writer: WarcWriter | None,
        *,
        refuses: Callable[[], bool] = lambda: False,
        now_s: Callable[[], float] = wall_s,
    ) -> None:
        """`writer`: None: nothing is archived. `refuses`: does the disk lack room?"""
        self._writer = writer
        self._refuses = refuses
        self._now_s = now_s
        self._spent: OrderedDict[tuple[Kind, str], _Spent] = OrderedDict()
        self._unwritten = 0
        self.left_out = 0  # beyond these bounds, or since they could not be written

    def answered(self, kind: Kind, result: FetchResult, *, is_private: bool = False) -> None:
        """What was requested besides pages has come, or failed. `is_private`: its cookies are those of a session."""
        failure, response = result.failure, result.response
        if response is not None:
            self.add(kind, response, is_private=is_private)
        elif failure is not None and not (result.stale_connection or failure.kind in OURS):
            fields = {
                "reason": str(failure.kind),
                "detail": redact(failure.detail),
                "fetchTimeMs": str(result.fetch_ms),
            }
            self._fail(result.url, self._now_s() - result.fetch_ms / 1000, fields)

    def add(self, kind: Kind, response: Response, *, is_private: bool) -> None:
        """A response that is the result of no page."""
        size = len(response.raw_body) + sum([len(name) + len(value) for name, value in response.headers])
        if (writer := self._writer_for(kind, response.url, size)) is not None:
            self._write(lambda: writer.add_exchange(_without_secrets(response, is_private=is_private), kind))

    def failed(self, outcome: Failed) -> None:
        """An attempt at a page has failed."""
        if not outcome.is_attempt:
            return
        claim, started_at = outcome.claim, outcome.started_at
        fields = {
            "reason": str(outcome.kind),
            "detail": outcome.detail,
            "attempt": str(claim.attempts + 1),
            "became": "retry" if outcome.retry_in_ms >= 0 else "dead",
            "fetchTimeMs": str(round(1000 * (outcome.failed_at - started_at))) if started_at else "",
            "method": (claim.request or PLAIN).method,
        }
        self._fail(claim.url, started_at or outcome.failed_at, fields)

    async def run(self) -> None:
        """Write them to disk until cancelled."""
        try:
            while True:
                await tick(WRITE_EVERY_S)
                await self.write()
        finally:
            if self.left_out:
                log.info("exchanges.left_out", extra={"records": self.left_out})

    async def write(self) -> None:
        """Write what there is to disk."""
        if not self._unwritten or self._writer is None:
            return
        self._unwritten = 0
        reached("exchanges.added")
        try:
            await asyncio.to_thread(self._writer.sync)
        except ArchiveError as error:
            self._writer.drop_unwritten()
            self.left_out += 1
            log.warning("exchanges.not_written", extra={"error": str(error)})

    def _fail(self, url: str, at: float, fields: Mapping[str, str]) -> None:
        if (writer := self._writer_for(Kind.FAILURE, url, 0)) is not None:
            known = {name: value[:DETAIL_MAX] for name, value in fields.items() if value}
            self._write(lambda: writer.add_failure(url, at=at, fields=known))

    def _write(self, add: Callable[[], int]) -> None:
        """What goes wrong with a record is told, and fails nothing."""
        try:
            self._unwritten += add()
        except Exception as error:  # noqa: BLE001 - whatever it is, the page is not to blame
            self.left_out += 1
            log.warning("exchanges.not_added", extra={"error": redact(f"{type(error).__name__}: {error}")})

    def _writer_for(self, kind: Kind, url: str, size: int) -> WarcWriter | None:
        """None when the record is left out."""
        if self._writer is None or bears_login(url):
            return None
        key, now_s = (kind, origin_of(url)), self._now_s()
        spent = self._spent.pop(key, None)
        if spent is None or not 0 <= now_s - spent.since_s < DAY_S:
            spent = _Spent(now_s)
        self._spent[key] = spent
        if len(self._spent) > ORIGINS_MAX:
            self._spent.popitem(last=False)
        has_room = self._unwritten < UNWRITTEN_MAX and not self._refuses()
        if not has_room or spent.records >= RECORDS_MAX or spent.bytes + size > BYTES_MAX:
            self.left_out += 1
            return None
        spent.records, spent.bytes = spent.records + 1, spent.bytes + size
        return self._writer


def _without_secrets(response: Response, *, is_private: bool) -> Response:
    if is_private:
        return without_cookies(response)
    if not has_logins():
        return response
    kept = [one for one in response.headers if not bears_login(one[1].decode("latin-1"))]
    return replace(response, headers=tuple(kept))

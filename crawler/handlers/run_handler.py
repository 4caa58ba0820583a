"""A handler and one page: its items, what it follows, or the failure that it was; bounded in time, items and bytes."""

import time
from typing import Any

import msgspec

from crawler.handlers.boundary import RefusedError, call_asynchronous, call_plain
from crawler.handlers.crawler import Handler
from crawler.handlers.failing import storable
from crawler.handlers.item_encoding import InvalidItem, InvalidItemError
from crawler.handlers.page import Followed, Page
from crawler.handlers.threads import Threads

INVALID_KEPT = 5  # reports of a page; all are counted


class Limits(msgspec.Struct, frozen=True):
    """What one page may give."""

    items_max: int
    bytes_max: int = 64 * 1024 * 1024  # of its items as JSON: they are in memory until the page is committed


class Handled(msgspec.Struct):
    """What came of a page. `items` are JSON texts."""

    items: list[bytes] = []
    followed: list[Followed] = []
    invalid: list[InvalidItem] = []  # the first of them
    invalid_count: int = 0


NOTHING_HANDLED = Handled()


class HandlerError(Exception):
    """A handler failed on a page: why, in one line, and the traceback where there is one."""

    def __init__(self, detail: str, trace: str = "") -> None:
        super().__init__(detail)
        self.trace = trace


async def run_handler(handler: Handler, page: Page, limits: Limits, threads: Threads) -> Handled:
    """Call a handler with a page. Raises HandlerError."""
    taking = _Taking(handler, limits)
    if handler.is_plain:
        failure = await call_plain(handler.function, (page,), taking.take, threads, handler.timeout_s)
    else:
        failure = await call_asynchronous(handler.stream, (page,), taking.take, handler.timeout_s)
    if failure is not None:
        detail = f"{failure.detail} (handler {handler.name})" if failure.is_late else failure.detail
        raise HandlerError(detail, failure.trace)
    taking.handled.followed = page.followed
    return taking.handled


class _Taking:
    """Takes in what a page yields."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self.handled = Handled()
        self.count = 0
        self._bytes = 0
        self._handler = handler
        self._limits = limits
        self._ends_s = time.monotonic() + handler.timeout_s

    def take(self, item: Any) -> None:
        """Raises RefusedError when it is too much, or too late."""
        self.count += 1
        name = self._handler.name
        if self.count > self._limits.items_max:
            raise RefusedError(f"more than {self._limits.items_max} items of one page, handlers.items_max ({name})")
        if time.monotonic() > self._ends_s:
            raise RefusedError(f"not done after {self._handler.timeout_s:g} s (handler {name})")
        try:
            packed = self._handler.pack(item)
        except InvalidItemError as error:
            self.handled.invalid_count += 1
            if len(self.handled.invalid) < INVALID_KEPT:
                self.handled.invalid.append(_stored(error.report))
            return
        self._bytes += len(packed)
        if self._bytes > self._limits.bytes_max:
            raise RefusedError(f"items of more than {self._limits.bytes_max} bytes of one page ({name})")
        self.handled.items.append(packed)


def _stored(report: InvalidItem) -> InvalidItem:
    """A field's name may come from the page."""
    return InvalidItem(storable(report.field), storable(report.reason))

"""A handler and one page: its items, what it follows, or the failure that it was; bounded in time, items and bytes."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from crawler.handlers.crawler import Handler, ItemFunction
from crawler.handlers.item_encoding import InvalidItem, InvalidItemError
from crawler.handlers.page import Page
from crawler.handlers.pipeline import Bounds, Pipeline, RefusedError
from crawler.handlers.run import Take, call_asynchronous, call_plain
from crawler.handlers.tasks import storable
from crawler.handlers.threads import Threads
from crawler.model import Followed

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
    retry_s: float | None = None  # the handler wants the page again, not before: nothing of the rest counts
    dropped_count: int = 0  # by functions of `@app.item`
    handler: str = ""  # its name


NOTHING_HANDLED = Handled()


class HandlerError(Exception):
    """A handler failed on a page: why, in one line, and the traceback where there is one."""

    def __init__(self, detail: str, trace: str = "") -> None:
        super().__init__(detail)
        self.trace = trace


async def run_handler(
    handler: Handler, page: Page, limits: Limits, threads: Threads, pipeline: Sequence[ItemFunction] = ()
) -> Handled:
    """Call a handler with a page, and the functions of a pipeline with its items. Raises HandlerError."""
    taking = _Taking(handler, limits)
    take: Take = taking.take
    take_here, passing = take, None
    if pipeline:
        passing = Pipeline(pipeline, page, taking.take, taking.bounds, threads)
        take, take_here = passing.in_thread, passing.in_loop
    try:
        if handler.is_plain:
            failure = await call_plain(handler.function, (page,), take, threads, handler.timeout_s, take_here)
        else:
            failure = await call_asynchronous(handler.stream, (page,), take_here, handler.timeout_s)
    finally:
        if passing is not None:
            passing.end()
    if failure is not None:
        where = f" (@app.item {passing.at})" if passing and passing.at and (failure.trace or failure.is_late) else ""
        detail = f"{failure.detail}{where}{f' (handler {handler.name})' if failure.is_late else ''}"
        raise HandlerError(detail, failure.trace)
    taking.handled.followed, taking.handled.retry_s = page.followed, page.retry_s
    taking.handled.dropped_count = passing.dropped if passing else 0
    return taking.handled


class _Taking:
    """Takes in what a page yields."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self.handled = Handled(handler=handler.name)
        self.count = 0
        self._bytes = 0
        self._handler = handler
        self._limits = limits
        ends_s = time.monotonic() + handler.timeout_s
        self.bounds = Bounds(limits.items_max, ends_s, handler.name, handler.timeout_s)

    def take(self, item: Any) -> None:
        """Raises RefusedError when it is too much, or too late."""
        self.count += 1
        name = self._handler.name
        self.bounds.check(self.count, name)
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

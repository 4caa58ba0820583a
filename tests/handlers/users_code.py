"""Users' code made of bytes: each is a step of a handler, and most steps are what no handler should do."""

import asyncio
import gc
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from crawler.handlers.crawler import Crawler
from crawler.handlers.guards import end_users_tasks, guard_tasks
from crawler.handlers.page import PRIORITY_MAX
from crawler.handlers.page_run import Handled, HandlerError, Limits, run_handler
from crawler.handlers.tasks import LINE_CHARS_MAX, NAME_CHARS_MAX, TRACE_CHARS_MAX
from crawler.handlers.threads import Threads
from crawler.model import Followed
from crawler.worker.handler_worker import HandlerAnswer
from tests.handlers.test_handlers_page import page

LIMITS = Limits(items_max=40, bytes_max=20_000)
TIMEOUT_S = 0.05
STEPS_MAX = 200
DETAIL_CHARS_MAX = LINE_CHARS_MAX + NAME_CHARS_MAX + 400  # and where it was raised


class Evil:
    """Fails at everything."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise asyncio.CancelledError

    def __iter__(self) -> Any:
        raise GeneratorExit

    def __float__(self) -> float:
        raise SystemExit

    def __await__(self) -> Any:
        raise StopAsyncIteration


class Liar:
    """Says that it is a text."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return str

    def __float__(self) -> Any:
        return "1"

    def __await__(self) -> Any:
        yield 5


class Text(str):
    """A text that lies about itself."""

    def __str__(self) -> Any:
        return self

    def __len__(self) -> int:
        raise SystemExit

    def __eq__(self, other: object) -> bool:
        raise ValueError

    def __hash__(self) -> int:
        raise ValueError

    def split(self, *_: Any, **__: Any) -> Any:
        raise SystemExit

    def isascii(self) -> bool:
        return True

    def encode(self, *_: Any) -> Any:
        return None

    def __format__(self, _: str) -> str:
        raise SystemExit


class Number(float):
    """A number that is never beyond anything."""

    def __le__(self, other: object) -> bool:
        return True

    __ge__ = __le__

    def __str__(self) -> str:
        raise SystemExit


class Fails(Exception):
    """Says something of itself, or not."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def __str__(self) -> Any:
        if isinstance(self.said, type) and issubclass(self.said, BaseException):
            raise self.said("\ud800")
        return str(self) if self.said is None else self.said

    __repr__ = __str__

    @property
    def __notes__(self) -> Any:
        return self.said


class Renamed(Exception, metaclass=type("Meta", (type,), {"__name__": property(lambda _: sys.exit(1))})):
    """Its class fails to say its name."""


def cyclic() -> BaseException:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__context__ = other, one
    return one


def deep_group(depth: int) -> BaseException:
    error: Exception = ValueError("\ud800 leaf")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


def deep(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"a": found}
    return found


VALUES: tuple[Callable[[], Any], ...] = (
    lambda: None, Evil, Liar, lambda: Text("\ud800"), lambda: Text("/x"), lambda: Number(3e9), lambda: Number("nan"),
    lambda: 10**400, lambda: Decimal("1.5"), lambda: Decimal("sNaN"), lambda: Fraction(1, 3), lambda: b"/x",
    lambda: float("inf"), list, dict, lambda: True, lambda: Path("/x"), lambda: "/\ud800", lambda: "\0",
    lambda: "x" * 100_000, lambda: "/x", lambda: "a", lambda: "", lambda: 2.5, object, lambda: deep(2000),
    lambda: {"\ud800": "\udfff"}, lambda: {Evil: 1}, lambda: {"a": Evil()}, lambda: (n for n in range(9)), Fails,
)  # fmt: skip
ERRORS: tuple[Callable[[], BaseException], ...] = (
    lambda: ValueError("\ud800\x1b[31m\nlines\r\n" * 50), lambda: Fails(None), lambda: Fails(SystemExit),
    lambda: Fails(KeyboardInterrupt), lambda: Fails(asyncio.CancelledError), lambda: Fails(Text("\ud800 lies")),
    lambda: Fails(5), SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration,
    StopAsyncIteration, TimeoutError, MemoryError, RecursionError, Renamed, cyclic, lambda: deep_group(5),
    lambda: deep_group(2000), lambda: OSError(24, "Too many open files"), lambda: ValueError("x" * 1_000_000),
    lambda: SyntaxError("\ud800", ("\ud800", 1, 1, "\ud800")), lambda: KeyError(Text("\ud800")),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\ud800"), lambda: HandlerError("\ud800"),
)  # fmt: skip


@dataclass
class Steps:
    """The bytes, one after another; zeros after the last."""

    data: bytes
    at: int = 0

    def next(self, n: int) -> int:
        self.at += 1
        return self.data[self.at - 1] % n if self.at <= len(self.data) else 0

    def value(self) -> Any:
        return VALUES[self.next(len(VALUES))]()

    def error(self) -> BaseException:
        return ERRORS[self.next(len(ERRORS))]()

    @property
    def is_over(self) -> bool:
        return self.at >= min(len(self.data), STEPS_MAX)


async def exits() -> None:
    await asyncio.sleep(0)
    raise SystemExit


async def clings() -> None:
    for _ in range(4):
        with suppress(BaseException):
            await asyncio.sleep(0.005)


class Junk:
    """Awaits what is not to be awaited."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Any:
        yield self._value


def step(steps: Steps, page: Any) -> Any:
    """What every kind of handler may do; an item, if there is one."""
    match steps.next(6):
        case 0:
            return {"n": steps.at}
        case 1:
            return steps.value()
        case 2:
            with suppress(Exception):
                page.follow(steps.value(), label=steps.value(), priority=steps.value())
        case 3:
            with suppress(BaseException):
                page.follow(("/a", "a", "?x")[steps.next(3)], label="", priority=steps.value())
        case 4 if steps.next(4) == 0:
            raise steps.error()
        case 5 if steps.next(4) == 0:
            page.follow(steps.value(), label=steps.value(), priority=steps.value())
    return None


async def asynchronous_step(steps: Steps) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    match steps.next(14):
        case 0:
            await asyncio.sleep(0)
        case 1:
            task.cancel()
        case 2:
            for one in asyncio.all_tasks():
                one.cancel()
        case 3:
            loop.call_soon(task.cancel)
        case 4:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.001):
                    await asyncio.sleep(1)
        case 5:
            asyncio.create_task(exits())  # noqa: RUF006 - as users do
        case 6:
            cancelled = asyncio.create_task(asyncio.sleep(1))
            cancelled.cancel()
            await cancelled
        case 7:
            await asyncio.gather(asyncio.sleep(0), exits())
        case 8:
            with suppress(BaseException):
                await asyncio.wait_for(clings(), 0.001)
        case 9:
            await Junk(steps.value())
        case 10:
            other = asyncio.new_event_loop()
            try:
                await other.create_future()
            finally:
                other.close()
        case 11:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
                group.create_task(exits())
        case 12:
            task.uncancel()
            with suppress(BaseException):
                await asyncio.sleep(0)
        case _:
            await task


def handlers(steps: Steps) -> Iterator[Callable[[Any], Any]]:
    """Of every kind."""

    def plain(page: Any) -> Any:
        item = None
        while not steps.is_over:
            item = step(steps, page)
        return item

    def generator(page: Any) -> Any:
        try:
            while not steps.is_over:
                yield step(steps, page)
        finally:
            if steps.next(2):
                yield steps.value()
            if steps.next(2):
                raise steps.error()

    async def coroutine(page: Any) -> Any:
        item = None
        while not steps.is_over:
            await asynchronous_step(steps)
            item = step(steps, page)
        return item

    async def asynchronous_generator(page: Any) -> Any:
        try:
            while not steps.is_over:
                yield step(steps, page)
                await asynchronous_step(steps)
        finally:
            if steps.next(2):
                yield steps.value()
            if steps.next(2):
                raise steps.error()

    yield from (plain, generator, coroutine, asynchronous_generator, lambda page: coroutine(page), lambda _: Evil())


class Bystander:
    """A task of ours: nobody else may end it."""

    def __init__(self) -> None:
        self.beats = 0
        self.task = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            self.beats += 1


async def run_code(data: bytes, threads: Threads) -> HandlerError | Handled:
    """One handler made of bytes, as a worker calls it. Raises AssertionError when anything gets past the boundary."""
    steps = Steps(data)
    functions = list(handlers(steps))
    made = Crawler()
    made.page(timeout_s=TIMEOUT_S)(functions[steps.next(len(functions))])
    guard_tasks(asyncio.get_running_loop())
    bystander, found = Bystander(), None
    worker = asyncio.create_task(_as_a_worker(made, threads))
    found = await worker
    assert not bystander.task.done()
    bystander.task.cancel()
    checked(found)
    return found


async def _as_a_worker(made: Crawler, threads: Threads) -> HandlerError | Handled:
    try:
        found: HandlerError | Handled = await run_handler(made.handlers[0], page(), LIMITS, threads)
    except HandlerError as error:
        found = error
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # a cancellation that was left behind would arrive here
    return found


def checked(found: HandlerError | Handled) -> None:
    """It is what it says it is, and can be stored."""
    if isinstance(found, HandlerError):
        (detail,) = found.args
        assert (type(detail), type(found.trace)) == (str, str)
        assert "\n" not in detail
        assert len(detail) <= DETAIL_CHARS_MAX
        assert len(found.trace) <= TRACE_CHARS_MAX
        msgspec.json.encode((detail, found.trace))
        return
    for one in found.followed:
        assert (type(one), type(one.url), type(one.label), type(one.priority)) == (Followed, str, str, float)
        assert abs(one.priority) <= PRIORITY_MAX
    answer = msgspec.msgpack.encode(HandlerAnswer(found))
    assert msgspec.msgpack.decode(answer, type=HandlerAnswer).handled == found
    assert all(type(json.loads(item)) is dict for item in found.items)


@contextmanager
def silence() -> Iterator[None]:
    """Python complains of coroutines that nobody awaits, and of generators that go on when they are closed."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        gc.collect()
        sys.unraisablehook = before


def run_alone(data: bytes) -> None:
    """The same in a loop of its own, for the fuzzer."""

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await run_code(data, Threads(1))
        await end_users_tasks(1.0)

    with silence():
        asyncio.run(run())

"""An event loop on virtual time, and the processes that live on it. Nothing sleeps, nothing runs at the same time.

Each simulated process runs in a context of its own (PROCESS). The loop looks at it before each callback: those of a
paused process are set aside until it wakes, in their order, as after SIGSTOP and SIGCONT; those of a dead one are
dropped. Must not know what the processes do.
"""

import asyncio
import contextlib
import contextvars
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

NS = 1_000_000_000
STEPS_MAX = 3_000_000  # callbacks of one run: more is a loop that never waits
BURIALS_MAX = 50  # a task may want to clean up after its cancellation, some of them several times


class StuckError(AssertionError):
    """Nothing is left to happen, or far too much happens."""


class Process:
    """What can be killed and paused. Its clocks differ from those of all others."""

    def __init__(self, name: str, *, boot_ns: int = 0, wall_ns: int = 0) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.boot_ns = boot_ns  # monotonic time at the beginning of the simulation
        self.wall_ns = wall_ns  # wall clock minus virtual time; may jump
        self.set_aside: deque[asyncio.Handle] = deque()
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
WORLD = contextvars.Context()  # callbacks of no process: the network, the engine, the web, the faults


class Thread:
    """One call in an executor, done at its start and answered at its end; `at_end` is done only if it gets there."""

    def __init__(self) -> None:
        self.at_end: list[Callable[[], None]] = []


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in order; when none is ready, time goes on to the next timer."""

    def __init__(self, *, thread_delay_s: Callable[[], float]) -> None:
        self.now_ns = 0
        self.thread: Thread | None = None
        self.errors: list[dict[str, Any]] = []
        self.steps = 0
        self._thread_delay_s = thread_delay_s
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._serial = 0
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._dropped: list[asyncio.Handle] = []
        self._processes: list[Process] = []
        self._closed = False

    # --- time ---

    def time(self) -> float:
        return self.now_ns / NS

    def call_soon(self, callback, *args, context=None):  # type: ignore[no-untyped-def, override]
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(self, delay, callback, *args, context=None):  # type: ignore[no-untyped-def, override]
        return self._call_at_ns(self.now_ns + round(delay * NS), callback, args, context)

    def call_at(self, when, callback, *args, context=None):  # type: ignore[no-untyped-def, override]
        return self._call_at_ns(round(when * NS), callback, args, context)

    def _call_at_ns(self, when_ns, callback, args, context):  # type: ignore[no-untyped-def]
        timer = asyncio.TimerHandle(when_ns / NS, callback, args, self, context)
        if not self._closed:
            self._serial += 1
            heapq.heappush(self._timers, (max(when_ns, self.now_ns), self._serial, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when their time comes."""

    def after(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        """Schedule an event of the world, independent of any process."""
        self.call_later(delay_s, callback, *args, context=WORLD)

    # --- tasks and futures ---

    def create_future(self):  # type: ignore[no-untyped-def, override]
        return asyncio.Future(loop=self)

    def create_task(self, coro, *, name=None, context=None):  # type: ignore[no-untyped-def, override]
        self._serial += 1
        task = asyncio.Task(coro, loop=self, name=name or f"task-{self._serial}", context=context)
        self._tasks[task] = None
        task.add_done_callback(self._forget, context=WORLD)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)

    def start(self, process: Process, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as that process."""
        self._processes.append(process)
        return self.create_task(work, name=process.name, context=process.context)

    def run_in_executor(self, executor, func, *args):  # type: ignore[no-untyped-def, override]
        """The call runs now and is answered later; a process that is killed meanwhile never sees the answer."""
        future, thread = self.create_future(), Thread()
        self.thread = thread
        result, error = None, None
        try:
            result = func(*args)
        except Exception as raised:  # noqa: BLE001 - passed to the waiter
            error = raised
        finally:
            self.thread = None
        self.call_later(self._thread_delay_s(), _end_thread, thread, future, result, error)
        return future

    # --- running ---

    def run_until_complete(self, future):  # type: ignore[no-untyped-def, override]
        main = self.create_task(future)
        with self._running():
            while not main.done():
                self.step()
        return main.result()

    @contextlib.contextmanager
    def _running(self):  # type: ignore[no-untyped-def]
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(None)

    def step(self) -> None:
        """Run one callback, or let time go on to the next."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise StuckError(f"{STEPS_MAX} callbacks by {self.time():.1f} s: a process loops without end")
        if not self._ready:
            self._pass_time()
        handle = self._ready.popleft()
        if handle._cancelled:
            return
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is not None:
            if process.is_dead:
                self._dropped.append(handle)
                return
            if process.is_paused:
                process.set_aside.append(handle)
                return
        handle._run()

    def _pass_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise StuckError(f"at {self.time():.3f} s nothing is left that could happen")
        self.now_ns = timers[0][0]
        while timers and timers[0][0] <= self.now_ns:
            self._ready.append(heapq.heappop(timers)[2])

    def resume(self, process: Process) -> None:
        """Wake a paused process: what came meanwhile comes to it now."""
        process.is_paused = False
        self._ready.extend(process.set_aside)
        process.set_aside.clear()

    def bury(self) -> None:
        """End what is left of all tasks, dead processes' too, so that nothing of a run lives on behind it."""
        errors, self.errors = self.errors, []
        for process in self._processes:
            self._dropped.extend(process.set_aside)
        with self._running():
            for _ in range(BURIALS_MAX):
                for task in list(self._tasks):
                    task.cancel()
                self._ready.extend(self._dropped)
                self._dropped.clear()
                while self._ready:
                    handle = self._ready.popleft()
                    if not handle._cancelled:
                        handle._run()
                if not self._tasks:
                    break
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._closed = True
        self._timers.clear()
        self.errors = errors  # what the dead say does not count

    # --- what asyncio asks of a loop ---

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    async def shutdown_asyncgens(self) -> None:
        """Generators end with their tasks."""


def _end_thread(thread: Thread, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    for act in thread.at_end:
        act()
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)

"""Simulated processes: each runs the real composition root with doors to the simulated engine, web and disk.

A node may live several times. What ends a life: the end of the crawl, a stop, an error of its own, or a kill.
"""

import asyncio
import contextlib
import os
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from crawler.archive.session_locks import SessionLock
from crawler.content.html import parse_page
from crawler.crawl import build, opening
from crawler.crawl.instance import Instance
from crawler.errors import CrawlerError
from crawler.frontier import jobs as stored_jobs
from crawler.frontier import record
from crawler.handlers.crawler import Crawler, Handler
from crawler.handlers.page import Page as HandlersPage
from crawler.handlers.page_run import Handled, run_handler
from crawler.instance import vitals
from crawler.membership import node_names as nodes
from crawler.model import Claim, ParsedPage, Response, Rights
from crawler.parsing import parse
from crawler.parsing.parse import PageParser, Wanted
from crawler.runtime.ticks import PHASE
from crawler.settings import Settings
from crawler.settings.schema import LoadedSettings
from crawler.views import jobs as service_jobs
from crawler.worker.handle import HandlerStage
from tests.simulation.browsing import Internet, SimFetcher
from tests.simulation.disk import Disks
from tests.simulation.engine import Server, SimEngine
from tests.simulation.loop import NS, PROCESS, Process, VirtualLoop

RESTART_S = 1.0  # what a supervisor waits before it starts a failed child again


class Life(Process):
    """One process of a node: one session."""

    def __init__(self, node: "Node", number: int, rng: random.Random) -> None:
        super().__init__(f"{node.name}.{number}", boot_ns=rng.randrange(10**6) * NS, wall_ns=rng.randrange(-NS, NS))
        self.node = node
        self.session = ""
        self.host = node.machine if node.shows_death else f"{node.machine}-{number}"
        self.instance: Instance | None = None
        self.locks: list[SessionLock] = []
        self.joined_ns = -1  # since when it has leases
        self.ended = ""  # finished, stopped, killed, or the error


@dataclass(slots=True, eq=False)
class Node:
    """A place where processes live. With `shows_death` others on its machine can try its lock file."""

    name: str
    machine: str
    shows_death: bool = True
    life: Life | None = None
    lives: int = 0
    comes_back: bool = True  # after the faults are over

    @property
    def is_up(self) -> bool:
        return self.life is not None


@dataclass(slots=True)
class Fleet:
    """All nodes."""

    loop: VirtualLoop
    server: Server
    internet: Internet
    disks: Disks
    folder: Path
    settings: Settings
    rng: random.Random
    on_event: Callable[[str, Life], None]  # start, finished, stopped, failed, killed, pause, resume
    nodes: list[Node] = field(default_factory=list)
    sessions: dict[str, Life] = field(default_factory=dict)
    unexpected: list[BaseException] = field(default_factory=list)
    files_of: Callable[[set[str]], list[Path]] = lambda _: []  # in the folder that all machines share
    until_finished: bool = True  # without jobs

    def add(self, machine: str, *, shows_death: bool = True) -> Node:
        node = Node(f"n{len(self.nodes)}", machine, shows_death)
        self.nodes.append(node)
        return node

    @property
    def up(self) -> list[Life]:
        return [node.life for node in self.nodes if node.life is not None]

    def start(self, node: Node) -> None:
        """Start a process for this node, unless it has one."""
        if node.life is None:
            node.lives += 1
            node.life = life = Life(node, node.lives, self.rng)
            self.loop.start(life, self._live(life))

    async def _live(self, life: Life) -> None:
        PHASE.set(zlib.crc32(life.name.encode()) % 1000 / 1000)  # instances do not tick together
        folder = str(self.folder / life.node.machine)
        s = self.settings
        settings = replaced(s, archive={"dir": folder}, membership={"node": life.node.name})
        self.on_event("start", life)
        try:
            async with opening.open_crawl(settings, create=True) as opened:
                life.session = opened.session
                self.sessions[opened.session] = life
                crawl = await opened.reloaded()
                ends = self.until_finished
                async with build.open_instance(crawl, node=life.node.name, until_finished=ends) as instance:
                    life.instance = instance
                    await instance.run()
            self._end(life, instance.stopped_because)
        except CrawlerError as error:
            self._end(life, f"{type(error).__name__}: {error}")
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self.unexpected.append(error)
            raise

    def _end(self, life: Life, reason: str) -> None:
        if life.ended:
            return
        life.ended = reason
        event = {"finished": "finished", "signal": "stopped"}.get(reason, "failed")
        life.node.life = None
        self.on_event(event, life)
        if event == "failed":
            self.loop.after(RESTART_S, self.start, life.node)

    def kill(self, life: Life) -> None:
        """As by SIGKILL: no callback of it runs any more; the kernel closes what it had open."""
        if life.ended:
            return
        life.ended, life.is_dead, life.is_paused = "killed", True, False
        life.node.life = None
        self.disks.killed(life)
        for lock in life.locks:
            if lock._descriptor >= 0:
                os.close(lock._descriptor)
                lock._descriptor = -1
        self.on_event("killed", life)

    def pause(self, life: Life, seconds: float) -> None:
        """As by SIGSTOP, and SIGCONT after some seconds."""
        if not (life.ended or life.is_paused):
            life.is_paused = True
            self.on_event("pause", life)
            self.loop.after(seconds, self.resume, life)

    def resume(self, life: Life) -> None:
        if life.is_paused and not life.is_dead:
            self.loop.resume(life)
            self.on_event("resume", life)

    def leave(self, life: Life) -> None:
        """As by SIGTERM."""
        if life.instance is not None:
            self.on_event("leave", life)
            life.context.copy().run(life.instance.stop)

    def power_cut(self, machine: str) -> None:
        """All that runs on a machine dies, and its page cache is lost."""
        for life in self.up:
            if life.node.machine == machine:
                self.kill(life)
        if (self.folder / machine).exists():
            self.disks.power_cut(self.folder / machine)
        self.disks.lose(self.files_of({s for s, life in self.sessions.items() if life.node.machine == machine}))


HANDLERS = Crawler()


@HANDLERS.page()
async def _start(page: HandlersPage) -> Any:
    """Follows all links with a label, and yields what the census looks for."""
    for link in page.links():
        page.follow(link, label="followed")
    for form in page.css("form"):
        page.submit(form, label="followed")
    yield {"url": page.url, "label": page.label}
    await asyncio.sleep(0)
    yield {"title": page.title}


@HANDLERS.page(label="followed")
async def _followed(page: HandlersPage) -> Any:
    async for item in _start(page):
        yield item


def replaced(settings: Settings, **sections: dict[str, Any]) -> Settings:
    """Settings with some keys of some sections changed, as if a command had named them."""
    changed = {name: replace(getattr(settings, name), **keys) for name, keys in sections.items()}
    if isinstance(settings, LoadedSettings):
        changed["given"] = settings.given | {f"{name}.{key}" for name, keys in sections.items() for key in keys}
    return replace(settings, **changed)


class _Tokens:
    """Sessions in a row instead of random ones."""

    def __init__(self) -> None:
        self._last = 0

    def token_hex(self, length: int) -> str:
        self._last += 1
        return f"{self._last:0{2 * length}x}"


class _Keys:
    """The same hash key in each run, so that a seed is one run."""

    @staticmethod
    def token_bytes(length: int) -> bytes:
        return bytes(range(length))


class _Lock(SessionLock):
    """A lock that the simulation can let go of when it kills the process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        life = PROCESS.get()
        assert isinstance(life, Life)
        life.locks.append(self)


class _NoResolver:
    """Names lead nowhere here."""

    async def close(self) -> None:
        """Nothing is open."""


async def _parse_in_loop(
    parser: PageParser, response: Response, x_robots: str, queue: str, wanted: Wanted
) -> ParsedPage:
    """What the worker process does, without one."""
    await asyncio.sleep(0.03)
    return parse_page(
        response.url, response.header("content-type"), x_robots, response.body,
        links_max=5000, obey_nofollow=True, bytes_max=8192, agent="x", **wanted._asdict(),
    )  # fmt: skip


async def _handle_in_loop(
    stage: HandlerStage, made: Crawler, handler: Handler, claim: Claim, response: Response, parsed: ParsedPage,
    rights: Rights | None, **_: Any,
) -> Handled:  # fmt: skip
    """The same for handlers."""
    await asyncio.sleep(0.03)
    page = HandlersPage(response, parsed, domain=claim.domain, depth=claim.depth, label=claim.label, rights=rights)
    return await run_handler(handler, page, stage._limits, stage._threads)


async def _has_all_permissions(*_: object) -> None:
    """The engine of the simulation has one user, who may do all."""


@contextlib.contextmanager
def simulated_doors(server: Server, internet: Internet, disks: Disks) -> Iterator[None]:
    """The composition root builds instances with these doors."""

    def host_id() -> str:
        life = PROCESS.get()
        return life.host if isinstance(life, Life) else ""

    deps: list[tuple[Any, str, Any]] = [
        (opening, "Engine", lambda url, library, *, call_timeout_s, durability: SimEngine(server, url, call_timeout_s)),
        (build, "Fetcher", lambda settings, *, resolver, version: SimFetcher(internet)),
        (build, "CachingResolver", lambda settings, *, allow_private, clock: _NoResolver()),
        (opening, "check_permissions", _has_all_permissions),
        (opening, "SessionLock", _Lock),
        (opening, "secrets", _Tokens()),
        (stored_jobs, "secrets", _Tokens()),
        (service_jobs, "secrets", _Tokens()),
        (record, "secrets", _Keys()),
        (opening, "host_id", host_id),
        (build, "host_id", host_id),
        (nodes, "host_id", host_id),
        (build, "load_app", lambda target: HANDLERS),
        (build, "tune_process", lambda: None),
        (vitals, "process_cpu_s", lambda: 0.0),
        (vitals, "free_bytes", disks.free_bytes),
        (vitals, "_resident_bytes", lambda: 1 << 26),
        (PageParser, "_in_worker", _parse_in_loop),
        (parse, "cpu_ms", lambda: 0),
        (HandlerStage, "_in_worker", _handle_in_loop),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in deps]
    for owner, name, door in deps:
        setattr(owner, name, door)
    try:
        yield
    finally:
        for owner, name, door in before:
            setattr(owner, name, door)

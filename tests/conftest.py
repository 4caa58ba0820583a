"""What holds for every test: loopback only, nothing left behind; and the engines that tests share."""

import asyncio
import ctypes
import functools
import gc
import inspect
import logging
import os
import runpy
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis.utils
from hypothesis import settings

from crawler import process_tuning, redaction
from crawler.cli.supervising import SIGNALS
from crawler.runtime.log_files import PAGE_LOG
from tests.support.disks import small_disk
from tests.support.engine import Cluster, Engine, running_cluster, running_engine
from tests.support.guards import leaked_tasks, loopback_only
from tests.support.postgres import PostgresServer, running_postgres, why_not
from tests.support.slices import SECONDS, SLICES, Slow, left_out
from tests.support.tls import Authority

if TYPE_CHECKING:
    from tests.support.processes import Nursery

# No example has a deadline: on a busy machine any takes long, and benchmarks are where time is judged.
settings.register_profile("patient", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=3000)  # pytest --hypothesis-profile=deep
settings.register_profile("all", deadline=None)  # with --all: tests whose examples are expensive try more of them
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the slow tests too")
    parser.addoption("--without-linux", action="store_true", help="take away what only Linux has, as far as possible")
    parser.addoption("--slice", metavar="TEXT", help=f"run one of {SLICES} slices of the slow tests, chosen by TEXT")


# A worker has a million objects once it knows all tests: to look at all of them again and again takes a tenth of its
# time.
process_tuning.delay_gc()
# Blocks of megabytes go back to the system when they are freed: by default glibc keeps ever larger ones.
process_tuning.keep_freed_memory()
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
# It parses a file for each connection, a millisecond: a tenth of the time of tests of small crawls.
redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)


def pytest_collection_finish() -> None:
    gc.collect()  # what is left out
    process_tuning.collect_rarely()
    release_memory()


def release_memory() -> None:
    """Give back what the tests of a file took: a worker lives through hundreds of files."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        # What a test that failed left open is no failure of the one that ends now.
        warnings.simplefilter("ignore")
        patch.setattr(sys, "unraisablehook", lambda _: None)
        gc.collect()
    if TRIM is not None:
        TRIM(0)


def pytest_configure(config: pytest.Config) -> None:
    # Compiled tests are kept, whatever the environment says: each worker would compile all of them, 6 s of CPU.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if config.getoption("--without-linux"):
        folder = Path(__file__).parent / "support" / "without_linux"
        os.environ["PYTHONPATH"] = str(folder)
        runpy.run_path(str(folder / "sitecustomize.py"))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))
    if config.getoption("--all") and settings.get_current_profile_name() == "patient":
        settings.load_profile("all")


def pytest_sessionstart() -> None:
    """A shell that runs the tests in the background ignores Ctrl-C, and processes of tests would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Failures:
    """Prints each failure in one line when it comes; the reports follow at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message.partition("\n")[0] if crash else report.when
            terminal.write_line(f"\nFAILED {report.nodeid}: {why}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What waits comes first. Slow tests are left out unless they are asked for: all, a slice, or one by its name."""
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)
    for item in items:
        if inspect.iscoroutinefunction(getattr(item, "function", None)) and GUARD not in item.fixturenames:
            item.fixturenames.insert(0, GUARD)  # only tests that run in a loop pay for one
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    slow = {item: marked for item in items if (marked := marked_slow(item))}
    has_file = any(argument.endswith(".py") for argument in config.args)
    without = left_out(slow, slice_text=config.getoption("--slice"), has_file=has_file)
    if without:
        config.hook.pytest_deselected(items=list(without))
        items[:] = [item for item in items if item not in without]


def marked_slow(item: pytest.Item) -> Slow | None:
    """None: it is fast. A row may be marked besides its function: CI runs it if all its marks say so."""
    marks = [mark.kwargs for mark in item.iter_markers("slow")]
    if not marks:
        return None
    return Slow(max(mark.get("seconds", SECONDS) for mark in marks), all(mark.get("ci", False) for mark in marks))


# Hooks, not fixtures: five fixtures for each of fourteen thousand tests took a third of a small test's time.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[BEFORE] = Before()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        return (yield)
    finally:
        before = item.stash[BEFORE]
        del item.stash[BEFORE]
        before.restore()
        if nextitem is None or nextitem.path != item.path:
            release_memory()


class Before:
    """What a test must leave as it found it."""

    def __init__(self) -> None:
        self._had_folder = Path("crawl-data").exists()
        self._signals = {number: signal.getsignal(number) for number in SIGNALS}
        self._last_resort = logging.lastResort

    def restore(self) -> None:
        redaction.forget()  # what one test learned is no secret in the next: its messages would have *** for it
        # A command that was stopped ignores further signals, and children of later tests would inherit that.
        for number, handler in self._signals.items():
            signal.signal(number, handler)
        # A command keeps its log events from the root logger, where later tests look for them.
        logging.getLogger("crawler").propagate, logging.lastResort = True, self._last_resort
        logging.getLogger(PAGE_LOG).handlers.clear()
        for name in ("crawler", PAGE_LOG):
            logging.getLogger(name).setLevel(logging.NOTSET)
        # The default crawl folder is where the tests were started: in somebody's checkout.
        made = not self._had_folder and Path("crawl-data").exists()
        assert not made, "a test has made a crawl folder in the current folder"


BEFORE = pytest.StashKey[Before]()


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    with loopback_only():
        yield


GUARD = "_no_leaked_tasks"


@pytest.fixture
async def _no_leaked_tasks() -> AsyncIterator[None]:
    """Set up before all other fixtures of the test and torn down after them, so theirs count too."""
    yield
    left = await leaked_tasks({task for task in (asyncio.current_task(),) if task})
    assert not left, f"tasks left behind: {left}"


@pytest.fixture(scope="session")
def _engine() -> Iterator[Engine]:
    with running_engine() as engine:
        yield engine


@pytest.fixture
def engine(_engine: Engine) -> Engine:
    """A real engine, empty at the start of each test: `engine.url`, `engine.client()`."""
    _engine.flush()
    return _engine


@pytest.fixture(scope="session")
def _cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: Cluster) -> Cluster:
    """Three primaries of a real cluster, empty at the start of each test: `cluster.url`, `cluster.nodes`."""
    _cluster.flush()
    return _cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL server, shared by all tests: each takes a database of its own."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if reason := why_not():
        pytest.skip(reason)
    with running_postgres() as server:
        yield server


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB, for a crawl folder or an output alone."""
    place = tmp_path / "disk"
    place.mkdir()
    with small_disk(place, "4m"):
        yield place


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Made for a module; its tests trust it with the fixture below."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def _trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))


@pytest.fixture
def programs(request: pytest.FixtureRequest) -> Iterator["Nursery"]:
    """Starts programs of the crawler; no engine may be left behind, unless the test is marked `leaves_engines`."""
    from tests.support.processes import nursery

    with nursery() as programs:
        yield programs
        left = [] if request.node.get_closest_marker("leaves_engines") else programs.left()
        assert left == [], "an engine was left behind"

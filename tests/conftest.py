"""What holds for every test: loopback only, nothing left behind; and the engines that tests share."""

import asyncio
import functools
import inspect
import logging
import os
import runpy
import signal
import sys
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
from tests.support.slices import SECONDS, SLICES, slice_of
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
# It parses a file for each connection, a millisecond: a tenth of the time of tests of small crawls.
redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)


def pytest_collection_finish() -> None:
    process_tuning.collect_rarely()


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
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    slow = {item: seconds for item in items if (seconds := seconds_of(item))}
    text: str | None = config.getoption("--slice")
    chosen = slice_of(list(slow), slow.__getitem__, text) if text else []
    left_out = slow.keys() - set(chosen)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def seconds_of(item: pytest.Item) -> float:
    """About how long a slow test takes; 0 for any other."""
    return max((mark.kwargs.get("seconds", SECONDS) for mark in item.iter_markers("slow")), default=0.0)


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    with loopback_only():
        yield


@pytest.fixture(autouse=True)
def _no_crawl_folder_left() -> Iterator[None]:
    """The default crawl folder is where the tests were started: in somebody's checkout."""
    was_there = Path("crawl-data").exists()
    yield
    assert was_there or not Path("crawl-data").exists(), "a test has made a crawl folder in the current folder"


@pytest.fixture(autouse=True, scope="session")
def _hears_interrupts() -> None:
    """A shell that runs the tests in the background ignores Ctrl-C, and processes of tests would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_secrets_of_others() -> Iterator[None]:
    """What one test learned is no secret in the next: its messages would have *** for it."""
    yield
    redaction.forget()


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A command that was stopped ignores further signals, and children of later tests would inherit that."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command keeps its log events from the root logger, where later tests look for them."""
    before = logging.lastResort
    yield
    logging.getLogger("crawler").propagate, logging.lastResort = True, before
    logging.getLogger(PAGE_LOG).handlers.clear()
    for name in ("crawler", PAGE_LOG):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _guard_tasks(request: pytest.FixtureRequest) -> None:
    # Only tests that run in a loop pay for one.
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("_no_leaked_tasks")


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

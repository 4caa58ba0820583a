"""The root logger is the app's: where our log events go, and where those of an app, however it configures logging."""

import logging
import logging.config
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crawler.runtime.log_files import PAGE_LOG, start_logging

OURS, APPS, TOLD = "member.dead", "sold", "told"


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root, level = logging.getLogger(), logging.getLogger().level
    yield
    start_logging("warning")
    root.setLevel(level)
    logging.getLogger("crawler").setLevel(logging.NOTSET)


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger without handlers, as a command finds it: pytest has put its own there for this test."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        yield root
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers = before


def basic(file: Path) -> None:
    logging.basicConfig(filename=file, level="INFO")


def forced(file: Path) -> None:
    logging.basicConfig(filename=file, level="INFO", force=True)


def by_dict(file: Path) -> None:
    """It disables all loggers that there are and that it does not name."""
    handlers = {"f": {"class": "logging.FileHandler", "filename": str(file)}}
    logging.config.dictConfig({"version": 1, "handlers": handlers, "root": {"level": "INFO", "handlers": ["f"]}})


def cleared(file: Path) -> None:
    logging.getLogger().handlers.clear()
    logging.getLogger().addHandler(logging.FileHandler(file))
    logging.getLogger().setLevel("INFO")


def named(file: Path) -> None:
    logging.getLogger("shop").addHandler(logging.FileHandler(file))
    logging.getLogger("shop").setLevel("INFO")


@pytest.mark.parametrize("way", [basic, forced, by_dict, cleared, named])
@pytest.mark.parametrize("is_before", [True, False])
def test_an_app_that_configures_logging_keeps_it_and_our_file_its_events(
    tmp_path: Path, way: Callable[[Path], None], is_before: bool
) -> None:
    if way is basic and not is_before:
        pytest.skip("basicConfig does nothing where there are handlers")
    ours, theirs = tmp_path / "ours.log", tmp_path / "theirs.log"
    with bare_root():
        if is_before:
            way(theirs)
        start_logging("info", file=ours)
        if not is_before:
            way(theirs)
            start_logging("info", file=ours)  # as the instance does, when it knows its name
        logging.getLogger("crawler.membership").info(OURS)
        logging.getLogger("shop").disabled = False  # it was made before by_dict by the test before
        logging.getLogger("shop").info(APPS)
        logging.getLogger(PAGE_LOG).info(TOLD)
    text = ours.read_text()
    assert (text.count(OURS), text.count(TOLD)) == (1, 1)
    of_root = [] if way is named else [f"INFO:{PAGE_LOG}:{TOLD}" if way in (basic, forced) else TOLD]
    expected = [f"INFO:shop:{APPS}" if way in (basic, forced) else APPS, *of_root]
    assert theirs.read_text().splitlines() == expected
    for handler in list(logging.getLogger("shop").handlers):
        logging.getLogger("shop").removeHandler(handler)
        handler.close()


def test_what_an_app_logs_without_any_configuration_is_in_our_file(tmp_path: Path) -> None:
    logging.getLogger("shop").disabled = False
    with bare_root() as root:
        start_logging("info", file=tmp_path / "ours.log")
        logging.getLogger("shop").info(APPS)
        logging.getLogger("crawler.membership").info(OURS)
        start_logging("warning")
        assert root.handlers == []
    text = (tmp_path / "ours.log").read_text()
    assert (text.count(APPS), text.count(OURS)) == (1, 1)


def test_a_handler_that_an_app_adds_to_our_logger_stays(tmp_path: Path) -> None:
    theirs = logging.FileHandler(tmp_path / "theirs.log")
    logging.getLogger("crawler").addHandler(theirs)
    try:
        start_logging("info", file=tmp_path / "ours.log")
        logging.getLogger("crawler.membership").info(OURS)
        assert OURS in (tmp_path / "theirs.log").read_text()
    finally:
        logging.getLogger("crawler").removeHandler(theirs)
        theirs.close()

"""Where log events go: JSON lines to a file of the crawl folder, and optionally readable lines to a stream.

Our events are those of the logger `crawler` and of those below it. The root logger belongs to the app.

Events are constant dotted names plus fields (`extra`). `url_log` is apart: its messages are the lines that -v prints
for each URL, and they go to the stream only.
"""

import contextlib
import json
import logging
import logging.handlers
import time
from collections.abc import Callable
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

from crawler.archive.folder import open_private
from crawler.redaction import redact
from crawler.rules.text import one_line, printable, printable_json

PAGE_LOG = "crawler.handler"  # the logger of `page.log`
url_log = logging.getLogger("crawler.urls")  # info: one line a URL, debug: what was decided about it

_OURS: set[logging.Handler] = set()  # on loggers now
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the caller passed as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class JsonLogHandler(logging.Formatter):
    """One JSON object a line: at (UTC), level, event, logger, node (where there is one), then the event's fields."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = {"node": node} if node else {}

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"at": at, "level": record.levelname.lower(), "event": record.getMessage(), "logger": record.name}
        line |= self._node | fields_of(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return printable_json(redact(json.dumps(line, default=str, ensure_ascii=False)))


# How the names of events end that tell of a call that failed.
ENGINE_EVENTS = (
    ".engine_error", ".unanswered", ".not_recalled", ".not_revived", ".not_shared", ".not_stored", "route.refused",
)  # fmt: skip
ENGINE_EVERY_S = 1.0


class EngineErrorsSeldom(logging.Filter):
    """Of all events about calls that the engine did not take, one a second is written: each task has its own, again and
    again. Their number follows, when the engine serves again (`engine.serves_again`).
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next_s = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).endswith(ENGINE_EVENTS):
            return True
        now_s = self._clock()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + ENGINE_EVERY_S
        return True


class Readable(logging.Formatter):
    """Like "12:00:01 warning member.dead member=host-1"."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        trace = "\n" + printable(self.formatException(record.exc_info)) if record.exc_info else ""
        return redact(f"{at} {record.levelname.lower()} {one_line(record.getMessage() + fields)}{trace}")


class UrlLine(logging.Formatter):
    """Like "12:00:01 200  10.9 KiB     12 ms http://docs.example/"."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        return f"{at} {one_line(redact(record.getMessage()))}"


class _PrivateFile(logging.handlers.WatchedFileHandler):
    """Readable by the owner only, like every file of a crawl folder.

    Each event first looks whether the file was renamed or removed, and then opens a new one: so logrotate needs no
    signal. The look takes some 2 us; an event takes 80.
    """

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # of opening, which the base class leaves to the caller
            super().emit(record)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it writes once more what the disk did not take
            super().close()

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(open(self.baseFilename, "ab", opener=open_private), encoding=self.encoding)


def show_urls(stream: IO[str] | None, *, decisions: bool = False) -> None:
    """Print a line for each URL from here on; with `decisions` also what was decided about it. None: print nothing."""
    _remove_handlers(url_log)
    url_log.propagate = False
    if stream is None:
        url_log.setLevel(logging.CRITICAL)
        return
    handler = logging.StreamHandler(stream)
    handler.setFormatter(UrlLine())
    _add(url_log, handler)
    url_log.setLevel(logging.DEBUG if decisions else logging.INFO)


class _ToApp(logging.Handler):
    """Hands what an app logs by `page.log` to the handlers that the app gave the root logger."""

    def emit(self, record: logging.LogRecord) -> None:
        root = logging.getLogger()
        if root.isEnabledFor(record.levelno):
            root.handle(record)


def _remove_handlers(logger: logging.Logger) -> None:
    """Those that this module made; the app may have added its own."""
    for handler in [one for one in logger.handlers if one in _OURS]:
        logger.removeHandler(handler)
        _OURS.discard(handler)
        handler.close()


def _add(logger: logging.Logger, handler: logging.Handler) -> None:
    _OURS.add(handler)
    logger.addHandler(handler)


def start_logging(level: str, *, file: Path | None = None, stream: IO[str] | None = None, node: str = "") -> None:
    """Replace our handlers of the logger `crawler`, whose events go nowhere else. The file is created with the first
    event; its lines name the node.

    The root logger is the app's: it gets handlers and a level only if it has no handlers of its own; else its handlers
    get what `page.log` is told, too. A log that can't be written never stops a crawl: its events are lost.
    """
    logging.raiseExceptions = False
    logging.lastResort = (
        None  # what libraries warn of belongs to no terminal; and basicConfig does nothing beside handlers
    )
    ours, root = logging.getLogger("crawler"), logging.getLogger()
    ours.propagate = False
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if name.partition(".")[0] == ours.name and isinstance(logger, logging.Logger):
            logger.disabled = False  # as dictConfig of the app leaves loggers that it does not name
    of_pages, number = logging.getLogger(PAGE_LOG), logging.getLevelNamesMapping()[level.upper()]
    for logger in (ours, root, of_pages):
        _remove_handlers(logger)
    of_pages.setLevel(min(number, root.level) if root.handlers else logging.NOTSET)
    if root.handlers:
        _add(of_pages, _ToApp())
    for logger in (ours,) if root.handlers else (ours, root):
        if file is not None:
            to_file = _PrivateFile(file, encoding="utf-8", delay=True)
            to_file.setFormatter(JsonLogHandler(node))
            to_file.addFilter(EngineErrorsSeldom())
            _add(logger, to_file)
        if stream is not None:
            to_stream = logging.StreamHandler(stream)
            to_stream.setFormatter(Readable())
            to_stream.addFilter(EngineErrorsSeldom())
            _add(logger, to_stream)
        logger.setLevel(number)
    for handler in _OURS.intersection(ours.handlers):
        handler.setLevel(number)  # events of `page.log` may be below the level of the logger

"""Reads the access log of a web server that a crawl has asked: JSON lines, or the common and combined formats, with the
host in front or given next to the file.

    {"start": 12.345, "end": 12.4, "host": "a.test", "target": "/p?q", "agent": "shardcrawl/1", "status": 200}
    a.test:80 127.0.0.1 - - [21/Nov/2026:19:00:00 +0000] "GET /p HTTP/1.1" 200 123 "-" "shardcrawl/1" 1795287600123456

Behind the User-Agent may stand when the request began (seconds with decimals, milliseconds or microseconds since
1970), or two numbers: nginx's $msec and $request_time (when it ended, and how long it took), Apache's %{usec}t and %D
(when it began, and how long it took). Without them times are known to the second. Other fields may follow, or stand
there instead. Knows nothing of what is judged by it.
"""

import gzip
import io
import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from crawler.errors import UsageError
from crawler.rules.progress import SILENT, Meter

_COMBINED = re.compile(
    r'(?:(?P<host>\S+) )?\S+ \S+ \S+ \[(?P<time>[^\]]+)\] "(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) \S+'
    r'(?: "(?:[^"\\]|\\.)*" "(?P<agent>(?:[^"\\]|\\.)*)")?(?P<more>(?: (?:"(?:[^"\\]|\\.)*"|[^"\s]\S*))*)\s*'
)
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:/\s]+)(?::(\d+))?")
LOOKED_AT = 10_000  # lines, for one that has the format: logs may begin with others
PULSE = 256  # lines between two reports of progress
_TIME = "%d/%b/%Y:%H:%M:%S %z"
_MICROSECONDS, _MILLISECONDS = 1e14, 1e11  # since 1970: numbers above these count in such units
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,20})?", re.ASCII)
_NEAR_S = 86_400.0  # from the time in brackets: a number that is further away means something else


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the server saw it. Times in seconds on the server's clock; `blur_s`: their resolution."""

    host: str  # without port
    port: int  # 0: not told
    target: str
    started: float
    ended: float
    blur_s: float
    status: int
    agent: str = ""


def read_log(file: Path, agent: str, host: str = "", meter: Meter = SILENT) -> Iterator[LogLine | None]:
    """The lines of a log in their order, None for one that is none. `host`: of lines that do not tell one.

    Of the lines that tell a User-Agent only those that have `agent` in it are given; "" stands for all. Raises
    UsageError for a file that can't be read.
    """
    wanted = agent.lower()
    try:
        with file.open("rb") as packed, _opened(file, packed) as lines:
            meter.begin(f"reading {file.name}", "line", os.fstat(packed.fileno()).st_size)
            for number, text in enumerate(lines):
                if number % PULSE == 0:
                    meter.reached(number, packed.tell())
                if text.strip():
                    line = parse_line(text, host)
                    if line is None or not line.agent or wanted in line.agent.lower():
                        yield line
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read the web log {file}: {getattr(error, 'strerror', None) or error}") from None


def _opened(file: Path, packed: IO[bytes]) -> IO[str]:
    """The lines of an open file."""
    if file.suffix == ".gz":
        return gzip.open(packed, "rt", encoding="utf-8", errors="replace")
    return io.TextIOWrapper(packed, encoding="utf-8", errors="replace")


def is_host(text: str) -> bool:
    """Is it a host as a line may name it, with or without a port?"""
    return _AUTHORITY.fullmatch(text.lower()) is not None


def lacks_host(file: Path) -> bool:
    """Does the log begin with a line in the format of a server, without the host in front? Raises UsageError."""
    try:
        with file.open("rb") as packed, _opened(file, packed) as lines:
            match = _COMBINED.fullmatch(next((text for text in lines if text.strip()), ""))
    except (OSError, EOFError) as error:
        raise UsageError(f"can't read the web log {file}: {getattr(error, 'strerror', None) or error}") from None
    return match is not None and match["host"] is None


def check_format(file: Path, host: str) -> None:
    """Raises UsageError for a file of other lines than those of a web log, by its first ones."""
    lines = list(islice(read_log(file, "", host), LOOKED_AT))
    if lines and all(line is None for line in lines):
        raise UsageError(f"no line of {file} has a known format: see 'crawler audit --help'")


def parse_line(text: str, host: str = "") -> LogLine | None:
    """One line of either kind; None for anything else, also where neither it nor `host` names the host."""
    try:
        if text.startswith("{"):
            return _placed(_from_json(json.loads(text)))
        match = _COMBINED.fullmatch(text)
        return _placed(_from_combined(match, host)) if match else None
    except (ValueError, KeyError, TypeError):
        return None


def _from_json(fields: dict[str, Any]) -> LogLine:
    started = float(fields["start"])
    return LogLine(
        host=str(fields["host"]),
        port=0,
        target=str(fields["target"]),
        started=started,
        ended=float(fields.get("end", started)),
        blur_s=0.0,
        status=int(fields["status"]),
        agent=str(fields.get("agent", "")),
    )


def _from_combined(match: re.Match[str], host: str) -> LogLine:
    _, target, *_ = match["request"].split(" ")
    started, ended, blur_s = _times(match["time"], match["more"].split())
    return LogLine(
        host=match["host"] or host,
        port=0,
        target=target,
        started=started,
        ended=ended,
        blur_s=blur_s,
        status=int(match["status"]),
        agent=match["agent"] or "",
    )


def _times(stamp: str, more: list[str]) -> tuple[float, float, float]:
    """(start, end, resolution) in seconds. `more`: fields behind the User-Agent; whatever else a server writes there
    is passed over.
    """
    at = datetime.strptime(stamp, _TIME).astimezone().timestamp()
    numbers = [float(text) for text in takewhile(_NUMBER.fullmatch, more[:2])]
    first = numbers[0] if numbers else 0.0
    unit = 1e-6 if first > _MICROSECONDS else 1e-3 if first > _MILLISECONDS else 1.0
    if abs(first * unit - at) > _NEAR_S:
        return at, at, 1.0
    blur_s = 1e-3 if unit == 1.0 and "." in more[0] else unit
    if len(numbers) == 1:
        return first * unit, first * unit, blur_s
    if unit == 1.0:  # nginx: when it ended, and how long it took, each to the millisecond
        return first - numbers[1], first, 2 * blur_s
    return first * unit, first * unit + numbers[1] * 1e-6, blur_s


def _placed(line: LogLine) -> LogLine:
    """With host and port apart."""
    match = _AUTHORITY.fullmatch(line.host.lower())
    if match is None or not line.target.startswith("/"):
        raise ValueError(line.host)
    return replace(line, host=match[1].rstrip("."), port=int(match[2] or 0))

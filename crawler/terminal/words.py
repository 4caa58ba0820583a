"""Numbers as people read them: durations, sizes, counts. Pure; knows nothing of what they count."""

import re
import shutil
import sys
from datetime import UTC, datetime

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def duration(seconds: float) -> str:
    """A duration in at most two units: "20 ms", "0.4 s", "42 s", "3 m 07 s", "2 h 05 m", "4 d 03 h"."""
    if 0 < seconds < 0.0995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    minutes = round(whole / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} m"
    hours = round(whole / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def moment(at_s: float) -> str:
    """A wall time: "2026-11-21 08:05:13 UTC"."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def size(count: float) -> str:
    """Bytes in binary units with three digits: "0 B", "31.2 KiB", "1.45 GiB"."""
    unit = 0
    while count >= 1000 and unit < len(_SIZES) - 1:
        count /= 1024
        unit += 1
    if unit == 0:
        return f"{count:.0f} B"
    return f"{count:.{2 if count < 9.995 else 1 if count < 99.95 else 0}f} {_SIZES[unit]}"


def number(count: float) -> str:
    """A count with thin groups of thousands: "1,234,567"."""
    return f"{count:,.0f}"


def rate(per_second: float) -> str:
    """Pages per second, with a decimal only where it tells something."""
    return f"{per_second:,.1f}" if per_second < 9.95 else f"{per_second:,.0f}"


def failure_text(kind: str, detail: str) -> str:
    """A failure in words; the detail of a refused address or port is a whole message."""
    if kind in ("address_refused", "port_refused") and detail:
        return detail
    return f"{kind}: {detail}" if detail else str(kind)


_TOLD_BY_DETAIL = frozenset({"connect", "server_busy", "server_error", "challenged", "address_refused", "port_refused"})


def failure_reason(kind: str, detail: str) -> str:
    """A failure in few words, as in a list: "connection refused", "status 503", "dns not found: a.example"."""
    where = "robots.txt: " if detail.startswith("robots.txt: ") else ""
    said = detail[len(where) :].removeprefix(f"{kind}: ")
    if said.startswith("[Errno "):
        said = said.partition("] ")[2]
    if kind in _TOLD_BY_DETAIL and said:
        return where + (said[0].lower() + said[1:] if said[1:2].islower() else said)
    words = kind.replace("_", " ")
    return where + (f"{words}: {said}" if said else words)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Like "1 page", "2,000 pages", "3 URLs"."""
    return f"{number(count)} {noun if count == 1 else plural or noun + 's'}"


def program() -> str:
    """How people can call us: by name, or by path where their PATH has no such name, as after ./scripts/crawl."""
    import shlex
    from pathlib import Path

    called = Path(sys.argv[0]).absolute()
    if called.name not in ("crawler", "shardcrawl") or shutil.which("crawler") or not called.exists():
        return "crawler"
    return shlex.quote(str(called))


def by_number(node: str) -> tuple[tuple[int, str], ...]:
    """Sort key for names of nodes: web-2 before web-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", node))

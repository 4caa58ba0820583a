"""Wall times in the formats of WARC, CDX and file names; always UTC."""

import time
from functools import lru_cache


@lru_cache(maxsize=1024)
def _iso_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@lru_cache(maxsize=1024)
def _digits_second(second: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(second))


def iso_ms(at: float) -> str:
    """ISO 8601 with milliseconds, as WARC 1.1 allows in WARC-Date (5.4): 2024-05-01T12:00:00.250Z."""
    ms = int(at * 1000)
    return f"{_iso_second(ms // 1000)}.{ms % 1000:03d}Z"


def digits14(at: float) -> str:
    """The timestamp of CDX lines: 20240501120000."""
    return _digits_second(int(at))


def digits17(at: float) -> str:
    """With milliseconds, for file names: 20240501120000250."""
    ms = int(at * 1000)
    return f"{_digits_second(ms // 1000)}{ms % 1000:03d}"

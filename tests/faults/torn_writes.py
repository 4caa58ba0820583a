"""Writes of the archive that reach the disk by half and then fail."""

import os
from collections import Counter
from typing import Any

import pytest

from crawler.archive.appender import Appender
from crawler.errors import ArchiveError
from tests.crawl.harness import crawl


def tear_write(monkeypatch: pytest.MonkeyPatch, suffix: str, room: int, code: int) -> Counter[str]:
    """Files that end so take that many bytes together: the write that has more is torn there and fails, and only that.

    Bytes and no number of writes: a busy machine writes more at once. Returns the bytes that came, by suffix.
    """
    real, came = Appender._write, Counter[str]()

    def torn_once(self: Appender, data: bytes) -> None:
        if self.final.name.endswith(suffix):
            before, came[suffix] = came[suffix], came[suffix] + len(data)
            if before <= room < came[suffix]:
                part, durable = data[: room - before], self.durable
                real(self, part)
                self.durable = durable
                raise OSError(code, os.strerror(code))
        real(self, data)

    monkeypatch.setattr(Appender, "_write", torn_once)
    return came


async def crawl_until_it_fails(settings: Any, seeds: list[str], code: int, came: Counter[str]) -> None:
    """A crawl that ends with that error of the archive, and no other."""
    try:
        failed: list[Any] = (await crawl(settings, seeds)).errors
    except ArchiveError as error:
        failed = [error]
    assert [type(error) for error in failed] == [ArchiveError], (came, failed)
    assert os.strerror(code) in str(failed[0])

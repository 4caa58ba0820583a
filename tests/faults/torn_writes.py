"""Writes of the archive that reach the disk by half and then fail."""

import os
from collections import Counter
from typing import Any

import pytest

from crawler.archive.appender import Appender
from crawler.errors import ArchiveError
from tests.crawl.harness import crawl


def tear_write(monkeypatch: pytest.MonkeyPatch, suffix: str, turn: int, code: int) -> Counter[str]:
    """The turn-th write to files that end so, and only that, fails with this error; how many there were, by suffix."""
    real, turns = Appender._write, Counter[str]()

    def torn_once(self: Appender, data: bytes) -> None:
        if self.final.name.endswith(suffix):
            turns[suffix] += 1
            if turns[suffix] == turn:
                real(self, data[: len(data) // 2])
                self.durable -= len(data) // 2
                raise OSError(code, os.strerror(code))
        real(self, data)

    monkeypatch.setattr(Appender, "_write", torn_once)
    return turns


async def crawl_until_it_fails(settings: Any, seeds: list[str], code: int, turns: Counter[str]) -> None:
    """A crawl that ends with that error of the archive, and no other."""
    try:
        failed: list[Any] = (await crawl(settings, seeds)).errors
    except ArchiveError as error:
        failed = [error]
    assert [type(error) for error in failed] == [ArchiveError], (turns, failed)
    assert os.strerror(code) in str(failed[0])

"""Commands on a crawl whose embedded engine reads its files, which takes minutes when these are large."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis

from crawler.crawl import opening
from crawler.crawl.opening import open_crawl
from crawler.engine.embedded import EmbeddedEngine, packaged_binary
from crawler.settings import Settings
from tests.crawl.harness import settings_of
from tests.support.patience import PATIENCE_S

COMMANDS_IN_FILE, DELAY_US = 16_000, 250  # four seconds; it looks at its sockets once in a thousand commands


@pytest.fixture
async def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Settings]:
    """A crawl whose engine takes long to read its file; people are told at once."""
    monkeypatch.setattr(opening, "TELL_LOADING_S", 0.0)
    monkeypatch.setattr(opening, "LOADING_LOOK_S", 0.02)
    async with open_crawl(settings_of(tmp_path / "c"), create=True) as crawl:
        await crawl.engine.commands([("SET", f"unrelated:{n % 10}", n) for n in range(COMMANDS_IN_FILE)])
    slow = tmp_path / "slow-valkey"
    slow.write_text(f'#!/bin/sh\nexec "{packaged_binary()}" "$@" --key-load-delay {DELAY_US}\n')
    slow.chmod(0o755)
    yield settings_of(tmp_path / "c", frontier__engine=str(slow))
    assert EmbeddedEngine(tmp_path / "c" / "engine").pid() == 0, "the last one stops it"


class Command:
    """Opens the crawl, and ends when it has."""

    def __init__(self, settings: Settings) -> None:
        self.has_opened = False
        self.task = asyncio.create_task(self._run(settings))

    async def _run(self, settings: Settings) -> None:
        async with open_crawl(settings, create=False):
            self.has_opened = True


async def told(capsys: pytest.CaptureFixture[str], times: int) -> None:
    """Wait until so many commands have said what they wait for."""
    text = ""
    async with asyncio.timeout(PATIENCE_S):
        while text.count("\n") < times:
            await asyncio.sleep(0.005)
            text += capsys.readouterr().err
    assert [line for line in text.splitlines() if "the engine reads " not in line] == []


def read_quickly(settings: Settings) -> None:
    """Let the engine read the rest of its file without delay, if it still runs."""
    url = EmbeddedEngine(Path(settings.archive.dir) / "engine").url
    with contextlib.closing(redis.Redis.from_url(url, retry=None)) as client, contextlib.suppress(redis.RedisError):
        client.config_set("key-load-delay", 0)


@pytest.mark.parametrize("interrupted", [[], [0], [1], [0, 1]])
async def test_each_command_says_what_it_waits_for_and_ends_when_it_is_told_to(
    settings: Settings, capsys: pytest.CaptureFixture[str], interrupted: list[int]
) -> None:
    commands = [Command(settings), Command(settings)]
    await told(capsys, 2)
    assert not any(command.has_opened for command in commands)
    for n in interrupted:
        commands[n].task.cancel()
    read_quickly(settings)
    for n, command in enumerate(commands):
        with contextlib.suppress(asyncio.CancelledError):
            await command.task
        assert command.has_opened == (n not in interrupted)

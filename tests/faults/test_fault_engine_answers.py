"""The engine answers with errors: its scripts are gone, it is full, read-only, or busy with another script."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.instance import Instance
from crawler.errors import EngineFull
from crawler.frontier.codec import pack
from crawler.frontier.messages import AddReply
from crawler.model import AddOutcome
from tests.crawl.harness import crawl
from tests.faults.engine_lab import committed, counted, is_crawling, lab
from tests.frontier.door import Door, found
from tests.support.engine import Engine

FLUSH_EVERY_S = 0.02
CALLS_BETWEEN = 3
HELD_FULL_S = 3.0


@pytest.mark.slow
async def test_flushed_scripts_are_reloaded_and_every_effect_happens_once(tmp_path: Path, engine: Engine) -> None:
    with contextlib.closing(engine.client()) as client:

        async def flush(instances: list[Instance]) -> None:
            await committed(instances, 1)
            served = 0
            while is_crawling(instances):
                stats = client.info("commandstats")["cmdstat_fcall"]
                # Some calls succeed between two flushes, however long a busy machine takes to load the scripts.
                if stats["calls"] - stats["failed_calls"] >= served + CALLS_BETWEEN:
                    served = stats["calls"] - stats["failed_calls"]
                    client.function_flush()
                await asyncio.sleep(FLUSH_EVERY_S)

        async with lab(tmp_path, seed=34) as here:
            done = await here.crawl(engine.url, meanwhile=flush, instances=2)
            totals = await counted(engine.url)
            here.check_counts(totals, done)
        commands = client.info("commandstats")
    assert commands["cmdstat_function|load"]["calls"] >= 50
    assert sum(i.counters.committed for i in done.instances) == totals.fetched


async def test_scripts_that_vanish_in_the_middle_of_a_pipeline_run_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine forgets them between two calls of one pipeline: those before have run, those behind have not."""
    door = Door(engine.url, [engine])
    await door.open()
    plain, sent = door.engine._pipeline, []

    async def flushing_in_the_middle(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        half = len(commands) // 2
        flushed = [*commands[:half], ("FUNCTION", "FLUSH"), *commands[half:]] if not sent else list(commands)
        sent.append(len(flushed))
        replies = await plain(flushed)
        return replies[:half] + replies[half + 1 :] if len(sent) == 1 else replies

    monkeypatch.setattr(door.engine, "_pipeline", flushing_in_the_middle)
    try:
        replies = await door.frontier.add({p: [found("x", host=f"h{p}.test")] for p in range(400)})
    finally:
        await door.close()
    assert sent == [401, 200]
    assert {reply.outcomes for reply in replies.values() if isinstance(reply, AddReply)} == {(AddOutcome.NEW,)}
    with contextlib.closing(engine.client()) as client:
        assert [client.hget(door.keys.meta(p), "added") for p in range(400)] == [b"1"] * 400


@pytest.mark.slow
async def test_a_full_engine_rejects_only_adds_and_the_crawl_resumes_later(tmp_path: Path, engine: Engine) -> None:
    """At the limit itself, of which claiming keeps away: heartbeats go on, adds wait, nothing is lost."""
    seen: dict[str, Any] = {}
    with contextlib.closing(engine.client()) as client:

        async def fill_up(instances: list[Instance]) -> None:
            await committed(instances, 60)
            client.config_set("maxmemory", 1)
            try:
                before = [i.membership.heartbeat.member.counter for i in instances]
                with pytest.raises(EngineFull):
                    await instances[0].membership.members._engine.run("add", ("{main:0}:m",), 0, 30, pack([]), "", "")
                await asyncio.sleep(HELD_FULL_S)
                seen["beats"] = [
                    i.membership.heartbeat.member.counter - n for i, n in zip(instances, before, strict=True)
                ]
                seen["unanswered"] = [i.membership.heartbeat.is_unanswered for i in instances]
            finally:
                client.config_set("maxmemory", 0)

        async with lab(tmp_path, seed=38) as here:
            done = await here.crawl(engine.url, meanwhile=fill_up, instances=2)
            here.check_counts(await counted(engine.url), done)
    assert min(seen["beats"]) >= HELD_FULL_S - 1
    assert seen["unanswered"] == [False, False]
    assert [i.membership.heartbeat._liveness.lease_losses for i in done.instances] == [0, 0]


@pytest.mark.slow(seconds=10)
async def test_a_crawl_stopped_with_a_full_engine_returns_claims_and_leases(tmp_path: Path, engine: Engine) -> None:
    with contextlib.closing(engine.client()) as client:

        async def fill_up_and_stop(instances: list[Instance]) -> None:
            await committed(instances, 2)
            client.config_set("maxmemory", 1)
            instances[0].stop()

        async with lab(tmp_path, seed=39) as here:
            settings = here.settings(engine.url, membership__drain_timeout_s=1.0)
            try:
                await crawl(settings, here.site.web.seeds, meanwhile=fill_up_and_stop)
                held = sum(len(client.hgetall(f"{{main:{p}}}:c")) for p in range(64))
                leases = {client.hget(f"{{main:{p}}}:m", "session") for p in range(64)}
                members = client.hlen("{main}:members")
            finally:
                client.config_set("maxmemory", 0)
            assert (held, leases, members) == (0, {b""}, 0)
            await here.crawl(engine.url)

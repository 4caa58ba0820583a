"""The engine is well, the way to it is not: replies are lost, late, or come byte by byte; one direction is dead."""

import asyncio
import time
from pathlib import Path

import pytest

from crawler.crawl.instance import Instance
from crawler.frontier.scripts import script
from crawler.settings import MembershipSettings
from tests.crawl.harness import crawl
from tests.faults.engine_lab import HASTY, committed, counted, is_crawling, lab, shared, spy_on_acquires
from tests.support.engine import Engine
from tests.support.proxy import tcp_proxy

MEMBERSHIP = MembershipSettings(dead_s=HASTY["membership__dead_s"])
BEAT_S, READ_S, SELF_STOP_S, DEAD_S = MEMBERSHIP.beat_s, MEMBERSHIP.read_s, MEMBERSHIP.self_stop_s, MEMBERSHIP.dead_s
STOP_S = 15.0  # two time-outs for what is in flight, ten seconds for leaving, a few calls
LATE_S = 0.25  # from the check of the deadline to the line in the web server's log, on a busy machine


@pytest.mark.slow
async def test_every_effect_happens_once_when_any_reply_is_lost(tmp_path: Path, engine: Engine) -> None:
    """The n-th reply from now is lost, with its connection, for n from 1 to 40."""
    with tcp_proxy(engine.url) as proxy:

        async def drop(instances: list[Instance]) -> None:
            await committed(instances, 1)
            for n in range(1, 41):
                lost = proxy.lost
                proxy.drop_reply(n)
                while proxy.lost == lost and is_crawling(instances):
                    await asyncio.sleep(0.005)
            proxy.heal()

        async with lab(tmp_path, seed=35) as here:
            done = await here.crawl(proxy.url, meanwhile=drop, instances=2)
            totals = await counted(engine.url)
            here.check_counts(totals, done, replies_are_lost=True)
        assert proxy.lost == 40
    assert sum(i.counters.committed for i in done.instances) == totals.fetched


@pytest.mark.slow
async def test_late_heartbeats_stop_their_owner_and_only_silence_causes_takeover(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First single answers come late, but in time: nothing happens. Then all come too late: the owner stops although
    its heartbeats arrive, and there is no takeover. Then the network is cut, which is silence: the other takes over.
    """
    won, beat = spy_on_acquires(monkeypatch), script("heartbeat").function.encode()
    story: dict[str, float] = {}
    with tcp_proxy(engine.url) as proxy:

        async def slow_down(instances: list[Instance]) -> None:
            late, _ = instances
            try:
                await committed(instances, 20)
                await shared(instances)
                first = len(won)
                proxy.hold_replies_of(beat, 0.7)
                await asyncio.sleep(1.0)
                proxy.hold_replies_of(beat, 0.0)
                await asyncio.sleep(0.5)
                assert (late.membership.heartbeat._liveness.lease_losses, len(won)) == (0, first)
                await answered_beat(late)
                proxy.hold_replies_of(beat, 60)
                story["held"] = time.monotonic()
                await asyncio.sleep(DEAD_S + 2.0)
                assert len(won) == first, "taken over from an owner whose heartbeats arrive"
                proxy.cut()
                story["silent"] = time.monotonic()
                while len(won) == first:
                    await asyncio.sleep(0.02)
                story["taken"] = time.monotonic()
            finally:
                proxy.heal()

        async with lab(tmp_path, seed=36, domains=6) as here:
            ways = {"late": proxy.url, "other": engine.url}
            options = HASTY | {"politeness__delay_s": 0.1, "frontier__claim_ahead_s": 20.0}
            done = await here.crawl_apart(ways, meanwhile=slow_down, **options)
            requests = [r for r in here.site.requests() if r.agent.endswith("/late)")]
    stopped_at = story["held"] + SELF_STOP_S
    assert any(stopped_at - 1.0 < r.start < stopped_at for r in requests), "it stopped for want of work"
    assert not any(stopped_at + LATE_S < r.start < story["taken"] for r in requests)
    assert DEAD_S - BEAT_S - READ_S <= story["taken"] - story["silent"] <= 10.0
    assert done.instances[0].membership.heartbeat._liveness.lease_losses >= 1


@pytest.mark.slow
async def test_a_stop_ends_soon_without_an_engine_and_the_crawl_resumes(tmp_path: Path, engine: Engine) -> None:
    """The claims are of many partitions: to return them must not take a timeout for each."""
    stopped_at = 0.0
    with tcp_proxy(engine.url) as proxy:

        async def fall_silent(instances: list[Instance]) -> None:
            nonlocal stopped_at
            await committed(instances, 60)
            proxy.blackhole()
            stopped_at = time.monotonic()
            instances[0].stop()

        async with lab(tmp_path, seed=40, domains=12, pages=4) as here:
            seeds = [here.site.web.url(f"d{n}.test", "/") for n in range(12)]
            options = {"membership__drain_timeout_s": 1.0, "frontier__call_timeout_s": 1.0}
            await crawl(here.settings(proxy.url, **options), seeds, meanwhile=fall_silent)
            stopped_s = time.monotonic() - stopped_at
            await here.crawl(engine.url)
    assert stopped_s < STOP_S


async def answered_beat(instance: Instance) -> None:
    """Wait until a heartbeat was answered just now."""
    before = instance.membership.heartbeat._liveness.sent_ms
    while instance.membership.heartbeat._liveness.sent_ms == before:
        await asyncio.sleep(0.01)

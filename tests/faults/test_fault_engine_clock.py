"""The engine's clock is set an hour forth, and an hour back: nothing here reads it."""

import time
from pathlib import Path

import pytest

from crawler.crawl.instance import Instance
from tests.crawl.lab import fetched_twice
from tests.faults.engine_lab import committed, counted, durable_engine, is_crawling, lab, shared, spy_on_acquires

LIBRARIES = [*Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), *Path("/usr/lib").glob("faketime/libfaketime.so.1")]
HOUR_S = 3600


@pytest.mark.slow(ci=True)
@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed (apt-get install faketime)")
async def test_the_engines_clock_steps_an_hour_forth_and_back_and_nothing_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lease is lost or taken, no claim expires, nothing is asked for twice or too soon (the web server's log)."""
    won = spy_on_acquires(monkeypatch)
    step = tmp_path / "step"
    step.write_text("+0\n")
    faked = {"LD_PRELOAD": str(LIBRARIES[0]), "FAKETIME_TIMESTAMP_FILE": str(step), "FAKETIME_NO_CACHE": "1"}
    shown: list[float] = []
    moved: list[tuple[int, str, int]] = []
    with durable_engine(environment=faked | {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}) as engine:

        async def set_clock(instances: list[Instance]) -> None:
            await shared(instances)
            won.clear()
            for pages, offset in ((40, HOUR_S), (120, -HOUR_S), (200, 0)):
                await committed(instances, pages)
                step.write_text(f"{offset:+d}\n")
                shown.append(int(engine.say("TIME")[0]) - time.time() - offset)
            await committed(instances, 240)
            assert is_crawling(instances)
            moved.extend(won)

        async with lab(tmp_path, seed=37) as here:
            # An hour is far beyond them; a busy machine is not silent for so long.
            patient = {"membership__dead_s": 60.0, "frontier__call_timeout_s": 20.0}
            done = await here.crawl(engine.url, meanwhile=set_clock, instances=2, **patient)
            here.check_counts(await counted(engine.url), done)
            assert fetched_twice(here.site.requests()) == []
    assert all(abs(error) < 5 for error in shown), "the engine's clock did not step"
    assert moved == [], "a lease moved"
    assert [i.membership.heartbeat._liveness.lease_losses for i in done.instances] == [0, 0]

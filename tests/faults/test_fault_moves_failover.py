"""Ten primaries of a cluster fail while a crawl arrives there, and their replicas lack the last writes."""

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.errors import ConflictError, EngineError
from crawler.frontier.owner import Frontier
from crawler.frontier.record import Crawls
from crawler.recovery import arrival
from crawler.recovery.arrival import Arrival
from crawler.recovery.backup import back_up, restore
from crawler.recovery.move import move
from tests.crawl.harness import lab_names
from tests.crawl.rebuild_lab import WebLab, rebuild
from tests.crawl.rebuild_lab import opened as rebuilt
from tests.frontier.moving_lab import MEMBERSHIP, Lab, dump, make, opened
from tests.support.cluster import Cluster
from tests.support.engine import running_cluster
from tests.support.patience import wait_until
from tests.support.serving import serve_web

pytestmark = [pytest.mark.cluster, pytest.mark.processes, pytest.mark.slow(seconds=90)]

PARTITIONS, URLS, FAILOVERS = 64, 2000, 10
PACE_S = 0.15  # of a group, while primaries fail


class Failing(threading.Thread):
    """Lets primaries fail one after the other, at random moments, each with a replica that was cut off before."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._dice = random.Random(seed)
        self.failed = 0

    def run(self) -> None:
        while self.failed < FAILOVERS:
            primary = self._dice.choice([node for node in self._cluster.nodes if node.role == "primary"])
            replica = self._cluster.replica_of(primary)
            self._cluster.cut(replica, self._dice.uniform(0.2, 3.0), at_end=primary.kill)
            self._cluster.wait_promoted(replica)
            self._cluster.start(primary.port)
            wait_until(
                lambda replica=replica: (
                    "state=online" in str(replica.replication.get("slave0"))
                    or "'state': 'online'" in str(replica.replication.get("slave0"))
                )
            )
            self.failed += 1


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    """A cluster, each of whose groups takes a while to copy and to read back as long as primaries fail."""
    with running_cluster(replicas=1) as cluster:
        found = Failing(cluster, seed=5)
        note, digest_of = Arrival.note, arrival.digest_of

        async def noted(*arguments: Any) -> None:
            await note(*arguments)
            await asyncio.sleep(PACE_S * found.is_alive())

        async def read(*arguments: Any) -> Any:
            await asyncio.sleep(PACE_S * found.is_alive())
            return await digest_of(*arguments)

        monkeypatch.setattr(Arrival, "note", noted)
        monkeypatch.setattr(arrival, "digest_of", read)
        yield found


async def again_and_again(command: Callable[[Lab], Awaitable[Any]], lab: Callable[[], Lab]) -> int:
    """The same command until it succeeds; how often it did not."""
    for n in range(200):
        here = lab()
        try:
            await command(here)
        except EngineError:
            await asyncio.sleep(0.3)
        except ConflictError as error:
            if "try again" not in str(error):
                raise
        else:
            return n
        finally:
            await here.close()
    raise AssertionError("it never succeeded")


@pytest.mark.parametrize("how", ["move", "restore"])
async def test_a_crawl_that_arrives_while_ten_primaries_fail_is_whole(
    engine: Any, failing: Failing, tmp_path: Path, how: str
) -> None:
    cluster = failing._cluster

    def lab() -> Lab:
        return Lab(engine.url, cluster.url, tmp_path)

    async with contextlib.aclosing(_made(lab())) as made:
        was = await anext(made)
    file = tmp_path / "m.backup"

    async def command(lab: Lab) -> None:
        if how == "move":
            await move(*lab.ends())
        else:
            await restore(file, Arrival(lab.there, "m.backup"))

    if how == "restore":
        source = lab()
        await back_up(source.here, file, MEMBERSHIP)
        await source.close()
    failing.start()
    repeats = await again_and_again(command, lab)
    during = failing.failed
    await asyncio.to_thread(failing.join)
    assert failing.failed == FAILOVERS
    after = lab()
    try:
        await after.there.engine.connect()
        assert await dump(after.there) == was
        await Crawls(after.there.engine, after.there.keys).counts(PARTITIONS)
        assert [await opened(after.here), await opened(after.there)] == [how == "restore", True]
    finally:
        await after.close()
    print(f"{how}: {during} of {FAILOVERS} failovers before the end, {repeats} repeats of the command")
    assert during >= FAILOVERS // 2


async def test_a_rebuild_into_a_cluster_while_ten_primaries_fail_is_whole_or_refused(
    engine: Any, failing: Failing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, refused, n = Frontier.add, 0, 0

    async def added(*arguments: Any) -> Any:
        await asyncio.sleep(PACE_S * failing.is_alive())
        return await add(*arguments)

    monkeypatch.setattr("crawler.recovery.replay.BATCH", 100)
    with serve_web(seed=11, domains=4, pages=5) as site:
        async with lab_names() as dns:
            await WebLab(site, dns, engine, tmp_path).crawl_some(200)
            lab = WebLab(site, dns, failing._cluster, tmp_path)  # type: ignore[arg-type] # only its URL is used
            monkeypatch.setattr(Frontier, "add", added)
            failing.start()
            while True:
                n += 1
                assert n < 200, "it never succeeded"
                try:
                    await rebuild(lab.settings())
                    break
                except (EngineError, ConflictError) as error:
                    refused += "was replaced while the crawl was rebuilt" in str(error)
                    with contextlib.suppress(EngineError), pytest.raises(ConflictError):
                        async with rebuilt(lab.settings()):  # nobody crawls what is not whole
                            pass
            during = failing.failed
            await asyncio.to_thread(failing.join)
            await lab.finish(lab.settings())
    print(f"rebuild: {during} of {FAILOVERS} failovers before the end, {n - 1} repeats, of which {refused} at its end")


async def _made(lab: Lab) -> AsyncIterator[dict[bytes, Any]]:
    try:
        await make(lab.here, PARTITIONS, URLS)
        yield await dump(lab.here)
    finally:
        await lab.close()

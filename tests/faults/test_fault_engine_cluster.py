"""A cluster of three primaries: every script stays in one slot, and slots may move while a crawl runs."""

import asyncio
import time
from pathlib import Path

import pytest
from redis.crc import key_slot

from crawler.crawl.build import Instance
from crawler.rules.urls import partition_of
from tests.faults.engine_lab import PARTITIONS, committed, counted, is_crawling, lab
from tests.support.engine import Cluster, running_cluster, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SLOTS = 16384
DOMAINS = 4
KEYS_AT_ONCE = 3  # so few that scripts run while a slot is in two places
STEP_S = 0.02


async def test_two_instances_crawl_the_exact_set_on_a_cluster_of_three_primaries(
    tmp_path: Path, cluster: Cluster
) -> None:
    async with lab(tmp_path, seed=61) as here:
        done = await here.crawl(cluster.url, instances=2)
        here.check_counts(await counted(cluster.url), done)


async def test_each_effect_happens_once_while_cluster_slots_move(tmp_path: Path) -> None:
    """Those of all partitions that have work, and that of the member list, once in each way."""
    with running_cluster() as cluster:
        movers, moved = Movers(cluster), 0

        async def reshard(instances: list[Instance]) -> None:
            nonlocal moved
            await committed(instances, 20)
            for move in (movers.key_by_key, movers.as_a_whole):
                for tag in ["main", *(f"main:{partition_of(f'd{n}.test', PARTITIONS)}" for n in range(DOMAINS))]:
                    assert is_crawling(instances), "the crawl was over before the slots had moved"
                    await asyncio.to_thread(move, key_slot(tag.encode()))
                    moved += 1

        try:
            async with lab(tmp_path, seed=62, domains=DOMAINS) as here:
                done = await here.crawl(cluster.url, instances=2, meanwhile=reshard, politeness__delay_s=0.06)
                here.check_counts(await counted(cluster.url), done)
        finally:
            movers.close()
    assert moved == 2 * (DOMAINS + 1)


class Movers:
    """Moves a slot to the next node, in the two ways there are."""

    def __init__(self, cluster: Cluster) -> None:
        self._ports = [int(node.url.rpartition(":")[2]) for node in cluster.nodes]
        self._clients = [node.client() for node in cluster.nodes]
        self._ids = [client.execute_command("CLUSTER MYID") for client in self._clients]
        self._at: dict[int, int] = {}

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _way(self, slot: int) -> tuple[int, int]:
        """From the node that has it to the next one."""
        start = self._at.get(slot, slot * len(self._clients) // SLOTS)
        self._at[slot] = end = (start + 1) % len(self._clients)
        return start, end

    def key_by_key(self, slot: int) -> None:
        """SETSLOT and MIGRATE, as every engine knows it."""
        start, end = self._way(slot)
        source, target = self._clients[start], self._clients[end]
        target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", self._ids[start])
        source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", self._ids[end])
        while keys := source.execute_command("CLUSTER GETKEYSINSLOT", slot, KEYS_AT_ONCE):
            source.execute_command("MIGRATE", "127.0.0.1", self._ports[end], "", 0, 2000, "KEYS", *keys)
            time.sleep(STEP_S)
        for client in (target, source, *self._clients):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", self._ids[end])

    def as_a_whole(self, slot: int) -> None:
        """MIGRATESLOTS, which Valkey 9 brought."""
        start, end = self._way(slot)
        source = self._clients[start]
        source.execute_command("CLUSTER MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self._ids[end])
        wait_for(lambda: "success" in repr(source.execute_command("CLUSTER GETSLOTMIGRATIONS")[0]), "the move")

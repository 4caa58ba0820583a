"""A cluster of three primaries: every script stays in one slot, and slots may move while a crawl runs."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from redis.crc import key_slot

from crawler.crawl.instance import Instance
from crawler.rules.places import partition_of
from tests.faults.engine_lab import PARTITIONS, committed, counted, is_crawling, lab
from tests.support.engine import Cluster, running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

DOMAINS = 4
STEP_S = 0.02  # between the keys that move together: so long that scripts run while a slot is in two places


async def test_two_instances_crawl_the_exact_set_on_a_cluster_of_three_primaries(
    tmp_path: Path, cluster: Cluster
) -> None:
    async with lab(tmp_path, seed=61) as here:
        done = await here.crawl(cluster.url, instances=2)
        here.check_counts(await counted(cluster.url), done)


async def test_each_effect_happens_once_while_cluster_slots_move(tmp_path: Path) -> None:
    """Those of all partitions that have work, and that of the member list, once in each way."""
    with running_cluster() as cluster:
        primaries, moved = cluster.nodes, 0

        async def reshard(instances: list[Instance]) -> None:
            nonlocal moved
            await committed(instances, 20)
            for as_a_whole in (False, True):
                for tag in ["main", *(f"main:{partition_of(f'd{n}.test', PARTITIONS)}" for n in range(DOMAINS))]:
                    assert is_crawling(instances), "the crawl was over before the slots had moved"
                    slot = key_slot(tag.encode())
                    target = primaries[(primaries.index(cluster.primary_at(slot)) + 1) % len(primaries)]
                    move = partial(cluster.reshard, [slot], target, as_a_whole=as_a_whole, pause_s=STEP_S)
                    moved += await asyncio.to_thread(move)

        async with lab(tmp_path, seed=62, domains=DOMAINS) as here:
            done = await here.crawl(cluster.url, instances=2, meanwhile=reshard, politeness__delay_s=0.06)
            here.check_counts(await counted(cluster.url), done, leases_are_lost=True)
    assert moved == 2 * (DOMAINS + 1)

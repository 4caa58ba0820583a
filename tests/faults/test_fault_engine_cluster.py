"""A cluster of three primaries: every script stays in one slot, and slots may move while a crawl runs."""

from pathlib import Path

import pytest

from tests.faults.engine_lab import counted, lab
from tests.support.engine import Cluster

pytestmark = pytest.mark.cluster


async def test_two_instances_crawl_the_exact_set_on_a_cluster_of_three_primaries(
    tmp_path: Path, cluster: Cluster
) -> None:
    async with lab(tmp_path, seed=61) as here:
        await here.crawl(cluster.url, instances=2)
        here.check_counts(await counted(cluster.url))

"""What `crawler doctor` says of a cluster: each fault is named with its node and with what mends it."""

from typing import Any

import pytest

from crawler.engine.client import Engine, EngineInfo, ShardInfo
from crawler.frontier.scripts import library
from crawler.views.doctor import HEADROOM_WARN_BYTES, Level, _replicas, check_engine, cluster_checks


def shard(number: int = 1, **changed: Any) -> ShardInfo:
    """A healthy one, but for what is changed."""
    good: dict[str, Any] = {
        "name": f"host:{number}", "slots": 8192, "has_replica": True, "policy": "noeviction", "is_persistent": True,
        "node_timeout_s": 5.0, "validity": 10,
    }  # fmt: skip
    return ShardInfo(**(good | changed))


@pytest.mark.parametrize(
    ("changed", "name", "level", "said", "mend"),
    [
        (
            {"error": "connection refused"},
            "shards",
            Level.FAIL,
            "no answer from host:2 (connection refused)",
            "start it",
        ),
        ({"has_replica": False}, "shards", Level.WARN, "host:2: no replica that works", "add one"),
        ({"policy": "allkeys-lru"}, "eviction", Level.FAIL, "host:2: URLs would be lost", "noeviction"),
        ({"is_persistent": False}, "persistence", Level.FAIL, "host:2: no append-only file", "appendonly yes"),
        ({"needs_all_slots": True}, "coverage", Level.WARN, "while one shard is down", "require-full-coverage no"),
        ({"node_timeout_s": 15.0}, "failover", Level.WARN, "at least 15 s", "cluster-node-timeout 5000"),
        ({"validity": 0}, "replicas", Level.WARN, "more than the last 3", "validity-factor 10"),
        ({"node_timeout_s": 5.0, "validity": 40}, "replicas", Level.WARN, "may be promoted", "validity-factor 10"),
        ({"used_bytes": HEADROOM_WARN_BYTES + 3}, "skew", Level.WARN, "the emptiest 1 B", "rebalance"),
    ],
)
def test_each_fault_is_named_with_what_mends_it(
    changed: dict[str, Any], name: str, level: Level, said: str, mend: str
) -> None:
    checks = cluster_checks([shard(1), shard(2, **changed)])
    if name == "skew":
        checks = cluster_checks([shard(1, used_bytes=1), shard(2, **changed), shard(3, used_bytes=2)])
    bad = [check for check in checks if check.level is not Level.OK]
    assert [(check.name, check.level) for check in bad] == [(name, level)]
    assert said in bad[0].found
    assert mend in bad[0].mend


@pytest.mark.parametrize("changed", [{}, {"policy": ""}, {"node_timeout_s": 15.0 / 3, "validity": 34}])  # 170 s, a ping
def test_a_healthy_cluster_and_one_that_forbids_config_pass(changed: dict[str, Any]) -> None:
    checks = cluster_checks([shard(1), shard(2, **changed)])
    assert {(check.name, check.level) for check in checks} == {
        ("shards", Level.OK), ("eviction", Level.OK), ("persistence", Level.OK),
    }  # fmt: skip
    assert len(checks) == 3


@pytest.mark.cluster
async def test_a_real_cluster_is_checked_on_all_its_primaries(cluster: Any) -> None:
    checks = {check.name: check for check in await check_engine(lambda: Engine(cluster.url, library()), "news")}
    assert checks["shards"].level is Level.WARN
    assert all(f"127.0.0.1:{node.port}" in checks["shards"].found for node in cluster.nodes)


@pytest.mark.parametrize(
    ("replicas", "needed", "level"),
    [(0, 0, Level.OK), (0, -1, Level.OK), (1, 0, Level.WARN), (2, 1, Level.OK), (1, -1, Level.OK)],
)
def test_a_server_with_replicas_needs_some_of_them_for_writes(replicas: int, needed: int, level: Level) -> None:
    """Else the old primary may be written, too, when one has taken over; -1: the engine forbids CONFIG."""
    info = EngineInfo(
        product="valkey", version=(9, 1), run_id="x", policy="noeviction", persistent=True, used_bytes=1, max_bytes=0,
        cpu_s=0.0, replicas=replicas, replicas_needed=needed,
    )  # fmt: skip
    check = _replicas(info)
    assert (check.name, check.level) == ("replicas", level)
    assert ("min-replicas-to-write 1" in check.mend) is (level is Level.WARN)

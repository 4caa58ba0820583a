"""Clients for each kind of engine: one server, Sentinel, Cluster. The one module that knows the topology.

The library's own repeats are off everywhere.
"""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import hiredis
import redis.asyncio as aioredis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from crawler.errors import UsageError

CALLS_MAX = 48  # at the same time; further ones wait for their turn
CONNECTIONS_MAX = 64  # one of them is for what is heard of others; beyond this the library fails instead of waiting


def client_of(url: str, timeout_s: float, on_connect: Callable[[Any], Awaitable[None]]) -> Any:
    """redis://, rediss://, unix://, redis+cluster://host:port[,host:port], redis+sentinel://host:port/service."""
    options: dict[str, Any] = {
        "socket_timeout": None,  # one time-out around a whole pipeline instead of one per reply: see _pipeline
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    parts = urlsplit(url)
    try:
        if parts.scheme in ("redis", "rediss", "unix"):
            client = aioredis.Redis.from_url(url, redis_connect_func=on_connect, **options)
            client.connection_pool.max_connections = CONNECTIONS_MAX
            return _packing_in_c(client)
        if parts.scheme in ("redis+cluster", "rediss+cluster"):
            plain = f"{parts.scheme.partition('+')[0]}://{parts.netloc.split(',')[0]}"
            return _cluster_client(plain, on_connect, options)
        if parts.scheme == "redis+sentinel":
            options["redis_connect_func"] = on_connect
            return _sentinel_client(parts.netloc, parts.path, parse_qs(parts.query), options)
    except ValueError as error:
        raise UsageError(f"bad engine URL {url!r}: {error}") from None
    raise UsageError(f"bad engine URL {url!r}: use redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://")


class _PackedInC:
    """Commands packed by hiredis: the asyncio connections of redis-py pack in Python, which costs ten times more."""

    def pack_command(self, *args: Any) -> list[bytes]:
        if isinstance(args[0], str) and " " in args[0]:
            packed: list[bytes] = super().pack_command(*args)  # type: ignore[misc]
            return packed
        return [hiredis.pack_command(args)]


def _packing_in_c(client: Any) -> Any:
    pool = client.connection_pool
    pool.connection_class = type(pool.connection_class.__name__, (_PackedInC, pool.connection_class), {})
    return client


def _cluster_client(url: str, on_connect: Callable[[Any], Awaitable[None]], options: dict[str, Any]) -> Any:
    client: Any = RedisCluster.from_url(url, **options)
    for kwargs in (client.connection_kwargs, *(node.connection_kwargs for node in client.startup_nodes)):
        kwargs["redis_connect_func"] = on_connect  # the library keeps this hook for itself
        kwargs["retry"] = options["retry"]
    return client


def _sentinel_client(netloc: str, path: str, query: dict[str, list[str]], options: dict[str, Any]) -> Any:
    service = path.strip("/") or "mymaster"
    sentinels = [(h.rpartition(":")[0] or h, int(h.rpartition(":")[2] or 26379)) for h in netloc.split(",")]
    password = query.get("password", [None])[0]
    own = {key: value for key, value in options.items() if key != "redis_connect_func"}
    sentinel: Any = Sentinel(sentinels, **own)  # type: ignore[no-untyped-call]
    return sentinel.master_for(service, password=password, **options)


def node_client(cluster: RedisCluster) -> Any:
    """A client of any one node: what is published anywhere in a cluster is heard everywhere."""
    node = cluster.get_random_node()
    pool: Any = aioredis.ConnectionPool(connection_class=node.connection_class, **node.connection_kwargs)
    return aioredis.Redis.from_pool(pool)

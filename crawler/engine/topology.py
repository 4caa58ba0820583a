"""Creates the client for each kind of engine: one server, Sentinel, Cluster.

The library's own retries are off everywhere.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import hiredis
import redis.asyncio as aioredis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from crawler import process_tuning
from crawler.errors import UsageError
from crawler.redaction import shown, shown_server

CALLS_MAX = 48  # at the same time; further ones wait for their turn
CALLS_MIN, FILES_PER_CALL = 4, 16  # fewer where few files may be open: a call needs a connection, which is kept
CONNECTIONS_MAX = 64  # one of them for subscriptions; beyond this the library fails instead of waiting


def calls_max() -> int:
    """How many calls may run at a time, by the limit of open files."""
    return min(CALLS_MAX, max(CALLS_MIN, process_tuning.open_files_max() // FILES_PER_CALL))


def client_of(url: str, timeout_s: float, on_connect: Callable[[Any], Awaitable[None]]) -> Any:
    """redis://, rediss://, unix://, redis+cluster://host:port[,host:port], redis+sentinel://host:port/service."""
    options: dict[str, Any] = {
        "socket_timeout": None,  # one timeout around a whole pipeline instead of one per reply: see _pipeline
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    try:
        parts = _parts_of(url)
        if parts.scheme in ("redis", "rediss", "unix"):
            client = aioredis.Redis.from_url(url, redis_connect_func=on_connect, **options)
            client.connection_pool.max_connections = CONNECTIONS_MAX
            return client
        if parts.scheme in ("redis+cluster", "rediss+cluster"):
            plain = f"{parts.scheme.partition('+')[0]}://{parts.netloc.split(',')[0]}"
            return _cluster_client(plain, on_connect, options)
        if parts.scheme == "redis+sentinel":
            options["redis_connect_func"] = on_connect
            return _sentinel_client(parts.netloc, parts.path, parse_qs(parts.query), options)
    except ValueError as error:
        raise UsageError(f"bad engine URL {shown_server(url)!r}: {shown(str(error))}") from None
    raise UsageError(
        f"bad engine URL {shown_server(url)!r}: use redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://"
    )


def _parts_of(url: str) -> SplitResult:
    """Raises ValueError, whose text never contains a part of the password."""
    try:
        parts = urlsplit(url)
        for place in parts.netloc.rpartition("@")[2].split(","):
            _ = urlsplit(f"//{place}").port
    except ValueError:
        raise ValueError(
            "its port is not a number from 0 to 65535 (write / @ : in a password as %2F %40 %3A)"
        ) from None
    return parts


async def replies_of(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send commands at once: their replies in order, with an error for each that was refused.

    Raises the library's errors when the outcome of the whole is unknown.
    """
    if not isinstance(client, RedisCluster):
        return await _replies_of_one(client, commands)
    pipeline: Any = client.pipeline()
    for command in commands:
        pipeline.execute_command(*command)
    return list(await pipeline.execute(raise_on_error=False))


async def _replies_of_one(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Like the library's pipeline, which packs in Python and takes three times as long for each command."""
    pool, callbacks = client.connection_pool, client.response_callbacks
    connection = await pool.get_connection()
    try:
        await connection.send_packed_command(b"".join([hiredis.pack_command(command) for command in commands]))
        replies: list[Any] = []
        for command in commands:
            try:
                reply = await connection.read_response()
            except ResponseError as error:
                replies.append(error)
            else:
                callback = callbacks.get(command[0])
                replies.append(callback(reply) if callback else reply)
        return replies
    except BaseException:  # unread replies would be taken for those of other commands
        await connection.disconnect(nowait=True)
        raise
    finally:
        await pool.release(connection)


def _cluster_client(url: str, on_connect: Callable[[Any], Awaitable[None]], options: dict[str, Any]) -> Any:
    client: Any = RedisCluster.from_url(url, **options)
    for kwargs in (client.connection_kwargs, *(node.connection_kwargs for node in client.startup_nodes)):
        kwargs["redis_connect_func"] = on_connect  # the library sets its own hook here
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
    """A client of any one node: a message published to a cluster reaches subscribers on all nodes."""
    node = cluster.get_random_node()
    pool: Any = aioredis.ConnectionPool(connection_class=node.connection_class, **node.connection_kwargs)
    return aioredis.Redis.from_pool(pool)

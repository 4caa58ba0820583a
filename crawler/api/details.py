"""What the dashboard shows in detail: the owners of all partitions, takeovers, the last attempts at a domain."""

from typing import Annotated

import msgspec
from msgspec import Meta

from crawler.api.call import Call, NoBody, NoQuery
from crawler.frontier.leases import TAKEOVERS_MAX
from crawler.service.attempts import AttemptsView, recent_attempts
from crawler.service.partition_owners import PartitionOwners, TakeoversView, partition_owners
from crawler.service.partition_owners import takeovers as read_takeovers

ATTEMPTS_MAX = 200


class AttemptsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many."""

    limit: Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)] = 20


class TakeoversQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many of the last."""

    limit: Annotated[int, Meta(ge=1, le=TAKEOVERS_MAX)] = 50


async def partitions(call: Call[NoQuery, NoBody]) -> PartitionOwners:
    """Who owns each partition, and whom the ring suggests."""
    return await partition_owners(await call.crawl())


async def takeovers(call: Call[TakeoversQuery, NoBody]) -> TakeoversView:
    """Partitions of dead instances that others took over."""
    return await read_takeovers(await call.crawl(), call.query.limit)


async def attempts(call: Call[AttemptsQuery, NoBody]) -> AttemptsView:
    """The last attempts at a domain that the history of the server's crawl folder has."""
    return await recent_attempts(await call.crawl(), call.name, call.query.limit)

"""Who owns what by HTTP: each partition's owner and suggestion, and takeovers."""

from typing import Annotated

import msgspec
from msgspec import Meta

from crawler.api.call import Call, NoBody, NoQuery
from crawler.frontier.owner import TAKEOVERS_MAX
from crawler.views import ring
from crawler.views.ring import PartitionOwners, TakeoversView


class TakeoversQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many of the last."""

    limit: Annotated[int, Meta(ge=1, le=TAKEOVERS_MAX)] = 50


async def partitions(call: Call[NoQuery, NoBody]) -> PartitionOwners:
    """Who owns each partition, and whom the ring suggests."""
    return await ring.partition_owners(await call.crawl())


async def takeovers(call: Call[TakeoversQuery, NoBody]) -> TakeoversView:
    """Partitions of dead instances that others took over."""
    return await ring.takeovers(await call.crawl(), call.query.limit)

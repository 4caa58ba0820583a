"""Users of a crawl: their weights, and what waits of each. All functions raise EngineError."""

from collections import Counter

import msgspec

from crawler.app.crawl import OpenCrawl
from crawler.frontier.codec import pairs_of
from crawler.frontier.operator import Actor, OverrideKind
from crawler.rules.jobs import CRAWL, check_user, check_weight


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user who has URLs in queues, or another weight than 1. `user` is None for the crawl itself."""

    user: str | None
    weight: float
    waiting: int | None  # URLs in queues, not those that are claimed; None for the crawl itself, where nobody counts


async def list_users(crawl: OpenCrawl) -> list[UserView]:
    """The crawl itself, then the users by name."""
    weights = (await crawl.operator.overrides()).weights
    keys = [crawl.keys.of(p, "users") for p in range(crawl.record.partitions)]
    waiting: Counter[str] = Counter()
    for found in await crawl.engine.commands([("HGETALL", key) for key in keys]):
        waiting.update({user.decode(): int(n) for user, n in pairs_of(found)})
    first = UserView(user=None, weight=weights.get(CRAWL, 1.0), waiting=None)
    names = sorted(({*weights} | {*waiting}) - {CRAWL})
    return [first, *(UserView(user=one, weight=weights.get(one, 1.0), waiting=waiting[one]) for one in names)]


async def set_weight(crawl: OpenCrawl, user: str, weight: float, *, actor: Actor) -> bool:
    """Give a user, or the crawl itself, a weight; whether that is new. Raises UsageError."""
    if user != CRAWL:
        check_user(user)
    check_weight(weight)
    await crawl.operator_log.add(actor, "users", user, f"weight {weight:g}")
    if weight == 1:
        return await crawl.operator.book.cancel(OverrideKind.WEIGHT, user)
    return await crawl.operator.book.give(OverrideKind.WEIGHT, user, weight)

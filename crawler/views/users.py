"""Users of a crawl: their weights, and what waits of each. All functions raise EngineError."""

import msgspec

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.operator import OverrideKind
from crawler.frontier.operator_log import Actor
from crawler.rules.job_names import check_user
from crawler.rules.shares import CRAWL, check_weight


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user who has URLs in queues, or another weight than 1. `user` is None for the crawl itself."""

    user: str | None
    weight: float
    waiting: int | None  # URLs in queues, not those that are claimed; None for the crawl itself, where nobody counts


async def list_users(crawl: OpenCrawl) -> list[UserView]:
    """The crawl itself, then the users by name."""
    weights = (await crawl.operator.overrides()).weights
    waiting = await crawl.stats.waiting_by_user()
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

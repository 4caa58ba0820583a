"""What operators change: domains, and the crawl as a whole."""

from typing import Annotated

import msgspec
from msgspec import Meta

from crawler.api.call import Call, NoBody, NoQuery
from crawler.views import operator
from crawler.views.operator import CommandResult, check_delay
from crawler.views.values import BOOST_MAX, DELAY_MAX_S, domain_of


class DelayBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds between two requests, at least those that hold without it; null: by robots.txt and the settings."""

    delay_s: Annotated[float, Meta(ge=0, le=DELAY_MAX_S)] | None


class BoostBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Domains with a higher boost go first; 0: no boost."""

    boost: Annotated[int, Meta(ge=-BOOST_MAX, le=BOOST_MAX)]


class ReleaseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`reason`: only what was deferred for it; `urls_max`: about how many, 0 for all."""

    reason: Annotated[str, Meta(max_length=200)] = ""
    urls_max: Annotated[int, Meta(ge=0, le=2**53)] = 0


async def pause_all(call: Call[NoQuery, NoBody]) -> CommandResult:
    """Start no more requests, anywhere."""
    return await operator.pause(await call.crawl(), "", actor=call.actor)


async def resume_all(call: Call[NoQuery, NoBody]) -> CommandResult:
    """Continue a paused crawl."""
    return await operator.resume(await call.crawl(), "", actor=call.actor)


async def pause(call: Call[NoQuery, NoBody]) -> CommandResult:
    """Start no more requests to a domain."""
    return await operator.pause(await call.crawl(), domain_of(call.name), actor=call.actor)


async def resume(call: Call[NoQuery, NoBody]) -> CommandResult:
    """Continue a paused domain."""
    return await operator.resume(await call.crawl(), domain_of(call.name), actor=call.actor)


async def block(call: Call[NoQuery, NoBody]) -> CommandResult:
    """Stop fetching from a domain; its URLs are deferred."""
    return await operator.block(await call.crawl(), domain_of(call.name), actor=call.actor)


async def unblock(call: Call[NoQuery, NoBody]) -> CommandResult:
    """Fetch from a blocked domain again."""
    return await operator.unblock(await call.crawl(), domain_of(call.name), actor=call.actor)


async def delay(call: Call[NoQuery, DelayBody]) -> CommandResult:
    """Set the delay between requests to a domain."""
    crawl, domain = await call.crawl(), domain_of(call.name)
    delay_ms = None if call.body.delay_s is None else round(call.body.delay_s * 1000)
    if delay_ms is not None:
        await check_delay(crawl, domain, delay_ms)
    return await operator.set_delay(crawl, domain, delay_ms, actor=call.actor)


async def boost(call: Call[NoQuery, BoostBody]) -> CommandResult:
    """Fetch from a domain before others that are due, or after them."""
    return await operator.set_boost(await call.crawl(), domain_of(call.name), call.body.boost, actor=call.actor)


async def purge(call: Call[NoQuery, NoBody]) -> CommandResult:
    """Drop the queued and deferred URLs of a domain permanently."""
    return await operator.purge(await call.crawl(), domain_of(call.name), actor=call.actor)


async def release(call: Call[NoQuery, ReleaseBody]) -> CommandResult:
    """Put deferred URLs of a domain back into their queues."""
    body = call.body
    return await operator.release(
        await call.crawl(), domain_of(call.name), reason=body.reason, urls_max=body.urls_max, actor=call.actor
    )

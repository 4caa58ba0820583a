"""Operator commands on domains, or on the whole crawl: pause, block, delay, boost, purge, release.

Each is written to the operator log before it acts. A domain is one that `command_input.domain_of` returned; "" is the
whole crawl, where that is allowed. All raise EngineError; `purge` and `release` also ArchiveError.
"""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from crawler.app.crawl import OpenCrawl
from crawler.errors import UsageError
from crawler.frontier.operator import EVERYWHERE, Actor, OverrideKind
from crawler.service.command_input import DELAY_MAX_S, boost_of, check_release
from crawler.terminal.wording import counted, duration


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did. Only the field of its kind is set; `delay_ms` is None for the one of robots.txt."""

    domain: str | None  # None: the whole crawl
    text: str  # for people, a sentence
    urls: int  # that wait, were deferred, dropped or released
    is_changed: bool  # not so before
    paused: bool | UnsetType = UNSET
    blocked: bool | UnsetType = UNSET
    delay_ms: int | UnsetType | None = UNSET
    boost: int | UnsetType = UNSET  # from -9 to 9
    purged: int | UnsetType = UNSET  # URLs
    released: int | UnsetType = UNSET  # URLs


class Boosts(msgspec.Struct, frozen=True, kw_only=True):
    """Domains with a boost, the highest first."""

    boosts: Mapping[str, int]


async def is_met(crawl: OpenCrawl, domain: str) -> bool:
    """Has any URL of a domain been added to this crawl?"""
    operator = crawl.operator
    partition = operator.partition_of(domain)
    found = await crawl.stats.domains([(queue, partition) for queue in await operator.queues_of(domain)])
    if any(d.pending or d.fetched or d.dead or d.refused for d in found):
        return True
    return any([await operator.deferred_urls.of_queue(partition, d.domain) for d in found])


async def pause(crawl: OpenCrawl, domain: str, *, actor: Actor) -> CommandResult:
    """Start no more requests, to one domain or to any."""
    await crawl.operator_log.add(actor, "pause", domain)
    is_new = await crawl.operator.book.give(OverrideKind.PAUSED, domain or EVERYWHERE)
    n = await _waiting(crawl, domain)
    text = f"{_of(domain)} {_now(is_new)} paused: {_urls(n)} wait{'s' * (n == 1)}"
    return CommandResult(domain=domain or None, text=text, urls=n, is_changed=is_new, paused=True)


async def resume(crawl: OpenCrawl, domain: str, *, actor: Actor) -> CommandResult:
    """Continue a paused domain or crawl."""
    await crawl.operator_log.add(actor, "resume", domain)
    was = await crawl.operator.book.cancel(OverrideKind.PAUSED, domain or EVERYWHERE)
    n = await _waiting(crawl, domain)
    still = await _still(crawl, domain)
    text = f"{_of(domain)} is resumed with {_urls(n)}{still}" if was else f"{_of(domain)} was not paused{still}"
    if was:
        text += await alone_text(crawl)
    return CommandResult(domain=domain or None, text=text, urls=n, is_changed=was, paused=False)


async def _waiting(crawl: OpenCrawl, domain: str) -> int:
    return await crawl.operator.carry_out(domain) if domain else (await crawl.stats.totals()).pending


async def block(crawl: OpenCrawl, domain: str, *, actor: Actor) -> CommandResult:
    """Stop fetching from a domain; its URLs are deferred."""
    await crawl.operator_log.add(actor, "block", domain)
    is_new = await crawl.operator.book.give(OverrideKind.BLOCKED, domain)
    n = await crawl.operator.carry_out(domain)
    text = f"{domain} {_now(is_new)} blocked: {_urls(n)} deferred"
    return CommandResult(domain=domain, text=text, urls=n, is_changed=is_new, blocked=True)


async def unblock(crawl: OpenCrawl, domain: str, *, actor: Actor) -> CommandResult:
    """Fetch from a blocked domain again."""
    await crawl.operator_log.add(actor, "unblock", domain)
    was = await crawl.operator.book.cancel(OverrideKind.BLOCKED, domain)
    n = await crawl.operator.carry_out(domain)
    if was:
        text = f"{domain} is no longer blocked: {_urls(n)} back in its queue"
        text += await _still(crawl, domain) + await alone_text(crawl)
    else:
        text, n = f"{domain} was not blocked", 0
    return CommandResult(domain=domain, text=text, urls=n, is_changed=was, blocked=False)


async def set_delay(crawl: OpenCrawl, domain: str, delay_ms: int | None, *, actor: Actor) -> CommandResult:
    """Set the delay between requests to a domain; None: by robots.txt and the settings. Raises UsageError."""
    if delay_ms is not None and not 0 <= delay_ms <= DELAY_MAX_S * 1000:
        raise UsageError(f"delay {delay_ms} ms: expected 0 to {DELAY_MAX_S * 1000:,}")
    shown = "auto" if delay_ms is None else duration(delay_ms / 1000)
    await crawl.operator_log.add(actor, "delay", domain, shown)
    before = (await crawl.operator.overrides()).delays_ms.get(domain)
    await crawl.operator.delay(domain, delay_ms)
    if delay_ms is None:
        text = f"{domain}: the delay follows robots.txt and the settings again"
    else:
        text = f"{domain}: {shown} between requests from now on"
    return CommandResult(domain=domain, text=text, urls=0, is_changed=delay_ms != before, delay_ms=delay_ms)


async def set_boost(crawl: OpenCrawl, domain: str, boost: int, *, actor: Actor) -> CommandResult:
    """Fetch from a domain before others that are due, or after them; 0 for neither. Raises UsageError."""
    boost = boost_of(str(boost))
    await crawl.operator_log.add(actor, "boost", domain, str(boost))
    before = (await crawl.operator.overrides()).boosts.get(domain, 0)
    await crawl.operator.boost(domain, boost)
    if not boost:
        text = f"{domain}: no boost"
    else:
        text = f"{domain}: boost {boost}; fetched {'before' if boost > 0 else 'after'} domains without a boost"
    return CommandResult(domain=domain, text=text, urls=0, is_changed=boost != before, boost=boost)


async def boosts(crawl: OpenCrawl) -> Boosts:
    """Domains with a boost; it changes nothing."""
    found = sorted((await crawl.operator.overrides()).boosts.items(), key=lambda one: (-one[1], one[0]))
    return Boosts(boosts=dict(found))


async def purge(crawl: OpenCrawl, domain: str, *, actor: Actor) -> CommandResult:
    """Drop the queued and deferred URLs of a domain permanently."""
    await crawl.operator_log.add(actor, "purge", domain)
    n = await crawl.operator.purge(domain)
    return CommandResult(domain=domain, text=f"{domain}: {_urls(n)} dropped", urls=n, is_changed=n > 0, purged=n)


async def release(crawl: OpenCrawl, domain: str, *, reason: str = "", urls_max: int = 0, actor: Actor) -> CommandResult:
    """Put at most `urls_max` (0: all) deferred URLs back into their queues. Raises UsageError."""
    check_release(reason, urls_max)
    asked = [f"reason {reason}"] * bool(reason) + [f"at most {_urls(urls_max)}"] * bool(urls_max)
    await crawl.operator_log.add(actor, "release", domain, ", ".join(asked))
    n = await crawl.operator.release(domain, reason, urls_max)
    text = f"{_urls(n)} released{await alone_text(crawl) if n else ''}"
    return CommandResult(domain=domain or None, text=text, urls=n, is_changed=n > 0, released=n)


async def alone_text(crawl: OpenCrawl) -> str:
    """What to add to a text when nothing would be fetched, because no instance runs."""
    return "" if await crawl.members.read() else "; no instance is running: start one with 'crawler crawl'"


def _of(domain: str) -> str:
    return domain or "The crawl"


def _now(is_new: bool) -> str:
    return "is now" if is_new else "was already"


def _urls(n: int) -> str:
    return counted(n, "URL")


async def _still(crawl: OpenCrawl, domain: str) -> str:
    """Which other command still stops it."""
    overrides = await crawl.operator.overrides()
    stop = overrides.stop_of(domain) if domain else ""
    if stop:
        return f"; {domain} is still {stop}"
    return "; the whole crawl is paused ('crawler resume')" if overrides.is_paused else ""

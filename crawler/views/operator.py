"""Operator commands on domains, or on the whole crawl: pause, block, delay, boost, purge, release.

Each is written to the operator log before it acts. A domain is one that `domain_of` returned; "" is the
whole crawl, where that is allowed. All raise EngineError; `purge` and `release` also ArchiveError.
"""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.expressions import Expressions
from crawler.frontier.deferred import RIGHTS
from crawler.frontier.operator import EVERYWHERE, OverrideKind
from crawler.frontier.operator_log import Actor
from crawler.rules.pace import delay_ms as delay_by
from crawler.rules.sites import of_queues
from crawler.rules.urls import found_in_url
from crawler.terminal.words import counted, duration, number
from crawler.views.known_robots import known_robots
from crawler.views.values import DELAY_MAX_S, boost_of, check_release


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
    matching: int | UnsetType = UNSET  # URLs that a dry run of a purge found
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
    await crawl.operator.book.cancel(OverrideKind.LOGIN, domain)
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


async def purge_matching(
    crawl: OpenCrawl, domain: str, *, matching: str, is_dry: bool = False, actor: Actor
) -> CommandResult:
    """Drop the queued and deferred URLs that an expression matches, of one domain or of all; or only count them.

    Raises UsageError for an invalid expression.
    """
    matches = UrlMatch(matching)
    if not is_dry:
        await crawl.operator_log.add(actor, "purge", domain, f"matching {matching}")
    dropped, left = await crawl.operator.purge_matching(matches, domain, is_dry=is_dry)
    of = f" of {domain}" if domain else ""
    if is_dry:
        text = f"{_urls(left)}{of} {'matches' if left == 1 else 'match'} and would be dropped; nothing is changed"
        return CommandResult(domain=domain or None, text=text, urls=left, is_changed=False, matching=left)
    text = f"{_urls(dropped)}{of} dropped"
    if left:
        text += f"; {number(left)} more {'is' if left == 1 else 'are'} claimed just now: repeat the command for retries"
    return CommandResult(domain=domain or None, text=text, urls=dropped, is_changed=dropped > 0, purged=dropped)


class UrlMatch:
    """Is an expression found in a canonical URL, as for `exclude`? Raises UsageError for an invalid one."""

    def __init__(self, pattern: str) -> None:
        try:
            self._expressions = Expressions((pattern,))
        except ValueError as error:
            raise UsageError(f"--matching {error}") from None

    def __call__(self, url: str) -> bool:
        return bool(found_in_url(self._expressions, url))


async def release(crawl: OpenCrawl, domain: str, *, reason: str = "", urls_max: int = 0, actor: Actor) -> CommandResult:
    """Put at most `urls_max` (0: all) deferred URLs back into their queues. Raises UsageError."""
    check_release(reason, urls_max)
    asked = [f"reason {reason}"] * bool(reason) + [f"at most {_urls(urls_max)}"] * bool(urls_max)
    await crawl.operator_log.add(actor, "release", domain, ", ".join(asked))
    n = await crawl.operator.release(domain, reason, urls_max)
    later = "; those that come later, also in runs of jobs, are fetched" if domain and reason == RIGHTS else ""
    text = f"{_urls(n)} released{later}{await alone_text(crawl) if n else ''}"
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


async def check_delay(crawl: OpenCrawl, domain: str, delay_ms: int) -> None:
    """Raises UsageError for a delay that is shorter than the least one."""
    least_ms = await least_delay_ms(crawl, domain)
    if delay_ms < least_ms:
        raise UsageError(
            f"{domain}: {duration(least_ms / 1000)} between requests is the least, by the settings and robots.txt; "
            "only 'crawler delay' sets a shorter one"
        )


async def least_delay_ms(crawl: OpenCrawl, domain: str) -> int:
    """The delay that a domain would have without a command.

    That of the settings, of its table in [[sites]], and of the robots.txt files that are known of its hosts. Where no
    command sets the delay now, also the one in force, which may come from another host of the domain. Raises
    EngineError.
    """
    settings, operator = crawl.settings, crawl.operator
    partition, queues = operator.partition_of(domain), await operator.queues_of(domain)
    of_site = of_queues(settings.sites, "delay_s")
    is_free = domain not in (await operator.overrides()).delays_ms
    least_ms = 0
    for found in await crawl.stats.domains([(queue, partition) for queue in queues]):
        own_ms = round(max(settings.politeness.delay_s, of_site(found.domain) or 0.0) * 1000)
        robots = await known_robots(crawl, partition, found.domain)
        asked = [stored.rules.crawl_delay_s for _, stored in robots if stored.rules.crawl_delay_s is not None]
        cap_ms = int(settings.politeness.delay_max_s * 1000)
        natural_ms = delay_by(min_delay_ms=own_ms, crawl_delay_s=max(asked, default=None), delay_max_ms=cap_ms)
        least_ms = max(least_ms, natural_ms, found.delay_ms if is_free else 0)
    return least_ms

"""The summary of `crawler crawl`: a table of domains, where the results are, or why there are none."""

import asyncio
import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from crawler.archive.index_reader import find_url
from crawler.crawl.opening import OpenCrawl
from crawler.crawl.url_input import GivenUrl
from crawler.errors import InvalidUrl, NothingFetchedError
from crawler.frontier.bulk import UrlState
from crawler.frontier.codec import DeadLetter
from crawler.frontier.deferred import ALLOW_PRIVATE
from crawler.frontier.stats import SCRIPTED, SEED_LED_AWAY, Totals
from crawler.model import ITEMS_DROPPED, NOT_ALLOWED, Candidate, FailureKind, RefusalReason
from crawler.rules.addresses import is_address
from crawler.rules.scope import ScopeRules
from crawler.rules.text import one_line
from crawler.rules.urls import canonicalize
from crawler.runtime.clocks import wall_s
from crawler.terminal.words import counted, failure_text, number, program, size
from crawler.views.figures import domain_view
from crawler.views.losses import Kind, Loss, losses_lines
from crawler.views.report import (
    domain_table,
    duplicates_text,
    finish_line,
    logins_text,
    named,
    over_budget,
    pending_text,
    requisites_text,
)
from crawler.web.resolver import CachingResolver

DOMAINS_SHOWN = 20
SEEDS_SHOWN = 5  # that failed
LED_AWAY_SHOWN = 3  # targets of seeds that redirect to other sites
LETTERS_LOOKED_AT = 200
# Dead letters of pages that were fetched: what failed on them came later.
ANSWERED = frozenset({FailureKind.PARSE, FailureKind.HANDLER, FailureKind.INTERNAL})
SAME_COMMAND = "run the same command to retry"


async def summary(
    crawl: OpenCrawl,
    totals: Totals,
    losses: Sequence[Loss],
    *,
    new: int,
    seconds: float,
    why: str,
    outputs: Sequence[str],
    failures: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> str:
    """The whole text, without a line end. `failures`: of handlers."""
    stats = crawl.stats
    found, overrides = await stats.domains(await stats.top_domains(DOMAINS_SHOWN)), await crawl.operator.overrides()
    shown = [domain_view(one, None, overrides, wall_s()) for one in found]
    over = over_budget(totals, await crawl.crawls.budget_reached())
    if why in ("finished", "budget"):  # that of URLs ends a crawl like any; one whose end was the budget's is finished
        why = "budget" if over else "finished"
    lines = [finish_line(new, seconds, why), "", domain_table(shown)]
    away, is_all = await _led_away(crawl, totals)
    if is_all:
        lines = [away, "", *lines]
    count = await stats.domain_count()
    if count > len(shown):
        lines.append(f"... and {counted(count - len(shown), 'domain')} more: crawler stats --top {count}")
    if kept := pending_text(over):
        lines += ["", f"Budget: {kept}; nothing is lost; run the same command with a larger budget to continue."]
    others = [one for one in losses if one.reason not in (SEED_LED_AWAY, SCRIPTED)]
    lines += [f"Unchanged: {counted(totals.unchanged, 'page')} of jobs"] if totals.unchanged else []
    lines += [f"Duplicates: {duplicates_text(totals)}"] if totals.duplicates else []
    lines += [f"Requisites: {requisites_text(totals)}"] if totals.requisites_met else []
    lines += [f"Excluded: {counted(excluded, 'URL')} that waited"] if (excluded := _excluded(totals)) else []
    lines += [f"Logins: {logins_text(logins)}"] if (logins := overrides.logins) else []
    lines += ["", *_items(totals, crawl.settings.handlers.app), *losses_lines(others), *failures]
    lines += [
        f"{site}: {_not_in(crawl, site, why)}" for site, why in sorted(overrides.login_failures.items())[:SEEDS_SHOWN]
    ]
    lines += [away] if away and not is_all else []
    lines += [_scripted(one) for one in losses if one.reason == SCRIPTED]
    lines += _places(crawl, outputs, has_more=totals.fetched > new)
    lines += [f"Note: {note}" for note in notes]
    return "\n".join(lines)


def _excluded(totals: Totals) -> int:
    return totals.refused.get(RefusalReason.EXCLUDED, 0)


def _not_in(crawl: OpenCrawl, site: str, why: str) -> str:
    """Why nothing more of a site is fetched, and what to do."""
    return one_line(f"{why}; then '{program()} unblock {site}{_where(crawl)}' tries again")


def _scripted(loss: Loss) -> str:
    pages = counted(loss.count, "page seems", "pages seem")
    return one_line(
        f"{pages} to be built by JavaScript, which is not run ({loss.example}): links and text are missing; a sitemap "
        f"may have the links ('crawler seed --sitemap URL')."
    )


async def _led_away(crawl: OpenCrawl, totals: Totals) -> tuple[str, bool]:
    """Which seeds redirect to other sites, and what to do; "" for none. Second: was nothing else fetched?"""
    if not totals.lost.get(SEED_LED_AWAY):
        return "", False
    record, roots = await crawl.crawls.shared()
    away = ScopeRules.of(record.scope, roots).led_away()
    if not away:
        return "", False
    is_all = totals.fetched - totals.status.get("3", 0) <= len(away)
    some, more = away[:LED_AWAY_SHOWN], len(away) - LED_AWAY_SHOWN
    names = ", ".join(f"{seed} -> {target}" for seed, target in some) + (
        f", and {number(more)} more" if more > 0 else ""
    )
    who = "Each seed redirects" if is_all else counted(len(away), "seed redirects", "seeds redirect")
    command = f"{program()} seed{_where(crawl)} {shlex.join(target for _, target in some)}"
    return one_line(
        f"{who} out of the scope, so only the page there is fetched: {names}. To crawl its site: {command}, and the "
        "same command again."
    ), is_all


def _items(totals: Totals, app: str) -> list[str]:
    if totals.items or totals.items_invalid or totals.lost.get(ITEMS_DROPPED):
        return [f"Items: {number(totals.items)}"]
    return [f"Items: 0 (which handler a URL goes to, if any: crawler check {app} URL)"] if app else []


def _places(crawl: OpenCrawl, outputs: Sequence[str], *, has_more: bool) -> list[str]:
    """`has_more`: the outputs have pages of earlier commands, too."""
    folder = crawl.folder
    files = [path.stat().st_size for path in folder.warc.glob("*.warc.gz*")]
    lines = [f"Archive: {folder.warc} ({counted(len(files), 'file')}, {size(sum(files))}), index in {folder.index}"]
    if outputs:
        more = f" (all of {folder.root}, not of this command alone)" if has_more else ""
        lines.append(f"Results: {', '.join(outputs)}{more}")
    else:
        what = "--items -o items.jsonl" if crawl.settings.handlers.app else "-o pages.jsonl"
        lines.append(f"Export with: {program()} export{_where(crawl)} {what}")
    return lines


def _where(crawl: OpenCrawl) -> str:
    root = crawl.folder.root
    return "" if root == Path("crawl-data") else f" --dir {root}"


async def nothing_fetched(
    crawl: OpenCrawl, totals: Totals, losses: Sequence[Loss], seeds: Sequence[Candidate], *, is_all: bool
) -> NothingFetchedError | None:
    """Why not one of a command's seeds was fetched, by it or before in this crawl; None when one was.

    Looked at are `seeds`; if these are not all (`is_all`), or none, it counts whether the crawl has fetched anything.
    """
    if totals.fetched and not (seeds and is_all):
        return None
    letters = await crawl.letters.find_all(_by_partition(seeds))
    dead = [one.letter for one in letters] if seeds else await crawl.inspect.dead_letters(LETTERS_LOOKED_AT)
    if any(one.reason in ANSWERED for one in dead) or await _is_any_fetched(crawl, seeds):
        return None
    if not totals.fetched:
        return await _failure_of_all(crawl, totals, losses)
    what = f"{seeds[0].url}: see: crawler explain URL"
    if dead:
        first = min(dead, key=lambda letter: letter.failed_at)
        what = f"{first.url}: {_why(first)}{_again(first)}"
    return NothingFetchedError(f"no seed of this command was fetched: {what}")


async def _is_any_fetched(crawl: OpenCrawl, seeds: Sequence[Candidate]) -> bool:
    """Is one of them committed? One that redirects is if the page is to which it leads. Stops at the first."""
    states = await crawl.states.of(_by_partition(seeds))
    for seed in seeds:
        if states[seed.fingerprint] in (UrlState.COMMITTED, UrlState.ENDED) and await _is_fetched(crawl, seed.url):
            return True
    return False


async def _is_fetched(crawl: OpenCrawl, url: str) -> bool:
    """By the index of this folder. Of what is not in it, another machine of a shared engine may have the page."""
    for _ in range(crawl.settings.scope.redirects_max + 1):
        found = await asyncio.to_thread(find_url, crawl.folder, url)
        entry = next((one for one in found if not one.run), None)
        if entry is None:
            partition, fingerprint = crawl.placement.of(url)[2], crawl.frontier.fingerprints.of(url)
            state = (await crawl.states.of({partition: [fingerprint]}))[fingerprint]
            is_shared = bool(crawl.settings.frontier.redis)
            return state is UrlState.COMMITTED or (state is UrlState.ENDED and is_shared)
        if entry.status // 100 != 3:
            return True
        from crawler.crawl.reparse import leads_to

        away = await leads_to(crawl.folder, crawl.settings, crawl.record, url)
        if away is None or not away[1]:
            return True
        url = away[1]
    return False


def _by_partition(seeds: Sequence[Candidate]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for seed in seeds:
        found.setdefault(seed.partition, []).append(seed.fingerprint)
    return found


async def _failure_of_all(crawl: OpenCrawl, totals: Totals, losses: Sequence[Loss]) -> NothingFetchedError:
    """Why not one page was fetched, by the first URL that was given up."""
    failures = (await crawl.operator.overrides()).login_failures
    if failures and not totals.fetched:
        site, why = min(failures.items())
        return NothingFetchedError(f"nothing was fetched: {site}: {_not_in(crawl, site, why)}")
    letters = await crawl.inspect.dead_letters(1)
    if private := next((one for one in losses if one.reason == ALLOW_PRIVATE), None) if not letters else None:
        others = f" (and {number(private.count - 1)} more)" if private.count > 1 else ""
        verb = "is" if is_address(private.example.strip("[]")) else "has"
        what = f"{private.example} {verb} a private address{others}; add --allow-private to crawl it"
        return NothingFetchedError(f"nothing was fetched: {what}")
    if not letters:
        if kept := next((one for one in losses if one.kind is Kind.DEFERRED), None):
            what = f"{counted(kept.count, 'URL')} deferred for {kept.reason}: {kept.advice}"
            return NothingFetchedError(f"nothing was fetched: {what}")
        why = named(totals.refused) or "there was nothing to fetch"
        return NothingFetchedError(f"nothing was fetched: every URL was refused ({why}); see: crawler explain URL")
    first = letters[0]
    hint = await _dns_hint(crawl) if first.reason == "dns_error" else ""
    others = f" (and {number(totals.dead - 1)} more)" if totals.dead > 1 else ""
    return NothingFetchedError(f"nothing was fetched: {first.url}: {_why(first)}{others}{hint}{_again(first)}")


async def failed_seeds(crawl: OpenCrawl, given: Sequence[GivenUrl], totals: Totals, *, others: bool) -> list[str]:
    """A line for each of the first seeds that were given up: why, and what to do.

    Those given on the command line are looked up; with `others`, those among the letters that are looked at, too.
    """
    if not totals.dead:
        return []
    some = await crawl.inspect.dead_letters(LETTERS_LOOKED_AT) if others else []
    letters = {one.url: one for one in some if one.seed}
    fingerprints, wanted = crawl.frontier.fingerprints, dict[int, list[str]]()
    for one in given[:LETTERS_LOOKED_AT]:
        with contextlib.suppress(InvalidUrl):
            url = canonicalize(one.text)
            wanted.setdefault(crawl.placement.of(url)[2], []).append(fingerprints.of(url))
    for found in await crawl.letters.find_all(wanted):
        letters[found.letter.url] = found.letter
    shown = sorted(letters.values(), key=lambda letter: letter.failed_at)
    lines = [f"this seed failed: {one.url}: {_why(one)}{_again(one)}" for one in shown[:SEEDS_SHOWN]]
    if len(shown) > SEEDS_SHOWN:
        lines.append(f"more seeds failed: crawler dead list; {SAME_COMMAND}")
    return lines


def _why(letter: DeadLetter) -> str:
    is_final = letter.reason in NOT_ALLOWED  # no number of tries changes it
    tried = f", after {counted(letter.attempts, 'attempt')}" if letter.attempts and not is_final else ""
    return f"{failure_text(letter.reason, letter.detail)}{tried}"


def _again(letter: DeadLetter) -> str:
    return "" if letter.reason in (*NOT_ALLOWED, FailureKind.POISON_URL) else f"; {SAME_COMMAND}"


async def _dns_hint(crawl: OpenCrawl) -> str:
    resolver = CachingResolver(crawl.settings.dns, allow_private=True)
    try:
        complaint = await resolver.check()
    finally:
        await resolver.close()
    return f"; {complaint}" if complaint else ""

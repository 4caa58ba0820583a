"""What is known of one URL: where it is, whose it is, and what decides whether it is crawled."""

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec

from crawler.archive.index_reader import find_url, sitemaps_beside
from crawler.archive.warc_reader import read_content
from crawler.crawl.opening import OpenCrawl, make_router
from crawler.crawl.reparse import Rereader
from crawler.errors import ArchiveError, NotMetError
from crawler.frontier.members import weights_of
from crawler.frontier.stats import LINKS
from crawler.model import REQUISITE, SITEMAP, CommitEntry, Followed
from crawler.parsing.parse import ParseKilledError
from crawler.routing.router import Router
from crawler.rules.scope import ScopeVerdict
from crawler.rules.trap_verdict import PASSED, TrapRules
from crawler.rules.traps import NOTHING_LEARNED
from crawler.views.command_fetch import robots_fact
from crawler.views.reasons import AsRequisite, Facts
from crawler.views.report import OURS
from crawler.views.shares import ring_of

SITEMAPS_READ = 50  # of a host, to find the one that names a URL


async def explain(crawl: OpenCrawl, url: str, *, given: str = "", run: str = "", fetch_robots: bool = False) -> Facts:
    """The facts about a canonical URL, of which `explanation` makes a text, and `record_of` a record.

    `given` is the URL as it was written. `run`: an active run of a job, for which the URL is looked at, by its scope
    and depth; "" for the crawl itself. With `fetch_robots`, the site is asked for a robots.txt that nobody has read
    yet, politely. Raises EngineError, NotMetError when no such run is active, and ConflictError when the engine lost
    the crawl.
    """
    crawl = await crawl.reloaded()
    router = make_router(crawl)
    if run:
        record = (await crawl.runs.read([run]))[run]
        if record is None:
            raise NotMetError(f"run {run[:80]} is not active; 'crawler export --run' prints pages of one that ended")
        router = router.of_run(record)
    candidate = router.candidate(url, depth=0)
    where = await crawl.inspect.locate(candidate)
    members = await crawl.members.read()
    owners = (await ring_of(crawl, weights_of(members))).owners
    overrides = await crawl.operator.overrides()
    is_seed = where.record is not None and where.record.seed
    depth, redirects = (where.record.depth, where.record.redirects) if where.record else (0, 0)
    commits = await asyncio.to_thread(_commits, crawl, url, where.entry)
    lost = {} if where.seen else (await crawl.stats.totals()).lost
    return Facts(
        given=given or url,
        url=url,
        domain=candidate.domain,
        queue=candidate.queue,
        partition=candidate.partition,
        suggested=owners[candidate.partition] if owners else "",
        is_alone=not owners,
        is_paused=overrides.is_paused,
        trouble=next(((one.waits_for, one.last_error) for one in members.values() if one.waits_for in OURS), ("", "")),
        budget_reached=await crawl.crawls.budget_reached(),
        boost=overrides.boosts.get(candidate.domain, 0),
        login_failure=overrides.login_failures.get(candidate.domain, ""),
        scope=_scope_of(router, url, depth, redirects),
        is_excluded=router.scope.excludes(url),
        robots=await robots_fact(crawl, url, candidate.partition, fetch=fetch_robots),
        where=where,
        traps=PASSED if is_seed else TrapRules(crawl.settings.traps).judge(NOTHING_LEARNED, url),
        run=run,
        commits=[entry for entry in commits if entry.run == run and not entry.is_requisite],
        requisite=await _as_requisite(crawl, router, url, commits) if crawl.settings.requisites.fetch else None,
        of_runs=[entry for entry in commits if entry.run and not run],
        has_index=bool(crawl.settings.archive.dir),
        purpose=crawl.settings.rights.purpose if crawl.settings.rights.policy == "skip" else "",
        links_dropped=lost.get(LINKS, 0),
        sitemap=await _sitemap_of(crawl, url, depth if where.record else commits[-1].depth if commits else 0),
    )


async def _as_requisite(
    crawl: OpenCrawl, router: Router, url: str, commits: Sequence[CommitEntry]
) -> AsRequisite | None:
    """Where a URL is that pages need to be shown; None: none that was read so far does."""
    candidate = router.candidate(url, depth=1, followed=Followed(url, REQUISITE))
    where = await crawl.inspect.locate(candidate)
    found = [entry for entry in commits if entry.is_requisite]
    if where.entry is not None and not found:
        found.append(where.entry)
    return AsRequisite(where=where, commits=found) if where.seen or found else None


async def _sitemap_of(crawl: OpenCrawl, url: str, depth: int) -> str:
    """The sitemap that names a URL of this depth, if it is in this folder; "" for none."""
    if not crawl.record.sitemaps or depth != 1:
        return ""
    rereader = Rereader(crawl.settings, crawl.record)
    try:
        for entry in (await asyncio.to_thread(sitemaps_beside, crawl.folder, url))[:SITEMAPS_READ]:
            with contextlib.suppress(ArchiveError, ParseKilledError):
                if entry.content is not None:
                    stored = await asyncio.to_thread(read_content, crawl.folder, entry)
                    found = await rereader.read(entry.url, stored, label=SITEMAP)
                    if url in found.links or url in found.sitemaps:
                        return entry.url
    finally:
        await rereader.close()
    return ""


def _scope_of(router: Router, url: str, depth: int, redirects: int) -> ScopeVerdict:
    """With the seed that redirects to the site of a URL, if that is why somebody may expect it in the crawl."""
    found = router.verdict(url, depth, redirects)
    if found.allowed:
        return found
    for seed, target in router.scope.led_away():
        if router.scope.root_of(target) == router.scope.root_of(url):
            advice = f"{seed} redirects to {target} there: 'crawler seed {target}' crawls that site, too"
            return msgspec.structs.replace(found, rule=f"{found.rule}; the seed {advice}")
    return found


def _commits(crawl: OpenCrawl, url: str, entry: CommitEntry | None) -> list[CommitEntry]:
    """From the index on this machine, and from the engine's log where it is not yet in an index."""
    found = find_url(crawl.folder, url)
    if entry is not None and not any((e.fingerprint, e.visit) == (entry.fingerprint, entry.visit) for e in found):
        found.append(entry)
    return found

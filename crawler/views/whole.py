"""Reads a crawl as a whole: its headline, totals and rates over time. Bounded by the number of partitions."""

from msgspec.structs import replace

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.series import Sample
from crawler.frontier.stats import Totals
from crawler.runtime.clocks import wall_s
from crawler.views.domain_reads import domain_rows
from crawler.views.headline import with_notes
from crawler.views.instances import alive, full_nodes, running_since, waits_for
from crawler.views.losses import Loss, losses_of
from crawler.views.overview import left_s, still_s
from crawler.views.snapshot import CrawlState, Overview, SeriesView, Snapshot, TotalsView, jobs_ahead, series_view


async def overview(crawl: OpenCrawl) -> Overview:
    """The headline. Raises EngineError, as all functions here do."""
    progress, now_s = await crawl.inspect.progress(), wall_s()
    members = await alive(crawl)
    samples = (await crawl.series.read(Sample.of(now_s, progress))).since(running_since(members, now_s))
    overrides, budget_reached = await crawl.operator.overrides(), await crawl.crawls.budget_reached()
    spent, jobs = budget_reached.reason if budget_reached else "", jobs_ahead(members)
    state = _state(
        progress.pending, len(members), is_paused=overrides.is_paused, is_spent=bool(spent), has_jobs=bool(jobs.next_at)
    )
    return with_notes(
        Overview(
            crawl=crawl.settings.crawl.name,
            at=now_s,
            began_at=crawl.record.begun_at,
            state=state,
            instances=len(members),
            pages=progress.fetched,
            redirected=progress.redirected,
            client_errors=progress.client_errors,
            server_errors=progress.server_errors,
            added=progress.added,
            pending=progress.pending,
            scheduled=progress.scheduled,
            first_visible_at=progress.first_visible_at,
            in_flight=min(progress.pending, sum(m.in_flight for m in members)),
            retries=progress.retries,
            dead=progress.dead,
            bytes=progress.bytes,
            requisites=progress.requisites,
            rates=samples.rates,
            busy_partitions=progress.busy,
            still_s=still_s(samples) if progress.pending else 0.0,
            left_s=left_s(samples, scheduled=progress.scheduled),
            waits_for=await waits_for(crawl, members),
            full_nodes=full_nodes(members),
            awaited=[m.awaited for m in members if m.awaited],
            last_error=max(members, key=lambda m: m.last_error_at).last_error if members else "",
            set_back_pages=sum(m.set_back_pages for m in members),
            logins=sum(one.logins for one in overrides.logins.values()),
            one_shape=", ".join(filter(None, (m.one_shape for m in members))),
            jobs=jobs,
            spent=spent,
        )
    )


async def snapshot(crawl: OpenCrawl, sort: str, limit: int) -> Snapshot:
    """Headline and the first domains by one of SORTS."""
    return Snapshot(overview=await overview(crawl), domains=await domain_rows(crawl, sort, limit))


async def totals(crawl: OpenCrawl) -> TotalsView:
    """All totals."""
    return await totals_view(crawl, await crawl.stats.totals())


async def totals_view(crawl: OpenCrawl, found: Totals) -> TotalsView:
    """The same, of totals that were read."""
    members = await alive(crawl)
    in_flight = min(found.pending, sum(m.in_flight for m in members))
    return TotalsView(
        totals=found, pending=found.pending, domains=await crawl.stats.domain_count(), in_flight=in_flight
    )


async def losses(crawl: OpenCrawl) -> list[Loss]:
    """What is missing in the results, by reason."""
    return losses_of(*await crawl.stats.totals_and_examples())


async def overview_with_losses(crawl: OpenCrawl) -> Overview:
    """The headline with its losses, which cost another pass over the counters."""
    return replace(await overview(crawl), losses=await losses(crawl))


async def crawl_series(crawl: OpenCrawl) -> SeriesView:
    """Rates of the last 15 minutes and of the last day."""
    return series_view(await crawl.series.read(Sample.of(wall_s(), await crawl.inspect.progress())))


def _state(pending: int, instances: int, *, is_paused: bool, is_spent: bool, has_jobs: bool) -> CrawlState:
    if not pending and not has_jobs:
        return CrawlState.FINISHED
    if is_paused:
        return CrawlState.PAUSED
    if is_spent:
        return CrawlState.SPENT
    if not pending:
        return CrawlState.WAITING
    return CrawlState.RUNNING if instances else CrawlState.IDLE

"""What `crawler crawl` says at its end: a table of domains, where the results are, or why there are none."""

from collections.abc import Sequence
from pathlib import Path

from crawler.app import OpenCrawl
from crawler.errors import NothingFetchedError
from crawler.frontier.stats import Totals
from crawler.watch.report import domain_table, finish_line, items_text, named, over_budget, parked_text
from crawler.watch.wording import counted, number, size
from crawler.web.resolver import CachingResolver

DOMAINS_SHOWN = 20


async def summary(
    crawl: OpenCrawl, totals: Totals, *, new: int, seconds: float, why: str, outputs: Sequence[str]
) -> str:
    """The whole text, without a line end."""
    stats = crawl.stats
    shown = await stats.domains(await stats.top_domains(DOMAINS_SHOWN))
    over = parked_text(over_budget(totals, await crawl.crawls.spent()))
    if why in ("finished", "budget"):  # that of URLs ends a crawl like any; one whose end was the budget's is finished
        why = "budget" if over else "finished"
    lines = [finish_line(new, seconds, why), "", domain_table(shown)]
    count = await stats.domain_count()
    if count > len(shown):
        lines.append(f"... and {counted(count - len(shown), 'domain')} more: crawler stats --top {count}")
    if over:
        lines += ["", f"Budget: {over}; nothing is lost, and the same command with a larger budget goes on."]
    lines += ["", *_items(totals, crawl.settings.handlers.app), *_losses(totals), *_places(crawl, outputs)]
    return "\n".join(lines)


def _items(totals: Totals, app: str) -> list[str]:
    if totals.items or totals.items_invalid:
        return [f"Items: {items_text(totals)}"]
    return [f"Items: 0 (which handler a URL goes to, if any: crawler check {app} URL)"] if app else []


def _losses(totals: Totals) -> list[str]:
    lines: list[str] = []
    if totals.dead:
        lines.append(
            f"Given up: {counted(totals.dead, 'URL')} (failed tries: {named(totals.errors)}; ask: crawler dead list)"
        )
    if totals.parked:
        kept = counted(totals.parked, "URL is", "URLs are")
        lines.append(
            f"Parked: {kept} kept, not crawled (why: crawler stats DOMAIN; to go on: crawler release or unblock)"
        )
    if totals.refused:
        lines.append(f"Refused: {named(totals.refused)} (ask: crawler explain URL)")
    return lines


def _places(crawl: OpenCrawl, outputs: Sequence[str]) -> list[str]:
    folder = crawl.folder
    files = [path.stat().st_size for path in folder.warc.glob("*.warc.gz*")]
    lines = [f"Archive: {folder.warc} ({counted(len(files), 'file')}, {size(sum(files))}), index in {folder.index}"]
    if outputs:
        lines.append(f"Results: {', '.join(outputs)}")
    else:
        where = "" if folder.root == Path("crawl-data") else f" --dir {folder.root}"
        what = "--items -o items.jsonl" if crawl.settings.handlers.app else "-o pages.jsonl"
        lines.append(f"Export with: crawler export{where} {what}")
    return lines


async def failure_of_all(crawl: OpenCrawl, totals: Totals) -> NothingFetchedError:
    """Why not one page was fetched, by the first URL that was given up."""
    letters = await crawl.inspect.dead_letters(1)
    if not letters:
        why = named(totals.refused) or "nothing was to be fetched"
        return NothingFetchedError(f"nothing was fetched: every URL was refused ({why}); ask: crawler explain URL")
    first = letters[0]
    detail = f": {first.detail}" if first.detail else ""
    hint = await _dns_hint(crawl) if first.reason == "dns_error" else ""
    tried = f", after {counted(first.attempts, 'try', 'tries')}" if first.attempts else ""
    others = f" (and {number(totals.dead - 1)} more)" if totals.dead > 1 else ""
    return NothingFetchedError(f"nothing was fetched: {first.url}: {first.reason}{detail}{tried}{others}{hint}")


async def _dns_hint(crawl: OpenCrawl) -> str:
    resolver = CachingResolver(crawl.settings.dns, allow_private=True)
    try:
        complaint = await resolver.check()
    finally:
        await resolver.close()
    return f"; {complaint}" if complaint else ""

"""`crawler forget`: removes all that a crawl has of a domain, and keeps it out permanently."""

import argparse
import os

from crawler.archive.crawl_binding import bound_to
from crawler.archive.folder import CrawlFolder, open_existing
from crawler.cli.options import actor, settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.errors import AuditFailed, ConflictError, UsageError
from crawler.outputs.opening import targets_of
from crawler.settings import Settings
from crawler.terminal.output import show
from crawler.terminal.progress import progress
from crawler.views.forgetting import ForgetResult, forget, forget_text
from crawler.views.values import domain_alone


def run_forget(arguments: argparse.Namespace) -> int:
    """Forget, and print what is done; 8 until all is."""
    domain = domain_alone(arguments.domain, "forget")
    host = host_in(arguments.domain)
    if host != domain:
        raise UsageError(f"{host} belongs to {domain}, which is forgotten as a whole: 'crawler forget {domain}'")
    dirs = arguments.dir or []
    dirs.sort(key=lambda name: not os.access(name, os.W_OK))  # the command itself needs one that can be written
    arguments.dir = dirs[0] if dirs else None
    settings = settings_of(arguments, in_folder=True)
    result = run_async(_forget(arguments, settings, domain, dirs[1:]))
    show(result, forget_text(result), as_json=arguments.json)
    return 0 if result.dry_run or result.is_done else AuditFailed.exit_code


def host_in(text: str) -> str:
    """The host that people wrote, as URLs have it."""
    from crawler.crawl.url_input import url_of_site
    from crawler.rules.places import is_ip, registrable_domain
    from crawler.rules.urls import host_of

    host = host_of(url_of_site(text))
    return registrable_domain(host) if is_ip(host) else host.strip(".")


async def _forget(arguments: argparse.Namespace, settings: Settings, domain: str, others: list[str]) -> ForgetResult:
    open_existing(settings.archive.dir)  # fails before an engine is started
    targets = targets_of(arguments.output)
    async with open_crawl(settings, create=False) as crawl:
        folders = [crawl.folder, *(_folder_of(crawl, name) for name in others)]
        if len({folder.crawl for folder in folders}) < len(folders):
            raise UsageError("a folder is named twice")
        with progress(verbose=arguments.verbose) as meter:
            return await forget(
                crawl, domain, folders=folders, targets=targets, dry_run=arguments.dry_run, actor=actor(), meter=meter
            )


def _folder_of(crawl: OpenCrawl, name: str) -> CrawlFolder:
    folder = open_existing(name)
    bound = bound_to(folder)
    if bound is None or bound.first_begun_at != crawl.record.first_begun_at:
        raise ConflictError(f"{folder.root} is not a folder of the crawl {crawl.keys.crawl_name!r}: leave it out")
    return folder

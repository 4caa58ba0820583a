"""`crawler serve`: a crawl in the browser, as an HTTP API, and as metrics."""

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from crawler import process_tuning
from crawler.cli.crawl_options import (
    log_to_folder,
)
from crawler.cli.options import settings_of
from crawler.cli.run_async import raise_file_limit, run_async
from crawler.crawl.opening import open_crawl
from crawler.settings import Settings
from crawler.terminal.output import say

if TYPE_CHECKING:
    from crawler.api.front import Front


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal; EPILOG has the exit codes."""
    from crawler.api.front import Front, listen_place
    from crawler.api.host_names import host_name
    from crawler.api.proxies import path_prefix, trusted_proxies

    settings, place = settings_of(arguments), listen_place(arguments.listen)
    front = Front(
        names=tuple(map(host_name, arguments.host)),
        prefix=None if arguments.prefix is None else path_prefix(arguments.prefix),
        proxies=trusted_proxies(arguments.trust_proxy, may_be_unix=isinstance(place, Path)),
    )
    raise_file_limit()
    return run_async(_serve(arguments, settings, place, front))


async def _serve(
    arguments: argparse.Namespace, settings: Settings, place: tuple[str, int] | Path, front: "Front"
) -> int:
    from crawler.api.front import listen, listening_at
    from crawler.api.server import check_tokens, serving
    from crawler.cli.supervising import StopSignals

    process_tuning.collect_often()
    async with open_crawl(settings, create=False) as crawl:
        is_lasting = bool(settings.archive.dir)  # the folder: without one, the log is seen here or nowhere
        log_to_folder(settings, crawl.folder.log, "serve", verbose=bool(arguments.verbose) or not is_lasting)
        with StopSignals() as signals, listening_at(place) if isinstance(place, Path) else listen(*place) as sock:
            if not isinstance(place, Path):
                await check_tokens(crawl, place[0])
            stopped = asyncio.Event()
            signals.on_stop = stopped.set

            def announce(link: str) -> None:
                say(f"To log in from a browser, open this link (it works once): {link}")

            async with serving(
                crawl, sock, front=front, metrics_domains=arguments.metrics_domains, announce=announce
            ) as server:
                where = f"{server.url}, by the socket {place}" if isinstance(place, Path) else server.url
                say(f"Serving crawl {settings.crawl.name} at {where} (Ctrl-C ends it)")
                announce(server.login_url())
                await stopped.wait()
    return 0

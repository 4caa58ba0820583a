"""`crawler serve`: a crawl in the browser, as an HTTP API, and as metrics."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, count_type, settings_of

if TYPE_CHECKING:
    from crawler.settings import Settings

DOMAINS_MAX = 500
LISTEN = "127.0.0.1:8800"

EPILOG = """\
examples:
  crawler serve                                dashboard and API of the crawl in ./crawl-data
  crawler serve --redis redis://queue.example/ --listen 127.0.0.1:9000
  crawler serve --host crawl.example           behind a proxy that has this name and does TLS
  curl http://127.0.0.1:8800/v1/overview

On 127.0.0.1, reading needs no token. Each change needs one ('crawler token add'), or the
browser's session that the printed link begins. On another address, and with --host,
everything needs one. /openapi.json describes the API.

It is a process of its own: crawls start, stop and continue without it. Ctrl-C ends it.

exit codes: 0 done, 2 no such crawl, bad address, or no token yet, 3 engine, 4 port in use
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "serve",
        help="dashboard, HTTP API and metrics of a crawl",
        description="Serve a crawl's dashboard, HTTP API and metrics, until Ctrl-C.",
        epilog=EPILOG,
    )
    p.add_argument(
        "--listen", metavar="ADDRESS:PORT", default=LISTEN, help=f"where to listen (default: {LISTEN}); port 0: any"
    )
    p.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name that requests may have in their Host header, as of a proxy; repeatable",
    )
    p.add_argument(
        "--metrics-domains",
        metavar="N",
        type=count_type(0, DOMAINS_MAX),
        default=0,
        help=f"metrics also of the N domains with most pages, and of N with most pages per second (default: 0; "
        f"at most {DOMAINS_MAX})",
    )
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; EPILOG has the exit codes."""
    from crawler.api.access import listen_address
    from crawler.cli.event_loop import raise_file_limit, run_async

    settings, place = settings_of(arguments), listen_address(arguments.listen)
    raise_file_limit()
    return run_async(_serve(arguments, settings, place))


async def _serve(arguments: argparse.Namespace, settings: "Settings", place: tuple[str, int]) -> int:
    import asyncio

    from crawler.api.server import check_tokens, listen, serving
    from crawler.cli.crawl_options import log_to_folder
    from crawler.cli.supervising import StopSignals
    from crawler.crawl.opening import open_crawl
    from crawler.terminal.text import say

    async with open_crawl(settings, create=False) as crawl:
        is_lasting = bool(settings.archive.dir)  # the folder: without one, the log is seen here or nowhere
        log_to_folder(settings, crawl.folder.log, "serve", verbose=bool(arguments.verbose) or not is_lasting)
        with StopSignals() as signals, listen(*place) as sock:
            await check_tokens(crawl, place[0])
            stopped = asyncio.Event()
            signals.on_stop = stopped.set

            def announce(link: str) -> None:
                say(f"To change things from a browser, open this link (it works once): {link}")

            async with serving(
                crawl, sock, names=arguments.host, metrics_domains=arguments.metrics_domains, announce=announce
            ) as server:
                say(f"Serving crawl {settings.crawl.name} at {server.url} (Ctrl-C ends it)")
                announce(server.login_url())
                await stopped.wait()
    return 0

"""Options of `crawler serve`."""

import argparse
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from crawler.cli.options import (
    add_common,
    count_type,
)

if TYPE_CHECKING:
    from crawler.crawl.url_input import GivenUrl

    Batches = AsyncGenerator[list[GivenUrl], None]


DOMAINS_MAX = 500


LISTEN = "127.0.0.1:8800"


SERVE_EPILOG = """\
examples:
  crawler serve                                dashboard and API of the crawl in ./crawl-data
  crawler serve --redis redis://queue.example/ --listen 127.0.0.1:9000
  crawler serve --host tools.example --prefix /crawler/ --trust-proxy 127.0.0.1
                                               behind a proxy: https://tools.example/crawler/
  curl http://127.0.0.1:8800/v1/overview

Each change needs a token ('crawler token add'), or the browser's session that the printed
link begins. Reading needs none as long as only this machine can connect, the crawl has no
token, none of --host, --prefix and --trust-proxy is given, and no header tells of a proxy.
A proxy that adds no header can't be seen: give --host or --prefix, or --listen unix:PATH.
/openapi.json describes the API.

It is a process of its own: crawls start, stop and continue without it. Ctrl-C ends it.

exit codes: 0 done, 2 no such crawl, bad address, or no token yet, 3 engine, 4 port or socket in use
"""


def add_serve(p: argparse.ArgumentParser) -> None:
    p.description = "Serve a crawl's dashboard, HTTP API and metrics, until Ctrl-C."
    p.epilog = SERVE_EPILOG
    p.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        default=LISTEN,
        help=f"where to listen (default: {LISTEN}); port 0: any; unix:PATH: a socket that only your user can open",
    )
    p.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name that requests may have in their Host header, as of a proxy; repeatable",
    )
    p.add_argument(
        "--prefix",
        metavar="PATH",
        help="the path that everything is under, like /crawler/; a proxy has to pass paths on unchanged",
    )
    p.add_argument(
        "--trust-proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="a proxy whose X-Forwarded-For, -Proto and -Host are believed: an address, a network, or unix (whoever "
        "opens the socket of --listen); repeatable",
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
    p.set_defaults(run="crawler.cli.serve:run_serve", takes_urls=False)

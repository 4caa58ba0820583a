"""Options of what crawls and adds URLs: `crawl`, `run`, `seed`, `serve`."""

import argparse
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from crawler.cli.crawl_options import (
    VERBOSE_HELP,
    add_app,
    add_fetching,
    add_headers,
    add_instances,
    add_order,
    add_sitemap,
)
from crawler.cli.options import (
    add_common,
    add_list_form,
    add_urls,
    count_type,
    limit_type,
    moment_type,
    named_type,
    whole_type,
)
from crawler.cli.parse_folder import add_output
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.crawl.url_input import GivenUrl

    Batches = AsyncGenerator[list[GivenUrl], None]


CRAWL_EPILOG = """\
examples:
  crawler crawl https://docs.example/
  crawler crawl https://docs.example/guide/ --scope prefix -o guide.jsonl
  crawler crawl -i seeds.txt --depth 1 --exclude '/(login|cart)' -n 2
  crawler crawl https://shop.example/ --app shop.py -n 4
  crawler crawl --app shop.py                   begins with the requests of its @app.start
  crawler crawl https://shop.example/ --cookie 'session=8f2c' --header 'X-Team: search'
  subdomains example.com | crawler crawl -i - --pages 10000 --time 2h

Ctrl-C stops in order: what is in flight is finished, the rest is kept. The same command
goes on where the crawl stopped, also after a crash. Scope, robots, limits and the like are
stored with the crawl and need not be given again; 'crawler settings' shows and changes them.

exit codes: 0 done or limit reached, 2 bad input, 3 engine, 4 folder or node taken, 5 disk,
6 not one seed could be fetched, 10 stopped by a signal, 11 forced by a second one, 12 a
database of -o is away, 13 a handler failed on each of its pages, 14 your network failed for long
"""


def add_crawl(p: argparse.ArgumentParser) -> None:
    p.description = "Crawl from seed URLs until nothing is left, then print what was found and where it is stored."
    p.epilog = CRAWL_EPILOG
    add_urls(p)
    group = p.add_argument_group("what to crawl")
    add_sitemap(group)
    group.add_argument(
        "--scope",
        choices=("domain", "host", "prefix", "any"),
        help="which links to follow: to the seeds' registrable domain (default), host, folder, or anywhere",
    )
    group.add_argument(
        "-np", "--no-parent", dest="scope", action="store_const", const="prefix", help="the same as --scope prefix"
    )
    group.add_argument(
        "-d",
        "--depth",
        type=count_type(0, 255, hint="; leave it out for no limit"),
        metavar="N",
        help="links away from a seed; 0: seeds only (default: no limit)",
    )
    group.add_argument(
        "--include",
        action="append",
        metavar="RE",
        help="only URLs that match this regular expression anywhere; may be repeated",
    )
    group.add_argument(
        "--exclude",
        action="append",
        metavar="RE",
        help="no URLs that match this regular expression anywhere; may be repeated",
    )
    add_app(group)
    add_order(group)
    group = p.add_argument_group("when to stop")
    group.add_argument(
        "--pages",
        type=count_type(1, hint="; leave it out for no limit"),
        metavar="N",
        help="when the crawl has N pages in total; several instances may fetch a few more, at most what they claim in "
        "half a second (measured with 2 and 4 instances: 0 or 1 more)",
    )
    group.add_argument("--time", type=limit_type, metavar="T", help="after this time: 90 (seconds), 10m, 2h, 1d")
    group = p.add_argument_group("results")
    add_output(group)
    group.add_argument(
        "-q", "--quiet", action="store_true", help="print no progress and no summary, only warnings and errors"
    )
    add_fetching(p)
    add_headers(p)
    add_instances(p)
    add_common(p, verbose_help=VERBOSE_HELP)
    p.set_defaults(run="crawler.cli.crawl:run_crawl")


# `crawler run`: instances that share the domains of a crawl and wait for work; also the children of `-n`.

RUN_EPILOG = """\
examples:
  crawler run --redis redis://queue.example/ --name news          on each machine
  crawler run -n 4 --contact https://example.com/bot              four on this one
  crawler run --app shop:app -n 4                                 pages go to your functions

Instances find each other on the engine and share the domains by a consistent-hash ring;
start and stop them at any time. They wait for work until a signal stops them. Add work
with 'crawler seed', look at it with 'crawler stats' and 'crawler ring'.

exit codes: 0 or 10 stopped by a signal, 1 an instance kept crashing, 3 engine, 4 node taken, 5 disk,
12 a database of -o is not available
"""


def add_run(p: argparse.ArgumentParser) -> None:
    p.description = "Run instances that share the domains of a crawl and wait for work until a signal stops them."
    p.epilog = RUN_EPILOG
    add_instances(p)
    add_output(p.add_argument_group("results"))
    p.add_argument("-q", "--quiet", action="store_true", help="print no progress, only warnings and errors")
    add_app(p)
    add_order(p)
    add_fetching(p)
    add_headers(p)
    add_common(p, verbose_help=VERBOSE_HELP)
    p.add_argument("--until-finished", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)  # end with standard input
    p.set_defaults(run="crawler.cli.crawl:run_run", takes_urls=False)


# `crawler seed`: add URLs to a crawl that runs, or to one that begins later.

SEED_EPILOG = """\
examples:
  crawler seed https://docs.example/ https://blog.example/
  crawler seed -i hosts.txt --priority 5
  crawler seed -i sites.csv --column Website
  tail -f found.log | crawler seed -
  crawler seed --sitemap https://docs.example/sitemap.xml
  crawler seed --at 2027-01-31T12:00Z https://docs.example/release-notes

Each seed's domain (host, folder; see --scope of 'crawler crawl') joins the scope of the
crawl. A crawl does not end while a stream of seeds is being read.

With --at, the URLs are pending and no instance fetches them before that time; a crawl does
not end before. A URL that the crawl knows already stays as it is: one that waits for its time
waits on, also when it is given again or a page links to it.

exit codes: 0 done, 2 no valid seed URL, 3 engine, 6 the sitemap could not be fetched
"""


def add_seed(p: argparse.ArgumentParser) -> None:
    p.description = "Add URLs to a crawl, running or not yet started, and print how many were new."
    p.epilog = SEED_EPILOG
    add_urls(p)
    group = p.add_argument_group("seeds")
    add_sitemap(group)
    group.add_argument(
        "--priority", type=float, metavar="P", help="higher is fetched first (default: derived from --order)"
    )
    group.add_argument(
        "--depth", type=whole_type, default=0, metavar="N", help="the depth these URLs count as (default: 0)"
    )
    group.add_argument(
        "--at", type=moment_type, default=0.0, metavar="TIME",
        help="fetch these URLs at TIME or later, like 2027-01-31T12:00Z (ISO 8601; UTC unless it has an offset)",
    )  # fmt: skip
    group.add_argument("--json", action="store_true", help="the counts as one JSON object")
    add_order(group)
    add_fetching(p)
    add_common(p)
    p.set_defaults(run="crawler.cli.seed:run_seed")


# `crawler import`: what another crawler knows.

IMPORT_EPILOG = """\
examples:
  crawler import seen urls.txt                                a URL a line
  crawler import seen index.cdx.gz old-crawl.cdxj             what archives have
  crawler import scrapy-redis redis://old.example/0 quotes:requests

`seen`: these URLs count as seen and are not fetched; statistics count them as refused
("imported"). Lines are URLs, CSV, CDX, CDXJ, or JSON with `url`; files may be packed. URLs that
ended with a server error (5xx) there are left out. A rebuild does not know of them: import again.

`scrapy-redis`: the requests of its queue (a sorted set, list or set; pickled, in JSON, or plain
URLs like NAME:start_urls) are added with method, body, meta and priority; the queue stays as it
is. Its dupefilter has fingerprints, which tell no URLs: import what the crawl has exported as
`seen`.

Lists of URLs to fetch, with priorities: 'crawler seed -i FILE' reads lines of JSON, like
{"url": "https://a.example/", "priority": 3}.

exit codes: 0 done, 2 nothing that can be used, 3 engine, 4 another crawl
"""


def add_import(p: argparse.ArgumentParser) -> None:
    p.description = "Take over what another crawler knows."
    p.epilog = IMPORT_EPILOG
    p.set_defaults(run="crawler.cli.parse_crawl:import_without_source")
    sources = p.add_subparsers(metavar="SOURCE", title="sources")
    text = "count URLs as seen, which are not to be fetched"
    one = sources.add_parser("seen", help=text, description=f"{text.capitalize()}.", epilog=IMPORT_EPILOG)
    one.add_argument("files", nargs="+", metavar="FILE", help="- for standard input")
    add_list_form(one)
    one.add_argument("--json", action="store_true", help="the counts as one JSON object")
    add_common(one)
    one.set_defaults(run="crawler.cli.imports:run_import_seen", parser=one)
    text = "add the requests that wait in a queue of scrapy-redis"
    one = sources.add_parser("scrapy-redis", help=text, description=f"{text.capitalize()}.", epilog=IMPORT_EPILOG)
    one.add_argument("source", metavar="URL", type=named_type, help="of the Redis that it uses")
    one.add_argument("key", metavar="KEY", type=named_type, help="of the queue, like quotes:requests")
    one.add_argument("--json", action="store_true", help="the counts as one JSON object")
    add_common(one)
    one.set_defaults(run="crawler.cli.imports:run_import_scrapy", parser=one)


def import_without_source(_arguments: argparse.Namespace) -> int:
    """Raises UsageError."""
    raise UsageError("import: give a source: seen or scrapy-redis (see 'crawler import --help')")


# `crawler serve`: a crawl in the browser, as an HTTP API, and as metrics.

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
    p.set_defaults(run="crawler.cli.crawl:run_serve", takes_urls=False)

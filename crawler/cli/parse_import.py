"""Options of `crawler import`."""

import argparse
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from crawler.cli.options import (
    add_common,
    add_list_form,
    named_type,
)
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.crawl.url_input import GivenUrl

    Batches = AsyncGenerator[list[GivenUrl], None]


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
    p.set_defaults(run="crawler.cli.parse_import:import_without_source")
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

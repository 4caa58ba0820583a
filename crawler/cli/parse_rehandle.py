"""Options of `crawler rehandle`."""

import argparse

from crawler.cli.crawl_options import add_app
from crawler.cli.options import add_common
from crawler.cli.parse_export import add_output

REHANDLE_EPILOG = """\
examples:
  crawler rehandle                                the app of the crawl, after it was changed
  crawler rehandle --app shop.py                  an app for a crawl that had none, or another one
  crawler rehandle --app shop.py -o items.jsonl   the same, and the new items there
  crawler rehandle --domain shop.example

No request is sent: pages come from the archive, with the status, headers and body that they had.
What handlers yield replaces the items of their pages. URLs that they follow, and that the crawl
does not know, are added: the next 'crawler crawl' fetches them. An app that is named becomes the
app of the crawl.

Pages whose handler fails, and pages whose body is not in the archive of this folder, keep their
items. Nothing changes before all pages were handled: until then Ctrl-C leaves everything as it
was. If the command is killed, run it again. No instance may run meanwhile.

exit codes: 0 done, 2 no such crawl or app, 3 engine, 4 an instance is running, or a prune or
rebuild, 5 bodies are missing, or the disk is full, 12 a target of -o is away, or rejects the
items, 13 the handler failed on pages
"""


def add_rehandle(p: argparse.ArgumentParser) -> None:
    p.description = "Run handlers (--app) over the pages in the archive again, and replace the items of these pages."
    p.epilog = REHANDLE_EPILOG
    add_app(p)
    p.add_argument("--domain", metavar="DOMAIN", default="", help="only pages of a domain; or one of its hosts or URLs")
    p.add_argument(
        "--append", action="store_true", help="keep the items that pages have, and add those that they do not have yet"
    )
    add_output(p.add_argument_group("results"))
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run="crawler.cli.rehandle:run_rehandle", takes_urls=False)

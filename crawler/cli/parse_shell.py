"""Options of `crawler shell`."""

import argparse

from crawler.cli.crawl_options import add_app, add_body, add_fetching, add_headers
from crawler.cli.options import add_settings

SHELL_EPILOG = """\
examples:
  crawler shell https://docs.example/
  crawler shell https://docs.example/ -c 'page.title'
  crawler shell https://shop.example/p/1 --app shop.py -c 'handle(page)'

in the prompt (IPython, where it is installed):
  page          the page, as a handler gets it: page.css_first("h1").text(), page.links(), page.json() ...
  fetch(url)    another page; a relative URL is one of `page`. Between two requests to a host its delay is kept.
                It takes method=, form=, json=, body=, headers= and meta= as page.follow does, and follow=True
  app           what --app names
  handle(page)  what the app's handler for it yields, and what it follows

exit codes: 0 done, 1 the line of -c failed, 2 invalid URL or app, 6 no response, or robots.txt forbids it
"""


def add_shell(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Fetch one page as the crawler does, robots.txt first, and look at it in a Python prompt, as a "
        "handler gets it. Nothing is kept."
    )
    p.epilog = SHELL_EPILOG
    p.add_argument("url", metavar="URL")
    p.add_argument("-L", "--follow", action="store_true", help="follow redirects")
    p.add_argument(
        "-c", dest="code", metavar="CODE", help="run this line instead of a prompt; what it gives is printed"
    )
    add_app(p)
    add_body(p)
    add_headers(p)
    add_fetching(p, many=False)
    add_settings(p)
    p.set_defaults(run="crawler.cli.shell:run_shell", takes_urls=False)

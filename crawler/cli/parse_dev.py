"""Options of what helps to write a crawl: `fetch`, `shell`, `check`, `plan`, `init`, `completion`."""

import argparse

from crawler.cli.crawl_options import add_app, add_body, add_fetching, add_headers, add_proxy
from crawler.cli.options import add_settings, named_type

REDIRECTS_MAX = 10  # as in visiting.py, which is not loaded for a help text

FETCH_EPILOG = """\
examples:
  crawler fetch https://docs.example/             status, headers, robots.txt, links, text
  crawler fetch https://docs.example/ --links     all links, one a line
  crawler fetch https://docs.example/ --text      what a reader sees
  crawler fetch http://docs.example/ --follow     where redirects lead
  crawler fetch https://docs.example/find --data q=tea                 by POST

exit codes: 0 there was a response, whatever its status; 2 invalid URL; 6 no response, or robots.txt forbids it
"""


def add_fetch(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Fetch one page and show it as the crawler sees it: robots.txt and the rule that decided, status, "
        "headers, times, links and text. Its robots.txt is fetched first. Nothing is stored."
    )
    p.epilog = FETCH_EPILOG
    p.add_argument("url", metavar="URL")
    p.add_argument("-L", "--follow", action="store_true", help=f"follow up to {REDIRECTS_MAX} redirects")
    shown = p.add_mutually_exclusive_group()
    shown.add_argument("--links", action="store_true", help="all links, canonical, one a line, and nothing else")
    shown.add_argument("--text", action="store_true", help="the visible text and nothing else")
    shown.add_argument("--json", action="store_true", help="all of it as one JSON object; times in ms")
    add_body(p)
    add_headers(p)
    add_fetching(p)
    add_settings(p)
    p.set_defaults(run="crawler.cli.dev:run_fetch", takes_urls=False)


# `crawler shell`: a page as handlers get it, in a Python prompt.

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
    p.set_defaults(run="crawler.cli.dev:run_shell", takes_urls=False)


# `crawler check`: is a settings file, or an app, as it should be; and which settings does a URL get?

CHECK_EPILOG = """\
examples:
  crawler check shop.toml                               is it valid, and do its variables and its app exist?
  crawler check shop.py:app                             does it load, and which handlers does it have?
  crawler check shop.toml shop.py https://shop.example/cart/1    which table each setting of this URL comes from,
                                                        and which handler gets the page

exit codes: 0 nothing is wrong; 2 something is wrong (a line each on standard error)
"""


def add_check(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Check a settings file or an app without crawling: what is wrong, a line each with the file and "
        "the key. With URLs: which settings each gets, from which table of the file, and which handler gets its page."
    )
    p.epilog = CHECK_EPILOG
    p.add_argument(
        "targets", metavar="FILE.toml|APP|URL", nargs="*", help="what to check, in any order; an app as for --app"
    )
    add_proxy(p)
    add_settings(p)
    p.set_defaults(run="crawler.cli.check:run_check", takes_urls=False)


# `crawler plan`: what a crawl of a given size needs.

PLAN_EPILOG = """\
examples:
  crawler plan --urls 1e9 --domains 5e7 --rate 5000/s
  crawler plan --urls 3e6 --domains 1000 --rate 200 --page-kb 60 --delay 2

Calculated from constants that were measured on one machine, for crawls without handlers. The
formulas are in docs/operate/planning.md. Numbers may be written like 50000000, 5e7, 50M, 1G.

exit codes: 0 done, 2 a number that can't be used
"""
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}


AMOUNT_MAX = 1e15


def amount_type(text: str) -> float:
    """For argparse: a positive number, like 1e9 or 50M; a rate may end in /s."""
    plain = text.strip().lower().removesuffix("/s").replace("_", "").replace(",", "")
    factor = _FACTORS.get(plain[-1:], 1.0)
    try:
        number = float(plain[:-1] if factor > 1 else plain) * factor
    except ValueError:
        number = 0.0
    if number >= AMOUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is too large (below {AMOUNT_MAX:g})")
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number (like 1e9, 50M or 200/s)")
    return number


def delay_type(text: str) -> float:
    """For argparse: seconds, maybe 0."""
    return 0.0 if text.strip() in ("0", "0.0") else amount_type(text)


def add_plan(p: argparse.ArgumentParser) -> None:
    p.description = "Print what a crawl of a given size needs: instances, engine, memory, disk, bandwidth, time, money."
    p.epilog = PLAN_EPILOG
    p.add_argument("--urls", type=amount_type, required=True, metavar="N", help="URLs that the crawl will know")
    p.add_argument("--domains", type=amount_type, required=True, metavar="N", help="on so many domains")
    p.add_argument("--rate", type=amount_type, required=True, metavar="R", help="pages a second")
    p.add_argument("--pages", type=amount_type, metavar="N", help="that are fetched (default: all URLs)")
    p.add_argument(
        "--page-kb", type=amount_type, default=240.0, metavar="KB", help="of HTML, unpacked (default: 240, as in 2025)"
    )
    p.add_argument("--delay", type=delay_type, default=1.0, metavar="S", help="of a domain (default: 1)")
    p.add_argument("--replicas", type=int, choices=range(3), default=1, help="of each primary (default: 1)")
    p.add_argument(
        "--price", type=amount_type, default=0.0446, metavar="$", help="of a vCPU for an hour (default: 0.0446)"
    )
    p.add_argument("--json", action="store_true", help="as one JSON object")
    p.set_defaults(run="crawler.cli.dev:run_plan", takes_urls=False)


# `crawler init`: writes a settings file and an app to begin with, and overwrites nothing.

SETTINGS_FILE, APP_FILE = "crawler.toml", "app.py"

INIT_EPILOG = """\
examples:
  crawler init              crawler.toml and app.py in this folder
  crawler init shop         the same in the folder shop, which is created

A file that exists is never overwritten: then nothing is written.

exit codes: 0 written, 2 a file exists or can't be written
"""


def add_init(p: argparse.ArgumentParser) -> None:
    p.description = (
        f"Write {SETTINGS_FILE}, with the settings that people change most, and {APP_FILE}, with a handler of pages."
    )
    p.epilog = INIT_EPILOG
    p.add_argument(
        "folder", nargs="?", default=".", metavar="DIR", type=named_type, help="folder of the files (default: this one)"
    )
    p.set_defaults(run="crawler.cli.setup:run_init")


# `crawler completion`: prints a script with which a shell completes commands, options and their values.

SHELLS = ("bash", "zsh", "fish")

COMPLETION_EPILOG = """\
examples:
  crawler completion bash > ~/.local/share/bash-completion/completions/crawler
  crawler completion zsh > "${fpath[1]}/_crawler"
  crawler completion fish > ~/.config/fish/completions/crawler.fish

Shells that start afterwards complete 'crawler'. Print the script again after an upgrade. In bash,
the first line needs the package bash-completion; without it, add this to ~/.bashrc:
  source <(crawler completion bash)
"""


def add_completion(p: argparse.ArgumentParser) -> None:
    p.description = "Print a script that completes commands, options, fixed values and files in your shell."
    p.epilog = COMPLETION_EPILOG
    p.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    p.set_defaults(run="crawler.cli.setup:run_completion")

"""`crawler shell`: a page as handlers get it, in a Python prompt."""

import argparse
from collections.abc import Callable
from typing import Any

from crawler.cli.crawl_options import KEYS, add_app, add_fetching
from crawler.cli.options import add_settings, settings_of
from crawler.errors import CrawlerError, UsageError

BUG = 1  # the exit code of a line that fails

EPILOG = """\
examples:
  crawler shell https://docs.example/
  crawler shell https://docs.example/ -c 'page.title'
  crawler shell https://shop.example/p/1 --app shop.py -c 'handle(page)'

in the prompt (IPython, where it is installed):
  page          the page, as a handler gets it: page.css_first("h1").text(), page.links, page.json() ...
  fetch(url)    another page; a relative URL is one of `page`. Between two requests to a host its delay is kept
  app           what --app names
  handle(page)  what the app's handler for it yields, and what it follows

exit codes: 0 done, 1 the line of -c failed, 2 invalid URL or app, 6 no response, or robots.txt forbids it
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    p = commands.add_parser(
        "shell",
        help="fetch one page and look at it in a Python prompt",
        description="Fetch one page as the crawler does, robots.txt first, and look at it in a Python prompt, as a "
        "handler gets it. Nothing is kept.",
        epilog=EPILOG,
    )
    p.add_argument("url", metavar="URL")
    p.add_argument("-L", "--follow", action="store_true", help="follow redirects")
    p.add_argument(
        "-c", dest="code", metavar="CODE", help="run this line instead of a prompt; what it gives is printed"
    )
    add_app(p)
    add_fetching(p, many=False)
    add_settings(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Fetch, then the prompt or the line; raises InvalidUrl, and NothingFetchedError where there is no response."""
    from crawler.cli.checking import check_app
    from crawler.cli.shell_session import ShellSession
    from crawler.crawl.url_input import url_of
    from crawler.handlers.load_app import load_app

    url, settings = url_of(arguments.url), settings_of(arguments, KEYS)
    check_app(settings)
    app = load_app(settings.handlers.app) if settings.handlers.app else None
    hand = ShellSession(settings, app)
    names: dict[str, Any] = {"page": hand.fetch(url, follow=arguments.follow), "fetch": hand.fetch, "print": _print}
    if app is not None:
        names |= {"app": app, "handle": hand.handle}
    if arguments.code is not None:
        return run_line(arguments.code, names)
    _prompt(names)
    return 0


def run_line(code: str, names: dict[str, Any]) -> int:
    """Run it as a prompt would, and print what it gives. Raises UsageError for invalid Python."""
    import traceback

    from crawler.terminal.text import err

    compiled = _compiled(code)
    try:
        exec(compiled, names)  # noqa: S102 - the user asked for it
    except CrawlerError:
        raise
    except Exception as error:  # noqa: BLE001 - their line, their error
        trace = traceback.TracebackException.from_exception(error)
        trace.stack = traceback.StackSummary.from_list(trace.stack[1:])  # the first is this function
        err("".join(trace.format()).rstrip("\n"))
        return BUG
    return 0


def _compiled(code: str) -> Any:
    try:
        return compile(code, "-c", "single")
    except SyntaxError:
        try:
            return compile(code, "-c", "exec")  # several lines
        except SyntaxError as error:
            raise UsageError(f"-c {code!r}: {error.msg}") from None


def _print(*values: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False) -> None:
    """`print` of the prompt: what a page holds can't act on the terminal."""
    from crawler.rules.text import printable

    text = (" " if sep is None else sep).join(map(str, values))
    print(printable(text), end="\n" if end is None else end, file=file, flush=flush)


def _prompt(names: dict[str, Any]) -> None:
    from crawler.rules.text import one_line

    page = names["page"]
    there_are = ", ".join(name for name in names if name != "print")
    banner = one_line(f"page: {page.url} (status {page.status}); there are {there_are}. Ctrl-D ends.")
    _interact()(banner, names)


def _interact() -> Callable[[str, dict[str, Any]], None]:
    try:
        import IPython
    except ImportError:
        return _plain

    from crawler.terminal.text import out

    def ipython(banner: str, names: dict[str, Any]) -> None:
        out(banner)
        IPython.start_ipython(argv=["--no-banner"], user_ns=names)

    return ipython


def _plain(banner: str, names: dict[str, Any]) -> None:
    import code
    import contextlib

    with contextlib.suppress(ImportError):
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    code.interact(banner, local=names, exitmsg="")

"""`crawler check`: is a settings file, or an app, as it should be; and which settings does a URL get?"""

import argparse
from typing import TYPE_CHECKING

from crawler.cli.crawl_options import KEYS
from crawler.cli.options import add_settings, config_of, options_of
from crawler.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from crawler.handlers.crawler import Crawler
    from crawler.settings import Settings

EPILOG = """\
examples:
  crawler check shop.toml                               is it valid, and do its variables and its app exist?
  crawler check shop.py:app                             does it load, and which handlers does it have?
  crawler check shop.toml shop.py https://shop.example/cart/1    which table each setting of this URL comes from,
                                                        and which handler gets the page

exit codes: 0 nothing is wrong; 2 something is wrong (a line each on standard error)
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    p = commands.add_parser(
        "check",
        help="check a settings file or an app, and show which settings a URL gets",
        description="Check a settings file or an app without crawling: what is wrong, a line each with the file and "
        "the key. With URLs: which settings each gets, from which table of the file, and which handler gets its page.",
        epilog=EPILOG,
    )
    p.add_argument(
        "targets", metavar="FILE.toml|APP|URL", nargs="*", help="what to check, in any order; an app as for --app"
    )
    add_settings(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Print what is wrong, or what there is; 2 when something is wrong."""
    from crawler.crawl.url_input import url_of
    from crawler.terminal.text import warn

    files = [one for one in arguments.targets if one.endswith(".toml")]
    urls = [url_of(one) for one in arguments.targets if "://" in one]
    apps = [one for one in arguments.targets if not one.endswith(".toml") and "://" not in one]
    if len(files) > 1 or len(apps) > 1 or (files and arguments.config):
        raise UsageError("check one settings file and one app at a time")
    if not arguments.targets and config_of(arguments) is None:
        raise UsageError("name a settings file, an app, or URLs to check")
    arguments.config = files[0] if files else arguments.config
    arguments.app = apps[0] if apps else None
    settings, app, wrong = _checked(arguments)
    for line in wrong:
        warn(line)
    if wrong or settings is None:
        return UsageError.exit_code
    _say(settings, app, config_of(arguments), urls)
    return 0


def _checked(arguments: argparse.Namespace) -> "tuple[Settings | None, Crawler | None, list[str]]":
    """As far as each could be loaded, and what is wrong."""
    from crawler.cli.checking import app_complaints
    from crawler.handlers.load_app import load_app
    from crawler.rules import scope
    from crawler.settings.load import complaints, read

    file, wrong, app = config_of(arguments), list[str](), None
    try:
        settings = read(file, options=options_of(arguments, KEYS))
    except UsageError as error:
        return None, None, [str(error)]
    try:
        app = load_app(settings.handlers.app) if settings.handlers.app else None
    except UsageError as error:
        wrong.append(str(error))
    of_file = [*complaints(settings), *scope.complaints(settings), *app_complaints(settings, app)]
    return settings, app, [f"{file}: {one}" if file else one for one in of_file] + wrong


def _say(settings: "Settings", app: "Crawler | None", file: "Path | None", urls: list[str]) -> None:
    from crawler.terminal.text import counted, out
    from crawler.views.report import as_text, https_only, sources_of

    if file is not None and not urls:
        of_sites = f", {counted(len(settings.sites), 'table')} [[sites]]" if settings.sites else ""
        out(f"{file}: nothing is wrong{of_sites}")
        for line in https_only(settings):
            out(f"  {line}")
    if app is not None and not urls:
        out(f"{settings.handlers.app}: nothing is wrong, {counted(len(app.handlers), 'handler')}")
        for handler in app.handlers:
            for_ = [p.text for p in handler.patterns] + ([f"label {handler.label}"] if handler.label else [])
            out(f"  {handler.name}: {', '.join(for_) or 'all pages without another handler'}")
    if urls:
        out("\n\n".join(as_text(url, sources_of(url, settings, app)) for url in urls))

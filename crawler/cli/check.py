"""`crawler check`: is a settings file, or an app, as it should be; and which settings does a URL get?"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.cli.crawl_options import KEYS
from crawler.cli.options import check_engine_url, config_of, options_of
from crawler.crawl.url_input import url_of
from crawler.errors import UsageError
from crawler.rules import sites
from crawler.settings import Settings
from crawler.settings.load import read
from crawler.settings.relations import complaints
from crawler.terminal.output import out, warn
from crawler.terminal.words import counted

if TYPE_CHECKING:
    from crawler.handlers.crawler import Crawler


def check_app(settings: "Settings") -> None:
    """Load the app, if there is one. Raises UsageError for it, and for settings that disagree with it."""
    app = None
    if settings.handlers.app:
        from crawler.handlers.load_app import load_app

        app = load_app(settings.handlers.app)
    for complaint in app_complaints(settings, app):
        raise UsageError(complaint)
    for note in (*_notes(settings), *(_unknown_labels(app) if app else ())):
        warn(note)


def app_complaints(settings: "Settings", app: "Crawler | None") -> Iterator[str]:
    """What can't be followed here: links by handlers without an app; variables that are not set; of [[sites]], labels
    that no handler of the app has.
    """
    if settings.scope.follow == "handlers" and not settings.handlers.app:
        yield "scope.follow = handlers needs handlers.app (--app): without handlers, no link would be followed"
    if settings.fetch.proxy:
        from crawler.settings.proxies import unresolved_proxy

        yield from unresolved_proxy(settings, os.environ)
    if _has_sessions(settings, app):
        from crawler.crawl.session_checks import session_complaints

        yield from session_complaints(settings, app, os.environ)
    if not settings.sites:
        return
    from crawler.handlers.page import labels_text
    from crawler.web.fetcher import unresolved

    for number, site in enumerate(settings.sites):
        yield from unresolved(number, site, os.environ)
        if app is not None and site.label and site.label not in app.labels:
            yield f"sites[{number}].label = {site.label!r}: no handler has this label ({labels_text(app.labels)})"


def _notes(settings: Settings) -> list[str]:
    if not any(isinstance(site.cookies, str) for site in settings.sites):
        return []
    from crawler.crawl.session_checks import session_notes

    return session_notes(settings)


def _has_sessions(settings: Settings, app: "Crawler | None") -> bool:
    has_key = bool(settings.cookies.key_env or settings.cookies.key_file)
    return has_key or any(isinstance(s.cookies, str) or s.login for s in settings.sites) or bool(app and app.logins)


def run_check(arguments: argparse.Namespace) -> int:
    """Print what is wrong, or what there is; 2 when something is wrong."""
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


def _of_engine(settings: "Settings") -> list[str]:
    try:
        if settings.frontier.redis:
            check_engine_url(settings.frontier.redis)
    except UsageError as error:
        return [f"frontier.redis: {error}"]
    return []


def _checked(arguments: argparse.Namespace) -> "tuple[Settings | None, Crawler | None, list[str]]":
    """As far as each could be loaded, and what is wrong."""
    from crawler.handlers.load_app import load_app

    file, wrong, app = config_of(arguments), list[str](), None
    try:
        settings = read(file, options=options_of(arguments, KEYS))
    except UsageError as error:
        return None, None, [str(error)]
    try:
        app = load_app(settings.handlers.app) if settings.handlers.app else None
    except UsageError as error:
        wrong.append(str(error))
    if app is not None:
        wrong += _unknown_labels(app)
    of_file = [
        *_of_engine(settings),
        *complaints(settings),
        *sites.complaints(settings),
        *app_complaints(settings, app),
    ]
    return settings, app, [f"{file}: {one}" if file else one for one in of_file] + wrong


def _unknown_labels(app: "Crawler") -> Iterator[str]:
    from crawler.handlers.page import labels_text
    from crawler.handlers.used_labels import unknown_labels

    for used in unknown_labels(app):
        yield f"{used.file}:{used.line}: no handler has the label {used.label!r} ({labels_text(app.labels)})"


def _say(settings: Settings, app: "Crawler | None", file: Path | None, urls: list[str]) -> None:
    from crawler.views.site_settings import as_text, https_only, sources_of

    if file is not None and not urls:
        of_sites = f", {counted(len(settings.sites), 'table')} [[sites]]" if settings.sites else ""
        out(f"{file}: nothing is wrong{of_sites}")
        for line in (*https_only(settings), *_notes(settings)):
            out(f"  {line}")
    if app is not None and not urls:
        out(f"{settings.handlers.app}: nothing is wrong, {counted(len(app.handlers), 'handler')}")
        for handler in app.handlers:
            for_ = [p.text for p in handler.patterns] + ([f"label {handler.label}"] if handler.label else [])
            out(f"  {handler.name}: {', '.join(for_) or 'all pages without another handler'}")
        if app.pipeline:
            out(f"  items go through {', '.join(function.name for function in app.pipeline)}")
    if urls:
        out("\n\n".join(as_text(url, sources_of(url, settings, app)) for url in urls))

"""Finds conflicts of settings and app before anything is created: `check` prints all, others the first."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.handlers.crawler import Crawler
    from crawler.settings import Settings


def check_app(settings: "Settings") -> None:
    """Load the app, if there is one. Raises UsageError for it, and for settings that disagree with it."""
    app = None
    if settings.handlers.app:
        from crawler.handlers.load_app import load_app

        app = load_app(settings.handlers.app)
    for complaint in app_complaints(settings, app):
        raise UsageError(complaint)


def app_complaints(settings: "Settings", app: "Crawler | None") -> Iterator[str]:
    """What can't be followed here: links by handlers without an app; of [[sites]], variables that are not set and
    labels that no handler of the app has.
    """
    if settings.scope.follow == "handlers" and not settings.handlers.app:
        yield "scope.follow = handlers needs handlers.app (--app): without handlers, no link would be followed"
    if not settings.sites:
        return
    from crawler.web.fetcher import unresolved

    for number, site in enumerate(settings.sites):
        yield from unresolved(number, site, os.environ)
        if app is not None and site.label and site.label not in app.labels:
            known = ", ".join(sorted(app.labels)) or "none"
            yield f"sites[{number}].label = {site.label!r}: no handler has this label (there are: {known})"

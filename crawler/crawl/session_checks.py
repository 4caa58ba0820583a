"""What is wrong with the sessions and logins of a crawl's settings, before it begins."""

from collections.abc import Iterator, Mapping

from crawler.errors import UsageError
from crawler.handlers.crawler import Crawler
from crawler.hosts.login_plans import plans_of
from crawler.hosts.sessions import cookies_of_files, seal_of
from crawler.runtime.clocks import wall_s
from crawler.settings import Settings


def session_complaints(settings: Settings, app: Crawler | None, environment: Mapping[str, str]) -> Iterator[str]:
    """Keys and files of cookies that can't be read, and what logins lack."""
    for check in (
        lambda: seal_of(settings.cookies, environment),
        lambda: cookies_of_files(settings.sites, wall_s()),
        lambda: plans_of(app, settings.sites, environment),
    ):
        try:
            check()
        except UsageError as error:
            yield str(error)


def session_notes(settings: Settings) -> list[str]:
    """What is left out of files of cookies, in a sentence each. Raises UsageError."""
    return cookies_of_files(settings.sites, wall_s()).notes

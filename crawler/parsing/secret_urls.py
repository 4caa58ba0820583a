"""URLs with the password of a login, where a page leads to them: they are left out, and counted as links that are cut.

Some sites write what was typed into a form into their links, or into a redirect. Whatever is requested is in the
engine, in files, logs and answers, so these are not. The page itself is archived as it came.
"""

from msgspec.structs import replace

from crawler.content.html import redirect_target
from crawler.model import REDIRECTS, ParsedPage, Response
from crawler.redaction import bears_login, has_logins, redact


def without_secrets(page: ParsedPage) -> ParsedPage:
    """A page, of what leads somewhere and of its title without those passwords."""
    if not has_logins():
        return page
    links, sitemaps = (tuple([url for url in urls if not bears_login(url)]) for urls in (page.links, page.sitemaps))
    left_out = len(page.links) + len(page.sitemaps) - len(links) - len(sitemaps)
    requisites = tuple([one for one in page.requisites if not bears_login(one.url)])
    return replace(
        page, links=links, sitemaps=sitemaps, links_dropped=page.links_dropped + left_out, title=redact(page.title),
        canonical="" if bears_login(page.canonical) else page.canonical, requisites=requisites,
        requisites_cut=page.requisites_cut + len(page.requisites) - len(requisites),
    )  # fmt: skip


def target_of(url: str, response: Response) -> str:
    """Where a redirect leads to; "" for nowhere, and for a URL with such a password."""
    target = redirect_target(url, response.header("location")) or ""
    return "" if bears_login(target) else target


def with_lost_target(page: ParsedPage, url: str, response: Response) -> ParsedPage:
    """A redirect whose target was left out: it counts as a link."""
    if not has_logins() or response.status not in REDIRECTS:
        return page
    is_lost = bears_login(redirect_target(url, response.header("location")) or "")
    return replace(page, links_dropped=page.links_dropped + 1) if is_lost else page

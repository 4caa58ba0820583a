"""What was said about the use of a page when it was fetched, and whether its body is kept.

With rights.policy = "skip", what robots.txt says keeps a URL from being requested (fetch.py); what the answer itself
says, or tdmrep.json, keeps its body out of everything: it is committed with its links, and without its content.
"""

from msgspec.structs import replace

from crawler.content.said import said_by_headers, says_something
from crawler.model import SITEMAP, Claim, Decoded, ParsedPage, Response, Rights, Statement
from crawler.redaction import bears_login
from crawler.rules.rights import forbidding, inside, rights_of, statement
from crawler.rules.robots import RobotsRules
from crawler.rules.site_rights import SiteRights
from crawler.settings import Settings
from crawler.worker.outcomes import Withheld

HEADER = "header"


class RightsRules:
    """Applies the settings of the crawl."""

    def __init__(self, settings: Settings) -> None:
        self._agent = settings.robots.agent
        self._reads_tdmrep = settings.rights.tdmrep
        self._purpose = inside(settings.rights.purpose) if settings.rights.policy == "skip" else ""

    def lacks_tdmrep(self, rules: RobotsRules) -> bool:
        """Is the tdmrep.json of an origin to be read, and was not?"""
        return self._reads_tdmrep and (rules.said is None or rules.said.tdm is None)

    def forbidden(self, claim: Claim, said: SiteRights) -> Statement | None:
        """What robots.txt says against a request for the crawl's purpose; None: nothing. A sitemap is no page."""
        if not self._purpose or claim.label == SITEMAP:
            return None
        return forbidding(said.of_robots(claim.url), self._purpose)

    def of(self, url: str, said: SiteRights | None, response: Response, page: ParsedPage) -> tuple[Rights | None, bool]:
        """The rights of a page, and whether its body is withheld."""
        if said is None and not page.said and not says_something(response.headers):
            return None, False
        own, cut = [*page.said], page.said_cut
        for key, value in said_by_headers(response.headers, url, self._agent):
            one, is_cut = statement(HEADER, key, value)
            own.append(one)
            cut += is_cut
        of_site: list[Statement] = []
        if said is not None:
            of_site, cut = said.of_robots(url), cut + said.cut
            own += said.of_tdmrep(url)
        is_image = response.content_type.startswith("image/")
        shown = [one for one in (*of_site, *own) if not bears_login(one.value)]
        cut += len(of_site) + len(own) - len(shown)
        rights = rights_of(shown, url, cut=cut, is_image=is_image)
        return rights, bool(self._purpose) and forbidding(own, self._purpose, is_image=is_image) is not None


def withheld(response: Response, page: ParsedPage, *, follows: bool) -> tuple[Response, ParsedPage, Withheld]:
    """A response without its body, what stays of its page, and what its record gets in their place."""
    links = page.links if follows and not page.nofollow else ()
    kept = ParsedPage(links=links, links_dropped=page.links_dropped, nofollow=page.nofollow, noindex=page.noindex)
    empty = replace(
        response, raw_body=b"", body=b"", truncated="", decode_error="", decoded=Decoded.CLEAN, is_unchanged=False
    )
    return empty, kept, Withheld(body_bytes=len(response.body), mime=response.content_type, links=links)

"""What the answer to a page's request becomes: a page to commit, a failed attempt, or another request."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from crawler.archive.warc import Kind
from crawler.content.sitemap import NO_SITEMAP
from crawler.frontier.deferred import ALLOW_PRIVATE
from crawler.frontier.owner import Settlement
from crawler.handlers.page_run import NOTHING_HANDLED, Handled, HandlerError
from crawler.media_type import declared_type, is_html
from crawler.model import (
    NOT_MODIFIED,
    REDIRECTS,
    REQUISITE,
    SITEMAP,
    Claim,
    Decoded,
    FailureKind,
    ParsedPage,
    Response,
    Rights,
)
from crawler.parsing.parse import ParseKilledError
from crawler.parsing.secret_urls import target_of, with_lost_target
from crawler.redaction import bears_login
from crawler.routing.router import with_sitemaps
from crawler.routing.runs_known import RunBook
from crawler.rules.poison import CrashAction
from crawler.rules.requests import takes_body_away
from crawler.runtime.crash_points import reached
from crawler.worker.before_page import Hosts, Means, SessionNotes
from crawler.worker.cookie_walls import CookieWalls
from crawler.worker.outcomes import Committable, Deferred, Failed
from crawler.worker.page_requests import Answered, PageRequest, Step
from crawler.worker.page_rights import RightsRules, withheld
from crawler.worker.response_policy import is_once
from crawler.worker.turn import Deliver, Requeue, Turn, TurnEnd


class Found(NamedTuple):
    """What was found in a response. `is_withheld`: because of its rights, its body is not kept."""

    page: ParsedPage
    handled: Handled
    rights: Rights | None = None
    is_withheld: bool = False


class Answers:
    """Judges answers, has pages parsed, and passes them to their handlers."""

    def __init__(
        self,
        means: Means,
        hosts: Hosts,
        session: SessionNotes,
        runs: RunBook,
        walls: CookieWalls,
        rights: RightsRules,
        *,
        obeys_robots: bool,
        requisites_max: int,
    ) -> None:
        """`requisites_max`: how many are looked for in a page; 0: the crawl fetches none."""
        self._means = means
        self._hosts = hosts
        self._notes = session.notes
        self._exchanges = session.exchanges
        self._runs = runs
        self._cookie_walls = walls
        self._rights = rights
        self._obeys_robots = obeys_robots
        self._requisites_max = requisites_max

    async def judge(self, turn: Turn, answered: Answered) -> TurnEnd:
        """How the turn ends: with a page to commit, a failed attempt, or another request."""
        page_request, result, settled = answered.page_request, answered.result, answered.settled
        claim = page_request.claim
        walls, step, may_ask = self._cookie_walls, page_request.step, partial(self._may_ask, claim)
        if step is not None and step.number:  # the response is not the page's
            if self._goes_on(step, answered, may_ask):
                return Requeue()
            response = step.first
        else:
            failed = self._hosts.policy.judged(claim, result, settled, is_sent=page_request.is_sent)
            if failed is not None:
                return attempt_failed(page_request, failed)
            response = result.response
        assert response is not None
        content = await self._content(page_request, response)
        if content is None:
            self._notes.cut_off(claim, page_request.started_at)
            return Requeue()  # its queue waits as after any request
        target = ""
        if response.status in REDIRECTS:
            target = target_of(claim.url, response)
            if target and takes_body_away(claim.request, response.status, claim.url, target):
                failed = self._hosts.policy.failed(claim, FailureKind.REDIRECT_WITH_BODY, f"to {target}", settled)
                return attempt_failed(page_request, failed)
            if step is None and walls.starts(claim, response, target, may_ask):
                self._passed(page_request, response if target == claim.url else None)  # else it may be the result yet
                return Requeue()
        if step is not None and not step.number:
            walls.returned(claim, step, response)
            self._passed(page_request, step.first)
        if page_request.session is not None and (end := await self._lost(page_request, response, target, settled)):
            return end
        found = await self._handled(turn, content, settled)
        if isinstance(found, Failed):
            return attempt_failed(page_request, found)
        return Deliver(self._committable(answered, response, content, found, target))

    def _goes_on(self, step: Step, answered: Answered, may_ask: Callable[[str], bool]) -> bool:
        """Does this answer of a cookie wall lead to a next step?"""
        page_request, result = answered.page_request, answered.result
        goes_on = self._cookie_walls.continues(page_request.claim, step, answered, may_ask)
        if goes_on or result.response is None:  # else it is kept for the page of its own URL
            self._exchanges.answered(Kind.COOKIE_WALL, result, is_private=page_request.session is not None)
        return goes_on

    def _passed(self, page_request: PageRequest, response: Response | None) -> None:
        """A response on the way through a cookie wall is no page's result; None: there is none."""
        if response is not None:
            self._exchanges.add(Kind.COOKIE_WALL, response, is_private=page_request.session is not None)

    def _committable(
        self, answered: Answered, response: Response, content: Response, found: Found, target: str
    ) -> Committable:
        page_request, claim, earlier = answered.page_request, answered.page_request.claim, answered.page_request.earlier
        page, handled = with_lost_target(found.page, claim.url, response), found.handled
        of = earlier.original if earlier is not None else None
        original = of if content.is_unchanged else None
        duplicate_of = of if of is not None and of.url else None  # it was archived as a requisite
        accepted, left_out, robots = None, None, 0
        if found.is_withheld:
            response, page, left_out = withheld(response, page, follows=self._means.handling.follows_links)
            original = duplicate_of = None
        if sitemaps := [url for url in self._means.gate.sitemaps(claim) if not bears_login(url)]:
            # As if the page's handler had followed them: so a rebuild finds them in its line.
            links, followed = with_sitemaps(page.links, handled.followed, sitemaps)
            page, handled = replace(page, links=links), replace(handled, followed=followed)
            accepted = partial(self._means.gate.announced, claim)
        if claim.label == REQUISITE:
            self._means.requisites.fetched(claim, len(response.body))
            robots = self._means.requisites.take_robots(claim)
        return Committable(
            claim=claim, response=response, page=page, settlement=answered.settled, handled=handled,
            redirect_to=target, finished_at=answered.finished_at, accepted=accepted,
            is_private=page_request.session is not None, original=original, rights=found.rights, withheld=left_out,
            robots=robots, duplicate_of=duplicate_of,
        )  # fmt: skip

    async def _content(self, page_request: PageRequest, response: Response) -> Response | None:
        """What is parsed: the archived page for "unchanged", or None if that is of no use."""
        earlier, revisits = page_request.earlier, self._means.revisits
        if earlier is None or revisits is None or response.status != NOT_MODIFIED:
            return response
        return await revisits.unchanged(page_request.claim, earlier, response)

    async def _lost(
        self, page_request: PageRequest, response: Response, target: str, settled: Settlement
    ) -> TurnEnd | None:
        """How a turn ends whose answer shows that its session has ended; None if it does not."""
        claim, session, logins = page_request.claim, page_request.session, self._means.logins
        assert session is not None
        plan = logins.plan_of(session)
        if plan is None:
            return None
        seen = await logins.seen(session, plan, response, target)
        fate = logins.page_answered(claim, session, page_request.login, seen)
        if fate is False:
            return None
        self._notes.cut_off(claim, page_request.started_at)
        if fate is True:
            return Requeue()
        return attempt_failed(page_request, self._hosts.policy.failed(claim, fate.kind, fate.detail, settled))

    def _may_ask(self, claim: Claim, url: str) -> bool:
        """May another URL of the claim's origin be requested in its turns?"""
        if not self._runs.may_lead_to(claim, url):
            return False
        return not self._obeys_robots or self._means.gate.allows(url)

    async def _handled(self, turn: Turn, response: Response, settled: Settlement) -> Found | Failed:
        """What was found in a response, or how that failed."""
        claim, policy = turn.claim, self._hosts.policy
        try:
            found = await self._parsed(turn, response)
        except ParseKilledError as error:
            return policy.failed(claim, FailureKind.PARSE, str(error), settled)
        except HandlerError as error:
            failed = policy.failed(claim, FailureKind.HANDLER, str(error), settled)
            again = -1 if is_once(claim) else failed.retry_in_ms
            return replace(failed, trace=error.trace, retry_in_ms=again)
        if claim.is_given_sitemap and (why := _why_no_sitemap(response, found.page)):
            return policy.failed(claim, FailureKind.NO_SITEMAP, why, settled)
        if found.handled.retry_s is None:
            return found
        failed = policy.failed(claim, FailureKind.HANDLER_RETRY, "", settled)
        if failed.retry_in_ms >= 0:
            failed.retry_in_ms = max(failed.retry_in_ms, round(1000 * found.handled.retry_s))
        return failed

    async def _parsed(self, turn: Turn, response: Response) -> Found:
        """Parse the page and pass it to the user's handler, unless it is withheld. Raises ParseKilledError,
        HandlerError.
        """
        if response.decoded is Decoded.NOTHING:
            page = ParsedPage()
            return Found(page, NOTHING_HANDLED, *self._rights.of(turn.claim.url, turn.said, response, page))
        claim, mark, guarded = turn.claim, turn.mark, turn.crash_action is not CrashAction.NORMAL
        is_sitemap = claim.label == SITEMAP
        if claim.label == REQUISITE and not shows_something(claim.label, claim.url, response):
            page = ParsedPage()
            return Found(page, NOTHING_HANDLED, *self._rights.of(claim.url, turn.said, response, page))
        page, tree = await self._means.parser.parse_with_tree(
            response, mark, guarded=guarded, queue=claim.queue, is_sitemap=is_sitemap,
            requisites_max=self._requisites_max if is_shown(claim.label, response) else 0,
            requested_as=requested_as(claim.label, claim.url) if claim.label else "",
        )  # fmt: skip
        reached("page.parsed", claim.url)
        if is_sitemap:
            return Found(page, NOTHING_HANDLED)
        rights, is_withheld = self._rights.of(claim.url, turn.said, response, page)
        if is_withheld:
            return Found(page, NOTHING_HANDLED, rights, is_withheld=True)
        if claim.label == REQUISITE:
            return Found(page, NOTHING_HANDLED, rights)
        page, handled = await self._means.handling.handle(
            claim, response, page, tree, mark, rights=rights, guarded=guarded
        )
        reached("page.handled", claim.url)
        return Found(page, handled, rights)


def shows_something(label: str, url: str, response: Response) -> bool:
    """Is the answer to a URL of this label parsed? The page of an error, in the place of a picture, is never shown."""
    if label != REQUISITE:
        return True
    if is_html(declared_type(response), response.body):
        return response.status == 200
    from crawler.content.requisite_bodies import Reading, reading_of  # not for crawls without requisites

    return reading_of(response.content_type, requested_as(label, url)) is not Reading.NOT


def is_shown(label: str, response: Response) -> bool:
    """Does anybody see it, and what it loads? What redirects is not."""
    return label != SITEMAP and response.status not in REDIRECTS


def requested_as(label: str, url: str) -> str:
    """The kind that a requisite was requested as, where its name tells; a type that says it counts before."""
    if label != REQUISITE:
        return ""
    name = url.partition("?")[0].lower()
    return (
        "style"
        if name.endswith(".css")
        else "manifest"
        if name.endswith((".webmanifest", "manifest.json"))
        else "other"
    )


def _why_no_sitemap(response: Response, page: ParsedPage) -> str:
    """Why nothing was read of what people named as a sitemap; "" if it is one, or leads to one."""
    if response.status in REDIRECTS:
        return ""
    if response.status != 200:
        return f"status {response.status}"
    if page.nofollow:
        return "its X-Robots-Tag forbids to follow its URLs"
    return page.flaw if page.flaw == NO_SITEMAP else ""


def attempt_failed(page_request: PageRequest, failed: Failed) -> Deliver:
    failed.started_at = page_request.started_at
    return delivered(failed)


def delivered(failed: Failed) -> Deliver:
    """A URL that a setting refuses waits for the setting to change."""
    if failed.kind is FailureKind.ADDRESS_REFUSED:
        return Deliver(Deferred(claim=failed.claim, reason=ALLOW_PRIVATE))
    return Deliver(failed)

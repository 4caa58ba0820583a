"""Logins: before the first page of a site, and after its session is lost, some turns of a queue go to its login page.

Each request takes a turn, with the queue's delay, as one for robots.txt does. Other claims of the session wait. What is
requested belongs to no page: it is not committed, and stands in no archive and no log. A login that fails stops the
site, for somebody to look at it: the same password again could lock the account.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from crawler.content.html import redirect_target
from crawler.errors import InvalidUrl, UsageError
from crawler.handlers.crawler import Crawler
from crawler.handlers.page import Page
from crawler.handlers.run import call_asynchronous, call_plain
from crawler.handlers.tasks import CodeFailure, Threads, is_plain, stream_of
from crawler.model import REDIRECTS, Claim, FetchResult, Followed, Request, Response
from crawler.rules.requests import redirected
from crawler.rules.urls import canonicalize, host_of, origin_of, registrable_domain
from crawler.runtime.process import monotonic_ms, reached
from crawler.settings import LoginSettings, SiteSettings
from crawler.worker.process import PageParser, ParseKilledError
from crawler.worker.sessions import Session, Sessions

log = logging.getLogger(__name__)
BODY_BYTES_MAX = 2 << 20  # of a login page
HOPS_MAX = 10  # redirects of a login
TRIES_MAX = 3  # where the site does not answer
TRY_AGAIN_MS = 5_000
WAIT_MS = 250  # of others of the session, while somebody logs in
STOPPED_MS = 3_000  # until every instance knows that a site is stopped
TIMEOUT_S = 30.0  # of the functions
FRESH_ANSWERS = 16  # a session that is lost within these, for the second time with one URL, is not the URL's session


class LoginPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to log in to a site: with a function of the user's, or by the settings."""

    site: str
    url: str  # of the page with the form
    function: Callable[..., Any] | None = None
    settings: LoginSettings | None = None
    password: str = ""

    @property
    def ignores_robots(self) -> bool:
        return self.settings is not None and self.settings.ignore_robots

    def is_login_page(self, url: str) -> bool:
        """Does this URL lead to the login page, whatever its query?"""
        return url.partition("?")[0] == self.url.partition("?")[0]


def plans_of(
    app: Crawler | None, sites: Sequence[SiteSettings], environment: Mapping[str, str]
) -> dict[str, LoginPlan]:
    """By site: those of the app, and of [[sites]]. Raises UsageError."""
    found: dict[str, LoginPlan] = {}
    for where, function in app.logins.items() if app is not None else ():
        url = where if "://" in where else f"https://{where}/login"
        plan = LoginPlan(site=_site_of(url, f"@app.login({where!r})"), url=canonicalize(url), function=function)
        found[plan.site] = plan
    for number, site in enumerate(sites):
        login = site.login
        if login is None:
            continue
        name = f"sites[{number}].login"
        password = environment.get(login.password_env, "")
        if not password:
            raise UsageError(f"{name}: the environment has no variable {login.password_env}")
        domain = _site_of(login.url, f"{name}.url")
        if domain in found:
            raise UsageError(f"{name}: {domain} has a login already")
        found[domain] = LoginPlan(site=domain, url=canonicalize(login.url), settings=login, password=password)
    return found


def _site_of(url: str, name: str) -> str:
    try:
        return registrable_domain(host_of(canonicalize(url)))
    except InvalidUrl as error:
        raise UsageError(f"{name}: {error}") from None


class Attempt(msgspec.Struct):
    """A login that is under way: the next request of it."""

    url: str
    request: Request | None = None
    is_sent: bool = False  # the form was
    hops: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """How a step of a login ends: `failure` stops the site; `wait_ms`: until the next step."""

    failure: str = ""
    wait_ms: int = 0


class Logins:
    """Decides about the logins of one instance. `stop_site` blocks a site, with the reason."""

    def __init__(
        self,
        plans: Mapping[str, LoginPlan],
        app: Crawler | None,
        sessions: Sessions,
        parser: PageParser,
        threads: Threads,
        *,
        stop_site: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self.plans = plans
        self._judges = app.logged_in_functions if app is not None else []
        self._sessions = sessions
        self._parser = parser
        self._threads = threads
        self._stop_site = stop_site
        self._attempts: dict[str, Attempt] = {}  # by session
        self._tries: dict[str, int] = {}
        self._busy: set[str] = set()
        self._stopped_ms: dict[str, int] = {}  # by site
        self._lost_with: dict[str, int] = {}  # fingerprint -> the login that its session was lost with

    def plan_of(self, session: Session) -> LoginPlan | None:
        return self.plans.get(session.site)

    def begin(self, session: Session, plan: LoginPlan) -> Attempt | None:
        """The next request of the session's login, for a turn that calls `end` afterwards; None: it has to wait."""
        stopped_ms = self._stopped_ms.get(session.site, 0)
        if session.key in self._busy or (stopped_ms and monotonic_ms() < stopped_ms + STOPPED_MS):
            return None
        self._busy.add(session.key)
        attempt = self._attempts.get(session.key)
        if attempt is None:
            attempt = self._attempts[session.key] = Attempt(plan.url)
        return attempt

    async def refused(self, session: Session, url: str) -> None:
        """robots.txt forbids a request of the login."""
        why = f"robots.txt forbids {url}; if its owner lets you, set ignore_robots of [[sites]] login"
        await self._fail(session, why)

    def begins_again(self, session: Session) -> None:
        """Nothing is known of its last request, for no fault of the site."""
        self._attempts.pop(session.key, None)

    def end(self, session: Session) -> None:
        self._busy.discard(session.key)

    async def answered(self, session: Session, plan: LoginPlan, attempt: Attempt, result: FetchResult) -> int:
        """Go on with a login by the answer to its last request; ms until the next one."""
        outcome = await self._judged(session, plan, attempt, result)
        if outcome.failure:
            await self._fail(session, outcome.failure)
        return outcome.wait_ms

    async def _fail(self, session: Session, why: str) -> None:
        self._attempts.pop(session.key, None)
        self._tries.pop(session.key, None)
        self._stopped_ms[session.site] = monotonic_ms()
        log.warning("login.failed", extra={"site": session.site, "why": why})
        await self._stop_site(session.site, f"login failed: {why}")

    async def _judged(self, session: Session, plan: LoginPlan, attempt: Attempt, result: FetchResult) -> Outcome:
        response = result.response
        if response is None or response.status >= 500 or response.status == 429:
            return self._failed_for_now(session, result)
        self._sessions.take(session, response.url, response.headers)
        if response.status in REDIRECTS:
            return self._redirected(plan, attempt, response)
        try:
            page = await self._page_of(session, response)
        except ParseKilledError as error:
            return Outcome(failure=str(error))
        if attempt.is_sent or not plan.is_login_page(response.url):
            failure = await self._why_not_in(plan, page)
            if not failure:
                return await self._is_in(session)
            if attempt.is_sent:
                return Outcome(failure=failure)
        if response.status >= 400:
            return Outcome(failure=f"status {response.status} for {plan.url}")
        return await self._fill(plan, attempt, page)

    def _failed_for_now(self, session: Session, result: FetchResult) -> Outcome:
        """The site does not answer: begin again in a while."""
        del self._attempts[session.key]
        tries = self._tries[session.key] = self._tries.get(session.key, 0) + 1
        said = result.failure.detail if result.failure else f"status {result.response.status if result.response else 0}"
        if tries >= TRIES_MAX:
            return Outcome(failure=f"no answer after {tries} attempts ({said})")
        return Outcome(wait_ms=max(TRY_AGAIN_MS * tries, result.retry_after_ms))

    def _redirected(self, plan: LoginPlan, attempt: Attempt, response: Response) -> Outcome:
        target = redirect_target(response.url, response.header("location"))
        if not target or attempt.hops >= HOPS_MAX:
            return Outcome(failure="its redirects lead nowhere")
        if registrable_domain(host_of(target)) != plan.site:
            return Outcome(failure=f"it redirects to another site ({origin_of(target)})")
        if response.url.startswith("https:") and not target.startswith("https:"):
            return Outcome(failure=f"it redirects from https to {origin_of(target)}")
        attempt.request = redirected(attempt.request, response.status, response.url, target)
        attempt.url, attempt.hops = target, attempt.hops + 1
        return Outcome()

    async def _is_in(self, session: Session) -> Outcome:
        self._attempts.pop(session.key, None)
        self._tries.pop(session.key, None)
        self._sessions.logged_in(session)
        reached("login.done", session.site)
        log.info("login.done", extra={"site": session.site, "session": session.name, "login": session.login})
        await self._sessions.store()
        return Outcome()

    async def _page_of(self, session: Session, response: Response) -> Page:
        parsed, tree = await self._parser.parse_with_tree(response)
        request = Request(session=session.name) if session.name else None
        return Page(response, parsed, domain=session.site, tree=tree, request=request, may_parse=tree is not None)

    async def _why_not_in(self, plan: LoginPlan, page: Page) -> str:
        """Why this page does not show that the login holds; "" if it does."""
        if page.status >= 400:
            return f"status {page.status} after the form was sent"
        if not self._judges:
            return "the login page came again" if plan.is_login_page(page.url) else ""
        judged = await self._is_logged_in(page)
        if isinstance(judged, CodeFailure):
            return f"@app.logged_in: {judged.detail}"
        return "" if judged else "the page after it does not look logged in (@app.logged_in)"

    async def _is_logged_in(self, page: Page) -> bool | CodeFailure:
        for function in self._judges:
            found = await self._called(function, page)
            if isinstance(found, CodeFailure):
                return found
            if not any(found):
                return False
        return True

    async def _called(self, function: Callable[..., Any], page: Page) -> list[Any] | CodeFailure:
        found: list[Any] = []
        if is_plain(function):
            failure = await call_plain(function, (page,), found.append, self._threads, TIMEOUT_S)
        else:
            failure = await call_asynchronous(stream_of(function), (page,), found.append, TIMEOUT_S)
        return failure or found

    async def _fill(self, plan: LoginPlan, attempt: Attempt, page: Page) -> Outcome:
        """Fill the form of a login page, which is sent next."""
        try:
            if plan.function is not None:
                failure = await self._called(plan.function, page)
                if isinstance(failure, CodeFailure):
                    return Outcome(failure=failure.detail)
            else:
                _fill_by(plan, page)
        except (LookupError, ValueError) as error:
            return Outcome(failure=f"{plan.url}: {error}")
        finally:
            followed = page.followed
            page.close()
        if not followed:
            return Outcome(failure="the function of @app.login submits nothing (page.submit)")
        return self._sent_next(plan, attempt, followed[0])

    def _sent_next(self, plan: LoginPlan, attempt: Attempt, followed: Followed) -> Outcome:
        if registrable_domain(host_of(followed.url)) != plan.site:
            return Outcome(failure=f"its form leads to another site ({origin_of(followed.url)})")
        attempt.url, attempt.request, attempt.is_sent, attempt.hops = followed.url, followed.request, True, 0
        return Outcome()

    # --- the pages of a session ---

    async def has_lost(self, session: Session, plan: LoginPlan, response: Response, target: str) -> bool:
        """Does this answer show that the session has ended? `target`: of its redirect."""
        session.answers += 1
        if target:
            return plan.is_login_page(target)
        if response.status == 401:
            return True
        if not self._judges or plan.is_login_page(response.url):
            return False
        page = await self._page_of(session, response)
        try:
            return await self._is_logged_in(page) is False
        finally:
            page.close()

    def lose(self, claim: Claim, session: Session, login: int) -> bool:
        """A page of the session that this login began shows that it has ended; False: the page wants more than a login,
        for it shows this right after one, for the second time.
        """
        before = self._lost_with.pop(claim.fingerprint, None)
        if before is not None and before < login and session.answers <= FRESH_ANSWERS and session.login == login:
            return False
        self._lost_with[claim.fingerprint] = login
        while len(self._lost_with) > 10_000:
            del self._lost_with[next(iter(self._lost_with))]
        if session.login == login and session.is_in:
            self._sessions.lost(session)
            log.info("session.lost", extra={"site": session.site, "session": session.name, "answers": session.answers})
        return True

    def holds(self, claim: Claim) -> None:
        """A page of a session came as it should."""
        if self._lost_with:
            self._lost_with.pop(claim.fingerprint, None)


def _fill_by(plan: LoginPlan, page: Page) -> None:
    """Fill in user and password where the form has them. Raises LookupError, ValueError."""
    assert plan.settings is not None
    selector = plan.settings.form
    forms = page.css(selector) if selector else [form for form in page.css("form") if form.css("input[type=password]")]
    if not forms:
        raise LookupError(f"no form fits {selector!r}" if selector else "no form has a password")
    fields = [node for node in forms[0].css("input") if node.attributes.get("name")]
    kinds = [(node.attributes.get("type") or "text").lower() for node in fields]
    if "password" not in kinds:
        raise LookupError("its form has no password")
    at = kinds.index("password")
    users = [n for n in range(at) if kinds[n] in ("text", "email", "tel", "search")]
    if not users:
        raise LookupError("its form has no field for the user before the password; @app.login can fill it")
    user, password = (fields[n].attributes["name"] or "" for n in (users[-1], at))
    page.submit(forms[0], {user: plan.settings.user, password: plan.password})

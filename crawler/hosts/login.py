"""Logins: before the first page of a site, and after its session is lost, some turns of a queue go to its login page.

Each request takes a turn, with the queue's delay, as one for robots.txt does. Other claims of the session wait. What is
requested belongs to no page: it is not committed, and is in no archive and no log. A login that fails stops the site,
for somebody to look at it: the same password again could lock the account.

From the moment in which a form is filled, what is requested bears the password, with its URL: of that, and of where it
is redirected to, messages and functions see no more than the origin, or a URL without the values (`Attempt.shown`).
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from crawler.content.html import redirect_target
from crawler.handlers.crawler import Crawler
from crawler.handlers.functions import is_plain, name_of, stream_of
from crawler.handlers.page import Page
from crawler.handlers.run import call_asynchronous, call_plain
from crawler.handlers.tasks import CodeFailure
from crawler.handlers.threads import Threads
from crawler.hosts.login_plans import LoginPlan
from crawler.hosts.session_loss import NOTHING, Fate, Seen, SessionLosses, Sight, Watch
from crawler.hosts.sessions import Session, Sessions
from crawler.media_type import declared_type, is_html
from crawler.model import GET, PLAIN, REDIRECTS, Claim, FetchResult, Followed, Request, Response
from crawler.parsing.parse import PageParser, ParseKilledError
from crawler.redaction import SHORTEST, has_any, learn_login, redact, without
from crawler.rules.challenges import sentence_of
from crawler.rules.login_pace import FULL_HOURS_MAX, LOGINS_AN_HOUR, LoginRecord
from crawler.rules.logins import is_login_page, why_no_password, why_no_redirect
from crawler.rules.places import registrable_domain
from crawler.rules.requests import becomes_get, redirected
from crawler.rules.urls import host_of, origin_of
from crawler.runtime.clocks import monotonic_ms
from crawler.runtime.crash_points import reached

if TYPE_CHECKING:
    from crawler.hosts.login_page import LoginPage

log = logging.getLogger(__name__)
BODY_BYTES_MAX = 2 << 20  # of a login page
HOPS_MAX = 10  # redirects of a login
TRIES_MAX = 3  # where the site does not answer
TRY_AGAIN_MS = 5_000
WAIT_MS = 250  # of others of the session, while somebody logs in
STOPPED_MS = 3_000  # until every instance knows that a site is stopped
TIMEOUT_S = 30.0  # of the functions
RECORDS_MAX = 10_000
Value = TypeVar("Value")


class Attempt(msgspec.Struct):
    """A login that is under way: the next request of it. `epoch`: of its session, whose next owner begins again."""

    url: str
    epoch: int
    request: Request | None = None
    is_sent: bool = False  # the form was
    hops: int = 0
    passwords: tuple[str, ...] = ()  # that were put into it
    is_in_url: bool = False  # it was sent by GET
    may_begin: bool = False  # are there not too many?
    is_counted: bool = False
    is_check: bool = False  # no login: whether the session holds
    is_anonymous: bool = False  # without cookies

    @property
    def origin(self) -> str:
        return origin_of(self.url)

    def shown(self, url: str) -> str:
        """A URL of this login, without what was put into the form."""
        if not self.is_sent or not (self.is_in_url or has_any(url, self.passwords)):
            return url
        path = url.partition("?")[0]
        return f"{origin_of(url)}/" if has_any(path, self.passwords) else path


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the functions of @app.logged_in say of a page. `is_in`: None if none can tell; `why` they say no."""

    is_in: bool | None = None
    why: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """How a step of a login ends: `failure` stops the site; `wait_ms`: until the next step."""

    failure: str = ""
    wait_ms: int = 0


class LoginBook(Protocol):
    """Keeps the records of sites in the engine. Raises EngineError."""

    async def login_record(self, site: str) -> LoginRecord: ...

    async def note_logins(self, site: str, record: LoginRecord) -> None: ...


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
        book: LoginBook,
        stop_site: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self.plans = plans
        self._judges = app.logged_in_functions if app is not None else []
        self._sessions = sessions
        self._parser = parser
        self._threads = threads
        self._book = book
        self._stop_site = stop_site
        self._attempts: dict[str, Attempt] = {}  # by session
        self._tries: dict[str, int] = {}
        self._busy: set[str] = set()
        self._stopped_ms: dict[str, int] = {}  # by site
        self._records: dict[tuple[str, int], LoginRecord] = {}  # by site and epoch
        self._losses = SessionLosses()
        self._led_to: dict[str, str] = {}  # by site: where its login page redirects to
        self._judge_failures: set[str] = set()  # by function: told

    def plan_of(self, session: Session) -> LoginPlan | None:
        return self.plans.get(session.site)

    def begin(self, session: Session, plan: LoginPlan) -> Attempt | None:
        """The next request of the session's login, for a turn that calls `end` afterwards; None: it has to wait."""
        stopped_ms = self._stopped_ms.get(session.site, 0)
        if session.key in self._busy or (stopped_ms and monotonic_ms() < stopped_ms + STOPPED_MS):
            return None
        self._busy.add(session.key)
        check = self.watch(session).check
        if check is not None and session.is_in:
            return Attempt(check.pages[0], session.epoch, is_check=True, is_anonymous=check.is_anonymous)
        attempt = self._attempts.get(session.key)
        if attempt is None or attempt.epoch != session.epoch:
            attempt = self._attempts[session.key] = Attempt(plan.url, session.epoch)
        return attempt

    async def refused(self, session: Session, attempt: Attempt) -> None:
        """robots.txt forbids a request of the login."""
        if attempt.is_check:
            self._can_not_tell(session)
            return
        what = f"the address of the form, on {attempt.origin}" if attempt.is_sent else attempt.url
        why = f"robots.txt forbids {what}; if its owner lets you, set ignore_robots of [[sites]] login"
        await self._fail(session, why)

    async def unreadable(self, session: Session, attempt: Attempt, why: str) -> int:
        """The robots.txt of a request of the login can't be read; ms until the next attempt, 0 if there is none."""
        if attempt.is_check:
            self._can_not_tell(session)
            return WAIT_MS
        outcome = self._again_later(session, f"{attempt.origin}/robots.txt: {why}")
        if outcome.failure:
            await self._fail(session, outcome.failure)
        return outcome.wait_ms

    def begins_again(self, session: Session) -> None:
        """Nothing is known of its last request, for no fault of the site."""
        self._attempts.pop(session.key, None)

    def end(self, session: Session) -> None:
        self._busy.discard(session.key)

    async def answered(self, session: Session, plan: LoginPlan, attempt: Attempt, result: FetchResult) -> int:
        """Go on with a login by the answer to its last request; ms until the next one."""
        if result.wants_signature:  # its requests have one from now on; a form is not simply sent again
            self.begins_again(session)
            return 0
        if attempt.is_check:
            return await self._checked(session, plan, attempt, result)
        outcome = await self._judged(session, plan, attempt, result)
        if outcome.failure:
            await self._fail(session, outcome.failure)
        return outcome.wait_ms

    async def _fail(self, session: Session, why: str) -> None:
        self._attempts.pop(session.key, None)
        self._tries.pop(session.key, None)
        self._stopped_ms[session.site] = monotonic_ms()
        why = redact(why)
        log.warning("login.failed", extra={"site": session.site, "why": why})
        await self._stop_site(session.site, f"login failed: {why}")

    async def _judged(self, session: Session, plan: LoginPlan, attempt: Attempt, result: FetchResult) -> Outcome:
        response = result.response
        if response is None or response.status >= 500 or response.status == 429:
            said = without(result.failure.detail, attempt.passwords) if result.failure else ""
            return self._again_later(session, said or f"status {response.status if response else 0}", result)
        if result.challenge:
            return self._again_later(session, sentence_of(result.challenge), result)
        self._sessions.take(session, response.url, response.headers)
        if response.status in REDIRECTS:
            return self._redirected(plan, attempt, response)
        url = response.url
        try:
            page = await self._page_of(session, replace(response, url=attempt.shown(url)))
        except ParseKilledError as error:
            return Outcome(failure=str(error))
        if attempt.is_sent or not self._is_login_page(plan, url):
            failure = await self._why_not_in(plan, attempt, page, url)
            if not failure:
                page.close()
                has_landed = attempt.hops and attempt.request is None and attempt.shown(url) == url
                return await self._is_in(session, url if has_landed else "")
            if attempt.is_sent:
                page.close()
                return Outcome(failure=failure)
        if response.status >= 400:
            page.close()
            return Outcome(failure=f"status {response.status} for {plan.url}")
        return await self._fill(plan, attempt, page)

    def _again_later(self, session: Session, said: str, result: FetchResult | None = None) -> Outcome:
        """The site does not answer: begin again in a while."""
        self._attempts.pop(session.key, None)
        tries = self._tries[session.key] = self._tries.get(session.key, 0) + 1
        if tries >= TRIES_MAX:
            return Outcome(failure=f"no answer after {tries} attempts ({said})")
        return Outcome(wait_ms=max(TRY_AGAIN_MS * tries, result.retry_after_ms if result else 0))

    def _redirected(self, plan: LoginPlan, attempt: Attempt, response: Response) -> Outcome:
        target = redirect_target(response.url, response.header("location"))
        if not target or attempt.hops >= HOPS_MAX:
            return Outcome(failure="its redirects lead nowhere")
        if registrable_domain(host_of(target)) != plan.site:
            return Outcome(failure=f"it redirects to another site ({_named(target, attempt)})")
        if response.url.startswith("https:") and not target.startswith("https:"):
            return Outcome(failure=f"it redirects from https to {_named(target, attempt)}")
        request, status = attempt.request, response.status
        has_body = request is not None and bool(request.digest) and not becomes_get(request.method, status)
        if attempt.is_sent and (has_body or has_any(target, attempt.passwords)):
            why = why_no_redirect(status, response.url, target)
            why = why or why_no_password(plan.url, target, plan.action_hosts)
            if why:
                return Outcome(failure=f"it redirects with the password to {_named(target, attempt)}: {why}")
        if has_body and request is not None:  # also from http to https, which is another origin
            request = replace(request, goes_anywhere=True)
        following = redirected(request, status, response.url, target)
        attempt.request = replace(following, goes_anywhere=False) if following is not None else None
        attempt.url, attempt.hops = target, attempt.hops + 1
        return Outcome()

    async def _is_in(self, session: Session, landing: str) -> Outcome:
        """`landing`: the page that it led to; "" if nobody can request it again."""
        self.watch(session).landing = landing
        self._attempts.pop(session.key, None)
        self._tries.pop(session.key, None)
        self._sessions.logged_in(session)
        reached("login.done", session.site)
        log.info("login.done", extra={"site": session.site, "session": session.name, "login": session.login})
        await self._sessions.store()
        return Outcome()

    async def _page_of(self, session: Session, response: Response) -> "LoginPage":
        from crawler.hosts.login_page import LoginPage

        parsed, tree = await self._parser.parse_with_tree(response, keeps_tree=True)
        request = Request(session=session.name) if session.name else None
        return LoginPage(
            response,
            parsed,
            domain=session.site,
            tree=tree,
            request=request,
            may_parse=tree is not None or not is_html(declared_type(response), response.body),
        )

    async def _why_not_in(self, plan: LoginPlan, attempt: Attempt, page: "LoginPage", url: str) -> str:
        """Why this page, of a URL that `page` may not have, does not show that the login holds; "" if it does."""
        if page.status >= 400:
            return f"status {page.status} after the form was sent"
        verdict = await self._verdict(page)
        if isinstance(verdict, CodeFailure):
            return f"@app.logged_in: {without(verdict.detail, attempt.passwords)}"
        if verdict.is_in is not None:
            return verdict.why
        if self._is_login_page(plan, url):
            return "the login page came again"
        has_form = not attempt.is_sent and page.is_html and page.css('input[type="password" i]')
        return "it redirects to another login page" if has_form else ""

    async def _verdict(self, page: "LoginPage") -> Verdict | CodeFailure:
        """The first that says no wins; else one that says yes."""
        is_in: bool | None = None
        for function in self._judges:
            found = await self._called(function, page, bool)
            if isinstance(found, CodeFailure) and not page.is_html:
                continue  # it looked for an element
            if isinstance(found, CodeFailure):
                return found
            if found and not any(found):
                why = f"@app.logged_in: {name_of(function)} says no to {page.url} (status {page.status})"
                return Verdict(is_in=False, why=why)
            is_in = is_in or bool(found) or None
        return Verdict(is_in=is_in)

    async def _called(
        self, function: Callable[..., Any], page: Page, read: Callable[[Any], Value]
    ) -> list[Value] | CodeFailure:
        """What it gives, as `read` has it, which may be code of users, too."""
        found: list[Value] = []

        def take(given: Any) -> None:
            found.append(read(given))

        if is_plain(function):
            failure = await call_plain(function, (page,), take, self._threads, TIMEOUT_S)
        else:
            failure = await call_asynchronous(stream_of(function), (page,), take, TIMEOUT_S)
        return failure or found

    async def _fill(self, plan: LoginPlan, attempt: Attempt, page: "LoginPage") -> Outcome:
        """Fill the form of a login page, which is sent next."""
        if not plan.is_login_page(page.url):
            self._led_to[plan.site] = page.url
        why = ""
        try:
            if plan.function is not None:
                failure = await self._called(plan.function, page, id)
                why = failure.detail if isinstance(failure, CodeFailure) else ""
            else:
                assert plan.settings is not None
                given = plan.settings.form, plan.settings.user, plan.password
                await asyncio.to_thread(page.submit_login, *given)  # a second for each megabyte
        except (LookupError, ValueError, RuntimeError) as error:  # the last: it is too expensive to parse
            why = f"{plan.url}: {error}"
        finally:
            followed = page.followed
            page.close()
        for password in page.passwords:
            learn_login("", password)
        if why:
            return Outcome(failure=without(why, page.given))
        if not followed:
            return Outcome(failure="the function of @app.login submits nothing (page.submit)")
        return self._sent_next(plan, attempt, followed[0], page.passwords)

    def _sent_next(self, plan: LoginPlan, attempt: Attempt, followed: Followed, passwords: Sequence[str]) -> Outcome:
        request = followed.request or PLAIN
        if request.method in (GET, "HEAD") and not plan.allow_get:
            return Outcome(
                failure="its form puts the password into a URL (GET), which servers and proxies log; "
                "allow_get of the login permits that"
            )
        where = origin_of(followed.url)
        if registrable_domain(host_of(followed.url)) != plan.site:
            return Outcome(failure=f"its form leads to another site ({where})")
        if why := why_no_password(plan.url, followed.url, plan.action_hosts):
            return Outcome(failure=f"its form leads to {where}: {why}")
        attempt.url, attempt.request, attempt.is_sent, attempt.hops = followed.url, followed.request, True, 0
        attempt.passwords, attempt.is_in_url = tuple(passwords), request.method in (GET, "HEAD")
        if attempt.request is not None:
            attempt.request = replace(attempt.request, goes_anywhere=False)
        return Outcome()

    # --- the pages of a session ---

    def watch(self, session: Session) -> Watch:
        record = self._records.get((session.site, session.epoch))
        return self._losses.watch(session.site, session.name, session.epoch, record.ends if record else ())

    async def fate_of(self, claim: Claim, session: Session) -> Fate | None:
        """How a claim ends without a request; None for most. Raises EngineError."""
        await self._record(session)
        watch = self.watch(session)
        if watch.paths.ending(claim.url):
            await self._fresh_record(session)
        return self._losses.fate_of(claim, watch)

    def must_log_in(self, session: Session, claim: Claim) -> bool:
        """Is this turn for the login, or to find out whether it holds?"""
        return not session.is_in or self._losses.must_check(claim, self.watch(session))

    def must_wait(self, session: Session, claim: Claim) -> bool:
        """Has this claim to wait for an answer to another one? If not, it is under way from here on."""
        watch = self.watch(session)
        is_suspect = watch.paths.is_suspect(claim.url)
        if watch.open and (watch.is_alone or watch.careful or is_suspect):
            return True
        watch.open, watch.is_alone = watch.open + 1, is_suspect
        return False

    def _is_login_page(self, plan: LoginPlan, url: str) -> bool:
        led_to = self._led_to.get(plan.site)
        return plan.is_login_page(url) or (led_to is not None and is_login_page(url, led_to))

    async def seen(self, session: Session, plan: LoginPlan, response: Response, target: str) -> Seen:
        """What an answer shows of its session. `target`: of its redirect."""
        if target:
            return Seen(Sight.LOST, "it leads to the login") if self._is_login_page(plan, target) else NOTHING
        if response.status == 401:
            return Seen(Sight.LOST, "it is answered with status 401")
        if self._is_login_page(plan, response.url):
            return NOTHING
        verdict = await self._verdict_of(session, response) if self._judges else None
        if verdict is not None and verdict.is_in is not None:
            return Seen(Sight.PROOF) if verdict.is_in else Seen(Sight.LOST, verdict.why)
        return Seen(Sight.GOOD) if 200 <= response.status < 300 else NOTHING

    async def _verdict_of(self, session: Session, response: Response) -> Verdict:
        """Of a page of the site; one that fails can't tell."""
        page = await self._page_of(session, response)
        try:
            verdict = await self._verdict(page)
        finally:
            page.close()
        if isinstance(verdict, Verdict):
            return verdict
        if session.site not in self._judge_failures:
            self._judge_failures.add(session.site)
            log.warning("session.not_judged", extra={"url": response.url, "why": verdict.detail})
        return Verdict()

    def page_answered(self, claim: Claim, session: Session, login: int, seen: Seen) -> Fate | bool:
        """Note the answer to a page of the session that this login began: is the page requested again, or how it ends.
        False: it is as it should be.
        """
        watch, is_now = self.watch(session), session.login == login
        session.answers += is_now
        if seen.sight is not Sight.LOST:
            if is_now:
                self._losses.came(claim, watch, seen)
            return False
        if not is_now or not session.is_in or watch.check is not None:
            self._losses.suspect(claim, login)
            return True
        found = self._losses.lost(claim, watch, seen, login=login, answers=session.answers)
        if found is True:
            self._lose(session)
        return found if isinstance(found, Fate) else True

    async def _checked(self, session: Session, plan: LoginPlan, attempt: Attempt, result: FetchResult) -> int:
        """The answer to a check; ms until the next one."""
        watch, response, seen = self.watch(session), result.response, None
        if response is not None and response.status < 500 and response.status != 429 and not result.challenge:
            if not attempt.is_anonymous:
                self._sessions.take(session, response.url, response.headers)
            is_led = response.status in REDIRECTS
            target = (redirect_target(response.url, response.header("location")) or "") if is_led else ""
            seen = await self.seen(session, plan, response, target)
        if watch.check is None:
            return 0
        if self._losses.checked(watch, seen, login=session.login):
            self._lose(session)
        record, ends = await self._record(session), tuple(watch.paths.ends)
        if record.ends != ends:
            record = await self._fresh_record(session)
            ends = tuple(watch.paths.ends)
            log.warning("session.ended_by", extra={"site": session.site, "paths": list(ends)})
            await self._keep(session, replace(record, ends=ends))
        return TRY_AGAIN_MS if seen is None and watch.check is not None else 0

    def _can_not_tell(self, session: Session) -> None:
        if self._losses.can_not_tell(self.watch(session)):
            self._lose(session)

    def _lose(self, session: Session) -> None:
        self._sessions.lost(session)
        log.info("session.lost", extra={"site": session.site, "session": session.name, "answers": session.answers})

    # --- how often ---

    async def _record(self, session: Session) -> LoginRecord:
        record = self._records.get((session.site, session.epoch))
        return await self._fresh_record(session) if record is None else record

    async def _fresh_record(self, session: Session) -> LoginRecord:
        """As the engine has it: `dead retry` takes paths off the list of those that end sessions."""
        key = session.site, session.epoch
        before, record = self._records.get(key), await self._book.login_record(session.site)
        self._records[key] = record
        if len(self._records) > RECORDS_MAX:
            del self._records[next(iter(self._records))]
        if before is not None:
            for path in set(before.ends).difference(record.ends):
                self.watch(session).paths.take_off(path)
        return record

    async def _keep(self, session: Session, record: LoginRecord) -> None:
        self._records[session.site, session.epoch] = record
        await self._book.note_logins(session.site, record)

    async def wait_ms(self, session: Session, attempt: Attempt) -> int:
        """How long a login that begins now has to wait; below 0: for ever. Raises EngineError, NotEntitledError."""
        if attempt.is_check or attempt.may_begin or session.is_new:
            return 0
        record, now_ms = await self._record(session), self._sessions.now_ms(session)
        wait_ms = record.wait_ms(now_ms)
        if not wait_ms:
            attempt.may_begin = True
            return 0
        waited = record.waited(now_ms)
        if waited.is_hopeless:
            await self._keep(session, replace(record, recent_ms=(), full_hours=0, full_ms=0))
            often = f"{LOGINS_AN_HOUR} logins an hour, for {FULL_HOURS_MAX} hours"
            await self._fail(session, f"{often}: something ends its sessions")
            return -1
        if waited is not record:
            told = {"site": session.site, "an_hour": LOGINS_AN_HOUR, "wait_s": wait_ms // 1000}
            log.warning("login.waits", extra=told)
            await self._keep(session, waited)
        return wait_ms

    async def count(self, session: Session, attempt: Attempt) -> None:
        """A form is about to be sent. Raises EngineError, NotEntitledError."""
        if attempt.is_sent and not attempt.is_counted:
            record = await self._fresh_record(session)
            now_ms = None if session.is_new else self._sessions.now_ms(session)
            await self._keep(session, record.counted(now_ms))
            attempt.is_counted = True


def _named(target: str, attempt: Attempt) -> str:
    """Where a redirect leads to, without what was put into the form: a host may have parts of it in its name."""
    origin = origin_of(target)
    parts = [part for password in attempt.passwords for part in re.findall(r"[a-z0-9]+", password.lower())]
    if any(len(part) >= SHORTEST and part in origin for part in parts):
        return "a host with a part of the password in its name"
    return origin

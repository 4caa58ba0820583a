"""Step 6, handle: the user's function gets the page, if there is one for it.

Its items and the links that it follows go on with the page; its failure is the page's failed attempt, before anything
of the page is on disk. So what a handler yields is in the results once for each visit, whatever crashes, as a page's
record is: the items are one frame in the session's item file (archive/items.py), synced with the records of the group,
and the commit names its place. A frame that no commit names is never read.

Items are not in the ack, as a page can yield megabytes that the engine would hold; nor in a queue of the engine, one
more thing to fence, drain and take over; nor WARC records, because archives can be switched off.

An asynchronous handler runs in the task of the worker that fetched its page: with a task of its own, fifty trees were
in memory at a time (130 MiB more). A plain function runs in a daemon thread, 20 us there and back; those that hang are
left behind, and bounded in number. A page that was parsed in a worker process is handled in one, so that the instance
never builds its tree.
"""

import asyncio
import logging
from functools import partial

import msgspec
from msgspec.structs import replace
from selectolax.lexbor import LexborHTMLParser

from crawler.archive.inflight_log import Aside, InflightMark
from crawler.frontier.stats import Stats
from crawler.handlers.crawler import Crawler, Handler
from crawler.handlers.guards import end_users_tasks, guard_tasks
from crawler.handlers.outgoing import OutgoingRequest, prepare
from crawler.handlers.page import Page as HandlersPage
from crawler.handlers.page_run import NOTHING_HANDLED, Handled, HandlerError, Limits, run_handler
from crawler.handlers.tasks import CodeFailure
from crawler.handlers.threads import Threads
from crawler.media_type import declared_type, is_html
from crawler.model import PLAIN, Claim, ParsedPage, Request, Response, Rights
from crawler.parsing.processes import WorkerDiedError, WorkerPool, WorkerProcess
from crawler.redaction import learned
from crawler.rules.sites import SiteRules
from crawler.runtime.tasks import Loop
from crawler.settings import Settings
from crawler.worker.handler_worker import HandlerAnswer, HandlerRequest
from crawler.worker.hooks import DomainsDone, Hooks

log = logging.getLogger(__name__)


KILL_AFTER_S = 2.0  # time for a worker process to report a timeout by itself


class HandlerStage:
    """Runs the handlers of an app; without one it does nothing."""

    def __init__(self, app: Crawler | None, settings: Settings, hooks: Hooks, threads: Threads) -> None:
        self._app = app
        self._hooks = hooks
        self._threads = threads
        self._limits = Limits(settings.handlers.items_max)
        self._follow_max = settings.fetch.links_max
        self.follows_links = settings.scope.follow == "links"
        self._labels = frozenset(app.labels) if app else frozenset()
        self._sites = SiteRules.of(settings.sites, "label")
        self._before_request = app.request_functions if app else []
        command = ("-P", "-m", "crawler.worker.handler_worker", settings.handlers.app)
        self._pool = WorkerPool([WorkerProcess(*command) for _ in range(settings.handlers.processes)])

    @property
    def prepares(self) -> bool:
        """Do users' functions see requests before they are sent?"""
        return bool(self._before_request)

    async def prepare(self, claim: Claim) -> Request | str | CodeFailure:
        """The request as they want it; why it is not sent; or how one of them failed."""
        request = claim.request or PLAIN
        outgoing = OutgoingRequest(claim.url, request, label=claim.label, depth=claim.depth, run=claim.run)
        failure = await prepare(self._before_request, outgoing, self._threads)
        if failure is not None:
            return failure
        return outgoing.refusal or replace(request, headers=outgoing.headers)

    async def handle(
        self,
        claim: Claim,
        response: Response,
        parsed: ParsedPage,
        tree: LexborHTMLParser | None,
        mark: InflightMark,
        *,
        rights: Rights | None = None,
        guarded: bool,
    ) -> tuple[ParsedPage, Handled]:
        """The page with all links to follow, and the result of its handler. `guarded`: never in this process.

        Raises HandlerError.
        """
        handled = NOTHING_HANDLED
        if self._app is not None:
            handled = await self._handled(
                self._app, claim, response, parsed, tree, mark, rights=rights, guarded=guarded
            )
        links = parsed.links if self.follows_links else ()
        if handled.followed:
            links = tuple(dict.fromkeys((*(one.url for one in handled.followed if one.is_plain), *links)))
        if links is not parsed.links:
            dropped = parsed.links_dropped if self.follows_links else 0
            parsed = replace(parsed, links=links, links_dropped=dropped)
        return parsed, handled

    async def _handled(
        self, app: Crawler, claim: Claim, response: Response, parsed: ParsedPage, tree: LexborHTMLParser | None,
        mark: InflightMark, *, rights: Rights | None, guarded: bool,
    ) -> Handled:  # fmt: skip
        if self._sites is not None and not claim.label:
            claim = replace(claim, label=self._sites.first(claim.url, "label") or "")
        handler = _handler_of(app, claim, response)
        if handler is None and not self._hooks.has_listeners("fetch"):
            return NOTHING_HANDLED
        is_expensive = tree is None and is_html(declared_type(response), response.body)
        page = HandlersPage(
            response, parsed, domain=claim.domain, depth=claim.depth, label=claim.label, run=claim.run,
            request=claim.request, fingerprint=claim.fingerprint, tree=tree, labels=self._labels,
            follow_max=self._follow_max, may_parse=not is_expensive, rights=rights,
        )  # fmt: skip
        try:
            if self._hooks.has_listeners("fetch"):
                with mark.aside(Aside.THREAD if self._hooks.has_plain_listeners("fetch") else Aside.HANDLER):
                    await self._hooks.call("fetch", page)
            if handler is None:
                return NOTHING_HANDLED
            if handler.processes or guarded or is_expensive:
                handled = await self._in_worker(
                    app, handler, claim, response, parsed, rights, is_slow=guarded or is_expensive
                )
            else:
                is_threaded = handler.is_plain and all(function.is_plain for function in app.pipeline)
                with mark.aside(Aside.THREAD if is_threaded else Aside.HANDLER):
                    handled = await run_handler(handler, page, self._limits, self._threads, app.pipeline)
        finally:
            page.close()
        if handled.invalid_count:
            _report(response.url, handler, handled)
        return handled

    async def _in_worker(
        self, app: Crawler, handler: Handler, claim: Claim, response: Response, parsed: ParsedPage,
        rights: Rights | None, *, is_slow: bool,
    ) -> Handled:  # fmt: skip
        """Run in a worker process: for handlers that request one, pages that are expensive to parse, and suspects."""
        request = HandlerRequest(
            app.handlers.index(handler), replace(response, raw_body=b"", request_head=b""), parsed, claim.domain,
            claim.depth, claim.label, claim.run, claim.request, claim.fingerprint, self._follow_max, self._limits,
            learned(), rights,
        )  # fmt: skip
        try:
            answer = await self._pool.ask(
                claim.domain, partial(msgspec.msgpack.encode, request), handler.timeout_s + KILL_AFTER_S,
                is_slow=is_slow,
            )  # fmt: skip
        except WorkerDiedError as error:
            raise HandlerError(f"its process died ({error}, handler {handler.name})") from None
        try:
            found = msgspec.msgpack.decode(answer, type=HandlerAnswer)
        except msgspec.MsgspecError as error:
            raise HandlerError(f"its process gave an unreadable answer ({error}, handler {handler.name})") from None
        if found.failure:
            raise HandlerError(found.failure, found.trace)
        return found.handled

    async def close(self) -> None:
        """End the worker processes."""
        await self._pool.close()


def _handler_of(app: Crawler, claim: Claim, response: Response) -> Handler | None:
    """The handler of a response; one without a body only goes to a handler that declared its status."""
    handler = app.handler_for(claim.url, claim.label, response.status)
    return handler if handler is not None and (response.body or handler.statuses) else None


def _report(url: str, handler: Handler, handled: Handled) -> None:
    for one in handled.invalid:
        what = {"url": url, "handler": handler.name, "field": one.field, "reason": one.reason}
        log.warning("item.invalid", extra=what)
    if handled.invalid_count > len(handled.invalid):
        log.warning("item.invalid_too", extra={"url": url, "items": handled.invalid_count - len(handled.invalid)})


class HandlerRuntime:
    """The handlers and hooks of an instance, and what both need. `settings`: with the scope stored with the crawl."""

    def __init__(self, app: Crawler | None, settings: Settings, stats: Stats) -> None:
        if app is not None:
            guard_tasks(asyncio.get_running_loop())
        self.threads = threads = Threads(settings.handlers.threads)
        self.hooks = Hooks(app, threads)
        self.handling = HandlerStage(app, settings, self.hooks, threads)
        self._domains = DomainsDone(stats, self.hooks)
        self._is_there = app is not None

    def loops(self) -> dict[str, Loop]:
        """Loops to run next to the pipeline."""
        return {"hooks": self.hooks.run, "domains done": self._domains.run} if self._is_there else {}

    async def close(self, why: str) -> None:
        """Deliver the remaining events and the finish to the hooks; end the worker processes."""
        try:
            await self._domains.check_all()
            await self.hooks.finish(why)
        finally:
            await self.handling.close()
            if self._is_there:
                await end_users_tasks()

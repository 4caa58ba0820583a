"""`crawler shell`: a page as handlers get it, in a Python prompt."""

import argparse
import code
import contextlib
import json
import readline
import rlcompleter
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from crawler.cli.check import check_app
from crawler.cli.crawl_options import KEYS
from crawler.cli.options import settings_of
from crawler.cli.request_options import STDIN, request_given
from crawler.cli.run_async import run_async
from crawler.crawl.url_input import url_of
from crawler.errors import CrawlerError, NothingFetchedError, UsageError
from crawler.handlers.crawler import Crawler
from crawler.handlers.page import Page
from crawler.handlers.page_run import Limits, run_handler
from crawler.handlers.threads import Threads
from crawler.model import Followed, Request
from crawler.rules.pace import delay_ms
from crawler.rules.places import queue_of, registrable_domain
from crawler.rules.requests import form_in_url, request_of
from crawler.rules.sites import SiteRules, of_queues
from crawler.rules.text import one_line, printable
from crawler.rules.urls import canonicalize, host_of, join
from crawler.settings import Settings
from crawler.terminal.output import err, out, say
from crawler.terminal.words import counted
from crawler.views.page_fetch import PageClient


class ShellSession:
    """One prompt's."""

    def __init__(self, settings: Settings, app: Crawler | None) -> None:
        self._settings = settings
        self._app = app
        self._page_client = PageClient(settings)
        self._labels = SiteRules.of(settings.sites, "label")
        self._own_delay_s = of_queues(settings.sites, "delay_s")
        self._ended_s: dict[str, float] = {}  # by queue
        self._url = ""

    def fetch(
        self, url: str, *, follow: bool = False, method: str = "", form: Mapping[str, Any] | None = None,
        json: Any = None, body: bytes | str | None = None, headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None, cross_origin: bool = False,
    ) -> Page:  # fmt: skip
        """A page; a relative URL is one of the first page's. What it is requested with is as in `page.follow`.

        Raises InvalidUrl, and NothingFetchedError where there is none; ValueError and TypeError for what can't be sent.
        """
        target = (join(self._url, url) if self._url else None) or canonicalize(url.strip())
        target, form = form_in_url(target, method, form)
        request = request_of(
            method=method, form=form, json=json, body=body, headers=headers, meta=meta, cross_origin=cross_origin
        )
        return self.page_of(canonicalize(target), request, follow=follow)

    def page_of(self, url: str, request: Request | None, *, follow: bool) -> Page:
        """The page of a canonical URL. Raises NothingFetchedError."""
        self._wait(url)
        try:
            visit = run_async(self._page_client.visit(url, follow=follow, request=request))
        finally:
            self._ended_s[self._queue_of(url)] = time.monotonic()
        if visit.refusal:
            raise NothingFetchedError(visit.refusal)
        assert visit.result is not None
        assert visit.result.response is not None
        self._url = self._url or visit.url
        return Page(
            visit.result.response, visit.page, domain=registrable_domain(host_of(visit.url)),
            label=(self._labels.first(visit.url, "label") or "") if self._labels else "",
            labels=frozenset(self._app.labels) if self._app else None, request=visit.request, rights=visit.rights,
        )  # fmt: skip

    def _wait(self, url: str) -> None:
        """Until the delay since the last request of its queue is over."""
        queue, politeness = self._queue_of(url), self._settings.politeness
        if queue in self._ended_s:
            least_s = max(politeness.delay_s, self._own_delay_s(queue) or 0.0)
            wait_ms = delay_ms(
                min_delay_ms=int(least_s * 1000), crawl_delay_s=self._page_client.crawl_delay_s(url),
                delay_max_ms=int(politeness.delay_max_s * 1000),
            )  # fmt: skip
            time.sleep(max(0.0, self._ended_s[queue] + wait_ms / 1000 - time.monotonic()))

    def _queue_of(self, url: str) -> str:
        return queue_of(host_of(url), by_domain=self._settings.frontier.queue_by == "domain")

    def handle(self, page: Page) -> tuple[list[Any], list[Followed]]:
        """What the app's handler of a page yields, and what it follows. Raises HandlerError as the page would fail,
        LookupError when no handler is for it.
        """
        assert self._app is not None
        handler = self._app.handler_for(page.url, page.label, page.status)
        if handler is None:
            raise LookupError(f"no handler is for {page.url} (status {page.status}, label {page.label!r})")
        s = self._settings.handlers
        page.forget_followed()
        work = run_handler(handler, page, Limits(s.items_max), Threads(s.threads), self._app.pipeline)
        handled = run_async(work, has_users_code=True)
        for invalid in handled.invalid:
            say(f"invalid item: {invalid.field}: {invalid.reason}")
        if handled.retry_s is not None:
            when = f" in {handled.retry_s:g} s or later" if handled.retry_s else ""
            say(f"page.retry: a crawl would request the page again{when}, and take none of this")
        if handled.dropped_count:
            say(f"{counted(handled.dropped_count, 'item')} dropped by functions of @app.item")
        return [json.loads(item) for item in handled.items], handled.followed


# `crawler shell`: a page as handlers get it, in a Python prompt.


BUG = 1  # the exit code of a line that fails


def run_shell(arguments: argparse.Namespace) -> int:
    """Fetch, then the prompt or the line; raises InvalidUrl, and NothingFetchedError where there is no response."""
    from crawler.handlers.load_app import load_app

    url, settings = url_of(arguments.url), settings_of(arguments, KEYS)
    if arguments.code is None and STDIN in (arguments.data or ()):
        raise UsageError(f"--data {STDIN} needs -c: the prompt reads standard input, too")
    request = request_given(arguments)
    check_app(settings)
    app = load_app(settings.handlers.app) if settings.handlers.app else None
    hand = ShellSession(settings, app)
    page = hand.page_of(url, request, follow=arguments.follow)
    names: dict[str, Any] = {"page": page, "fetch": hand.fetch, "print": _print}
    if app is not None:
        names |= {"app": app, "handle": hand.handle}
    if arguments.code is not None:
        return run_line(arguments.code, names)
    _prompt(names)
    return 0


def run_line(code: str, names: dict[str, Any]) -> int:
    """Run it as a prompt would, and print what it gives. Raises UsageError for invalid Python."""
    compiled = _compiled(code)
    try:
        exec(compiled, names)  # noqa: S102 - the user asked for it
    except CrawlerError:
        raise
    except Exception as error:  # noqa: BLE001 - their line, their error
        trace = traceback.TracebackException.from_exception(error)
        trace.stack = traceback.StackSummary.from_list(trace.stack[1:])  # the first is this function
        err("".join(trace.format()).rstrip("\n"))
        return BUG
    return 0


def _compiled(code: str) -> Any:
    try:
        return compile(code, "-c", "single")
    except SyntaxError:
        try:
            return compile(code, "-c", "exec")  # several lines
        except SyntaxError as error:
            raise UsageError(f"-c {code!r}: {error.msg}") from None


def _print(*values: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False) -> None:
    """`print` of the prompt: what a page holds can't act on the terminal."""
    text = (" " if sep is None else sep).join(map(str, values))
    print(printable(text), end="\n" if end is None else end, file=file, flush=flush)


def _prompt(names: dict[str, Any]) -> None:
    page = names["page"]
    there_are = ", ".join(name for name in names if name != "print")
    banner = one_line(f"page: {page.url} (status {page.status}); there are {there_are}. Ctrl-D ends.")
    _interact()(banner, names)


def _interact() -> Callable[[str, dict[str, Any]], None]:
    try:
        import IPython
    except ImportError:
        return _plain

    def ipython(banner: str, names: dict[str, Any]) -> None:
        out(banner)
        IPython.start_ipython(argv=["--no-banner"], user_ns=names)

    return ipython


def _plain(banner: str, names: dict[str, Any]) -> None:
    with contextlib.suppress(ImportError):
        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    code.interact(banner, local=names, exitmsg="")

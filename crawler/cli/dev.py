"""`crawler shell`, `fetch`, `settings` and `doctor`: for whoever prepares a crawl."""

import argparse
import asyncio
import code
import contextlib
import json
import readline
import rlcompleter
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from crawler.cli.check import check_app
from crawler.cli.crawl_options import KEYS
from crawler.cli.event_loop import run_async
from crawler.cli.options import settings_of
from crawler.cli.request_options import STDIN, request_given
from crawler.crawl.opening import open_crawl
from crawler.crawl.terms import change, permitted
from crawler.crawl.url_input import url_of
from crawler.engine.client import Engine
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import CrawlerError, DoctorError, NothingFetchedError, UsageError
from crawler.frontier.record import CrawlRecord
from crawler.frontier.scripts import library
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
from crawler.settings.kept import kept_of, shown
from crawler.settings.load import complaints
from crawler.terminal.text import counted, err, facts, out, out_json, say, warn
from crawler.views.doctor import (
    Check,
    Level,
    check_disk,
    check_dns,
    check_engine,
    check_files,
    check_password_files,
    check_proxies,
    check_python,
    report,
)
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
            labels=frozenset(self._app.labels) if self._app else None, request=visit.request,
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


# `crawler fetch`: one page as the crawler sees it. Needs no crawl and no engine; keeps nothing.


def run_fetch(arguments: argparse.Namespace) -> int:
    """Print what was found; raises InvalidUrl, and NothingFetchedError where there is no response."""
    from crawler.views.page import as_json, as_text
    from crawler.views.page_fetch import PageClient

    url, settings = url_of(arguments.url), settings_of(arguments, KEYS)
    request = request_given(arguments)
    visit = run_async(PageClient(settings).visit(url, follow=arguments.follow, request=request))
    if arguments.json:
        out_json(as_json(visit))
    if visit.refusal:
        raise NothingFetchedError(visit.refusal)
    if arguments.links:
        out("\n".join(visit.page.links))
    elif arguments.text:
        out(visit.text)
    elif not arguments.json:
        out(as_text(visit))
    return 0


# `crawler settings`: shows the settings that are stored with the crawl, and changes them for all of it.


def run_settings(arguments: argparse.Namespace) -> int:
    """Change or show; see EPILOG for the exit codes."""
    kept = kept_of(Settings())
    if any(text.partition("=")[0].strip() in kept for text in arguments.set or ()):
        raise UsageError("write changes as KEY=VALUE, without --set")
    asked = [text for text in arguments.changes if "=" not in text]
    if unknown := next((key for key in asked if key not in kept), None):
        raise UsageError(f"{unknown}: not a setting that is stored with a crawl ('crawler settings --all' has them)")
    if asked and len(asked) < len(arguments.changes):
        raise UsageError(f"{asked[0]}: write a change as KEY=VALUE, or give keys alone to see their values")
    wanted = [] if asked else [text.partition("=")[0].strip() for text in arguments.changes]
    arguments.set = [*(arguments.set or ()), *([] if asked else arguments.changes)]
    arguments.asked = asked
    settings = permitted(settings_of(arguments))
    if "handlers.app" in wanted:
        check_app(settings)
    return run_async(_run(arguments, settings, wanted))


async def _run(arguments: argparse.Namespace, settings: Settings, wanted: list[str]) -> int:
    async with open_crawl(settings, create=False) as crawl:
        if not wanted:
            _show(arguments, crawl.record)
            return 0
        for complaint in complaints(crawl.settings):
            raise UsageError(complaint)
        values = {key: getattr(getattr(crawl.settings, key.split(".")[0]), key.split(".")[1]) for key in wanted}
        for line in await change(crawl, values) or ["nothing changed: the crawl has these values"]:
            out(line)
        if crawl.record.settings is None:
            warn(
                "this crawl was begun by an earlier release: its other settings are stored by its next 'crawler crawl'"
            )
    return 0


def _show(arguments: argparse.Namespace, record: CrawlRecord) -> None:
    stored, defaults = record.stored_settings, kept_of(Settings())
    needs = msgspec.to_builtins(record.needs)
    if arguments.asked:
        stored = {key: stored.get(key, defaults[key]) for key in arguments.asked}
    if arguments.json:
        out_json({"settings": stored, "needs": needs})
        return
    if arguments.asked:
        out(facts([(key, shown(value)) for key, value in stored.items()]))
        return
    same = {
        key for key, value in defaults.items() if msgspec.json.encode(value) == msgspec.json.encode(stored.get(key))
    }
    rows = [(key, shown(value)) for key, value in sorted(stored.items()) if arguments.all or key not in same]
    rows += [("needs", f"fetch.{name}") for name in ("allow_private", "insecure_tls") if needs.get(name)]
    if "app" in needs:
        rows.append(("needs", f"the app {needs['app']}, SHA-256 {needs['app_digest'][:16]}..."))
    if rows:
        out(facts(rows))
    if not arguments.all:
        are = counted(len(same), "setting has its default", "settings have their defaults")
        out(f"{are} (--all shows them)")


# `crawler doctor`: checks what a crawl needs, and prints how to fix what is missing.


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print all checks; raises DoctorError when one failed."""
    checks = run_async(_checks(settings_of(arguments, KEYS, in_folder=True)))
    if arguments.json:
        out_json([asdict(check) for check in checks])
    else:
        out(report(checks))
    failed = [check.name for check in checks if check.level is Level.FAIL]
    if failed:
        raise DoctorError(f"to be fixed: {', '.join(failed)}")
    return 0


async def _checks(settings: Settings) -> "list[Check]":
    machine = [check_python(), check_files(settings), check_disk(settings), await check_dns(settings)]
    machine += await check_proxies(settings)
    if settings.frontier.redis:
        machine += check_password_files(settings.frontier.redis)
    serving = _engine_url(settings)
    try:
        url = await asyncio.to_thread(serving.__enter__)
    except CrawlerError as error:
        return [*machine, Check("engine", Level.FAIL, str(error), "see the engine's log, or use --redis")]
    try:
        timeout_s, name = settings.frontier.call_timeout_s, settings.crawl.name
        return [*machine, *await check_engine(lambda: Engine(url, library(), call_timeout_s=timeout_s), name)]
    finally:
        await asyncio.to_thread(serving.__exit__, None, None, None)


@contextmanager
def _engine_url(settings: Settings) -> Iterator[str]:
    """The engine to look at: the one named, the folder's own, or one that lives as long as the look."""
    if settings.frontier.redis:
        yield settings.frontier.redis
        return
    binary = settings.frontier.engine
    running = EmbeddedEngine(Path(settings.archive.dir) / "engine", binary=binary)
    if running.pid():
        yield running.url
        return
    with tempfile.TemporaryDirectory(prefix="crawler-doctor-") as home:
        own = EmbeddedEngine(Path(home), binary=binary)
        own.ensure()
        try:
            yield own.url
        finally:
            own.stop()


# `crawler plan`: what a crawl of a given size needs.


def run_plan(arguments: argparse.Namespace) -> int:
    """Calculate and print. Raises UsageError for more pages, or more domains, than URLs."""
    from crawler.views.plan import Wanted, constants, plan_of, plan_text

    a = arguments
    if (a.pages or 0) > a.urls:
        raise UsageError(f"--pages {a.pages:g} is more than --urls {a.urls:g}: each page is a URL")
    if a.domains > a.urls:
        raise UsageError(f"--domains {a.domains:g} is more than --urls {a.urls:g}: each domain has a URL")
    wanted = Wanted(
        urls=a.urls, pages=a.pages or a.urls, domains=a.domains, rate=a.rate, page_kb=a.page_kb, delay_s=a.delay,
        replicas=a.replicas, vcpu_price=a.price,
    )  # fmt: skip
    known = constants()
    plan = plan_of(wanted, known)
    if a.json:
        out_json({"wanted": asdict(wanted), "needed": asdict(plan), "constants": msgspec.to_builtins(known)})
    else:
        out(plan_text(wanted, plan, known))
    return 0

"""One run of `crawler crawl`, in the order of what the user sees: seeds, progress, summary, exports, the end."""

import argparse
import asyncio
import contextlib
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from msgspec.structs import replace

from crawler.archive.folder import alone_in, is_crawl_folder
from crawler.cli.crawl_options import (
    check_engine,
    few_files,
    is_supervised,
    log_of_crawl,
    low_disk,
    run_instance,
)
from crawler.cli.kept_outputs import Ended, kept_up_to_date, raise_first
from crawler.cli.seed import Intake, given_batches, sitemap_batches
from crawler.cli.supervising import STOPPING, StopSignals, supervise
from crawler.cli.watcher import Watcher
from crawler.crawl.opening import OpenCrawl, abandon, choose_node, make_seeder, open_crawl
from crawler.crawl.seed import Seeder
from crawler.crawl.set_back import check_set_back
from crawler.crawl.terms import settle, to_start_over
from crawler.crawl.url_files import AS_FOUND, ListForm, is_plain_file
from crawler.crawl.url_input import NO_SEED, GivenUrl, SeedReport, check_any, out_of_scope_lines, read_given
from crawler.errors import (
    ConflictError,
    HandlersFailed,
    OutageError,
    Stopped,
    UsageError,
)
from crawler.membership.node_names import living_holder
from crawler.redaction import shown_words
from crawler.rules.addresses import is_address, is_public
from crawler.rules.places import registrable_domain
from crawler.rules.scope import sites_of
from crawler.rules.urls import canonicalize, host_of
from crawler.runtime.tasks import OUTAGE
from crawler.settings import Settings
from crawler.terminal.output import out, say, warn
from crawler.terminal.patient_stream import patient_stderr
from crawler.terminal.progress import progress
from crawler.terminal.words import counted, program
from crawler.views.live import Quiet, View, view_for
from crawler.views.losses import losses_of
from crawler.views.report import one_shape_text, outage_text
from crawler.views.summary import failed_seeds, nothing_fetched, summary

if TYPE_CHECKING:
    from crawler.frontier.lookup import Progress
    from crawler.frontier.stats import Totals
    from crawler.outputs.target import Target


SITES_SHOWN = 3
TIME_IS_UP = "Time is up: ending open requests"
NO_URL = "give at least one seed URL (see 'crawler crawl --help')"
LOCAL_NAMES = ("localhost",)
LOCAL_ENDINGS = (".localhost", ".test", ".local", ".internal", ".lan", ".home.arpa")


class CrawlSession:
    """One run of the command: `run` does it."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: Settings,
        *,
        plain: Sequence[GivenUrl],
        files: Sequence[str],
        form: ListForm = AS_FOUND,
        targets: Sequence["Target"] = (),
        stdout: IO[bytes] | None = None,
    ) -> None:
        self._arguments = arguments
        self._settings = settings
        self._plain = plain
        self._files = files
        self._form = form
        self._sitemaps: Sequence[str] = arguments.sitemap
        self._targets = targets
        self._stdout = stdout
        self._signals = StopSignals()
        self._out = sys.stderr if "-" in arguments.output else sys.stdout
        self._why = "finished"
        self._view: View = view_for(sys.stderr, quiet=True, verbose=False)
        self._watcher: Watcher | None = None

    async def run(self) -> int:
        """The exit code. Raises CrawlerError kinds, Stopped among them."""
        with self._signals:
            try:
                await self._begin()
                await self._check_before()
                async with open_crawl(self._settings, create=True) as crawl:
                    with alone_in(crawl.folder, self._pid()):
                        return await self._in(crawl)
            except asyncio.CancelledError:
                if self._signals.stopped:
                    raise Stopped(f"stopped before the crawl began; {self._how_to_resume()}") from None
                raise

    def _pid(self) -> int:
        """Of the process that people started: ours, or the one that restarts us."""
        is_child = self._arguments.is_program and not is_supervised(self._arguments)
        return os.getppid() if is_child else os.getpid()

    async def _begin(self) -> None:
        """Without URLs, an app that is named begins with its own. Raises UsageError."""
        if self._plain or self._files or self._sitemaps or not self._arguments.app:
            return
        from crawler.handlers.begin import started
        from crawler.handlers.load_app import load_app
        from crawler.handlers.threads import Threads

        app = load_app(self._settings.handlers.app)
        if app.starts:
            threads = Threads(1)
            self._plain = [GivenUrl.of_start(one) for one in await started(app, threads)]
            if not self._plain:
                raise UsageError("@app.start yields no request")

    async def _check_before(self) -> None:
        """Check before anything is created that the crawl would not be empty. Raises UsageError."""
        settings = self._settings
        has_urls = bool(self._plain or self._files or self._sitemaps)
        if has_urls and not self._sitemaps:
            await check_any(self._plain, self._files, self._form)
        elif not has_urls and not settings.frontier.redis and not is_crawl_folder(settings.archive.dir):
            raise UsageError(NO_URL)
        await check_engine(settings, needs_crawl=not has_urls)

    async def _in(self, crawl: OpenCrawl) -> int:
        with patient_stderr():
            return await self._crawl_in(crawl)

    async def _crawl_in(self, crawl: OpenCrawl) -> int:
        before = await crawl.inspect.progress()
        if before.fetched or before.pending:
            await self._check_sites(crawl, before)
        crawl, lines = await settle(crawl, before)
        lines += await check_set_back(crawl)
        self._settings = crawl.settings
        for line in lines:
            self._warn(line)
        await self._check_node(crawl)
        self._signals.on_force = lambda: self._forced(crawl)
        log_of_crawl(self._settings, crawl.folder.log, "crawl", verbosity=self._arguments.verbose)
        began, items = time.monotonic(), bool(self._settings.handlers.app)
        async with kept_up_to_date(
            crawl.folder,
            self._targets,
            self._say_beside,
            items=items,
            columns=self._arguments.columns,
            stdout=self._stdout,
        ) as ended:
            report = await self._seed(crawl, before)
            crawl = await crawl.reloaded()
            await self._greet(crawl, report, before)
            self._view = view_for(sys.stderr, quiet=self._arguments.quiet, verbose=bool(self._arguments.verbose))
            began = time.monotonic()
            try:
                await self._crawl(crawl)
            finally:
                self._view.close()
        await self._conclude(crawl, report, time.monotonic() - began, before, ended)
        return 0

    # --- seeds ---

    async def _check_sites(self, crawl: OpenCrawl, before: "Progress") -> None:
        """Raises UsageError when the crawl is of other sites than all seeds. What flows in is not looked at before."""
        sites = sites_of(crawl.roots)
        if crawl.record.scope.mode == "any" or not sites or not all(map(is_plain_file, self._files)):
            return
        seen = False
        async for batch in self._given():
            for url in filter(None, map(SeedReport().canonical, batch)):
                if registrable_domain(host_of(url)) in sites:
                    return
                seen = True
        if seen:
            some = ", ".join(sorted(sites)[:SITES_SHOWN])
            more = f" and {counted(len(sites) - SITES_SHOWN, 'other site')}" if len(sites) > SITES_SHOWN else ""
            pending, fetched = counted(before.pending, "URL"), counted(before.fetched, "page")
            has = f"{pending} pending" if before.pending else f"finished, {fetched}"
            another = "--name" if crawl.settings.frontier.redis else "--dir"
            where = f"the crawl {crawl.settings.crawl.name!r} is" if another == "--name" else None
            raise UsageError(
                f"{where or f'{crawl.folder.root} holds a crawl'} of {some}{more} ({has}); add to it with "
                f"'crawler seed', or start another with {another}"
            )

    async def _given(self) -> AsyncIterator[list[GivenUrl]]:
        yield [*self._plain, *(GivenUrl("sitemap", url) for url in self._sitemaps)]
        for file in self._files:
            async for batch in read_given(file, self._form, quiet=True):
                yield batch

    async def _seed(self, crawl: OpenCrawl, before: "Progress") -> SeedReport:
        """Add what was given. Raises UsageError when there is nothing to begin with."""
        seeder = make_seeder(crawl)
        report = await self._add(crawl, seeder)
        for line in (*report.unread_notes, *out_of_scope_lines(report)):
            self._warn(line)
        if not report.usable:
            if report.total:
                raise UsageError(NO_SEED)
            if empty := (*self._files, *self._sitemaps):
                raise UsageError(f"no URL in {', '.join(empty)}")
            if not before.added:
                raise UsageError(NO_URL)
        return report

    async def _add(self, crawl: OpenCrawl, seeder: Seeder) -> SeedReport:
        with progress(quiet=self._arguments.quiet, verbose=bool(self._arguments.verbose)) as meter:
            intake = Intake(meter)
            async for batch in given_batches(self._plain, self._files, self._form, intake):
                intake.added(await seeder.add_all(batch))
            for url in self._sitemaps:
                async with contextlib.aclosing(sitemap_batches(crawl, url, intake)) as found:
                    async for batch in found:
                        intake.added(await seeder.add_all(batch))
        intake.end()
        return intake.report

    async def _greet(self, crawl: OpenCrawl, report: SeedReport, before: "Progress") -> None:
        """What is known before the first request; and the one warning about politeness."""
        if before.pending:
            self._say(f"Resuming: {counted(before.fetched, 'page')} so far, {counted(before.pending, 'URL')} pending.")
        elif before.added and not before.fetched and report.new:
            self._say(f"{crawl.folder.root} has fetched nothing so far: the crawl begins with these seeds.")
        elif before.fetched and not report.new and not report.retried:
            self._say(
                f"This crawl is finished: {counted(before.fetched, 'page')}, and no given URL is new; "
                f"{to_start_over(crawl)}."
            )
        if report.retried:
            self._say(f"Retrying {counted(report.retried, 'seed')} that failed before.")
        if (await crawl.operator.overrides()).is_paused:
            self._warn("this crawl is paused: nothing is fetched until 'crawler resume'")
        for line in filter(None, (low_disk(crawl), few_files(crawl))):
            self._warn(line)
        if not self._settings.robots.obey:
            self._warn("robots.txt is ignored: only do this on your own sites")
        fetch = self._settings.fetch
        if report.new and not fetch.contact and not fetch.gateway and self._is_abroad():
            self._warn("no --contact: site owners can't reach you; add --contact with a web page or mail address")

    def _is_abroad(self) -> bool:
        """Is any site given as an argument, or in files, somebody else's?"""
        return bool(self._files or self._sitemaps) or any(_is_public_host(one.text) for one in self._plain)

    # --- the crawl ---

    async def _check_node(self, crawl: OpenCrawl) -> None:
        """Raises ConflictError when an instance on this machine has the name that ours is to have."""
        if is_supervised(self._arguments):
            return
        holder = await living_holder(crawl.members, await choose_node(crawl, may_move=False))
        if holder is None:
            return
        if Path(holder.lock).parent == crawl.folder.sessions.resolve():
            raise ConflictError(
                f"an instance is running in {crawl.folder.root} (pid {holder.pid}); use --dir, or 'crawler seed' to "
                "add URLs to its crawl"
            )
        raise ConflictError(
            f"node {holder.node!r} is already running (pid {holder.pid}): stop it, or give this one another --node"
        )

    async def _crawl(self, crawl: OpenCrawl) -> None:
        time_max_s = self._settings.crawl.time_max_s
        timer = asyncio.get_running_loop().call_later(time_max_s, self._view.say, TIME_IS_UP) if time_max_s else None
        try:
            await self._run_instances(crawl)
        finally:
            if timer is not None:
                timer.cancel()

    async def _run_instances(self, crawl: OpenCrawl) -> None:
        watcher = self._watcher = Watcher(crawl, self._view)
        if is_supervised(self._arguments):
            self._why = await supervise(
                crawl, self._arguments, self._signals, self._view, until_finished=True, watch=watcher.run
            )
            return
        node = await choose_node(crawl, may_move=False)
        log_of_crawl(self._settings, crawl.folder.log, "crawl", node=node, verbosity=self._arguments.verbose)
        self._why = await run_instance(
            crawl,
            node,
            until_finished=True,
            on_start=self._stop_with,
            say=self._say_beside,
            alongside=(watcher.run,),
        )

    def _stop_with(self, stop: Any) -> None:
        def stop_in_order() -> None:
            self._view.say(STOPPING)
            stop()

        self._signals.on_stop = stop_in_order

    def _forced(self, crawl: OpenCrawl) -> None:
        self._view.close()
        warn(f"forced; {self._how_to_resume()}")
        abandon(crawl)

    # --- the end ---

    async def _conclude(
        self, crawl: OpenCrawl, report: SeedReport, seconds: float, before: "Progress", ended: Ended
    ) -> None:
        totals, examples = await crawl.stats.totals_and_examples()
        losses, seeds, nothing = losses_of(totals, examples), report.seeds, None
        if self._why == "finished":
            nothing = await nothing_fetched(crawl, totals, losses, seeds, is_all=len(seeds) == report.usable)
        if nothing and not totals.fetched:
            raise nothing
        for line in await failed_seeds(crawl, self._plain, totals, others=bool(self._files)):
            self._warn(line)
        failed, of_all = await self._handler_failures(crawl, totals)
        if not self._arguments.quiet:
            found = replace(totals, fetched=totals.fetched - before.fetched)
            shown = [target.shown for target in self._targets]
            one_shape = self._watcher.one_shape if self._watcher is not None else ""
            hints = [one_shape_text(one_shape)] if one_shape else []
            text = await summary(
                crawl, totals, losses, new=found.fetched, seconds=seconds, why=self._why,
                outputs=shown, failures=failed, notes=[*ended.notes, *hints, *await _going_on(crawl)],
            )  # fmt: skip
            out(text, stream=self._out)
        self._raise_if_stopped(ended)
        if self._why in ("pages", "time") and totals.pending:
            left = counted(totals.pending, "URL is", "URLs are")
            self._say(f"{left} left: run the same command with a higher limit to continue.")
        if nothing:
            for problem in ended.problems:
                self._warn(str(problem))
            raise nothing
        raise_first(ended.problems, self._warn)
        if of_all:
            raise HandlersFailed(of_all)

    async def _handler_failures(self, crawl: OpenCrawl, totals: "Totals") -> tuple[list[str], str]:
        """The lines on handlers that failed, and the one on a handler that failed on each of its pages."""
        if not self._settings.handlers.app:
            return [], ""
        from crawler.views.handler_failures import handler_failures

        failures = await handler_failures(crawl, totals)
        return failures.lines, failures.of_all

    def _raise_if_stopped(self, ended: Ended) -> None:
        if self._why == "evicted":
            raise Stopped(f"this instance was evicted by an operator; {self._how_to_resume()}")
        if self._why == OUTAGE:
            raise OutageError(f"{outage_text(self._settings.hosts.give_up_s)}; {self._how_to_resume()}")
        if self._why == "signal":
            for problem in ended.problems:
                self._warn(str(problem))
            raise Stopped(f"stopped; {self._how_to_resume()}")

    def _how_to_resume(self) -> str:
        return f"the same command resumes: {program()} {shlex.join(shown_words(sys.argv[1:]))}"

    def _say(self, line: str) -> None:
        if not self._arguments.quiet:
            say(line)

    def _say_beside(self, line: str) -> None:
        """Prints a message of an output while the crawl runs."""
        if isinstance(self._view, Quiet):
            self._warn(line)
        else:
            self._view.say(f"crawler: {line}")

    def _warn(self, line: str) -> None:
        warn(line)


async def _going_on(crawl: OpenCrawl) -> list[str]:
    """A line about the jobs that have a next time."""
    if not await crawl.jobs.count():
        return []
    from crawler.views.jobs import going_on

    return await going_on(crawl)


def _is_public_host(url: str) -> bool:
    """Is this a site on the internet, as far as its name tells?"""
    try:
        host = host_of(canonicalize(url.strip()))
    except UsageError:
        return False
    bare = host.strip("[]")
    if is_address(bare):
        return is_public(bare)
    return "." in host and host not in LOCAL_NAMES and not host.endswith(LOCAL_ENDINGS)

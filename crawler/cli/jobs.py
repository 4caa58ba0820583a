"""`crawler jobs`: crawls that run at a time, or again and again."""

import argparse
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from crawler.archive.folder import open_existing
from crawler.archive.index_reader import IndexReader
from crawler.archive.run_changes import Change, differences, no_page_of
from crawler.cli.options import actor, settings_of
from crawler.cli.parse_jobs import DESTS, USER
from crawler.cli.run_async import run_async
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.crawl.url_input import NO_SEED, SeedReport, complaints, form_of, read_given, sources_of, url_of
from crawler.errors import ArchiveError, UsageError
from crawler.rules.job_runs import name_of
from crawler.rules.job_text import JobPatch
from crawler.runtime.clocks import wall_s
from crawler.settings import Settings
from crawler.terminal.output import show, warn
from crawler.terminal.words import counted
from crawler.views import failed_runs, jobs
from crawler.views.instances import alive
from crawler.views.job_lines import failed_table, history_table, job_text, jobs_table, next_text, preview_table
from crawler.views.job_view import FailedRuns, HistoryPage, HistoryRow, JobPage, JobView, RunDiff

T = TypeVar("T")
Answer = tuple[object, str]  # for programs and for people
PAGE = 1000  # of jobs or rows that one call reads
SCHEDULES = ("execution_interval", "cron", "at")
NONE = {"scope": "crawl", "depth": -1, "pages": 0, "bytes": 0, "urls": 0, "sitemap": ""}  # the crawl decides, or none


def run_jobs(arguments: argparse.Namespace) -> int:
    """Open the crawl and act on its jobs. Raises UsageError."""
    if arguments.act is None:
        raise UsageError("jobs: give an action, like add or list (see 'crawler jobs --help')")
    if arguments.act == "diff":
        return _diff(arguments)
    if arguments.act in ("add", "edit"):
        _check_definition(arguments)  # before an engine is started
    if arguments.act in ("retry", "dismiss") and bool(arguments.runs) == arguments.all:
        raise UsageError(f"choose which: ids of failed runs, or --all (see 'crawler jobs failed {arguments.job}')")
    return run_async(_run(arguments, settings_of(arguments)))


async def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.act in ("add", "edit"):
        await _read_definition(arguments)
    async with open_crawl(settings, create=arguments.act == "add") as crawl:
        found, text = await ACTIONS[arguments.act](crawl, arguments)
    show(found, text, as_json=arguments.json)
    return 0


def _check_definition(arguments: argparse.Namespace) -> None:
    """Raises UsageError."""
    given = _given(arguments)
    schedules = len(given.keys() & {*SCHEDULES})
    if schedules > 1 or (arguments.act == "add" and not schedules):
        raise UsageError("give one of --every, --cron and --at (see 'crawler jobs add --help')")
    if arguments.act == "add" and not (arguments.urls or arguments.inputs or arguments.sitemap):
        raise UsageError("give seeds: URLs, --seeds FILE or --sitemap URL")
    if not (given or arguments.urls or arguments.inputs):
        raise UsageError("give what to change (see 'crawler jobs edit --help')")
    if schedules:
        try:
            _patch(arguments).schedule(None, int(wall_s()))
        except UsageError as error:
            raise UsageError(f"--{error}") from None  # each begins with what it is about


def _user_of(arguments: argparse.Namespace) -> str:
    return arguments.user or USER


# What a job is.


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given of a definition, but for its seeds."""
    names = {name: DESTS.get(name, name) for name in JobPatch.__struct_fields__ if name != "seeds"}
    found = {name: getattr(arguments, dest, None) for name, dest in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def _patch(arguments: argparse.Namespace) -> JobPatch:
    given: dict[str, Any] = {n: None if value == NONE.get(n) else value for n, value in _given(arguments).items()}
    return JobPatch(**given)


async def _read_definition(arguments: argparse.Namespace) -> None:
    """Read the seeds, with a line for each that is invalid. Raises UsageError if seeds were given and none is valid.

    They take the place of `arguments.urls`; it is None if none were given.
    """
    if arguments.sitemap:
        arguments.sitemap = url_of(arguments.sitemap)
    plain, files = sources_of(arguments)
    form, report = form_of(arguments), SeedReport()
    urls = [report.canonical(one.url_alone) for one in plain]
    for file in files:
        async for batch in read_given(file, form):
            urls += [report.canonical(one.url_alone) for one in batch]
    for line in complaints(report):
        warn(line)
    arguments.urls = list(dict.fromkeys(url for url in urls if url is not None)) if plain or files else None
    if arguments.urls == []:
        raise UsageError(NO_SEED if urls else f"no URL in {', '.join(files)}")


async def _add(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    spec = _patch(arguments).applied(None, int(wall_s()))
    view = await jobs.add_job(crawl, _user_of(arguments), arguments.job, spec, arguments.urls or (), actor=actor())
    return view, f"job {view.name} added: {view.schedule}, {_next(view)}"


async def _edit(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    patch, now_s = _patch(arguments), int(wall_s())
    view = await jobs.edit_job(
        crawl, _user_of(arguments), arguments.job, lambda spec: patch.applied(spec, now_s), seeds=arguments.urls,
        actor=actor(),
    )  # fmt: skip
    return view, f"job {view.name} changed: {view.schedule}, {_next(view)}"


# What else is done with jobs.


async def _pause(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    view = await jobs.pause_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    return view, f"job {view.name} is paused"


async def _resume(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    view = await jobs.resume_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    return view, f"job {view.name} is resumed: {_next(view)}"


async def _run_now(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    view = await jobs.run_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    return view, f"a run of job {view.name} starts {await _soon(crawl)}"


async def _soon(crawl: OpenCrawl) -> str:
    return "within a second" if await alive(crawl) else "when an instance runs: 'crawler run' starts one"


async def _end(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    runs = None if arguments.all else tuple(arguments.runs)
    done = await jobs.end_runs(crawl, _user_of(arguments), arguments.job, runs, actor=actor())
    when = "within seconds" if await alive(crawl) else "when an instance runs: 'crawler run' starts one"
    return done, f"{counted(len(done.runs), 'run')} of job {arguments.job} told to end ({', '.join(done.runs)}): {when}"


async def _retry(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    done = await failed_runs.retry(crawl, _user_of(arguments), arguments.job, _runs_of(arguments), actor=actor())
    when = f": each starts {await _soon(crawl)}" if done.runs else ""
    return done, f"{counted(done.runs, 'failed run')} of job {arguments.job} to be repeated{when}"


async def _dismiss(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    done = await failed_runs.dismiss(crawl, _user_of(arguments), arguments.job, _runs_of(arguments), actor=actor())
    return done, f"{counted(done.runs, 'failed run')} of job {arguments.job} dismissed, {done.left:,} left"


def _runs_of(arguments: argparse.Namespace) -> Sequence[str] | None:
    return None if arguments.all else arguments.runs


async def _remove(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    removed = await jobs.remove_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    return removed, f"job {arguments.job} removed"


def _next(view: JobView) -> str:
    return next_text(view, wall_s())


# What is shown of them.


async def _all(read: Callable[[str, int], Awaitable[tuple[Sequence[T], str]]], limit: int) -> tuple[list[T], str]:
    """At most `limit` (0: all) of what is read a page at a time, and where the next page begins, if there is one."""
    found, after = list[T](), ""
    while True:
        some, after = await read(after, min(PAGE, limit - len(found)) if limit else PAGE)
        found += some
        if not after or 0 < limit <= len(found):
            return found, after


async def _list(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    async def read(after: str, limit: int) -> tuple[Sequence[JobView], str]:
        page = await jobs.list_jobs(crawl, arguments.user, after=after, limit=limit)
        return page.jobs, page.next

    found, after = await _all(read, arguments.limit)
    text = jobs_table(found, wall_s()) if found else "no jobs yet: 'crawler jobs add' adds one"
    more = f"\n\nthe first {len(found):,}; --limit 0 lists all" if after else ""
    return JobPage(jobs=found, next=after), text + more


async def _show(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    view = await jobs.find_job(crawl, _user_of(arguments), arguments.job)
    return view, job_text(view)


async def _history(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    async def read(after: str, limit: int) -> tuple[Sequence[HistoryRow], str]:
        before = int(after) if after else None
        page = await jobs.history_of(crawl, _user_of(arguments), arguments.job, before=before, limit=limit)
        return page.rows, page.next

    rows, after = await _all(read, arguments.limit)
    text = history_table(rows) if rows else "no time has come yet"
    return HistoryPage(rows=rows, next=after), text


async def _failed(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    name, user = arguments.job, _user_of(arguments) if arguments.job else arguments.user
    found = await failed_runs.failed_runs(crawl, user, name)
    shown = found[: arguments.limit] if arguments.limit else found
    more = f"\n\nthe last {len(shown):,} of {len(found):,}; --limit 0 lists all" if len(shown) < len(found) else ""
    return FailedRuns(failed=shown), (failed_table(shown) if shown else "no failed runs") + more


async def _preview(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    user = _user_of(arguments)
    found = await jobs.preview_job(crawl, user, arguments.job, arguments.times)
    view = await jobs.find_job(crawl, user, arguments.job)
    paused = "\n\nthe job is paused: it does not run at these times until it is resumed"
    text = preview_table(found.times, view.timezone) if found.times else "no further time"
    return found, text + (paused if view.state == "paused" else "")


# What has changed between two runs: by the crawl folder alone.


def _diff(arguments: argparse.Namespace) -> int:
    """Raises UsageError for what is not a run with pages here, ArchiveError when a part of the index is missing."""
    for run in (arguments.before, arguments.after):
        if name_of(run) is None:
            raise UsageError(f"{run[:80]!r} is not the id of a run: 'crawler jobs history NAME' has those of a job")
    folder = open_existing(settings_of(arguments, in_folder=True).archive.dir)
    reader, kinds, here = IndexReader(folder), Counter[Change](), set[str]()
    with folder.reading():
        for one in differences(reader.entries(pruned=True), arguments.before, arguments.after):
            kinds[one.change] += 1
            here.update([arguments.before] * bool(one.status_before) + [arguments.after] * bool(one.status))
            if arguments.shows_urls and one.change is not Change.UNCHANGED:
                show(one, f"{one.change:<9} {one.url}", as_json=arguments.json)
    for run in {arguments.before, arguments.after} - here:
        raise UsageError(no_page_of(run, folder))
    found = RunDiff(before=arguments.before, after=arguments.after, **{one: kinds[one] for one in Change})
    show(found, found.text, as_json=arguments.json)
    if missing := reader.segments_missing:
        raise ArchiveError(f"{missing[0].file}: {missing[0].reason}; its pages are not compared")
    return 0


ACTIONS: Mapping[str, Callable[[OpenCrawl, argparse.Namespace], Awaitable[Answer]]] = {
    "add": _add, "edit": _edit, "pause": _pause, "resume": _resume, "rm": _remove, "run": _run_now, "end": _end,
    "retry": _retry, "dismiss": _dismiss, "list": _list, "show": _show, "history": _history, "failed": _failed,
    "preview": _preview,
}  # fmt: skip

"""`crawler jobs`: crawls that run at a time, or again and again."""

import argparse
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from crawler.cli.options import actor, add_common, count_type, duration_type, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl
    from crawler.rules.jobs import JobPatch
    from crawler.settings import Settings
    from crawler.views.job_view import HistoryRow, JobView, RunCountsView

Act = Callable[["OpenCrawl", argparse.Namespace], Awaitable[None]]
USER = "default"
ROWS = 20  # of a history
JOBS = 100  # that are listed
ROWS_SHOWN = 5  # of the history, with a job
RUNS_COUNTED = 5  # of those that go on
PAGE = 1000  # of jobs or rows that one call reads
SCHEDULES = ("execution_interval", "cron", "at")
DESTS = {"urls": "run_urls"}  # where options are that are not under their own name
NONE = {
    "scope": "crawl",
    "depth": -1,
    "pages": 0,
    "bytes": 0,
    "urls": 0,
    "sitemap": "",
}  # how to write that the crawl decides, or none

EPILOG = """\
examples:
  crawler jobs add news --every PT3H https://news.example/ --depth 1
  crawler jobs add docs --cron "0 */6 * * *" --sitemap https://docs.example/sitemap.xml
  crawler jobs add launch --at 2027-01-31T12:00Z --seeds urls.txt --retries 3
  crawler jobs list                     all jobs, with their next times
  crawler jobs preview news             the next ten times
  crawler jobs history news             what became of each time, newest first
  crawler jobs run news                 once more, now
  crawler jobs failed                   runs that used up their retries, of all jobs
  crawler jobs retry news --all         repeat those of a job

Any 'crawler run' of the crawl triggers its jobs, each time once. Each run fetches its seeds
again. Its pages are in the archive of the crawl; 'crawler export --run ID' prints those of
one run. A job crawls: it does not run programs.

exit codes: 0 done, 2 no such job or run, bad schedule or option, 3 engine, 4 the name is taken,
the job is paused already, or not paused, or this machine's clock differs from the engine's
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "jobs",
        help="crawls that run at a time, or again and again",
        description="Add, list, change and remove jobs, and show what became of each of their times.",
        epilog=EPILOG,
    )
    p.set_defaults(run=run, act=None, parser=p, takes_urls=True)
    actions = p.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, act: Act, text: str, *, names: str | None = "one") -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(act=act, parser=one)
        if names == "one":
            one.add_argument("job", metavar="NAME", help="of the job")
        elif names == "any":
            one.add_argument("job", metavar="NAME", nargs="?", default="", help="of the job (default: all jobs)")
        whose = f"whose job it is (default: {USER})"
        if names != "one":
            whose = f"jobs of this user alone (default: of all{f'; with NAME: {USER}' if names else ''})"
        one.add_argument("--user", metavar="U", help=whose)
        one.add_argument("--json", action="store_true", help="as JSON")
        add_common(one)
        return one

    _add_definition(add("add", _add, "add a job"))
    one = add("list", _list, "jobs by user and name, with their next times", names=None)
    one.add_argument(
        "--limit", type=count_type(0), default=JOBS, metavar="N", help=f"at most so many (default: {JOBS}; 0: all)"
    )
    add("show", _show, "one job: what it does, when, how its last runs ended")
    _add_definition(add("edit", _edit, "change a job from now on; what is not given stays"))
    add("pause", _pause, "do not trigger a job until it is resumed; active runs go on")
    add("resume", _resume, "trigger a paused job again")
    add("rm", _remove, "remove a job and its history; its active runs end")
    add("run", _run_now, "start a run now, whatever the schedule")
    one = add("history", _history, "what became of each time, newest first")
    one.add_argument("--limit", type=count_type(0), default=ROWS, metavar="N", help=f"rows (default: {ROWS}; 0: all)")
    one = add("failed", _failed, "runs that used up their retries, the last first", names="any")
    one.add_argument("--limit", type=count_type(0), default=ROWS, metavar="N", help=f"rows (default: {ROWS}; 0: all)")
    for name, act, text in (
        ("retry", _retry, "repeat failed runs now, as the job is defined now"),
        ("dismiss", _dismiss, "take failed runs off the list; the history keeps them"),
    ):
        one = add(name, act, text)
        one.add_argument("runs", nargs="*", metavar="RUN", help="ids from 'crawler jobs failed'")
        one.add_argument("--all", action="store_true", help="all failed runs of the job")
    one = add("preview", _preview, "the next times, with notes about daylight saving")
    one.add_argument("--times", type=count_type(1, 100), default=10, metavar="N", help="how many (default: 10)")


def _add_definition(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("when")
    group.add_argument(
        "--every", dest="execution_interval", metavar="DURATION",
        help="an interval: PT3H, P1D, PT1H30M, or 90, 10m, 2h, 1d",
    )  # fmt: skip
    group.add_argument("--cron", metavar="FIELDS", help='minute, hour, day, month, weekday, like "0 */6 * * *"')
    group.add_argument("--at", metavar="TIME", help="once, like 2027-01-31T12:00Z")
    group.add_argument("--timezone", metavar="ZONE", help="of --cron and --at, like Europe/Paris (default: UTC)")
    group.add_argument(
        "--jitter", type=_duration_type, metavar="S", help="trigger each run up to this much later (default: 0)"
    )
    group = p.add_argument_group("what")
    group.add_argument("urls", nargs="*", metavar="URL", help="seeds; - reads them from standard input")
    group.add_argument(
        "--seeds", dest="inputs", action="append", default=[], metavar="FILE",
        help="seeds, one a line; they are read now and kept with the job; may be repeated",
    )  # fmt: skip
    group.add_argument("--sitemap", metavar="URL", help="seeds: the URLs of this sitemap, read again for each run")
    group.add_argument(
        "--scope",
        choices=("domain", "host", "prefix", "any", "crawl"),
        help="how far links are followed (default: crawl, as the crawl does)",
    )
    group.add_argument(
        "--depth", type=whole_type, metavar="N", help="links deeper than this are not followed (-1: as the crawl)"
    )
    for name, text in (
        ("pages", "end each run after N pages"),
        ("bytes", "end each run after N bytes of bodies"),
        ("urls", "add no more links to a run after N URLs"),
    ):
        group.add_argument(
            f"--{name}",
            dest=DESTS.get(name, name),
            type=whole_type,
            metavar="N",
            help=f"{text} (0: as in the settings)",
        )
    group.add_argument("--priority", type=float, metavar="P", help="higher is fetched first (default: 0)")
    group = p.add_argument_group("how")
    group.add_argument(
        "--retries", dest="max_retry_count", type=whole_type, metavar="N",
        help="times that a failed run is repeated (default: 0)",
    )  # fmt: skip
    group.add_argument(
        "--retry-delay", type=_delays_type, metavar="S[,S...]",
        help="before each repeat (default: 60); 60,300,1800: before the first, the second, all others",
    )  # fmt: skip
    group.add_argument(
        "--overlap",
        choices=("skip", "queue", "allow"),
        help="what to do with a time that comes before the last run has ended (default: skip)",
    )
    group.add_argument(
        "--catchup",
        choices=("none", "latest", "all"),
        help="which times run that passed while no instance ran (default: none)",
    )
    group.add_argument(
        "--catchup-window", type=_duration_type, metavar="D", help="how far back --catchup reaches (default: 1d)"
    )


def _duration_type(text: str) -> str:
    duration_type(text)
    return text


def _delays_type(text: str) -> str:
    from crawler.rules.jobs import delays_of

    try:
        delays_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("retryDelay: ")) from None
    return text


def run(arguments: argparse.Namespace) -> int:
    """Open the crawl and act on its jobs. Raises UsageError."""
    from crawler.cli.event_loop import run_async

    if arguments.act is None:
        raise UsageError("jobs: give an action, like add or list (see 'crawler jobs --help')")
    if arguments.act in (_add, _edit):
        _check_definition(arguments)  # before an engine is started
    if arguments.act in (_retry, _dismiss) and bool(arguments.runs) == arguments.all:
        raise UsageError(f"choose which: ids of failed runs, or --all (see 'crawler jobs failed {arguments.job}')")
    return run_async(_run(arguments, settings_of(arguments)))


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    from crawler.crawl.opening import open_crawl

    if arguments.act in (_add, _edit):
        await _read_definition(arguments)
    async with open_crawl(settings, create=arguments.act is _add) as crawl:
        await arguments.act(crawl, arguments)
    return 0


def _check_definition(arguments: argparse.Namespace) -> None:
    """Raises UsageError."""
    from crawler.runtime.process import wall_s

    given = _given(arguments)
    schedules = len(given.keys() & {*SCHEDULES})
    if schedules > 1 or (arguments.act is _add and not schedules):
        raise UsageError("give one of --every, --cron and --at (see 'crawler jobs add --help')")
    if arguments.act is _add and not (arguments.urls or arguments.inputs or arguments.sitemap):
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
    from crawler.rules.jobs import JobPatch

    names = {name: DESTS.get(name, name) for name in JobPatch.__struct_fields__ if name != "seeds"}
    found = {name: getattr(arguments, dest, None) for name, dest in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def _patch(arguments: argparse.Namespace) -> "JobPatch":
    from crawler.rules.jobs import JobPatch

    given: dict[str, Any] = {n: None if value == NONE.get(n) else value for n, value in _given(arguments).items()}
    return JobPatch(**given)


async def _read_definition(arguments: argparse.Namespace) -> None:
    """Read the seeds, with a line for each that is invalid. Raises UsageError if seeds were given and none is valid.

    They take the place of `arguments.urls`; it is None if none were given.
    """
    from crawler.crawl.seed import SeedReport
    from crawler.crawl.url_input import NO_SEED, complaints, read_given, sources_of, url_of
    from crawler.terminal.text import warn

    if arguments.sitemap:
        arguments.sitemap = url_of(arguments.sitemap)
    plain, files = sources_of(arguments)
    report = SeedReport()
    urls = [report.canonical(one) for one in plain]
    for file in files:
        async for batch in read_given(file):
            urls += [report.canonical(one) for one in batch]
    for line in complaints(report):
        warn(line)
    arguments.urls = list(dict.fromkeys(url for url in urls if url is not None)) if plain or files else None
    if arguments.urls == []:
        raise UsageError(NO_SEED if urls else f"no URL in {', '.join(files)}")


async def _add(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.runtime.process import wall_s
    from crawler.views import jobs

    spec = _patch(arguments).applied(None, int(wall_s()))
    view = await jobs.add_job(crawl, _user_of(arguments), arguments.job, spec, arguments.urls or (), actor=actor())
    _tell(view, f"job {view.name} added: {view.schedule}, {_next(view)}", arguments)


async def _edit(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.runtime.process import wall_s
    from crawler.views import jobs

    patch, now_s = _patch(arguments), int(wall_s())
    view = await jobs.edit_job(
        crawl, _user_of(arguments), arguments.job, lambda spec: patch.applied(spec, now_s), seeds=arguments.urls,
        actor=actor(),
    )  # fmt: skip
    _tell(view, f"job {view.name} changed: {view.schedule}, {_next(view)}", arguments)


# What else is done with jobs.


async def _pause(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.views import jobs

    view = await jobs.pause_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    _tell(view, f"job {view.name} is paused", arguments)


async def _resume(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.views import jobs

    view = await jobs.resume_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    _tell(view, f"job {view.name} is resumed: {_next(view)}", arguments)


async def _run_now(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.views import jobs

    view = await jobs.run_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    _tell(view, f"a run of job {view.name} starts {await _soon(crawl)}", arguments)


async def _soon(crawl: "OpenCrawl") -> str:
    from crawler.views.ring import alive

    return "within a second" if await alive(crawl) else "when an instance runs: 'crawler run' starts one"


async def _retry(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.terminal.text import counted
    from crawler.views import jobs

    done = await jobs.retry(crawl, _user_of(arguments), arguments.job, _runs_of(arguments), actor=actor())
    when = f": each starts {await _soon(crawl)}" if done.runs else ""
    _tell(done, f"{counted(done.runs, 'failed run')} of job {arguments.job} to be repeated{when}", arguments)


async def _dismiss(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.terminal.text import counted
    from crawler.views import jobs

    done = await jobs.dismiss(crawl, _user_of(arguments), arguments.job, _runs_of(arguments), actor=actor())
    _tell(done, f"{counted(done.runs, 'failed run')} of job {arguments.job} dismissed, {done.left:,} left", arguments)


def _runs_of(arguments: argparse.Namespace) -> "Sequence[str] | None":
    return None if arguments.all else arguments.runs


async def _remove(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.views import jobs

    removed = await jobs.remove_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    _tell(removed, f"job {arguments.job} removed", arguments)


def _tell(view: object, text: str, arguments: argparse.Namespace) -> None:
    import msgspec

    from crawler.terminal.text import out, out_json

    if arguments.json:
        out_json(msgspec.to_builtins(view))
    else:
        out(text)


def _next(view: "JobView") -> str:
    from crawler.runtime.process import wall_s
    from crawler.views.job_view import next_text

    return next_text(view, wall_s())


# What is shown of them.


async def _list(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.runtime.process import wall_s
    from crawler.views import jobs
    from crawler.views.job_view import JobPage, jobs_table

    found, after = list["JobView"](), ""
    while True:
        limit = min(PAGE, arguments.limit - len(found)) if arguments.limit else PAGE
        page = await jobs.list_jobs(crawl, arguments.user, after=after, limit=limit)
        found += page.jobs
        after = page.next
        if not after or 0 < arguments.limit <= len(found):
            break
    text = jobs_table(found, wall_s()) if found else "no jobs yet: 'crawler jobs add' adds one"
    more = f"\n\nthe first {len(found):,}; --limit 0 lists all" if after else ""
    _tell(JobPage(jobs=found, next=after), text + more, arguments)


async def _show(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.runtime.process import wall_s
    from crawler.views import jobs
    from crawler.views.job_view import history_table, job_facts

    view = await jobs.find_job(crawl, _user_of(arguments), arguments.job, rows=ROWS_SHOWN)
    text = job_facts(view, wall_s(), await _counts_of(crawl, view.running[:RUNS_COUNTED]))
    _tell(view, text + (f"\n\n{history_table(view.last_rows)}" if view.last_rows else ""), arguments)


async def _counts_of(crawl: "OpenCrawl", runs: Sequence[str]) -> "dict[str, RunCountsView]":
    """Counts of runs that go on."""
    from crawler.errors import NotMetError
    from crawler.views import jobs

    found = {}
    for run in runs:
        with contextlib.suppress(NotMetError):  # its job was removed meanwhile
            if (counts := (await jobs.find_run(crawl, run)).counts) is not None:
                found[run] = counts
    return found


async def _history(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.views import jobs
    from crawler.views.job_view import HistoryPage, history_table

    rows, after = list["HistoryRow"](), ""
    while True:
        limit = min(PAGE, arguments.limit - len(rows)) if arguments.limit else PAGE
        before = int(after) if after else None
        page = await jobs.history_of(crawl, _user_of(arguments), arguments.job, before=before, limit=limit)
        rows += page.rows
        after = page.next
        if not after or 0 < arguments.limit <= len(rows):
            break
    text = history_table(rows) if rows else "no time has come yet"
    _tell(HistoryPage(rows=rows, next=after), text, arguments)


async def _failed(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.views.job_view import FailedRuns, failed_table
    from crawler.views.jobs import failed_runs

    name, user = arguments.job, _user_of(arguments) if arguments.job else arguments.user
    found = await failed_runs(crawl, user, name)
    shown = found[: arguments.limit] if arguments.limit else found
    more = f"\n\nthe last {len(shown):,} of {len(found):,}; --limit 0 lists all" if len(shown) < len(found) else ""
    _tell(FailedRuns(failed=shown), (failed_table(shown) if shown else "no failed runs") + more, arguments)


async def _preview(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.views import jobs
    from crawler.views.job_view import preview_table

    user = _user_of(arguments)
    found = await jobs.preview_job(crawl, user, arguments.job, arguments.times)
    view = await jobs.find_job(crawl, user, arguments.job)
    paused = "\n\nthe job is paused: it does not run at these times until it is resumed"
    text = preview_table(found.times, view.timezone) if found.times else "no further time"
    _tell(found, text + (paused if view.state == "paused" else ""), arguments)

"""`crawler jobs`: crawls that run at a time, or again and again."""

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from crawler.cli.actor import actor
from crawler.cli.options import add_common, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.reports.job_view import HistoryRow, JobView
    from crawler.rules.jobs import JobSpec
    from crawler.rules.schedules import Schedule

Act = Callable[["OpenCrawl", argparse.Namespace], Awaitable[None]]
USER = "default"
ROWS = 20

EPILOG = """\
examples:
  crawler jobs add news --every PT3H https://news.example/ --depth 1
  crawler jobs add docs --cron "0 */6 * * *" --timezone Europe/Paris --sitemap https://docs.example/sitemap.xml
  crawler jobs add launch --at 2027-01-31T12:00Z --seeds urls.txt --retries 3
  crawler jobs list                     all jobs, with their next times
  crawler jobs preview news             the next ten times
  crawler jobs history news             what became of each time, newest first
  crawler jobs run news                 once more, now

A job is triggered by whichever 'crawler run' is alive, once for each time. Each run fetches
its seeds again; pages are in the same archive, 'crawler export --run ID' prints those of one
run. A job crawls: it does not run programs.

exit codes: 0 done, 2 no such job, bad schedule or option, 3 engine, 4 there is such a job
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

    def add(name: str, act: Act, text: str, *, has_name: bool = True) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(act=act, parser=one)
        if has_name:
            one.add_argument("job", metavar="NAME", help="of the job")
        one.add_argument("--user", metavar="U", help=f"whose job it is (default: {USER})")
        one.add_argument("--json", action="store_true", help="as JSON")
        add_common(one)
        return one

    _add_definition(add("add", _add, "add a job"))
    add("list", _list, "all jobs, with their next times", has_name=False)
    add("show", _show, "one job: what it does, when, how its last runs ended")
    _add_definition(add("edit", _edit, "change a job from now on; what is not given stays"))
    add("pause", _pause, "trigger it no more until it is resumed; active runs go on")
    add("resume", _resume, "trigger it again")
    add("rm", _remove, "remove a job and its history; its active runs end")
    add("run", _run_now, "start a run now, whatever the schedule")
    one = add("history", _history, "what became of each of its times, newest first")
    one.add_argument("--limit", type=whole_type, default=ROWS, metavar="N", help=f"rows (default: {ROWS}; 0: all)")
    one = add("preview", _preview, "the next times, with notes about daylight saving")
    one.add_argument("--times", type=whole_type, default=10, metavar="N", help="how many (default: 10)")


def _add_definition(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("when")
    group.add_argument("--every", metavar="DURATION", help="an interval: PT3H, P1D, PT1H30M, or 90, 10m, 2h, 1d")
    group.add_argument("--cron", metavar="FIELDS", help='five fields, like "0 */6 * * *"')
    group.add_argument("--at", metavar="TIME", help="once, like 2027-01-31T12:00Z")
    group.add_argument("--timezone", metavar="ZONE", help="of --cron and --at, like Europe/Paris (default: UTC)")
    group.add_argument("--jitter", metavar="S", help="trigger up to this much later, by the job's name")
    group = p.add_argument_group("what")
    group.add_argument("urls", nargs="*", metavar="URL", help="seeds")
    group.add_argument("--seeds", metavar="FILE", help="seeds, one a line; they are read now and kept with the job")
    group.add_argument("--sitemap", metavar="URL", help="seeds: the URLs of this sitemap, read again for each run")
    group.add_argument(
        "--scope",
        choices=("domain", "host", "prefix", "any"),
        help="how far links are followed (default: as the crawl)",
    )
    group.add_argument("--depth", type=whole_type, metavar="N", help="links deeper than this are not followed")
    group.add_argument("--pages", type=whole_type, metavar="N", help="each run ends after so many pages")
    group.add_argument("--priority", type=float, metavar="P", help="higher is fetched first")
    group = p.add_argument_group("how")
    group.add_argument(
        "--retries", type=whole_type, metavar="N", help="times that a failed run is repeated (default: 0)"
    )
    group.add_argument("--retry-delay", metavar="S", help="before each repeat (default: 60)")
    group.add_argument(
        "--overlap", choices=("skip", "queue", "allow"), help="when the run before it has not ended (default: skip)"
    )
    group.add_argument(
        "--catchup", choices=("none", "latest", "all"), help="times that were missed while nothing ran (default: none)"
    )
    group.add_argument("--catchup-window", metavar="D", help="how far back --catchup reaches (default: 1d)")


def run(arguments: argparse.Namespace) -> int:
    """Open the crawl and act on its jobs. Raises UsageError."""
    from crawler.cli.event_loop import run_async

    if arguments.act is None:
        raise UsageError("jobs: give an action, like add or list (see 'crawler jobs --help')")
    if arguments.act is _add:
        _schedule_of(arguments)  # before an engine is started
    return run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    from crawler.app.open_crawl import open_crawl

    async with open_crawl(settings_of(arguments), create=arguments.act is _add) as crawl:
        await arguments.act(crawl, arguments)
    return 0


def _user_of(arguments: argparse.Namespace) -> str:
    return arguments.user or USER


def _schedule_of(arguments: argparse.Namespace) -> "Schedule":
    from crawler.rules.schedules import schedule_of
    from crawler.runtime.clock import wall_s

    if sum(getattr(arguments, name) is not None for name in ("every", "cron", "at")) != 1:
        raise UsageError("give one of --every, --cron and --at (see 'crawler jobs add --help')")
    return schedule_of(
        every=arguments.every or "", cron=arguments.cron or "", at=arguments.at or "",
        timezone=arguments.timezone or "UTC", jitter_s=_seconds(arguments.jitter), now_s=int(wall_s()),
    )  # fmt: skip


def _seconds(text: str | None) -> float:
    from crawler.rules.durations import parse_duration

    return 0.0 if text is None else parse_duration(text)


async def _seeds_of(arguments: argparse.Namespace) -> list[str]:
    from crawler.seeding.url_input import read_given, url_of_site

    found = [url_of_site(text) for text in arguments.urls]
    if arguments.seeds:
        async for batch in read_given(arguments.seeds):
            found += [one.text for one in batch]
    return found


def _changed(arguments: argparse.Namespace, spec: "JobSpec") -> "JobSpec":
    """A definition with what was given."""
    from msgspec.structs import replace

    limits = {name: getattr(arguments, name) for name in ("scope", "depth", "pages", "priority")}
    run = {name: value for name, value in limits.items() if value is not None}
    given: dict[str, Any] = {"run": replace(spec.run, **run)}
    for name in ("retries", "overlap", "catchup", "sitemap"):
        if (value := getattr(arguments, name)) is not None:
            given[name] = value
    if arguments.retry_delay is not None:
        given["retry_delay_s"] = _seconds(arguments.retry_delay)
    if arguments.catchup_window is not None:
        given["catchup_window_s"] = _seconds(arguments.catchup_window)
    return replace(spec, **given)


async def _add(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.rules.jobs import JobSpec
    from crawler.service import jobs

    spec = _changed(arguments, JobSpec(schedule=_schedule_of(arguments)))
    view = await jobs.add_job(
        crawl, _user_of(arguments), arguments.job, spec, await _seeds_of(arguments), actor=actor()
    )
    _tell(view, f"job {view.name} added: {view.schedule}, {_next(view)}", arguments)


async def _edit(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from msgspec.structs import replace

    from crawler.service import jobs

    def change(spec: "JobSpec") -> "JobSpec":
        return _changed(arguments, replace(spec, schedule=_changed_schedule(arguments, spec.schedule)))

    seeds = await _seeds_of(arguments) if arguments.urls or arguments.seeds else None
    view = await jobs.edit_job(crawl, _user_of(arguments), arguments.job, change, seeds=seeds, actor=actor())
    _tell(view, f"job {view.name} changed: {view.schedule}, {_next(view)}", arguments)


def _changed_schedule(arguments: argparse.Namespace, earlier: "Schedule") -> "Schedule":
    """What was given of it, and the rest as it was. An interval that stays keeps its times."""
    from msgspec.structs import replace

    from crawler.rules.schedules import as_local, schedule_of
    from crawler.runtime.clock import wall_s

    names = ("every", "cron", "at")
    if not any(getattr(arguments, name) is not None for name in (*names, "timezone", "jitter")):
        return earlier
    when = {name: getattr(arguments, name) or "" for name in names}
    keeps = not any(when.values())
    if keeps:
        at = as_local(earlier.at_s, earlier.timezone) if earlier.at_s else ""
        when = {"every": f"{earlier.every_s}" if earlier.every_s else "", "cron": earlier.cron, "at": at}
    found = schedule_of(
        **when, timezone=arguments.timezone or earlier.timezone,
        jitter_s=earlier.jitter_s if arguments.jitter is None else _seconds(arguments.jitter), now_s=int(wall_s()),
    )  # fmt: skip
    return replace(found, anchor_s=earlier.anchor_s) if keeps and found.every_s else found


async def _pause(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.service import jobs

    view = await jobs.pause_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    _tell(view, f"job {view.name} is paused", arguments)


async def _resume(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.service import jobs

    view = await jobs.resume_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    _tell(view, f"job {view.name} is resumed: {_next(view)}", arguments)


async def _run_now(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.service import jobs

    view = await jobs.run_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    _tell(view, f"a run of job {view.name} starts as soon as an instance runs", arguments)


async def _remove(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.service import jobs
    from crawler.terminal.printing import out, out_json

    await jobs.remove_job(crawl, _user_of(arguments), arguments.job, actor=actor())
    if arguments.json:
        out_json({"removed": arguments.job})
    else:
        out(f"job {arguments.job} removed")


def _tell(view: "JobView", text: str, arguments: argparse.Namespace) -> None:
    from crawler.terminal.printing import out, out_json

    if arguments.json:
        out_json(_plain(view))
    else:
        out(text)


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _next(view: "JobView") -> str:
    from crawler.rules.schedules import moment_of
    from crawler.runtime.clock import wall_s
    from crawler.terminal.wording import duration

    if view.next is None:
        return "no further time"
    left_s = max(0.0, moment_of(view.next) - wall_s())
    return f"next in {duration(left_s)}"


async def _list(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.service import jobs
    from crawler.terminal.printing import out, out_json
    from crawler.terminal.tables import table

    found, after = list["JobView"](), ""
    while True:
        page = await jobs.list_jobs(crawl, arguments.user, after=after, limit=1000)
        found += page.jobs
        if page.after is None:
            break
        after = page.after
    if arguments.json:
        out_json({"jobs": _plain(found)})
    elif not found:
        out("no job yet: 'crawler jobs add' makes one")
    else:
        rows = [
            (view.name, view.user, view.state, view.schedule, _next(view).removeprefix("next "), str(len(view.running)))
            for view in found
        ]
        out(table(("job", "user", "state", "when", "next", "running"), rows, left=5))


async def _show(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.service import jobs
    from crawler.terminal.printing import out, out_json
    from crawler.terminal.tables import facts

    view = await jobs.find_job(crawl, _user_of(arguments), arguments.job)
    history = await jobs.history_of(crawl, _user_of(arguments), arguments.job, limit=5)
    if arguments.json:
        out_json(_plain(view) | {"history": _plain(history.rows)})
        return
    seeds = ", ".join([*view.seeds[:3], *([view.sitemap] if view.sitemap else [])])
    if view.seeds_total > len(view.seeds[:3]):
        seeds = f"{view.seeds_total:,} URLs" + (f": {seeds}, ..." if seeds else "")
    limits = [f"{name} {value}" for name in ("scope", "depth", "pages") if (value := getattr(view, name)) is not None]
    pairs = [
        ("job", f"{view.name} of user {view.user}"),
        ("state", view.state),
        ("when", f"{view.schedule}, {_next(view)}"),
        ("seeds", seeds),
        ("limits", ", ".join(limits) or "those of the crawl"),
        ("retries", f"{view.retries}, after {view.retry_delay_s:g} s"),
        ("overlap", view.overlap),
        ("catch up", view.catchup),
        ("running", ", ".join(view.running) or "no run"),
    ]
    out(facts(pairs))
    if history.rows:
        out("")
        out(_history_table(history.rows))


async def _history(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.service import jobs
    from crawler.terminal.printing import out, out_json

    rows, before = list["HistoryRow"](), None
    while True:
        limit = min(1000, arguments.limit - len(rows)) if arguments.limit else 1000
        page = await jobs.history_of(crawl, _user_of(arguments), arguments.job, before=before, limit=limit)
        rows += page.rows
        before = page.before
        if before is None or (arguments.limit and len(rows) >= arguments.limit):
            break
    if arguments.json:
        out_json({"rows": _plain(rows)})
    elif not rows:
        out("no time yet")
    else:
        out(_history_table(rows))


def _history_table(rows: "list[HistoryRow] | Any") -> str:
    from crawler.terminal.tables import table

    def when(row: "HistoryRow") -> str:
        return row.nominal or f"{row.from_} to {row.to} ({row.count:,})"

    def what(row: "HistoryRow") -> str:
        text = row.outcome or row.state.replace("_", " ")
        if row.state == "failed_to_start":
            text = "failed to start"
        return text + (", manual" if row.manual else "")

    cells = [
        (
            when(row),
            what(row),
            row.run,
            f"{row.pages:,}" if row.run else "",
            f"{row.errors:,}" if row.run else "",
            row.reason,
        )
        for row in rows
    ]
    return table(("time", "became", "run", "pages", "errors", "reason"), cells, left=3)


async def _preview(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.rules.schedules import as_iso
    from crawler.service import jobs
    from crawler.terminal.printing import out, out_json
    from crawler.terminal.tables import table

    rows = await jobs.preview_job(crawl, _user_of(arguments), arguments.job, arguments.times)
    if arguments.json:
        out_json({"times": [{"nominal": as_iso(r.nominal), "local": r.local, "note": r.note} for r in rows]})
    elif not rows:
        out("no further time")
    else:
        out(table(("UTC", "local time", "note"), [(as_iso(r.nominal), r.local, r.note) for r in rows], left=3))

"""Options of `crawler jobs`."""

import argparse

from crawler.cli.options import add_common, add_list_form, count_type, duration_type, whole_type
from crawler.errors import UsageError

USER = "default"
ROWS = 20  # of a history
JOBS = 100  # that are listed
DESTS = {"urls": "run_urls"}  # where options are that are not under their own name

JOBS_EPILOG = """\
examples:
  crawler jobs add news --every PT3H https://news.example/ --depth 1
  crawler jobs add docs --cron "0 */6 * * *" --sitemap https://docs.example/sitemap.xml
  crawler jobs add launch --at 2027-01-31T12:00Z --seeds urls.txt --retries 3
  crawler jobs list                     all jobs, with their next times
  crawler jobs preview news             the next ten times
  crawler jobs history news             what became of each time, newest first
  crawler jobs run news                 once more, now
  crawler jobs end news                 end its active run; the job goes on
  crawler jobs diff RUN RUN             what has changed between two runs
  crawler jobs failed                   runs that used up their retries, of all jobs
  crawler jobs retry news --all         repeat those of a job

Any 'crawler run' of the crawl triggers its jobs, each time once. Each run fetches its seeds
again. Its pages are in the archive of the crawl; 'crawler export --run ID' prints those of
one run. A job crawls: it does not run programs.

exit codes: 0 done, 2 no such job or run, bad schedule or option, 3 engine, 4 the name is taken,
the job is paused already, or not paused, or this machine's clock differs from the engine's
"""


def add_jobs(p: argparse.ArgumentParser) -> None:
    p.description = "Add, list, change and remove jobs, and show what became of each of their times."
    p.epilog = JOBS_EPILOG
    p.set_defaults(run="crawler.cli.jobs:run_jobs", act=None, parser=p, takes_urls=True)
    actions = p.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, text: str, *, names: str | None = "one") -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(act=name, parser=one)
        if names == "one":
            one.add_argument("job", metavar="NAME", help="of the job")
        elif names == "any":
            one.add_argument("job", metavar="NAME", nargs="?", default="", help="of the job (default: all jobs)")
        if names == "runs":
            one.add_argument("before", metavar="RUN", help="id of a run, from 'crawler jobs history'")
            one.add_argument("after", metavar="RUN", help="id of the run to compare with it")
        whose = f"whose job it is (default: {USER})"
        if names in (None, "any"):
            whose = f"jobs of this user alone (default: of all{f'; with NAME: {USER}' if names else ''})"
        if names != "runs":
            one.add_argument("--user", metavar="U", help=whose)
        one.add_argument("--json", action="store_true", help="as JSON")
        add_common(one)
        return one

    _add_definition(add("add", "add a job"))
    one = add("list", "jobs by user and name, with their next times", names=None)
    one.add_argument(
        "--limit", type=count_type(0), default=JOBS, metavar="N", help=f"at most so many (default: {JOBS}; 0: all)"
    )
    add("show", "one job: what it does, when, how its last runs ended")
    _add_definition(add("edit", "change a job from now on; what is not given stays"))
    add("pause", "do not trigger a job until it is resumed; active runs go on")
    add("resume", "trigger a paused job again")
    add("rm", "remove a job and its history; its active runs end")
    add("run", "start a run now, whatever the schedule")
    one = add("end", "end an active run; what it has counts, and the job goes on")
    one.add_argument("runs", nargs="*", metavar="RUN", help="ids from 'crawler jobs show' (default: the only one)")
    one.add_argument("--all", action="store_true", help="all active runs of the job")
    one = add("history", "what became of each time, newest first")
    one.add_argument("--limit", type=count_type(0), default=ROWS, metavar="N", help=f"rows (default: {ROWS}; 0: all)")
    one = add("diff", "which pages differ between two runs, by the archive in the crawl folder", names="runs")
    one.add_argument(
        "--urls", dest="shows_urls", action="store_true", help="the URLs, too; with --json one object a line"
    )
    one = add("failed", "runs that used up their retries, the last first", names="any")
    one.add_argument("--limit", type=count_type(0), default=ROWS, metavar="N", help=f"rows (default: {ROWS}; 0: all)")
    for name, text in (
        ("retry", "repeat failed runs now, as the job is defined now"),
        ("dismiss", "take failed runs off the list; the history keeps them"),
    ):
        one = add(name, text)
        one.add_argument("runs", nargs="*", metavar="RUN", help="ids from 'crawler jobs failed'")
        one.add_argument("--all", action="store_true", help="all failed runs of the job")
    one = add("preview", "the next times, with notes about daylight saving")
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
    add_list_form(group)
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
    group.add_argument(
        "--refetch",
        choices=("changed", "all"),
        help="changed: ask sites whether a page has changed since an earlier run; all: request each page whole "
        "(default: changed)",
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
    from crawler.rules.job_text import delays_of

    try:
        delays_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("retryDelay: ")) from None
    return text

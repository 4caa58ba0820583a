"""Options of what works on the crawl folder: `export`, `rehandle`, `prune`, `audit`, `rebuild`, `replay`."""

import argparse
import contextlib
import time
from datetime import UTC, datetime

from crawler.cli.crawl_options import add_app
from crawler.cli.options import add_common, add_urls, count_type, named_type, whole_type
from crawler.errors import UsageError

OUTPUT_HELP = (
    "FILE.jsonl or FILE.csv (also .gz, .zst), FILE.parquet, FILE.sqlite, postgresql://HOST/DB?table=NAME, or - for "
    "JSON Lines on standard output"
)

EXPORT_EPILOG = """\
examples:
  crawler export -o pages.jsonl -o pages.csv.gz
  crawler export --items -o items.jsonl
  crawler export --unless noindex -o pages.parquet
  crawler export --run 0k3v9x2m7q.1.trvm5c --changed -o changed.jsonl
  crawler export --text main --since 1d -o articles.parquet
  crawler export -o 'postgresql://crawler@db.example/web?table=pages'
  crawler export --text | jq -r 'select(.status == 200) | .title'

fields: url, status, fetched_at, content_type, bytes, title, depth, digest, redirect_to,
truncated, decode_error, noindex, warc_file, warc_offset, visit; of pages that a run of a job
fetched: run;
with --text: text; with --links: links; with --items: those of the items

exit codes: 0 done, 2 bad folder or target, 4 another process is writing the target, 5 disk full
or part of the archive missing, 12 a target rejected records, or is not available
"""


def add_export(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Write one record per committed page, each once. Needs the crawl folder, but no engine; "
        "also works while the crawl is running."
    )
    p.epilog = EXPORT_EPILOG
    p.add_argument(
        "-o", "--output", action="append", default=[], metavar="TARGET",
        help=f"{OUTPUT_HELP} (default); may be repeated",
    )  # fmt: skip
    _add_csv_safe(p)
    p.add_argument("--items", action="store_true", help="what handlers yielded (--app) instead of pages")
    p.add_argument(
        "--text", nargs="?", const="visible", default="", choices=("visible", "main"),
        help="with the text of each page: all that is visible (default), or the main text alone, without menus and "
        "footers (needs trafilatura)",
    )  # fmt: skip
    p.add_argument("--links", action="store_true", help="with the links of each page")
    p.add_argument(
        "--since", type=since_type, metavar="WHEN", default=0.0,
        help="only pages committed since: a time ago (2h, 3d) or a date, 2026-11-01 or 2026-11-01T08:00 (UTC)",
    )  # fmt: skip
    p.add_argument("--run", dest="of_run", metavar="ID", default="", help="only pages that this run of a job fetched")
    p.add_argument(
        "--changed", action="store_true",
        help="with --run: only pages that the run of the job before it did not have, or that have changed since",
    )  # fmt: skip
    p.add_argument(
        "--unless", action="append", default=[], choices=("noindex", "truncated"),
        help="leave out pages that ask search engines not to show them (noindex), or whose body was cut (truncated); "
        "may be repeated",
    )  # fmt: skip
    p.add_argument(
        "--partitions",
        dest="of_partitions",
        metavar="A-B",
        help="only pages of these partitions, so that several exports may share the work",
    )
    add_common(p)
    p.set_defaults(run="crawler.cli.export:run_export", takes_urls=False)


def since_type(text: str) -> float:
    """For argparse: a time ago or a date, as wall time in seconds."""
    from crawler.rules.schedules import parse_duration

    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    try:
        return time.time() - parse_duration(text)
    except UsageError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid time (use a time ago: 2h, 3d; or a date: 2026-11-01, 2026-11-01T08:00)"
        ) from None


def _add_csv_safe(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--no-csv-safe", dest="csv_safe", action="store_false",
        help="write text to CSV unchanged, even where a spreadsheet would run it as a formula",
    )  # fmt: skip


def add_output(group: "argparse._ArgumentGroup") -> None:
    """The same for commands that crawl."""
    group.add_argument(
        "-o", "--output", action="append", default=[], metavar="TARGET",
        help=f"keep results up to date there while the crawl runs: {OUTPUT_HELP}; may be repeated",
    )  # fmt: skip
    _add_csv_safe(group)


# `crawler rehandle`: runs handlers over the pages of a crawl folder again, without a request.


REHANDLE_EPILOG = """\
examples:
  crawler rehandle                                the app of the crawl, after it was changed
  crawler rehandle --app shop.py                  an app for a crawl that had none, or another one
  crawler rehandle --app shop.py -o items.jsonl   the same, and the new items there
  crawler rehandle --domain shop.example

No request is sent: pages come from the archive, with the status, headers and body that they had.
What handlers yield replaces the items of their pages. URLs that they follow, and that the crawl
does not know, are added: the next 'crawler crawl' fetches them. An app that is named becomes the
app of the crawl.

Pages whose handler fails, and pages whose body is not in the archive of this folder, keep their
items. Nothing changes before all pages were handled: until then Ctrl-C leaves everything as it
was. If the command is killed, run it again. No instance may run meanwhile.

exit codes: 0 done, 2 no such crawl or app, 3 engine, 4 an instance is running, or a prune or
rebuild, 5 bodies are missing, or the disk is full, 12 a target of -o is away, or rejects the
items, 13 the handler failed on pages
"""


def add_rehandle(p: argparse.ArgumentParser) -> None:
    p.description = "Run handlers (--app) over the pages in the archive again, and replace the items of these pages."
    p.epilog = REHANDLE_EPILOG
    add_app(p)
    p.add_argument("--domain", metavar="DOMAIN", default="", help="only pages of a domain; or one of its hosts or URLs")
    p.add_argument(
        "--append", action="store_true", help="keep the items that pages have, and add those that they do not have yet"
    )
    add_output(p.add_argument_group("results"))
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run="crawler.cli.export:run_rehandle", takes_urls=False)


# `crawler prune`: removes old results from a crawl folder.


PRUNE_EPILOG = """\
examples:
  crawler prune --older-than 30d --dry-run          what would go
  crawler prune --older-than 30d                    pages that were fetched more than 30 days ago
  crawler prune --keep-runs 5                       of each job, all but the newest 5 runs
  crawler prune --domain docs.example               all pages of a domain
  crawler prune --older-than 90d --domain docs.example

With several conditions, pages go for which all hold. Records, items and attempts are removed;
of each page a short line of the index stays, so it is not fetched again while the engine, or a
rebuild, knows it. 'jobs history' keeps the rows of runs. Pages of active runs, what running
instances still write to, and what outputs (-o) have not read yet stay for now. The crawl may
be running. Where several machines crawl, prune the folder of each. A prune that was
interrupted is completed by the next one.

Files of which a part goes are copied: one after the other, so the disk needs about 1 GB.

exit codes: 0 done, 2 no such crawl, or no condition, 3 engine, 4 another prune, a rebuild, an
export or an audit is in the way: repeat it later, 5 the disk is full or fails
"""


def add_prune(p: argparse.ArgumentParser) -> None:
    p.description = "Remove pages from a crawl folder: by age, by domain, or all but the newest runs of jobs."
    p.epilog = PRUNE_EPILOG
    p.add_argument(
        "--older-than", type=age_type, metavar="WHEN", default=0.0,
        help="pages fetched before: a time ago (12h, 30d) or a date, 2026-11-01 or 2026-11-01T08:00 (UTC)",
    )  # fmt: skip
    p.add_argument(
        "--keep-runs", type=count_type(1), metavar="N", default=0,
        help="pages of the runs of jobs, but for the newest N of each job, and active ones",
    )  # fmt: skip
    p.add_argument("--domain", metavar="DOMAIN", default="", help="pages of a domain; or one of its hosts or URLs")
    p.add_argument("--dry-run", action="store_true", help="remove nothing, print what would be")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run="crawler.cli.folder:run_prune", takes_urls=False)


def age_type(text: str) -> float:
    """For argparse: like `since_type`, but a number needs its unit: nobody's 30 days are to become 30 seconds."""
    if text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} has no unit (use 12h, 30d; or a date: 2026-11-01)")
    return since_type(text)


# `crawler audit`: was anything lost, committed twice, requested too early or against robots.txt?

AUDIT_EPILOG = """\
examples:
  crawler audit
  crawler audit --dir a --dir b --redis redis://queue.example/ --web-log access.log
  crawler audit -o pages.jsonl -o 'postgresql://crawler@db.example/web'
  crawler audit --json | jq '.findings.lost.examples[].url'

It reads the archive (every page is parsed again; each link in scope must be pending,
committed, deferred, dead or refused), then the web server's log, and then the index.
Where several machines crawled, name the folders of all of them. The crawl may be running.

A web log has JSON lines with start, end (seconds), host, target, agent and status, or the
common or combined format, as nginx and Apache write it unless told otherwise; name its host
then: --web-log docs.example=access.log. Times in whole seconds are too coarse for short
delays, which are "not judged" then. Write the host in front, and times to the millisecond
or finer behind the User-Agent; other fields may follow:
  nginx   '$http_host $remote_addr - $remote_user [$time_local] "$request" $status
           $bytes_sent "$http_referer" "$http_user_agent" $msec $request_time'
  Apache  "%{Host}i %h %l %u %t \\"%r\\" %>s %b \\"%{Referer}i\\" \\"%{User-Agent}i\\" %{usec}t %D"

exit codes: 0 clean, 2 bad folder, crawl or log, 3 engine, 8 not clean, or a web log that has
nothing of this crawl
"""


def percent_type(text: str) -> float:
    """For argparse: more than 0, at most 100."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = 0.0
    if not 0 < number <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage, more than 0 and at most 100")
    return number


def add_audit(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Check a crawl against its archive and the web server's log: was anything lost, committed twice, "
        "requested too early or against robots.txt?"
    )
    p.epilog = AUDIT_EPILOG
    p.add_argument(
        "--web-log", action="append", default=[], metavar="[HOST=]FILE", type=named_type,
        help="access log of the web server that was crawled, and its host where the lines don't tell it; may be "
        "repeated; .gz is unpacked",
    )  # fmt: skip
    p.add_argument(
        "--agent", metavar="TEXT",
        help="what the crawler's User-Agent has in the web log; other requests are left out (default: the product's "
        "name, and all requests of a log in JSON lines)",
    )  # fmt: skip
    p.add_argument(
        "-o", "--output", action="append", default=[], metavar="TARGET",
        help="also compare this file or database of -o with the index: does it have every record, each once? May be "
        "repeated",
    )  # fmt: skip
    p.add_argument("--items", action="store_true", help="these targets have items (default: what -o wrote there)")
    p.add_argument(
        "--partitions", dest="of_partitions", metavar="A-B",
        help="judge what is of these partitions alone, so that several audits may share the work",
    )  # fmt: skip
    p.add_argument(
        "--sample", type=percent_type, metavar="PERCENT", help="judge a random sample of the partitions, like 2"
    )
    p.add_argument("--json", action="store_true", help="as one JSON object, with up to 10,000 examples of each finding")
    p.add_argument(
        "--ignore-robots", dest="obey_robots", action="store_false", default=None,
        help="the crawl was told to ignore robots.txt: do not judge by it",
    )  # fmt: skip
    add_common(p, many_folders=True)
    p.set_defaults(run="crawler.cli.folder:run_audit", takes_urls=False)


# `crawler rebuild`: recreates a crawl from its folder in an engine that lost it.

REBUILD_EPILOG = """\
examples:
  crawler rebuild
  crawler rebuild --redis redis://queue.example/ --dir crawl-data

For an engine that was wiped, or replaced by an empty one. Every page of the index counts as
done again and is not fetched again; every link of every archived page and every seed is
added again. Dead letters, and URLs that robots.txt forbade, are tried again.

Rebuild each folder of the crawl, on each of its machines, before anything crawls.
If a rebuild is interrupted, run the same command again.

exit codes: 0 done, 2 bad folder or URL, 3 engine, 4 instances are running, or the engine has
another crawl, 5 a part of index, archive or journals can't be read
"""


def partitions_type(text: str) -> int:
    """For argparse: how many a crawl may have."""
    number = whole_type(text)
    if not 1 <= number <= 16384:
        raise argparse.ArgumentTypeError(f"give a number from 1 to 16384, not {text}")
    return number


def add_rebuild(p: argparse.ArgumentParser) -> None:
    p.description = "Recreate a crawl in an engine that lost it, from the index, archive and seeds of its folder."
    p.epilog = REBUILD_EPILOG
    add_urls(p)
    p.add_argument(
        "--refetch", action="store_true",
        help="fetch pages again whose record or items are missing or damaged (without this, they end the rebuild), or "
        "were pruned",
    )  # fmt: skip
    p.add_argument(
        "--accept-loss", action="store_true",
        help="go on without the seeds and jobs that damaged or cut journals had (without this, these end the rebuild)",
    )  # fmt: skip
    p.add_argument(
        "--partitions", type=partitions_type, metavar="N", default=0,
        help="parts of the frontier, if the engine lacks the crawl (default: as many as it had)",
    )  # fmt: skip
    p.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    add_common(p, many_folders=True)
    p.set_defaults(run="crawler.cli.folder:run_rebuild")


# `crawler replay`: archives served as the web that they were recorded from, or a made-up web to try things on.

REPLAY_EPILOG = """\
examples:
  crawler replay serve crawl-data              serve what a crawl has archived, until Ctrl-C
  crawler replay run shop.warc.gz -- crawler crawl https://shop.example/ --app shop.py --dir again
                                               run one command in it; its exit code is ours
  crawler replay run --example -- crawler fetch http://quotes.test/

A command that is run this way, or with the settings that are shown, requests nothing beyond
this machine. What is not in the archive is 404 with the header X-Crawler-Replay, a host that
is not in it does not exist. Crawls of this program archive no robots.txt.

exit codes: 0 ended by Ctrl-C, 2 no archive, or nothing in it; `run`: that of the command
"""
FILES = "WARC files, plain or gzipped by record, or crawl folders"


def add_replay(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Serve WARC files as the web that they were recorded from: hosts, ports, https and all, on "
        "loopback only. The newest response of each URL is given, as it was recorded."
    )
    p.epilog = REPLAY_EPILOG
    p.set_defaults(run="crawler.cli.parse_folder:replay_without_action")
    actions = p.add_subparsers(metavar="ACTION", title="actions")
    text = "serve until Ctrl-C, and print the settings that lead there"
    one = actions.add_parser("serve", help=text, description=f"{text.capitalize()}.", epilog=REPLAY_EPILOG)
    one.add_argument("paths", nargs="*", metavar="FILE", help=FILES)
    _add_options(one)
    one.set_defaults(run="crawler.cli.replay:run_replay", parser=one)
    text = "run a command in that web, and end with its exit code"
    one = actions.add_parser(
        "run", usage="crawler replay run [--example] [--port N] [FILE ...] -- COMMAND", help=text,
        description=f"{text.capitalize()}.", epilog=REPLAY_EPILOG,
    )  # fmt: skip
    one.add_argument("words", nargs=argparse.REMAINDER, metavar="FILE ... -- COMMAND", help=f"{FILES}; the command")
    _add_options(one)
    one.set_defaults(run="crawler.cli.replay:run_replay", paths=None, parser=one)


def _add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--example", action="store_true", help="serve a small made-up web instead: http://quotes.test/")
    p.add_argument("--port", type=whole_type, default=0, metavar="N", help="of the web server (default: a free one)")


def replay_without_action(_: argparse.Namespace) -> int:
    """Raises UsageError."""
    raise UsageError("use 'crawler replay serve' or 'crawler replay run' (see 'crawler replay --help')")

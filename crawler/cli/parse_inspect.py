"""Options of what only looks: `stats`, `top`, `explain`, `history`, `seeds`, `oplog`, `settings`, `doctor`."""

import argparse

from crawler.cli.crawl_options import add_fetching
from crawler.cli.options import SHOWN, add_common, count_type, limit_type, whole_type

TOP = 20

WATCH_S = 2.0

SORTS = ("pages", "rate", "queue", "errors", "bytes", "due")

STATS_EPILOG = """\
examples:
  crawler stats                       totals, and the 20 domains with most pages
  crawler stats example.com           one domain in full
  crawler stats --losses              what is missing in the results, and what to do
  crawler stats --watch --sort queue  again every two seconds, most waiting URLs first
  crawler stats --by-name --top 100   100 domains by name, and the command for the next 100
  crawler stats --json --top 1000 | jq '.domains[] | select(.queued > 100)'

Every number is a counter that the crawl keeps: asking costs the same for ten URLs or a
billion. "robots" are URLs refused by robots.txt, "dead" URLs that were given up.

exit codes: 0 done, 2 no such crawl or domain, 3 engine
"""


def add_stats(p: argparse.ArgumentParser) -> None:
    p.description = "Totals of a crawl and statistics of its domains, while it runs and afterwards."
    p.epilog = STATS_EPILOG
    p.add_argument("domain", nargs="?", metavar="DOMAIN", help="a domain, host or URL: this domain in full")
    p.add_argument(
        "--top",
        type=whole_type,
        default=TOP,
        metavar="N",
        help=f"the first N domains, at most 128 of a partition; with --by-name: domains of a page (default: {TOP})",
    )
    p.add_argument(
        "--sort",
        choices=SORTS,
        default="pages",
        help="what they are the first by: pages (default), or among some thousands of the busiest: pages per second, "
        "queue, errors, bytes, time since they are due",
    )
    p.add_argument(
        "--watch",
        nargs="?",
        type=limit_type,
        const=WATCH_S,
        metavar="S",
        help=f"print it again every S seconds until Ctrl-C, in place on a terminal (default: {WATCH_S:g})",
    )
    p.add_argument("--by-name", action="store_true", help="all domains in the order of their names, page by page")
    p.add_argument("--after", metavar="NAME", help="with --by-name: the page of those after this name")
    p.add_argument(
        "--losses", action="store_true", help="what is missing in the results: how much, why, an example, what to do"
    )
    p.add_argument("--json", action="store_true", help="as one JSON object; times in ms")
    add_common(p)
    p.set_defaults(run="crawler.cli.inspect:run_stats", takes_urls=False)


# `crawler top`: a crawl in the terminal, live: domains, one domain, instances, dead letters; keys to steer it.

TOP_EPILOG = """\
examples:
  crawler top                                  the crawl in crawl-data
  crawler top --redis redis://queue.example/   one on an engine elsewhere

keys: 1 to 6 sort, n all domains by name, / filter, Enter one domain, m members, d dead letters,
o operator log, h attempts, p pause, b block, + and - boost, D delay, P pause the whole crawl, ? help, q quit.
Whatever changes something asks first.

It shows what the engine has counted, whichever instances run, and keeps running when the crawl
ends or the engine is away. It needs a terminal; elsewhere use 'crawler stats --watch'.

exit codes: 0 quit, 2 no such crawl or not a terminal, 3 engine
"""


def add_top(p: argparse.ArgumentParser) -> None:
    p.description = "A crawl in the terminal, live: its domains, instances and dead letters, and keys to steer it."
    p.epilog = TOP_EPILOG
    add_common(p)
    p.set_defaults(run="crawler.cli.inspect:run_top", takes_urls=False)


# `crawler explain`: why a URL is, is not or will be crawled.

EXPLAIN_EPILOG = """\
examples:
  crawler explain https://docs.example/private/page
  crawler explain https://news.example/ --run 0k3v9x2m7q.1.trvm5c

exit codes: 0 answered, 2 no such crawl or run, or not a URL, 3 engine
"""


def add_explain(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Why a URL is, is not or will be crawled: canonical form, scope, robots.txt and traps with the "
        "rule that decided, where it is now, whose it is, and when its queue is due."
    )
    p.epilog = EXPLAIN_EPILOG
    p.add_argument("url", metavar="URL")
    p.add_argument("--run", dest="of_run", default="", metavar="RUN", help="for this active run of a job")
    p.add_argument("--json", action="store_true", help="as one JSON object; times in ms")
    p.add_argument(
        "--fetch-robots", action="store_true", help="ask the site for robots.txt, politely, when nobody has read it yet"
    )
    add_fetching(p)
    add_common(p)
    p.set_defaults(run="crawler.cli.inspect:run_explain", takes_urls=False)


# `crawler history`: what became of each attempt at a URL, or at the URLs of a domain; from the crawl folder alone.

HISTORY_SHOWN = 100  # attempts

HISTORY_EPILOG = """\
examples:
  crawler history https://docs.example/slow
  crawler history --domain docs.example --limit 20
  crawler history --domain docs.example --json | jq 'select(.status == "failed") | .kind'

Each instance notes its attempts in its own folder: name the folders of all machines with
--dir. The oldest notes go first when history.bytes_max is reached, and a process that is
killed loses those of its last second. For the present state of a URL: crawler explain URL.

With --json, one object a line, and all of them unless --limit is given; times in seconds.

exit codes: 0 done, also when nothing was found, 2 no crawl folder, or not a URL
"""


def add_history(p: argparse.ArgumentParser) -> None:
    p.usage = "crawler history URL | --domain D [options]"
    p.description = (
        "What became of each attempt at a URL or at a domain's URLs: when it was claimed, began and "
        "ended, on which instance, and how. Needs the crawl folder, but no engine; also works while the crawl runs."
    )
    p.epilog = HISTORY_EPILOG
    p.add_argument("urls", nargs="*", metavar="URL", help="one URL")
    p.add_argument("--domain", metavar="D", help="all URLs of this domain")
    p.add_argument(
        "--limit", metavar="N", type=whole_type, help=f"the last N only (default: all; {HISTORY_SHOWN} in a table)"
    )
    p.add_argument("--json", action="store_true", help="for programs: an object a line")
    add_common(p, many_folders=True)
    p.set_defaults(run="crawler.cli.inspect:run_history", takes_urls=True)


# `crawler seeds`: each seed of a crawl, and what became of all that descends from it.

SEEDS_EPILOG = """\
examples:
  crawler seeds                     the first 50, in the order in which they were given
  crawler seeds --waiting           those with URLs left to fetch
  crawler seeds --json | jq -r 'select(.waiting == 0) | .url'

A URL belongs to the seed from which it was found first. "waiting" are URLs that are queued,
being fetched, waiting for a retry or for their time, or deferred; "done" those that were
fetched or refused.
A seed that a page had led to before it was given is not listed: it belongs to that page's.

With --json, one object a line, and all of them unless --limit is given.

exit codes: 0 done, 2 no such crawl, 3 engine
"""


def add_seeds(p: argparse.ArgumentParser) -> None:
    p.description = "The seeds of a crawl, with counts of all URLs that descend from each."
    p.epilog = SEEDS_EPILOG
    p.add_argument("--waiting", action="store_true", help="only seeds with URLs left to fetch")
    p.add_argument("--limit", metavar="N", type=whole_type, help=f"at most N (default: all; {SHOWN} in a table)")
    p.add_argument("--json", action="store_true", help="for programs")
    add_common(p)
    p.set_defaults(run="crawler.cli.inspect:run_seeds")


# `crawler oplog`: who changed what in a crawl, and when.

OPLOG_EPILOG = """\
examples:
  crawler oplog
  crawler oplog --limit 1000 --json | jq 'select(.who == "ann")'

Commands that change a crawl are noted before they act, also those that then fail: pause, block,
delay, boost and their opposites, purge, release, dead retry and dead purge, ring pin, unpin and
evict, scale, users, seed, and prune. The engine keeps 1,000: the oldest
go of whoever has most. A command that the same person repeats is one entry.

With --json, one object a line, the newest last; all of them unless --limit is given.

exit codes: 0 done, 2 no such crawl, 3 engine
"""


def add_oplog(p: argparse.ArgumentParser) -> None:
    p.description = "The operator log: commands that changed a crawl, with who gave them and when."
    p.epilog = OPLOG_EPILOG
    p.add_argument(
        "--limit", metavar="N", type=count_type(1), help=f"the last N only (default: all; {SHOWN} in a table)"
    )
    p.add_argument("--json", action="store_true", help="for programs: an object a line; times in seconds")
    add_common(p)
    p.set_defaults(run="crawler.cli.admin:run_oplog", takes_urls=False)


# `crawler settings`: shows the settings that are stored with the crawl, and changes them for all of it.

SETTINGS_EPILOG = """\
examples:
  crawler settings                          what is stored with the crawl, and what it needs
  crawler settings --all                    also what is as by default
  crawler settings scope.depth_max=3 robots.obey=no
  crawler settings handlers.app=shop2.py

What results depend on is stored with the crawl when it begins: scope, robots.txt or not, user
agent, limits, and how sites are treated. No other command needs to name it again, and one that
names other values is refused, but for [politeness], [retry], [hosts], fetch.contact and the
timeouts of [fetch]: those it changes, and says so.

A crawl that needs --allow-private, insecure TLS or an app stores that it does. The permission
comes from a command on each machine, which notes it in its crawl folder.

A change of the scope holds for links that are found from now on, the rest for instances that
start from now on. What was fetched stays as it is.

exit codes: 0 done, 2 bad key or value, or one that can't change, 3 engine
"""


def add_settings(p: argparse.ArgumentParser) -> None:
    p.description = "Show the settings that are stored with the crawl, or change them for the whole crawl."
    p.epilog = SETTINGS_EPILOG
    p.add_argument(
        "changes", nargs="*", metavar="KEY[=VALUE]", help="a new value, as --set takes it; a key alone shows it"
    )
    p.add_argument("--all", action="store_true", help="show what is as by default, too")
    p.add_argument("--json", action="store_true", help="as one JSON object, with all settings")
    add_common(p)
    p.set_defaults(run="crawler.cli.dev:run_settings", takes_urls=False)


# `crawler doctor`: checks what a crawl needs, and prints how to fix what is missing.

DOCTOR_EPILOG = """\
examples:
  crawler doctor
  crawler doctor --redis redis://queue.example/ --json

exit codes: 0 nothing to fix (there may be warnings), 7 something must be fixed
"""


def add_doctor(p: argparse.ArgumentParser) -> None:
    p.description = "Check the engine, DNS, disk and limits that a crawl needs, and print how to fix them."
    p.epilog = DOCTOR_EPILOG
    p.add_argument("--json", action="store_true", help="as a JSON list")
    add_fetching(p)
    add_common(p)
    p.set_defaults(run="crawler.cli.dev:run_doctor", takes_urls=False)

"""Options of `crawler history`."""

import argparse

from crawler.cli.options import add_common, whole_type

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
    p.set_defaults(run="crawler.cli.history:run_history", takes_urls=True)

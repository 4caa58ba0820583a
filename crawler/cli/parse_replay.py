"""Options of `crawler replay`."""

import argparse

from crawler.cli.options import whole_type
from crawler.errors import UsageError

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
    p.set_defaults(run="crawler.cli.parse_replay:replay_without_action")
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

"""The command line: finds the command, hands over, turns errors into one line and an exit code."""

import argparse
import sys
from collections.abc import Sequence

from crawler.errors import CrawlerError


def parser() -> argparse.ArgumentParser:
    """The whole command line; each family of commands brings its own options."""
    from crawler.cli import crawl, export

    top = argparse.ArgumentParser(prog="crawler", description="A distributed web crawler.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (crawl, export):
        module.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except CrawlerError as error:
        print(f"crawler: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())

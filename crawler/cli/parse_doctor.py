"""Options of `crawler doctor`."""

import argparse

from crawler.cli.crawl_options import add_fetching
from crawler.cli.options import add_common

DOCTOR_EPILOG = """\
examples:
  crawler doctor
  crawler doctor --url https://docs.example/      also with what [[sites]] adds for this site
  crawler doctor --redis redis://queue.example/ --json

exit codes: 0 nothing to fix (there may be warnings), 7 something must be fixed
"""


def add_doctor(p: argparse.ArgumentParser) -> None:
    p.description = "Check the engine, DNS, disk and limits that a crawl needs, and print how to fix them."
    p.epilog = DOCTOR_EPILOG
    p.add_argument("--json", action="store_true", help="as a JSON list")
    p.add_argument("--url", metavar="URL", help="show what the owner of this site would see of a request")
    add_fetching(p)
    add_common(p)
    p.set_defaults(run="crawler.cli.doctor:run_doctor", takes_urls=False)

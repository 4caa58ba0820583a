"""Options of `crawler init`."""

import argparse

from crawler.cli.options import named_type

SETTINGS_FILE, APP_FILE = "crawler.toml", "app.py"


INIT_EPILOG = """\
examples:
  crawler init              crawler.toml and app.py in this folder
  crawler init shop         the same in the folder shop, which is created

A file that exists is never overwritten: then nothing is written.

exit codes: 0 written, 2 a file exists or can't be written
"""


def add_init(p: argparse.ArgumentParser) -> None:
    p.description = (
        f"Write {SETTINGS_FILE}, with the settings that people change most, and {APP_FILE}, with a handler of pages."
    )
    p.epilog = INIT_EPILOG
    p.add_argument(
        "folder", nargs="?", default=".", metavar="DIR", type=named_type, help="folder of the files (default: this one)"
    )
    p.set_defaults(run="crawler.cli.init:run_init")

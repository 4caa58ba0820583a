"""Options of `crawler identity`."""

import argparse

from crawler.cli.options import add_common, duration_type

IDENTITY_EPILOG = """\
examples:
  crawler identity new ~/bot.key            make a key, in a file for you alone
  crawler identity show ~/bot.key           its id, and the directory to publish with its header lines
  crawler identity show ~/bot.key --set identity.agent=https://bot.example --to /srv/bot
                                            the same as files, for nginx, and a page about the crawler
  crawler identity renew ~/bot.key          add the next key, which signs from two days later

  crawler crawl https://docs.example/ --set identity.sign=always --set identity.key_file=~/bot.key

A crawl stores the id of its key, never the key: each machine has the file, outside of the crawl
folder. docs/guide/identity.md explains what sites do with it.

exit codes: 0 done, 2 no such file, one that others can read, or a missing library, 5 disk
"""


def add_identity(p: argparse.ArgumentParser) -> None:
    p.description = "Make, show and renew the key that proves to sites who sent a request."
    p.epilog = IDENTITY_EPILOG
    p.set_defaults(run="crawler.cli.identity:run_identity", act=None, parser=p, takes_urls=False)
    actions = p.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(act=name, parser=one)
        one.add_argument(
            "file", nargs="?", default="", metavar="FILE", help="the key file (default: identity.key_file)"
        )
        add_common(one)
        return one

    add("new", "make a key, in a new file that only you can read")
    one = add("show", "show the keys, and what to publish of them")
    one.add_argument("--to", default="", metavar="FOLDER", help="write it into files: directory, header lines, a page")
    one.add_argument("--purpose", default="", metavar="TEXT", help="what the crawl is for, on that page")
    one.add_argument("--json", action="store_true", help="as one JSON object")
    one = add("renew", "add the next key; the old one stays published for a while")
    one.add_argument(
        "--after", type=duration_type, default=172_800.0, metavar="TIME",
        help="until the new key signs (default: 2d, so that others see it in the directory before)",
    )  # fmt: skip

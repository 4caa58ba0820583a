"""Options of `crawler token`."""

import argparse

from crawler.cli.options import add_common

TOKENS_EPILOG = """\
examples:
  crawler token add --user ops --role write    print a new token, for this time only
  crawler token list                           ids, users and roles
  crawler token rm 1f9a02c4                    no longer valid, within a second

  curl -H "Authorization: Bearer $TOKEN" -X POST http://127.0.0.1:8800/v1/pause

Tokens belong to a crawl. The engine has a digest of each, never the token itself.

exit codes: 0 done, 2 no such crawl, user name or token, 3 engine
"""


def add_token(p: argparse.ArgumentParser) -> None:
    p.description = "Make, list and remove tokens for the HTTP API of 'crawler serve'."
    p.epilog = TOKENS_EPILOG
    p.set_defaults(run="crawler.cli.tokens:run_token", act=None, parser=p)
    actions = p.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(act=name, parser=one)
        add_common(one)
        return one

    one = add("add", "make a token and print it")
    one.add_argument("--user", required=True, metavar="U", help="whose it is; in the operator log")
    one.add_argument("--role", required=True, choices=("read", "write"), help="what its bearer may do")
    one = add("list", "ids, users and roles of all tokens")
    one.add_argument("--json", action="store_true", help="as one JSON object")
    one = add("rm", "remove a token")
    one.add_argument("id", metavar="ID", help="as in 'crawler token list'")

"""`crawler completion`: prints a script with which a shell completes commands, options and their values."""

import argparse
from collections.abc import Iterator
from typing import Any

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "PATH", "APP", "TARGET", "[HOST=]FILE", "FILE.toml|APP|URL", "FILE ... -- COMMAND")  # as in help

EPILOG = """\
examples:
  crawler completion bash > ~/.local/share/bash-completion/completions/crawler
  crawler completion zsh > "${fpath[1]}/_crawler"
  crawler completion fish > ~/.config/fish/completions/crawler.fish

Shells that start afterwards complete 'crawler'. Print the script again after an upgrade. In bash,
the first line needs the package bash-completion; without it, add this to ~/.bashrc:
  source <(crawler completion bash)
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in your shell",
        description="Print a script that completes commands, options, fixed values and files in your shell.",
        epilog=EPILOG,
    )
    p.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print it. The script is fixed text: completing runs no command of ours."""
    import shtab

    from crawler.cli.main import parser
    from crawler.terminal.text import out

    whole, _ = parser()
    for action in _actions(whole):
        if action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # how shtab is told
        elif action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    out(shtab.complete(whole, shell=arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options and arguments, those of commands and their actions as well."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no list of them
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for one in action.choices.values():
                yield from _actions(one)

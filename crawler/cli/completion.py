"""`crawler completion`: prints a script with which a shell completes commands, options and their values."""

import argparse
from collections.abc import Iterator

from crawler.cli.main import parser
from crawler.terminal.output import out

FILES = ("FILE", "PATH", "APP", "TARGET", "[HOST=]FILE", "FILE.toml|APP|URL", "FILE ... -- COMMAND")  # as in help


def run_completion(arguments: argparse.Namespace) -> int:
    """Print it. The script is fixed text: completing runs no command of ours."""
    import shtab

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

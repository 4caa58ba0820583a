"""Options that benchmarks share. A value that makes no sense is refused before anything starts."""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


class _Help(argparse.RawDescriptionHelpFormatter):
    """Shows the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str:
        shown = [action.help] if action.help else []
        if action.option_strings and action.default not in (None, False, argparse.SUPPRESS):
            values = action.default if isinstance(action.default, tuple) else (action.default,)
            shown.append(f"(default: {','.join(map(str, values))})".replace("%", "%%"))
        return " ".join(shown)


def parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """For `scripts/bench NAME`; `about` is the docstring of its module."""
    return argparse.ArgumentParser(
        prog=f"scripts/bench {name}", description=about, formatter_class=_Help, allow_abbrev=False
    )


def add_json(options: argparse.ArgumentParser) -> None:
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")


def write_json(file: Path | None, figures: Any, *, indent: int | None = 1) -> None:
    """Does nothing without a file."""
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(figures, indent=indent) + "\n", encoding="utf-8")


def positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def positive_ints(text: str) -> list[int]:
    """Comma-separated."""
    return [positive_int(one) for one in text.split(",")]


def positive_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return value


def names_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Comma-separated names, each one of `known`."""
    names = list(known)

    def read(text: str) -> list[str]:
        found = text.split(",")
        if unknown := sorted(set(found) - set(names)):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)} (use {', '.join(names)})")
        return found

    return read

"""Kinds of arguments that benchmarks share: what makes no sense is refused before anything is built or started."""

import argparse
from collections.abc import Callable, Iterable


def count(text: str) -> int:
    """A whole number, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, not '{text}'")
    return int(text)


def counts(text: str) -> list[int]:
    """Several of them, comma-separated."""
    return [count(one) for one in text.split(",")]


def amount(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not '{text}'")
    return value


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Names out of those that are known, comma-separated."""
    names = list(known)

    def read(text: str) -> list[str]:
        given = text.split(",")
        if unknown := sorted(set(given) - set(names)):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)} (known: {', '.join(names)})")
        return given

    return read

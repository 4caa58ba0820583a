"""Labels that an app's code gives to URLs, as far as they are written there as text."""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crawler.handlers.crawler import Crawler

# Methods of pages and apps that take a label.
_GIVERS = frozenset({"follow", "submit", "request"})
SOURCE_MAX = 2_000_000  # bytes of one file: those of a program are smaller


class UsedLabel(NamedTuple):
    """Where a label is given. `file` is as Python names it."""

    label: str
    file: str
    line: int


def unknown_labels(app: Crawler) -> list[UsedLabel]:
    """Those that no handler of the app has, in the order of their files and lines.

    Read are the modules in which functions of the app are defined. What is no text there (a variable, a call) is not
    known before a page is handled.
    """
    known = {*app.labels, ""}
    return [used for file in sorted(_files_of(app)) for used in _labels_in(file) if used.label not in known]


def _files_of(app: Crawler) -> set[str]:
    functions = [handler.function for handler in app.handlers] + list(app.starts)
    files = set[str]()
    for function in functions:
        module = sys.modules.get(getattr(inspect.unwrap(function), "__module__", ""))
        if file := getattr(module, "__file__", None):
            files.add(file)
    return files


def _labels_in(file: str) -> Iterator[UsedLabel]:
    try:
        source = Path(file).read_bytes()
        tree = ast.parse(source) if len(source) <= SOURCE_MAX else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # a module without source
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GIVERS:
            given = [label for keyword in node.keywords if keyword.arg == "label" for label in _texts(keyword.value)]
            yield from (UsedLabel(label, file, node.lineno) for label in given)


def _texts(value: ast.expr) -> Iterator[str]:
    """What an expression may be: a text, or one of two."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from (*_texts(value.body), *_texts(value.orelse))

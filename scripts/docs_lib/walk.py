"""Follows a URL, a job or a delay from the command line to its end: the files and functions that carry it, in order.

A function carries it when a parameter is a text with its mark, or a record or collection that holds such a text.
"""

import argparse
import contextlib
import dataclasses
import io
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from types import FrameType
from typing import Any

import msgspec

import crawler
from crawler.cli.main import main
from crawler.testing.web_server import Table, serve

ROOT = crawler.__path__[0]
MARK = "w41ked"
SITE, HOME, PATH = f"http://{MARK}.test/", "http://site.test/", f"http://site.test/{MARK}"
WEB = dict.fromkeys((SITE, HOME, PATH), "<p>one page</p>")
DEPTH_MAX, ITEMS_MAX = 4, 50


def carries(value: Any, depth: int = 0) -> bool:
    if isinstance(value, str | bytes):
        return MARK in value if isinstance(value, str) else MARK.encode() in value
    return depth < DEPTH_MAX and any(carries(one, depth + 1) for one in parts(value))


def parts(value: Any) -> Iterator[Any]:
    """What a record or a collection holds; an object with behaviour of its own is a place, not a record."""
    if isinstance(value, msgspec.Struct):
        yield from (getattr(value, name, None) for name in value.__struct_fields__)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type) and value.__dataclass_params__.frozen:
        yield from (getattr(value, one.name, None) for one in dataclasses.fields(value))
    elif isinstance(value, argparse.Namespace):
        yield from vars(value).values()
    elif isinstance(value, list | tuple | dict) and len(value) <= ITEMS_MAX:
        yield from [*value, *value.values()] if isinstance(value, dict) else value


def walk(*commands: list[str]) -> list[tuple[str, str]]:
    """Runs commands, and follows the mark in the last of them. Raises RuntimeError where one fails."""
    with tempfile.TemporaryDirectory(prefix="walk-") as folder, serve(Table(WEB)) as web:
        texts = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in web.settings.items()}
        common = ["--dir", f"{folder}/crawl", *(f"--set={key}={value}" for key, value in texts.items())]
        steps: list[tuple[str, str]] = []  # file and function

        def note(frame: FrameType, event: str, _argument: object) -> None:
            code = frame.f_code
            if event != "call" or not code.co_filename.startswith(ROOT) or code.co_name.startswith("<"):
                return
            step = (code.co_filename[len(ROOT) + 1 :], code.co_qualname)
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if "testing" not in step[0] and steps[-1:] != [step] and any(carries(frame.f_locals.get(n)) for n in names):
                steps.append(step)

        for number, command in enumerate(commands, 1):
            if number == len(commands):
                sys.setprofile(note)
                threading.setprofile(note)
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    code = main([*command, *common])
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
            if code:
                raise RuntimeError(f"crawler {' '.join(command)}: exit {code}")
    return steps


WALKS = {
    "url": [["crawl", PATH]],
    "job": [["crawl", HOME], ["jobs", "add", MARK, SITE, "--every", "1h"]],
    "delay": [["crawl", SITE], ["delay", f"{MARK}.test", "5"]],
}

if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("what", nargs="*", default=list(WALKS), help="url, job, delay (default: all)")
    options.add_argument("--each", action="store_true", help="print each file with the number of its functions")
    chosen = options.parse_args()
    for what in chosen.what:
        steps = walk(*WALKS[what])
        files = Counter(file for file, _ in dict.fromkeys(steps))  # in the order of the walk
        moves = sum(a[0] != b[0] for a, b in pairwise(steps))
        print(f"{what}: {len(files)} files, {sum(files.values())} functions, {moves} moves between files")
        for file, functions in files.items() if chosen.each else ():
            print(f"  {functions:3} {file}")

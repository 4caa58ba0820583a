"""Small webs and quick options for the tests of the command line."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from crawler.cli.main import main
from crawler.handlers.load_app import load_app
from crawler.runtime.log_files import start_logging
from tests.support.processes import Nursery
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

HOST = "127.0.0.1"
QUICK = ("--allow-private", "--delay", "0", "--set", "crawl.partitions=16")


def forget_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands run in this process: each folder's shop.py is another app."""
    load_app.cache_clear()
    monkeypatch.setitem(sys.modules, "shop", sys)  # so that it goes at the end of the test, too
    del sys.modules["shop"]
    monkeypatch.setattr(sys, "path", list(sys.path))


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and its words."""

    code: int
    out: str
    err: str


def crawler(nursery: Nursery, *arguments: str, stdin: str | None = None, cwd: Path | None = None, **env: str) -> Ran:
    """Run a command to its end, in the nursery's empty folder unless another one is given."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "crawler", *arguments], input=stdin if stdin is not None else "", text=True,
        capture_output=True, env=nursery.environment | env, cwd=cwd or nursery.folder,
        timeout=60, check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def in_process(nursery: Nursery, *arguments: str, cwd: Path | None = None, **env: str) -> Ran:
    """The same in this process, in a fraction of the time: for what reads no input and needs no signal.

    What a process adds, its start and its end, is in test_cli_start.py.
    """
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,  # they have descriptors, as a command may expect
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd or nursery.folder),
        mock.patch.dict(os.environ, nursery.environment | env, clear=True),
        mock.patch.object(sys, "stdin", io.StringIO()),
        mock.patch.object(sys, "argv", ["crawler", *arguments]),
    ):
        code = exit_code(arguments)
        start_logging("warning")  # into no file that goes with the test
        for stream in (out, err):
            stream.seek(0)
        return Ran(code, out.read(), err.read())


def exit_code(arguments: Sequence[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as end:  # as argparse ends
        return int(str(end.code or 0))


def page(*links: str, delay_s: float = 0.0, status: int = 200) -> Resource:
    body = "<title>A page</title>" + "".join(f'<a href="{link}">x</a>' for link in links)
    return Resource(status=status, body=body, delay_s=delay_s)


def small_site(pages: int = 12, *, delay_s: float = 0.0) -> dict[tuple[str, str], Resource]:
    """A home page that leads to all others, one of which is forbidden, one missing, one a redirect."""
    names = [f"/p{n}" for n in range(pages)]
    web = {(HOST, name): page("/", delay_s=delay_s) for name in names}
    web[HOST, "/"] = page(*names, "/private/x", "/gone", "/moved", "http://elsewhere.test/", delay_s=delay_s)
    web[HOST, "/robots.txt"] = Resource(content_type="text/plain", body="User-agent: *\nDisallow: /private/\n")
    web[HOST, "/moved"] = Resource(status=301, headers={"Location": "/p0"})
    return web


SMALL_PAGES = 12 + 3  # pages, home, gone (404), moved (301)


@contextlib.contextmanager
def small(pages: int = 12, *, delay_s: float = 0.0) -> Iterator[Site]:
    with serve_resources(small_site(pages, delay_s=delay_s)) as site:
        yield site

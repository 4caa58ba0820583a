"""`crawler replay`: archives served as the web that they were recorded from, or a made-up web to try things on."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from crawler.cli.options import whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.testing.web_server import WebSource

EPILOG = """\
examples:
  crawler replay serve crawl-data              serve what a crawl has archived, until Ctrl-C
  crawler replay run shop.warc.gz -- crawler crawl https://shop.example/ --app shop.py --dir again
                                               run one command in it; its exit code is ours
  crawler replay run --example -- crawler fetch http://quotes.test/

A command that is run this way, or with the settings that are shown, requests nothing beyond
this machine. What is not in the archive is 404 with the header X-Crawler-Replay, a host that
is not in it does not exist. Crawls of this program archive no robots.txt.

exit codes: 0 ended by Ctrl-C, 2 no archive, or nothing in it; `run`: that of the command
"""
FILES = "WARC files, plain or gzipped by record, or crawl folders"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROMPT = "(replay) "  # of a shell that is run
SIGNALLED = 128  # plus its number: the exit code of what a signal ended, as shells count


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    p = commands.add_parser(
        "replay",
        help="serve archives as a web on this machine, to try handlers on",
        description="Serve WARC files as the web that they were recorded from: hosts, ports, https and all, on "
        "loopback only. The newest response of each URL is given, as it was recorded.",
        epilog=EPILOG,
    )
    p.set_defaults(run=_without_action)
    actions = p.add_subparsers(metavar="ACTION", title="actions")
    text = "serve until Ctrl-C, and print the settings that lead there"
    one = actions.add_parser("serve", help=text, description=f"{text.capitalize()}.", epilog=EPILOG)
    one.add_argument("paths", nargs="*", metavar="FILE", help=FILES)
    _add_options(one)
    one.set_defaults(run=run, parser=one)
    text = "run a command in that web, and end with its exit code"
    one = actions.add_parser(
        "run", usage="crawler replay run [--example] [--port N] [FILE ...] -- COMMAND", help=text,
        description=f"{text.capitalize()}.", epilog=EPILOG,
    )  # fmt: skip
    one.add_argument("words", nargs=argparse.REMAINDER, metavar="FILE ... -- COMMAND", help=f"{FILES}; the command")
    _add_options(one)
    one.set_defaults(run=run, paths=None, parser=one)


def _add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--example", action="store_true", help="serve a small made-up web instead: http://quotes.test/")
    p.add_argument("--port", type=whole_type, default=0, metavar="N", help="of the web server (default: a free one)")


def _without_action(_: argparse.Namespace) -> int:
    raise UsageError("use 'crawler replay serve' or 'crawler replay run' (see 'crawler replay --help')")


def run(arguments: argparse.Namespace) -> int:
    """Serve; see EPILOG for the exit codes. Raises UsageError."""
    from crawler.cli.event_loop import raise_file_limit, run_async

    paths, command = arguments.paths, None
    if paths is None:
        paths, command = _split(arguments.words)
    if not 0 <= arguments.port < 65536:
        raise UsageError(f"--port {arguments.port}: expected a number below 65536")
    if bool(paths) == arguments.example or not all(path.strip() for path in paths):
        raise UsageError("name WARC files or crawl folders to serve, or give --example (see 'crawler replay --help')")
    raise_file_limit()
    source, what, first = _example() if arguments.example else _recorded(paths)
    return run_async(_serve(source, arguments.port, command, what, first))


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files before "--", the command after it. Raises UsageError."""
    at = list(words).index("--") if "--" in words else len(words)
    files, command = list(words[:at]), list(words[at + 1 :])
    if options := [word for word in files if word.startswith("-")]:
        raise UsageError(f"{options[0]} goes before the files: crawler replay run {options[0]} ... -- COMMAND")
    if not command:
        raise UsageError("name a command: crawler replay run FILE -- crawler crawl https://shop.example/")
    return files, command


def _recorded(paths: Sequence[str]) -> "tuple[WebSource, str, str]":
    """What to serve, in words, and a URL to begin with; warns of what can't be read."""
    from crawler.archive.warc_web import RecordedWeb
    from crawler.terminal.progress import progress
    from crawler.terminal.text import counted, warn
    from crawler.testing.replaying import Replayed

    with progress() as meter:
        recorded = RecordedWeb(paths, meter)
    for flaw in recorded.flaws:
        warn(flaw)
    what = f"{counted(len(recorded), 'URL')} of {counted(len(recorded.hosts), 'host')}"
    return Replayed(recorded), what, recorded.first_url


def _example() -> "tuple[WebSource, str, str]":
    from crawler.testing.example_web import ExampleWeb
    from crawler.testing.web_server import Table

    example = ExampleWeb()
    table = Table(example.pages)
    return table, f"{len(example.pages)} URLs of {len(table.hosts)} hosts", example.seeds[0]


async def _serve(source: "WebSource", port: int, command: list[str] | None, what: str, first: str) -> int:
    import asyncio

    from crawler.terminal.text import flush, out
    from crawler.testing.web_server import WebServer, environment_of

    async with WebServer(source, port=port, asked_max=0) as server:
        environment = environment_of(server.settings)
        if command:
            return await _run_with(command, environment | _prompt(os.environ))
        out(_introduction(what, first, environment))
        flush(sys.stdout)
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, over.set)
        await over.wait()
    return 0


def _prompt(environment: Mapping[str, str]) -> dict[str, str]:
    """What makes the prompt of a shell say where one is: bash's own files may set PS1 after it has begun."""
    own = environment.get("PROMPT_COMMAND", "")
    marked = f'PS1="{PROMPT}${{PS1#{shlex.quote(PROMPT)}}}"'
    return {"PS1": f"{PROMPT}$ ", "PROMPT_COMMAND": f"{own}\n{marked}"}


def _introduction(what: str, first: str, environment: Mapping[str, str]) -> str:
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    return (
        f"Serving {what} until Ctrl-C. In another terminal:\n"
        f"  export {settings}\n"
        f"  crawler crawl {shlex.quote(first)} --dir replayed"
    )


async def _run_with(command: list[str], environment: Mapping[str, str]) -> int:
    """Its exit code. Signals are its business: those that reach us alone are handed on."""
    import asyncio

    try:
        process = await asyncio.create_subprocess_exec(*command, env=os.environ | environment)
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}") from None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # a terminal sends it to both
    loop.add_signal_handler(signal.SIGTERM, process.terminate)
    code = await process.wait()
    return code if code >= 0 else SIGNALLED - code

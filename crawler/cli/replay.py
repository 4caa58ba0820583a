"""`crawler replay`: archives served as the web that they were recorded from, or a made-up web to try things on."""

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence

from crawler.archive.warc_web import RecordedWeb
from crawler.cli.run_async import heard, raise_file_limit, run_async
from crawler.errors import UsageError
from crawler.terminal.output import flush, out, warn
from crawler.terminal.progress import progress
from crawler.terminal.words import counted
from crawler.testing.example_web import ExampleWeb
from crawler.testing.replaying import Replayed
from crawler.testing.web_server import WebServer, WebSource, environment_of

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROMPT = "(replay) "  # of a shell that is run
SIGNALLED = 128  # plus its number: the exit code of what a signal ended, as shells count


def run_replay(arguments: argparse.Namespace) -> int:
    """Serve; see EPILOG for the exit codes. Raises UsageError."""
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


def _recorded(paths: Sequence[str]) -> tuple[WebSource, str, str]:
    """What to serve, in words, and a URL to begin with; warns of what can't be read."""
    with progress() as meter:
        recorded = RecordedWeb(paths, meter)
    for flaw in recorded.flaws:
        warn(flaw)
    what = f"{counted(len(recorded), 'URL')} of {counted(len(recorded.hosts), 'host')}"
    return Replayed(recorded), what, recorded.first_url


def _example() -> tuple[WebSource, str, str]:
    example = ExampleWeb()
    return example, f"{len(example.pages)} URLs of {len(example.hosts)} hosts", example.seeds[0]


async def _serve(source: WebSource, port: int, command: list[str] | None, what: str, first: str) -> int:
    async with WebServer(source, port=port, asked_max=0) as server:
        environment = environment_of(server.settings)
        if command:
            return await _run_with(command, environment | _prompt(os.environ))
        out(_introduction(what, first, environment))
        flush(sys.stdout)
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in heard(SIGNALS):
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
    try:
        process = await asyncio.create_subprocess_exec(*command, env=os.environ | environment)
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}") from None
    loop = asyncio.get_running_loop()
    # A terminal sends SIGINT to both.
    handlers = {signal.SIGINT: lambda: None, signal.SIGTERM: process.terminate}
    for number in heard(handlers):
        loop.add_signal_handler(number, handlers[number])
    code = await process.wait()
    return code if code >= 0 else SIGNALLED - code

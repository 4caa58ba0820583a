"""The command line: finds the command, hands over, turns every error into one line and an exit code.

Imports nothing heavy: `crawler --help` answers at once, and each command loads what it needs when it runs.
"""

import argparse
import atexit
import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any, NoReturn

from crawler import process_tuning
from crawler.errors import ArchiveError, CrawlerError, UsageError
from crawler.redaction import redact, shown_words

SQLITE_FULL = 13  # as in sqlite3, which takes a while to import
CAUSES_MAX = 20  # exceptions behind an exception that are looked at
UNUSABLE = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP)  # whoever named such a path must change it
PATH_SHOWN = 200  # characters
INTERRUPTED = 130  # Ctrl-C in a command that has nothing to finish, as shells count it

EXIT_CODES = """\
exit codes:
  0   done                                6   no seed could be fetched
  1   a bug, or instances kept crashing   7   `doctor` found something to fix
  2   bad URL, file, option or setting    8   `audit` found something wrong
  3   engine down, unfit or full          9   `scale` was not done in time
  4   folder, node or crawl is taken      10  stopped by a signal; the same command resumes
  5   the disk is full or not writable    11  forced by a second signal; the same command resumes
                                          12  a database of -o is not available, or rejects the results
                                          13  a handler failed on each of its pages; `rehandle`: on some
                                          14  your network or proxy failed for long; the same command resumes
"""

EXAMPLES = """\
examples:
  crawler crawl https://docs.example/                    one site, until nothing is left
  crawler crawl -i seeds.txt --depth 2 -o pages.jsonl    seeds from a file, results into another
  crawler run -n 4 --redis redis://queue.example/        four instances that wait for work
  crawler explain https://docs.example/private/          why a URL is, is not or will be crawled
"""


COMMAND_HELP = "'crawler --help-all' has all commands, 'crawler COMMAND --help' explains one and its options."
NAME_WIDTH = 12

# By group, in the order of --help-all: where the options of each command are defined, and what it does.
GROUPS = {
    "crawl": {
        "crawl": ("parse_crawl:add_crawl", "crawl sites from seed URLs until nothing is left"),
        "run": ("parse_run:add_run", "run instances that wait for work, on one or many machines"),
        "scale": ("parse_scale:add_scale", "change or show the number of instances on a machine"),
        "seed": ("parse_seed:add_seed", "add URLs to a running or future crawl"),
        "import": ("parse_import:add_import", "take over what another crawler has fetched, or what waits in its queue"),
        "jobs": ("parse_jobs:add_jobs", "crawls that run at a time, or again and again"),
        "settings": ("parse_settings:add_settings", "show or change the settings that are stored with a crawl"),
        "users": ("parse_users:add_users", "list the users who share a crawl, or set a weight"),
        "plan": ("parse_plan:add_plan", "what a crawl of a given size needs: machines, memory, disk, bandwidth, money"),
    },
    "watch": {
        "stats": ("parse_stats:add_stats", "totals and per-domain statistics"),
        "top": ("parse_top:add_top", "watch and steer a crawl in the terminal, live"),
        "serve": ("parse_serve:add_serve", "dashboard, HTTP API and metrics of a crawl"),
        "token": ("parse_tokens:add_token", "make, list and remove the tokens of the HTTP API"),
        "seeds": ("parse_seeds:add_seeds", "each seed's pending, done and dead URLs"),
        "ring": (
            "parse_ring:add_ring",
            "members, their state and share; the owner of a URL; pins; what a change would move",
        ),
        "explain": ("parse_explain:add_explain", "why a URL is, is not or will be crawled"),
        "history": ("parse_history:add_history", "what became of each attempt at a URL"),
        "dead": ("parse_dead:add_dead", "dead letters (URLs that ran out of attempts): list, retry or purge them"),
        "oplog": ("parse_oplog:add_oplog", "who changed what in a crawl, and when"),
    },
    "steer": {
        "pause": ("parse_operate:add_domain_command", "start no more requests, to one domain or to any"),
        "resume": ("parse_operate:add_domain_command", "continue a paused domain or crawl"),
        "block": ("parse_operate:add_domain_command", "stop fetching from a domain; its URLs are deferred"),
        "unblock": ("parse_operate:add_domain_command", "fetch from a blocked domain again"),
        "delay": ("parse_operate:add_domain_command", "set the delay between requests to a domain"),
        "boost": (
            "parse_operate:add_domain_command",
            "fetch from a domain before others that are due, or after them; list the boosts",
        ),
        "purge": (
            "parse_operate:add_domain_command",
            "drop queued and deferred URLs, of a domain or that match",
        ),
        "release": ("parse_operate:add_domain_command", "put deferred URLs back into their queues"),
    },
    "results": {
        "export": ("parse_export:add_export", "write the pages or items of a crawl into files or databases"),
        "rehandle": ("parse_rehandle:add_rehandle", "run handlers over the pages of a crawl again"),
        "prune": ("parse_prune:add_prune", "remove old results from a crawl folder"),
        "forget": ("parse_forget:add_forget", "remove all of a domain, and keep it out permanently"),
        "audit": ("parse_audit:add_audit", "check a crawl against its archive and the web server's log"),
    },
    "handlers and settings": {
        "init": ("parse_init:add_init", "write a settings file and an app to begin with"),
        "fetch": ("parse_fetch:add_fetch", "fetch one page and show what the crawler sees"),
        "shell": ("parse_shell:add_shell", "fetch one page and look at it in a Python prompt"),
        "check": ("parse_check:add_check", "check a settings file or an app, and show which settings a URL gets"),
        "identity": ("parse_identity:add_identity", "make, show or renew the key that proves who sent a request"),
        "replay": ("parse_replay:add_replay", "serve archives as a web on this machine, to try handlers on"),
        "completion": (
            "parse_completion:add_completion",
            "print a script that completes commands and options in your shell",
        ),
    },
    "crawls and their engine": {
        "crawls": ("parse_crawls:add_crawls", "list the crawls of an engine, or remove one"),
        "move": ("parse_move:add_move", "move a crawl to another engine"),
        "backup": ("parse_move:add_backup", "write what the engine has of a crawl into a file"),
        "restore": ("parse_move:add_restore", "bring a crawl back from such a file"),
        "rebuild": ("parse_rebuild:add_rebuild", "recreate a crawl from its folder when the engine lost it"),
        "doctor": ("parse_doctor:add_doctor", "check engine, DNS, disk and limits; print how to fix them"),
    },
}
COMMANDS = {name: where for group in GROUPS.values() for name, where in group.items()}
# What people use first, in the order of --help.
FIRST = ("crawl", "stats", "top", "explain", "export", "seed", "run", "init", "fetch", "check")


class Parser(argparse.ArgumentParser):
    """Errors are one line; options are never guessed from their beginnings."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        from crawler.rules.text import one_line

        self.exit(2, f"crawler: {one_line(redact(message))} (see '{self.prog} --help')\n")

    def _print_message(self, message: str, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """Say so when the help can't be written, which argparse hides."""
        from crawler.terminal.output import put

        assert file is not None
        put(message, file)

    def known_options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings]


class TopParser(Parser):
    """That of the program, whose help lists the commands that people use first."""

    commands: Any  # of argparse

    def format_help(self) -> str:
        listed = self.commands._choices_actions  # noqa: SLF001 - it has no other way to leave some out
        try:
            self.commands._choices_actions = [one for one in listed if one.dest in FIRST]  # noqa: SLF001
            return super().format_help()
        finally:
            self.commands._choices_actions = listed  # noqa: SLF001


class HelpAll(argparse.Action):
    """Prints each command in its group, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **kwargs)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from crawler.terminal.output import out

        lines = [parser.format_usage()]
        for title, group in GROUPS.items():
            lines += [f"{title}:", *(f"  {name:<{NAME_WIDTH}}{text}" for name, (_, text) in group.items()), ""]
        out("\n".join([*lines, EXIT_CODES, COMMAND_HELP]))
        parser.exit()


def parser(only: str | None = None) -> tuple[Parser, dict[str, Parser]]:
    """The whole command line, and the parser of each command.

    With `only`, the command line of this one command; of all commands without their options if it is not one of them.
    """
    top = TopParser(
        prog="crawler",
        description="A distributed web crawler: its queue of URLs lives in Redis or Valkey, split by domain.",
        epilog=f"{EXAMPLES}\n{EXIT_CODES}\n{COMMAND_HELP}",
    )
    top.add_argument("--version", action="store_true", help="print versions: program, Python, engine, libraries")
    top.add_argument("--help-all", action=HelpAll, help=f"all {len(COMMANDS)} commands, by group")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    top.commands = commands
    for name in (only,) if only in COMMANDS else (*FIRST, *(name for name in COMMANDS if name not in FIRST)):
        where, text = COMMANDS[name]
        one = commands.add_parser(name, help=text, description=f"{name}: {text}.")
        if only in (None, name):
            _named(f"crawler.cli.{where}")(one)
    return top, {name: commands.choices[name] for name in COMMANDS if name in commands.choices}


def main(argv: Sequence[str] | None = None, *, is_program: bool = False) -> int:
    """Run one command; returns its exit code. `is_program`: this process is the command's own."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _attempt(arguments, is_program=is_program)
    except SystemExit as end:  # how argparse ends
        if not isinstance(end.code, int):
            raise
        code = end.code
    return _flushed(code)


def _attempt(arguments: Sequence[str], *, is_program: bool) -> int:
    """The exit code, after a line for each error."""
    try:
        if any("\0" in argument for argument in arguments):
            raise UsageError("an argument has a NUL byte")
        for argument, shown in zip(arguments, shown_words(arguments), strict=True):
            _check_text(argument, shown)
        return _run(arguments, is_program=is_program)
    except CrawlerError as error:
        from crawler.terminal.output import warn

        warn(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 - the last door: a traceback never reaches the user
        if _began_with(error, _is_out_of_files):
            return _report_files()
        if _began_with(error, _is_full_disk):
            return _report_full_disk()
        if isinstance(error, OSError) and error.errno in UNUSABLE and error.filename:
            return _report_path(error)
        return _report_bug(error, verbose=bool({"-v", "-vv", "--verbose"} & set(arguments)))


def _flushed(code: int) -> int:
    """The exit code when all output is written; that of a full disk when it can't be."""
    from crawler.terminal.output import finish, warn

    try:
        finish()
    except ArchiveError as error:
        warn(str(error))
        return error.exit_code
    return code


def _check_text(argument: str, shown: str) -> None:
    """Raises UsageError for bytes that are no text: they can be neither stored nor shown."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the argument {ascii(shown)[1:-1]} is not valid UTF-8") from None


def _began_with(error: BaseException | None, is_meant: Callable[[BaseException], bool]) -> bool:
    """Did it begin with such an error? A loop that can't be made for want of a file fails to be closed, too."""
    for _ in range(CAUSES_MAX):
        if error is None:
            break
        if is_meant(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_out_of_files(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def _is_full_disk(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", 0) == SQLITE_FULL


def _report_files() -> int:
    """Without a single import: each opens a file."""
    with contextlib.suppress(OSError):
        sys.stderr.write("crawler: too many open files; raise the limit of this shell, like 'ulimit -n 65536'\n")
    return UsageError.exit_code


def _report_full_disk() -> int:
    """Where nobody knows the file: of a database for the time of a command, or what the output goes to."""
    with contextlib.suppress(OSError):
        sys.stderr.write("crawler: the disk is full; free some space and start again\n")
    return ArchiveError.exit_code


def _report_path(error: OSError) -> int:
    """Of a path that was given: even a look at it may fail."""
    from crawler.terminal.output import warn

    path = str(error.filename)
    shown = path if len(path) <= PATH_SHOWN else f"{path[:PATH_SHOWN]}..."
    warn(f"can't use {shown}: {error.strerror}; use another path")
    return UsageError.exit_code


class Ending:
    """Ends the process as the last thing to be done at exit, without taking its memory apart: that is a twentieth of a
    second for a small command, and more after a long crawl. Does nothing until there is a code.
    """

    def __init__(self) -> None:
        self.code: int | None = None

    def __call__(self) -> None:
        if self.code is None:
            return
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(self.code)


def program() -> NoReturn:
    """Run the command of this process and end it."""
    process_tuning.delay_gc()
    _open_standard_streams()
    ending = Ending()
    if sys.getprofile() is None and sys.gettrace() is None:  # who watches has something left to do after us
        atexit.register(ending)  # the first to register is the last to be called
    ending.code = main(is_program=True)
    users_code = sys.modules.get("crawler.handlers.loop_end")
    if users_code is not None and users_code.has_threads():
        atexit._run_exitfuncs()  # noqa: SLF001 - Python would wait for the end of these threads first
    sys.exit(ending.code)


def _open_standard_streams() -> None:
    """Open /dev/null for each of descriptors 0 to 2 that is closed: the next file or socket would get its number."""
    closed = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
            closed.append(number)
    for number in closed:
        name = ("stdin", "stdout", "stderr")[number]
        stream = os.fdopen(number, "w" if number else "r", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(arguments: Sequence[str], *, is_program: bool) -> int:
    top, commands = parser(arguments[0] if arguments else "")
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        top.error(_unknown_command(arguments[0], list(COMMANDS)))
    known, rest = top.parse_known_args(arguments)
    if known.version:
        from crawler.terminal.output import out
        from crawler.version import version_text

        out(version_text())
        return 0
    if known.command is None:
        if rest:
            top.error(_complaint(rest, top))
        top.print_help()
        return 2
    # URLs may stand before, between and after the options.
    strays = [one for one in rest if one == "-" or not one.startswith("-")]
    if hasattr(known, "urls") and known.takes_urls:
        known.urls += strays
        rest = [one for one in rest if one not in strays]
    if rest:
        command = getattr(known, "parser", commands[known.command])
        command.error(_complaint(rest, command))
    known.is_program = is_program
    return int(_named(known.run)(known))


def _named(name: str) -> Callable[[Any], Any]:
    """The function MODULE:FUNCTION: what a command does not need is not imported."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def _unknown_command(name: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"unknown command {name!r}: " + (f"did you mean {close[0]}?" if close else f"use {', '.join(known)}")


def _complaint(rest: Sequence[str], command: Parser) -> str:
    """What was not understood, and what may have been meant."""
    import difflib

    name = rest[0].partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {name!r}"
    close = difflib.get_close_matches(name, command.known_options(), n=1, cutoff=0.6)
    return f"unknown option {name}" + (f": did you mean {close[0]}?" if close else "")


def _report_bug(error: Exception, *, verbose: bool) -> int:
    import tempfile
    import traceback

    from crawler.rules.text import printable
    from crawler.terminal.output import err, warn

    trace = printable(redact("".join(traceback.format_exception(error))))
    where = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="crawler-bug-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"{' '.join(shown_words(sys.argv))}\n{trace}")
            where = f"; the details are in {file.name}"
    except OSError:
        verbose = True
    said = str(error).splitlines()
    warn(f"this is a bug: {type(error).__name__}: {said[0] if said else ''}{where}")
    if verbose:
        err(trace)
    return 1

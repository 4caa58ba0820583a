"""URLs as people give them: arguments, files, standard input, an app's start; each with where it stood.

A line that begins with a brace is JSON: a URL with what else its request is to carry.

Lines are read as they come, so a stream that never ends is taken in while it flows. `rules.url_list`
has what a line may be.
"""

import argparse
import asyncio
import os
import re
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict, replace

from crawler import redaction
from crawler.errors import InvalidUrl, UsageError
from crawler.model import LABEL, Candidate, Followed, Request
from crawler.rules.addresses import is_address, is_public
from crawler.rules.order import NO_SIGNALS, Signals
from crawler.rules.requests import form_in_url, request_of
from crawler.rules.url_list import LineSplitter, ListedUrl, listed
from crawler.rules.urls import canonicalize, fields_refused, refuse_credentials, refuse_fields, without_comment
from crawler.settings.schema import Priority
from crawler.terminal.text import counted, warn

STDIN = "-"
BLOCK_BYTES = 1 << 18
SHOWN_MAX = 200
JSON_SHOWN = "{...}"  # of a seed in JSON that is none: it may hold the password of a form
NO_SEED = "no valid seed URL"
INVALID_SHOWN_MAX = 1_000


class GivenUrl(msgspec.Struct, frozen=True):
    """A URL as given: where it stood ("line 7", "argument 1"), its text, and what a sitemap said of it.

    `visible_at` (wall clock, s): it is not fetched before. `flaw`: why it can't be one.
    """

    where: str
    text: str
    signals: Signals = NO_SIGNALS
    visible_at: float = 0.0
    label: str = ""  # of the handler for its page
    priority: float | None = None  # None: that of the command
    request: Request | None = None  # None: a plain GET
    flaw: str = ""

    @classmethod
    def of(cls, where: str, text: str) -> "GivenUrl":
        """A line, or what an argument has."""
        if not text.startswith("{"):
            return cls(where, _of_host(text))
        try:
            found = _decode_seed(text)
            url, form = form_in_url(_of_host(found.url), found.method, found.form)
            found = replace(found, form=form)
            return cls(where, url, label=found.label, priority=found.priority, request=found.request())
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            return cls(where, JSON_SHOWN, flaw=f"not a seed in JSON: {error}")

    @classmethod
    def of_list(cls, where: str, one: ListedUrl) -> "GivenUrl":
        """A line of a list. Fields that mean nothing here may mean something to whoever wrote them: it is refused."""
        if one.fields:
            return cls(where, "\t".join((one.url, *one.fields)), flaw=fields_refused(one.url))
        return cls(where, one.url if one.flaw else _of_host(one.url), flaw=one.flaw)

    @classmethod
    def of_start(cls, followed: Followed) -> "GivenUrl":
        """What an app's start yielded."""
        return cls(
            "start", followed.url, label=followed.label, priority=followed.priority or None, request=followed.request
        )

    @property
    def url_alone(self) -> "GivenUrl":
        """For who takes URLs only: flawed if it carries more."""
        if self.flaw or not (self.label or self.priority is not None or self.request):
            return self
        return replace(self, flaw="seeds of a job are URLs alone, without label, priority or request")


class JsonSeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of JSON: the same names as the arguments of `page.follow`."""

    url: str
    label: Annotated[str, msgspec.Meta(pattern=LABEL)] = ""
    priority: Priority | None = None
    method: str = ""
    headers: dict[str, str] = {}
    body: str | None = None
    form: dict[str, Any] | None = None
    json: Any = None
    meta: dict[str, Any] = {}
    key: str = ""
    session: str = ""
    idempotent: bool = False
    cross_origin: bool = False
    secret: bool = False

    def request(self) -> Request | None:
        """What the request carries. Raises ValueError."""
        given = asdict(self)
        return request_of(**{name: value for name, value in given.items() if name not in ("url", "label", "priority")})


_decode_seed = msgspec.json.Decoder(JsonSeed).decode


class SeedReport(msgspec.Struct, kw_only=True):
    """What became of the given URLs. `invalid` holds (where, text, reason), the first thousand of them."""

    new: int = 0
    seen: int = 0
    retried: int = 0  # had failed, and are put back into their queues
    out_of_scope: int = 0
    invalid_count: int = 0
    invalid: list[tuple[str, str, str]] = msgspec.field(default_factory=list)
    unread: list[str] = msgspec.field(default_factory=list)  # known pages of new sites, whose links are not known here
    seeds: list[Candidate] = msgspec.field(default_factory=list)  # the first of those that the crawl has or gets
    out_of_scope_rules: list[tuple[str, str]] = msgspec.field(default_factory=list)  # (URL, the rule that decided)

    @property
    def unread_notes(self) -> list[str]:
        return [
            f"{url} is known, but its record is in another folder: seed it with that --dir, or other URLs of its site"
            for url in self.unread
        ]

    @property
    def total(self) -> int:
        return self.usable + self.out_of_scope + self.invalid_count

    @property
    def usable(self) -> int:
        return self.new + self.seen + self.retried

    def canonical(self, given: GivenUrl) -> str | None:
        """The URL that was given; None, and noted, when it can't be a seed."""
        text = without_comment(given.text) if not given.flaw else given.text
        try:
            if given.flaw:
                raise InvalidUrl(text, given.flaw)
            refuse_fields(text)
            refuse_credentials(text)
            return canonicalize(text)
        except InvalidUrl as error:
            self.invalid_count += 1
            if len(self.invalid) < INVALID_SHOWN_MAX:
                self.invalid.append((given.where, text, error.reason))
            return None


def url_of_site(name: str) -> str:
    """The URL of a site as people name it: a domain, a host, or any URL of it. Raises InvalidUrl."""
    return canonicalize(name if "://" in name else f"http://{name}/")


def url_of(text: str) -> str:
    """The canonical URL of a page as people name it: with a host alone, its front page. Raises InvalidUrl."""
    text = _with_scheme(text.strip())
    refuse_credentials(text)
    return canonicalize(text)


# A name with a dot, localhost or an address in brackets; behind it maybe a port, and what follows a host.
_NAME = r"(?:[^\s/:@?#\[\]%.,\\]+(?:\.[^\s/:@?#\[\]%.,\\]+)+\.?|localhost|\[[0-9a-f:.]+\])(?::\d{1,5})?"
_BARE_HOST = re.compile(_NAME, re.IGNORECASE)
_WITHOUT_SCHEME = re.compile(rf"({_NAME})(?:[/?#].*)?", re.IGNORECASE | re.DOTALL)


def _with_scheme(text: str, *, quiet: bool = False) -> str:
    """With https:// in front of what has no scheme, and that said unless `quiet`: nearly all sites have it, and nobody
    can listen.

    http:// for this machine and private addresses, where nearly none has.
    """
    from crawler.terminal.text import warn

    if not (match := _WITHOUT_SCHEME.fullmatch(text)) or len(text) > SHOWN_MAX:
        return text
    if Path(text).is_file():
        raise UsageError(f"{text} is a file, not a URL; use -i {text} to read URLs from it")
    taken = f"{_scheme_of(match[1])}://{text}"
    try:
        taken = canonicalize(taken)
    except InvalidUrl:
        return text
    if not quiet:
        warn(f"taking {text} as {taken}")
    return taken


def _scheme_of(authority: str) -> str:
    host = authority if authority.endswith("]") else authority.rpartition(":")[0] or authority
    bare = host.strip("[]").lower()
    is_here = bare == "localhost" or bare.endswith(".localhost") or (is_address(bare) and not is_public(bare))
    return "http" if is_here else "https"


def sources_of(arguments: argparse.Namespace) -> tuple[list[GivenUrl], list[str]]:
    """The URLs given as arguments, and the files to read. Raises UsageError for a file that can't be read."""
    given = enumerate(arguments.urls, 1)
    plain = [_of_argument(f"argument {n}", url) for n, url in given if url != STDIN]
    files = list(arguments.inputs) + ([STDIN] if STDIN in arguments.urls else [])
    for file in files:
        if file != STDIN:
            _check_readable(file)
    return plain, list(dict.fromkeys(files))


def _of_argument(where: str, text: str, *, quiet: bool = False) -> GivenUrl:
    if text.startswith("{"):
        return GivenUrl.of(where, text)
    return GivenUrl(where, _with_scheme(without_comment(text), quiet=quiet))


def urls_given(arguments: argparse.Namespace) -> list[str]:
    """The canonical URLs on a command line, without those that can't be: whoever uses them says why."""
    texts = [getattr(arguments, "url", STDIN), *getattr(arguments, "urls", ()), *getattr(arguments, "sitemap", ())]
    given, report = (_of_argument("", text, quiet=True) for text in texts), SeedReport()
    return [url for url in map(report.canonical, given) if url is not None]


def _check_readable(file: str) -> None:
    if not file.strip():
        raise UsageError("the name of a seed file is empty; give it a value, or leave -i out")
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise UsageError(f"can't read seed file {file}: {error.strerror}") from None


def bytes_of(files: Sequence[str]) -> int:
    """How much there is to read; 0 when one of the files flows."""
    try:
        found = [os.fstat(sys.stdin.fileno()) if file == STDIN else Path(file).stat() for file in files]
    except (OSError, ValueError):  # `read_given` reports it
        return 0
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else 0


async def read_given(
    file: str, *, quiet: bool = False, taken: Callable[[int], None] = lambda _: None
) -> AsyncIterator[list[GivenUrl]]:
    """Batches of URLs as they arrive. Unless `quiet`, the first one that has no scheme is said. Raises UsageError.

    `taken` is called with the bytes of each batch when the next one is requested.
    """
    name, number, splitter = "standard input" if file == STDIN else file, 0, LineSplitter()
    notes = _Notes(name, is_quiet=quiet)
    async for block in _blocks(file):
        lines = splitter.lines(block)
        if any("\0" in line for line in lines):
            raise UsageError(f"{name} is not a text file in UTF-8 (line {number + 1} or later): nothing more is read")
        yield _given_in(lines, number, notes)
        taken(len(block))
        number += len(lines)
    yield _given_in(splitter.last(), number, notes)


def _given_in(lines: Sequence[str], number: int, notes: "_Notes") -> list[GivenUrl]:
    """What some lines have, of which the first follows line `number`."""
    found = []
    for n, line in enumerate(lines, number + 1):
        where = f"{notes.name} line {n}"
        if (text := line.strip().lstrip("\ufeff")).startswith("{"):
            found.append(GivenUrl.of(where, text))
        elif (one := listed(line)) is not None:
            notes.take(where, one)
            found.append(GivenUrl.of_list(where, one))
    return found


class _Notes:
    """What was made of lines that are not just a URL: each kind is said for the first line of a file."""

    def __init__(self, name: str, *, is_quiet: bool) -> None:
        self.name = name
        self._has_host = self._has_more = is_quiet

    def take(self, where: str, one: ListedUrl) -> None:
        if not self._has_host and (taken := _of_host(one.url)) != one.url:
            self._has_host = True
            warn(f"{where}: taking {one.url} as {taken}, and other hosts there likewise")
        if not self._has_more and one.is_mended and not one.fields:
            self._has_more = True
            warn(f"{where}: taking {one.url} without the date or priority behind it, and others there likewise")


def _of_host(text: str) -> str:
    """A host alone is taken for its front page, as on the command line; anything else stays."""
    return f"{_scheme_of(text)}://{text}/" if _BARE_HOST.fullmatch(text) else text


async def check_any(plain: Sequence[GivenUrl], files: Sequence[str]) -> None:
    """Raises UsageError, after a line for each, when nothing can be a seed; said before anything is made.

    What flows (a pipe, a terminal) can be read once only: then it is seen later.
    """
    report = SeedReport()
    if any(report.canonical(one) for one in plain) or any(not is_plain_file(file) for file in files):
        return
    for file in files:
        async for batch in read_given(file, quiet=True):
            if any(report.canonical(one) for one in batch):
                return
    for line in complaints(report):
        warn(line)
    if not report.total and files:
        raise UsageError(f"no URL in {', '.join(files)}")
    raise UsageError(NO_SEED)


def is_plain_file(file: str) -> bool:
    """Can it be read twice?"""
    return file != STDIN and Path(file).is_file()


async def _blocks(file: str) -> AsyncIterator[bytes]:
    descriptor = sys.stdin.fileno() if file == STDIN else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            while block := os.read(descriptor, BLOCK_BYTES):
                yield block
                await asyncio.sleep(0)
        else:
            async for block in _flowing(descriptor):
                yield block
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None
    finally:
        if file != STDIN:
            os.close(descriptor)


async def _flowing(descriptor: int) -> AsyncIterator[bytes]:
    """Blocks of a pipe or terminal, read by a thread that may be left behind in its read when we stop."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)

    def read() -> None:
        try:
            while True:
                block = os.read(descriptor, BLOCK_BYTES)
                asyncio.run_coroutine_threadsafe(queue.put(block), loop).result()
                if not block:
                    return
        except (OSError, RuntimeError, CancelledError):
            return  # closed, or the loop is gone, or about to be

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while block := await queue.get():
        yield block


def complaints(report: SeedReport) -> Sequence[str]:
    """One line for each invalid URL (the first thousand): where it stood, what it is, why it can't be crawled."""
    lines = [f"{where}: {_shown(text)}: {reason}" for where, text, reason in report.invalid]
    more = report.invalid_count - len(report.invalid)
    return [*lines, f"... and {counted(more, 'more invalid URL')}"] if more > 0 else lines


def _shown(text: str) -> str:
    """As it may be printed: not too long, and without a password."""
    text = redaction.shown(text)
    return repr(text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "...")

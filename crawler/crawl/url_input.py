"""URLs as people give them: arguments, files, standard input, an app's start; each with where it stood.

A line that begins with a brace is JSON: a URL with what else its request is to carry.

`url_files` reads the files, `rules.url_list` has what a line may be.
"""

import argparse
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict, replace

from crawler import redaction
from crawler.crawl.url_files import (
    AS_FOUND,
    JSON_SHOWN,
    STDIN,
    ListForm,
    ListRow,
    check_readable,
    is_plain_file,
    read_rows,
)
from crawler.errors import InvalidUrl, UsageError
from crawler.model import LABEL, Candidate, Followed, Request
from crawler.rules.addresses import is_address, is_public
from crawler.rules.order import NO_SIGNALS, Signals
from crawler.rules.requests import form_in_url, request_of
from crawler.rules.url_list import ListedUrl, bare, listed
from crawler.rules.urls import canonicalize, fields_refused, refuse_credentials, refuse_fields, without_comment
from crawler.settings.schema import Priority
from crawler.terminal.output import warn
from crawler.terminal.words import counted

SHOWN_MAX = 200
NO_SEED = "no valid seed URL"
INVALID_KEPT_MAX = 1_000  # of a report
COMPLAINTS_MAX = 10  # lines of them for people
BESIDE_SHOWN_MAX = 5  # names of fields
LIKE_CHARS_MAX, LIKE_MIN = 32, 0.75  # how much of the name of a field is compared, and how like another it is


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
    def of(cls, where: str, text: str, beside: Callable[[str, Sequence[str]], None] | None = None) -> "GivenUrl":
        """A line, or what an argument has. `beside`: called for the URL of an object that has no field of a seed, as
        in files of other programs. Without it, such an object is flawed.
        """
        if not text.startswith("{"):
            return cls(where, _of_host(text))
        try:
            found = _decode_seed(text)
            url, form = form_in_url(_of_host(found.url), found.method, found.form)
            found = replace(found, form=form)
            return cls(where, url, label=found.label, priority=found.priority, request=found.request())
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            if beside is not None and (alone := _url_among(text)) is not None:
                beside(where, alone[1])
                return cls(where, _of_host(alone[0]))
            hint = "; --column url takes the URL alone" if beside is not None and "unknown field" in str(error) else ""
            return cls(where, JSON_SHOWN, flaw=f"not a seed in JSON: {error}{hint}")

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


_SEED_FIELDS = frozenset(JsonSeed.__struct_fields__) - {"url"}
_decode_seed = msgspec.json.Decoder(JsonSeed).decode


def _url_among(text: str) -> tuple[str, list[str]] | None:
    """The URL of an object that is no seed, and its other fields: none is one of a seed, or like one, misspelt."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None
    names = [name for name in found if name != "url"]
    url = found.get("url")
    return (url, names) if isinstance(url, str) and names and not any(map(_is_seed_field, names)) else None


@lru_cache(maxsize=1024)  # files have few names, each a million times
def _is_seed_field(name: str) -> bool:
    from difflib import get_close_matches

    return bool(get_close_matches(name.lower()[:LIKE_CHARS_MAX], _SEED_FIELDS, n=1, cutoff=LIKE_MIN))


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
            if len(self.invalid) < INVALID_KEPT_MAX:
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
    from crawler.terminal.output import warn

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
            check_readable(file)
    return plain, list(dict.fromkeys(files))


def form_of(arguments: argparse.Namespace) -> ListForm:
    """How the files are to be read. Raises UsageError."""
    form = ListForm(arguments.format or "", arguments.column or "")
    files = [*getattr(arguments, "inputs", ()), *getattr(arguments, "files", ())]
    if any(form) and not files and STDIN not in getattr(arguments, "urls", ()):
        raise UsageError("--format and --column are for files of URLs: give one with -i FILE")
    if form.column and form.format == "lines":
        raise UsageError("--column needs a table or JSON: leave out --format lines")
    return form


def _of_argument(where: str, text: str, *, quiet: bool = False) -> GivenUrl:
    if text.startswith("{"):
        return GivenUrl.of(where, text)
    return GivenUrl(where, _with_scheme(without_comment(text), quiet=quiet))


def urls_given(arguments: argparse.Namespace) -> list[str]:
    """The canonical URLs on a command line, without those that can't be: whoever uses them says why."""
    texts = [getattr(arguments, "url", STDIN), *getattr(arguments, "urls", ()), *getattr(arguments, "sitemap", ())]
    given, report = (_of_argument("", text, quiet=True) for text in texts), SeedReport()
    return [url for url in map(report.canonical, given) if url is not None]


async def read_given(
    file: str,
    form: ListForm = AS_FOUND,
    *,
    quiet: bool = False,
    taken: Callable[[int], None] = lambda _: None,
) -> AsyncIterator[list[GivenUrl]]:
    """Batches of URLs as they arrive. Unless `quiet`, it is said how they are read. Raises UsageError.

    `taken` is called with the bytes of each block of the file when what follows it is requested.
    """
    name = "standard input" if file == STDIN else file
    notes = _Notes(is_quiet=quiet)
    async for rows in read_rows(file, form, quiet=quiet, taken=taken):
        yield list(_given_in(name, rows, notes))


def _given_in(name: str, rows: Sequence[ListRow], notes: "_Notes") -> Iterator[GivenUrl]:
    for number, text, flaw in rows:
        where = f"{name} line {number}"
        if flaw:
            yield GivenUrl(where, text, flaw=flaw)
        elif bare(text).startswith("{"):
            yield GivenUrl.of(where, bare(text), notes.beside)
        elif (one := listed(text)) is not None:
            notes.take(where, one)
            yield GivenUrl.of_list(where, one)


class _Notes:
    """What was made of lines that are not just a URL: each kind is said for the first line of a file."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._has_host = self._has_more = self._has_beside = is_quiet

    def take(self, where: str, one: ListedUrl) -> None:
        if not self._has_host and (taken := _of_host(one.url)) != one.url:
            self._has_host = True
            warn(f"{where}: taking {one.url} as {taken}, and other hosts there likewise")
        if not self._has_more and one.is_mended and not one.fields:
            self._has_more = True
            warn(f"{where}: taking {one.url} without the date or priority behind it, and others there likewise")

    def beside(self, where: str, names: Sequence[str]) -> None:
        """An object of JSON with a URL among fields that are none of a seed."""
        if not self._has_beside:
            self._has_beside = True
            some = ", ".join(repr(name[:SHOWN_MAX]) for name in names[:BESIDE_SHOWN_MAX])
            warn(f"{where}: taking the url alone, without {some}, and others there likewise")


def _of_host(text: str) -> str:
    """A host alone is taken for its front page, as on the command line; anything else stays."""
    return f"{_scheme_of(text)}://{text}/" if _BARE_HOST.fullmatch(text) else text


async def check_any(plain: Sequence[GivenUrl], files: Sequence[str], form: ListForm = AS_FOUND) -> None:
    """Raises UsageError, after a line for each, when nothing can be a seed; said before anything is made.

    What flows (a pipe, a terminal) can be read once only: then it is seen later.
    """
    report = SeedReport()
    if any(report.canonical(one) for one in plain) or any(not is_plain_file(file) for file in files):
        return
    for file in files:
        async for batch in read_given(file, form, quiet=True):
            if any(report.canonical(one) for one in batch):
                return
    for line in complaints(report):
        warn(line)
    if not report.total and files:
        raise UsageError(f"no URL in {', '.join(files)}")
    raise UsageError(NO_SEED)


def complaints(report: SeedReport) -> Sequence[str]:
    """One line for each of the first invalid URLs: where it stood, what it is, why it can't be crawled."""
    lines = [f"{where}: {shown_url(text)}: {reason}" for where, text, reason in report.invalid[:COMPLAINTS_MAX]]
    more = report.invalid_count - len(lines)
    return [*lines, f"... and {counted(more, 'more invalid URL')}"] if more > 0 else lines


def out_of_scope_lines(report: SeedReport) -> list[str]:
    """One line for each of the first URLs that are out of scope: the rule that decided."""
    lines = [f"{url}: out of scope: {rule}" for url, rule in report.out_of_scope_rules[:COMPLAINTS_MAX]]
    more = report.out_of_scope - len(lines)
    return [*lines, f"... and {counted(more, 'more URL')} out of scope"] if more > 0 else lines


def shown_url(text: str) -> str:
    """As it may be printed: not too long, and without a password."""
    text = redaction.shown(text)
    return repr(text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "...")

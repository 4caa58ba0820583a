"""Formats in the engine: a pending URL as member and score, dead letters and commit entries as JSON.

A member contains a stamp: when the URL was queued, to the second, the number of the seed it descends from, and the
label of the handler that its page is for. It is four characters of base 90 for the time, which repeat after two years,
then the number without leading zeros, then `~` and the label, if there is one. A URL of a run has, instead of a number,
`!` and the run's id. A URL whose request carries more (see model.Request) has at the end `"` and that as JSON. No
character is a slash or a blank, so a path or a blank ends it. The stamp costs five to eight bytes of a URL and goes
with its member through blocks, files, claims, retries and takeovers; a table beside it would cost forty, and a second
write for each change. But nobody can compute a member from its URL: whoever looks for a URL reads the blocks of its
queue and compares paths.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from crawler.errors import EngineUnfit
from crawler.frontier.partition_keys import QUEUE_NUMBERS
from crawler.model import REQUISITE, Candidate, CommitEntry, Request
from crawler.rules.order import QUANTA, quantise
from crawler.rules.places import Fingerprints

# As in lua/_pending_url.lua.
KNOWN_BITS = 21
DEPTH_MAX = 255
COUNT_MAX = 15
LETTER_DETAIL_MAX = 1000  # characters: text from a site may be in it
DETAIL_MAX = 100  # characters of each attempt's detail: the engine keeps them while the URL waits
ORIGINS = {"!": "https://", '"': "http://", "#": "https://www.", "$": "http://www."}
INLINE = " "
TOO_DEEP = "|depth:"  # in the name of a row; see lua/_deferred.lua
OF_USER = "|@"  # in the name of a user's row; see lua/_queue.lua
OF_ORIGIN = "|!"  # in the name of the row of an origin that does not answer; see lua/_aside.lua
REQUISITE_MARK = "requisite"  # in the place of a reason; see lua/_queue.lua
USER_MARK = "\x01"  # there, before the user of a URL

# Of stamps.
DIGITS = "".join(chr(code) for code in range(35, 126) if chr(code) != "/")
BASE = len(DIGITS)
TIME_DIGITS = 4
LABEL, RUN, REQUEST = "~", "!", '"'  # not digits, nor in a label or a run's id; see lua/_pending_url.lua for the last
ROUND_S = BASE**TIME_DIGITS  # about two years
AHEAD_S = 86_400.0  # how far the clock of the session that queued it may be ahead of the reader's
_VALUES = {digit: value for value, digit in enumerate(DIGITS)}

_pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode


class FailedAttempt(msgspec.Struct, array_like=True, frozen=True):
    """When (wall clock, s) and why a fetch failed."""

    at: float
    kind: str
    detail: str = ""


class DeadLetter(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A URL that was given up: why, after how many attempts, when (wall clock, s), and all that was known about it.

    `failures` are the attempts in order; the engine stores them after the rest.
    """

    url: str
    queue: str
    domain: str
    depth: int
    reason: str
    detail: str
    attempts: int
    failed_at: float
    seed: bool = False
    redirects: int = 0
    score: float = 0.0
    seed_number: int = 0
    failures: tuple[FailedAttempt, ...] = ()
    label: str = ""
    trace: str = ""  # of the failure of a user's function
    run: str = ""
    user: str = ""
    request: Request | None = None


class PendingUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that waits in a queue, is claimed, or waits for a retry."""

    url: str
    queue: str
    domain: str
    depth: int
    redirects: int
    seed: bool
    attempts: int
    deliveries: int
    score: float
    queued_at: float = 0.0  # wall clock, s
    seed_number: int = 0  # of the seed it descends from; 0: not known
    run: str = ""
    label: str = ""
    user: str = ""
    request: Request | None = None

    @property
    def is_requisite(self) -> bool:
        return self.label == REQUISITE

    def fingerprint(self, fingerprints: Fingerprints) -> str:
        """By those of the crawl."""
        return fingerprints.of_run(self.run).of(self.url, self.request, self.label)


class Stamp(NamedTuple):
    """What a stamp says. `queued_at`: wall clock, s."""

    queued_at: float
    seed_number: int = 0
    run: str = ""
    label: str = ""
    request: Request | None = None


_letter_decoder = msgspec.json.Decoder(DeadLetter)
_failures_decoder = msgspec.json.Decoder(tuple[FailedAttempt, ...])
_entry_decoder = msgspec.json.Decoder(CommitEntry)
unpack_request = msgspec.json.Decoder(Request).decode


def pairs_of(raw: Any) -> list[tuple[bytes, bytes]]:
    """The pairs of a hash as the client returns it: a dict, or names and values in turn."""
    return list(raw.items()) if isinstance(raw, dict) else list(zip(raw[::2], raw[1::2], strict=True))


def pack(value: Any) -> bytes:
    """Msgpack of plain values, for the scripts' arguments."""
    return _pack(value)


QUEUE_WORDS = tuple(field.name for field in QUEUE_NUMBERS)


def unpack_queue(record: bytes) -> dict[str, Any]:
    """A queue's record by name; empty for an empty one. An unknown delay is -1."""
    if not record:
        return {}
    *numbers, more = msgspec.msgpack.decode(record)
    return dict(zip(QUEUE_WORDS, numbers, strict=True)) | dict(more)


@lru_cache(maxsize=10_000)  # the links of a page have few
def _score_text(order: float, depth: int, seed: bool, redirects: int) -> str:
    """The score of a member (lua/_pending_url.lua): the order, and in the low bits what else is known about the URL."""
    known = (DEPTH_MAX - min(depth, DEPTH_MAX)) << 13 | seed << 12 | min(redirects, COUNT_MAX) << 8
    return str((quantise(order) << KNOWN_BITS) + known)


def order_of(score: int) -> float:
    """The order in a score, to a quantum."""
    return (score >> KNOWN_BITS) / QUANTA


def member_of(url: str, queue: str, stamp: str) -> tuple[str, str]:
    """(member, origin) of a URL in its queue. If there is an origin, the engine puts its letter before the member."""
    end = url.index("/", 8)
    origin = url[:end]
    letter = _letters(queue).get(origin)
    path = stamp + url[end:]
    return (letter + path, "") if letter else (path, origin)


@lru_cache(maxsize=10_000)
def _letters(queue: str) -> dict[str, str]:
    return {f"{scheme}{queue}": letter for letter, scheme in ORIGINS.items()}


def parts_of(member: str, queue: str, origin: str) -> tuple[str, str]:
    """(URL, stamp) of a member; `origin` as listed in the engine, or "". Raises EngineUnfit for an invalid member."""
    letter, rest = member[:1], member[1:]
    if letter == INLINE and not origin:
        stamp, _, url = rest.partition(INLINE)
        return url, stamp
    end = rest.find("/")
    if end < 0 or not (origin or letter in ORIGINS):
        raise EngineUnfit(f"unreadable URL in the engine: {member[:80]!r} in the queue of {queue}")
    return (origin or f"{ORIGINS[letter]}{queue}") + rest[end:], rest[:end]


def as_queued(row: str, member: str, score: int) -> tuple[str, int, str]:
    """(member, score, user) in the queue of an entry of a row: rows of URLs that are too deep have another order, and
    those of an origin have URLs of all users.
    """
    if OF_ORIGIN in row:
        user, _, inner = member.removeprefix(USER_MARK).partition(" ") if member[:1] == USER_MARK else ("", "", member)
        return inner, score, user
    if TOO_DEEP in row:
        _, text, inner = member.split(" ", 2)
        return inner, int(text), ""
    return member, score, split_row(row)[1]


def row_of(queue: str, user: str) -> str:
    """The name of the row that a user's URLs in a queue are in; for "" it is the queue itself."""
    return f"{queue}{OF_USER}{user}" if user else queue


def split_row(row: str) -> tuple[str, str]:
    """(queue, user) of such a name; of the row of an origin, the queue."""
    queue, _, user = row.partition(OF_USER)
    return queue.partition(OF_ORIGIN)[0], user


def aside_row(queue: str, origin: str) -> str:
    """The name of the row of URLs that are set aside because their origin does not answer (lua/_aside.lua)."""
    return f"{queue}{OF_ORIGIN}{origin}"


def listed(member: str, origins: Mapping[str, str]) -> str:
    """The origin of a member from the engine's list of letters, or ""."""
    return origins.get(member[:1], "")


def pending_url(
    queue: str, domain: str, score: int, member: str, origin: str, now_s: float = 0.0, user: str = ""
) -> PendingUrl:
    """The URL of a stored member and score; `now_s`: wall clock, to find the year of the time in the stamp."""
    url, stamp = parts_of(member, queue, origin)
    known = read_stamp(stamp, now_s)
    return PendingUrl(
        url=url, queue=queue, domain=domain, depth=DEPTH_MAX - (score >> 13 & 255),
        redirects=score >> 8 & 15, seed=bool(score >> 12 & 1), attempts=score >> 4 & 15, deliveries=score & 15,
        score=order_of(score), queued_at=known.queued_at, seed_number=known.seed_number, run=known.run,
        label=known.label, user=user, request=known.request,
    )  # fmt: skip


def item_of(candidate: Candidate) -> tuple[str | int, ...]:
    """The values of one URL for `add` and `ack` (lua/_add.lua). The score is text: the engine parses it once."""
    c = candidate
    origin = c.run or c.seed_number
    stamp = make_stamp(int(c.found_at), origin, c.label)
    if c.request is not None:
        stamp += REQUEST + pack_request(c.request)
    member = member_of(c.url, c.queue, stamp)
    score = _score_text(c.score, c.depth, c.seed, c.redirects)
    reason = c.deferred or (f"at:{round(c.visible_at * 1000)}" if c.visible_at else "")
    if c.label == REQUISITE and not reason:
        reason = REQUISITE_MARK
    return (c.fingerprint, c.queue, c.domain, score, *member, c.depth, reason, origin)


def pack_letter(letter: DeadLetter) -> str:
    """Without its failures: lua/dead_letter.lua appends them after a line feed."""
    return _json(msgspec.structs.replace(letter, failures=(), detail=letter.detail[:LETTER_DETAIL_MAX])).decode()


def pack_failure(failure: FailedAttempt) -> str:
    """In the form that `retry` and `dead_letter` store; its detail is cut."""
    return _json(msgspec.structs.replace(failure, detail=failure.detail[:DETAIL_MAX])).decode()


def unpack_letter(stored: bytes) -> DeadLetter:
    packed, _, failures = stored.partition(b"\n")
    return msgspec.structs.replace(
        _letter_decoder.decode(packed), failures=_failures_decoder.decode(b"[%b]" % failures)
    )


def item_of_letter(fingerprint: str, letter: DeadLetter, visible_at: float = 0.0) -> tuple[str | int, ...]:
    """The values of one URL for `requeue_dead`: as it was in its queue, without the attempts; maybe scheduled."""
    return item_of(
        Candidate(
            url=letter.url, fingerprint=fingerprint, partition=0, domain=letter.domain, queue=letter.queue,
            depth=letter.depth, redirects=letter.redirects, seed=letter.seed, score=letter.score,
            found_at=letter.failed_at, seed_number=letter.seed_number, run=letter.run, user=letter.user,
            label=letter.label, visible_at=visible_at, request=as_new(letter.request),
        )
    )  # fmt: skip


def as_new(request: Request | None) -> Request | None:
    """The request as one that was not sent yet: somebody repeats it."""
    return msgspec.structs.replace(request, is_sent=False) if request is not None and request.is_sent else request


def pack_entry(entry: CommitEntry) -> str:
    return _json(entry).decode()


def unpack_log(stored: bytes) -> tuple[str, CommitEntry]:
    """A log value is 'token sequence entry': the token and the entry with its sequence."""
    token, sequence, packed = stored.split(b" ", 2)
    return token.decode(), msgspec.structs.replace(_entry_decoder.decode(packed), sequence=int(sequence))


@lru_cache(maxsize=1000)  # the links of a page have one stamp
def make_stamp(queued_at: int, origin: int | str, label: str = "") -> str:
    """The stamp of a wall time (whole s), a seed's number (0: not known) or a run's id, and a label without slash and
    blank.
    """
    digits, rest = "", queued_at % ROUND_S
    for _ in range(TIME_DIGITS):
        rest, digit = divmod(rest, BASE)
        digits = DIGITS[digit] + digits
    text = f"{digits}{RUN}{origin}" if isinstance(origin, str) else digits + _number(origin)
    return f"{text}{LABEL}{label}" if label else text


def pack_request(request: Request) -> str:
    """As JSON without slash and blank, which are only in its strings."""
    return _json(request).decode().replace("/", "\\u002f").replace(" ", "\\u0020")


def _number(value: int) -> str:
    number = ""
    while value:
        value, digit = divmod(value, BASE)
        number = DIGITS[digit] + number
    return number


def read_stamp(stamp: str, now_s: float) -> Stamp:
    """What a stamp says, when it is read at `now_s` (wall clock). KeyError for an invalid one, EngineUnfit for one with
    an invalid request.
    """
    if REQUEST not in stamp:
        return _read_stamp(stamp, now_s)
    stamp, _, packed = stamp.partition(REQUEST)
    try:
        return _read_stamp(stamp, now_s)._replace(request=unpack_request(packed))
    except msgspec.MsgspecError as error:
        raise EngineUnfit(f"unreadable request in the engine: {packed[:80]!r} ({error})") from None


@lru_cache(maxsize=1000)  # those that were found together have one, when they are claimed together
def _read_stamp(stamp: str, now_s: float) -> Stamp:
    latest = int(now_s + AHEAD_S)
    queued_at = float(latest - (latest - _value(stamp[:TIME_DIGITS])) % ROUND_S)
    origin, _, label = stamp[TIME_DIGITS:].partition(LABEL)
    if origin[:1] == RUN:
        return Stamp(queued_at, run=origin[1:], label=label)
    return Stamp(queued_at, _value(origin), label=label)


@lru_cache(maxsize=10_000)
def _value(digits: str) -> int:
    value = 0
    for digit in digits:
        value = value * BASE + _VALUES[digit]
    return value

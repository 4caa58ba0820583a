"""The lines of a robots.txt: which groups they open, and the rules for our agent (RFC 9309). Pure."""

import contextlib
import math
from collections.abc import Iterator

import msgspec

LINE_BYTES_MAX = 8 * 2083 - 1  # as Google does: the rest of a longer line is ignored
SITEMAPS_MAX = 100  # that are kept of one file; large sites name some dozen, or an index
DELAY_CHARS_MAX = 32  # a longer number is not a delay

_BOM = b"\xef\xbb\xbf"
_ESCAPED = {byte: f"%{byte:02X}" for byte in range(256) if not (0x20 <= byte < 0x7F or byte == 0x09)}
_USER_AGENT = frozenset(("user-agent", "useragent", "user agent"))
_DISALLOW = frozenset(("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"))
_SITEMAP = frozenset(("sitemap", "sitemaps", "site-map"))
_CRAWL_DELAY = frozenset(("crawl-delay", "crawldelay", "crawl delay"))
_KEYS = frozenset(("allow", *_USER_AGENT, *_DISALLOW, *_SITEMAP, *_CRAWL_DELAY))
_TWO_WORDS = frozenset(("allow", *_USER_AGENT, *_DISALLOW))  # a missing colon is forgiven for these


class Rule(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An Allow or Disallow line of our group, its pattern escaped to printable ASCII."""

    allow: bool
    pattern: str
    line_number: int


class _Group(msgspec.Struct):
    named: bool = False
    rules: list[Rule] = msgspec.field(default_factory=list)
    delay_s: float | None = None


class LineReading:
    """State while reading lines: the open groups. Rules of all groups that name an agent are combined."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.ours, self.everyone = _Group(), _Group()
        self.open: list[_Group] = []
        self.delayed: list[_Group] = []  # of the open groups, those that already have their Crawl-delay
        self.closing = False  # a rule was seen: the next User-agent line starts a new group
        self.agents_seen = 0
        self.sitemaps: list[str] = []

    def take(self, line: bytes, number: int) -> None:
        key, value = _key_and_value(line)
        if key in _USER_AGENT:
            self._user_agent(value)
        elif key in _SITEMAP:
            if value and len(self.sitemaps) < SITEMAPS_MAX:
                self.sitemaps.append(value)
        elif key == "allow" or key in _DISALLOW:
            self.closing = True
            if value and self.open:
                rule = Rule(allow=key == "allow", pattern=value, line_number=number)
                for group in self.open:
                    group.rules.append(rule)
        elif key in _CRAWL_DELAY:
            self._crawl_delay(value)

    def _user_agent(self, value: str) -> None:
        self.agents_seen += 1
        if self.closing:
            self.open, self.delayed, self.closing = [], [], False
        if value.split(maxsplit=1)[:1] == ["*"]:
            self._enter(self.everyone)
        if self.agent and self.agent in map(token_of, value.split(",")):
            self._enter(self.ours)

    def _enter(self, group: _Group) -> None:
        group.named = True
        if not any(group is other for other in self.open):
            self.open.append(group)

    def _crawl_delay(self, value: str) -> None:
        """Applies to the agents named since the last delay: unlike rules, it is often written once for each agent."""
        delay_s = _seconds(value)
        if not math.isfinite(delay_s) or delay_s < 0:
            return
        for group in self.open:
            if group.delay_s is None or not any(group is other for other in self.delayed):
                group.delay_s = max(delay_s, group.delay_s or 0.0)
        self.delayed = list(self.open)


def _seconds(value: str) -> float:
    """The number in a delay, also with a unit or a remark behind it: "2s", "2 seconds", "1 min"; NaN for none."""
    if len(value) > DELAY_CHARS_MAX:
        return math.nan
    with contextlib.suppress(ValueError):
        return float(value)
    unit = value.lstrip("0123456789.")
    try:
        number = float(value[: len(value) - len(unit)])
    except ValueError:
        return math.nan
    words = unit.strip().lower()
    scale = 0.001 if words.startswith(("ms", "milli")) else 60.0 if words.startswith("m") else 1.0
    return number * scale


def lines_of(body: bytes, *, is_cut: bool = False) -> Iterator[tuple[int, bytes]]:
    """Numbered lines. UTF-16 with a byte-order mark is decoded; a UTF-8 mark, or a part of one, is removed.

    `is_cut`: more of the file followed. Its last line may then be any other one, and is left out: "Allow: /a" may be
    the beginning of "Allow: /ab". Where a comment has begun, the line before it is whole.
    """
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        body = body.decode("utf-16", "replace").encode("utf-8", "replace")
    mark = next((n for n in (3, 2, 1) if body.startswith(_BOM[:n])), 0)
    lines = body[mark:].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if is_cut and b"#" not in lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        if line:
            yield number, line[:LINE_BYTES_MAX].replace(b"\0", b"")


def is_like_robots(body: bytes) -> bool:
    """Is it text (UTF-8, no NUL) with a line that robots.txt files have, or without any line but comments?

    A file in a coding that nobody knows must not be taken for one that forbids nothing.
    """
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end < len(body) or error.reason != "unexpected end of data":  # else it was cut in a character
            return False
    keys = [_key_and_value(line)[0] for _, line in lines_of(body) if line.partition(b"#")[0].strip()]
    return b"\0" not in body and (not keys or not _KEYS.isdisjoint(keys))


def _key_and_value(line: bytes) -> tuple[str, str]:
    """A line's key in lower case and its value, escaped to printable ASCII; ("", "") for any other line."""
    text = line.partition(b"#")[0]
    before, colon, value = text.partition(b":")
    key = " ".join(map(_escaped, before.lower().split()))
    if not colon or key not in _TWO_WORDS:
        words = text.split()
        if len(words) == 2 and _escaped(words[0].lower()) in _TWO_WORDS:
            return _escaped(words[0].lower()), _escaped(words[1])
    return (key, _escaped(value.strip())) if colon else ("", "")


def _escaped(word: bytes) -> str:
    text = word.decode("latin-1")
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPED)


def token_of(name: str) -> str:
    """Product token, lower-cased, of a name with version and comments: "Foo/1.2 (x)" -> "foo"."""
    words = name.split(maxsplit=1)
    return words[0].partition("/")[0].partition("*")[0].lower() if words else ""

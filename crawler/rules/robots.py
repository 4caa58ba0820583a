"""robots.txt (RFC 9309): may our agent fetch this URL, and which line decides.

Lines and groups are read as the RFC and the large crawlers read them. Paths and patterns are compared
octet by octet, escaped or not; only a slash is another than its octet, and an asterisk of a pattern is a wildcard.

`RobotsRules.parse` reads what a site served, `RobotsRules.stored` what `our_group` wrote. The formats differ, so
nothing that a site serves can pass for a stored group.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from crawler.model import Decoded, Response
from crawler.rules.challenges import sentence_of
from crawler.rules.rights import USAGE
from crawler.rules.robots_patterns import Matcher, Rule
from crawler.rules.site_rights import KEYS as RIGHTS_KEYS
from crawler.rules.site_rights import Line, SaidLines, SiteRights, site_rights_of

LINE_BYTES_MAX = 8 * 2083 - 1  # as Google does: the rest of a longer line is ignored
SITEMAPS_MAX = 100  # that are kept of one file; large sites name some dozen, or an index
DELAY_CHARS_MAX = 32  # a longer number is not a delay
NAME_CHARS_MAX = 80  # of another agent, as it is shown

_BOM = b"\xef\xbb\xbf"
_ESCAPED = {byte: f"%{byte:02X}" for byte in range(256) if not (0x20 <= byte < 0x7F or byte == 0x09)}
_USER_AGENT = frozenset(("user-agent", "useragent", "user agent"))
_DISALLOW = frozenset(("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"))
_SITEMAP = frozenset(("sitemap", "sitemaps", "site-map"))
_CRAWL_DELAY = frozenset(("crawl-delay", "crawldelay", "crawl delay"))
_KEYS = frozenset(("allow", *_USER_AGENT, *_DISALLOW, *_SITEMAP, *_CRAWL_DELAY))
_TWO_WORDS = frozenset(("allow", *_USER_AGENT, *_DISALLOW))  # a missing colon is forgiven for these


class _Group(msgspec.Struct):
    named: bool = False
    rules: list[Rule] = msgspec.field(default_factory=list)
    delay_s: float | None = None
    said: list[list[Line]] = msgspec.field(default_factory=list)  # about the use of pages, by group of the file


class LineReading:
    """State while reading lines: the open groups. Rules of all groups that name an agent are combined."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.ours, self.everyone = _Group(), _Group()
        self.open: list[_Group] = []
        self.delayed: list[_Group] = []  # of the open groups, those that already have their Crawl-delay
        self.closing = False  # a rule was seen: the next User-agent line starts a new group
        self.is_between = False  # another line than a rule was seen: what names agents from here on is apart
        self.below = ""  # the last agent that was named apart
        self.near: list[_Group] = []  # of the open groups, those that were named apart
        self.agents_seen = 0
        self.sitemaps: list[str] = []
        self.said = SaidLines()

    def take(self, line: bytes, number: int) -> None:
        key, value = _key_and_value(line)
        if key in _USER_AGENT:
            self._user_agent(value)
        elif key in _SITEMAP:
            self.is_between = True
            if value and len(self.sitemaps) < SITEMAPS_MAX:
                self.sitemaps.append(value)
        elif key == "allow" or key in _DISALLOW:
            self.closing = True
            if value and self.open:
                allow, near = key == "allow", Rule(allow=key == "allow", pattern=value, line_number=number)
                far = Rule(allow=allow, pattern=value, line_number=number, below=self.below) if self.below else near
                for group in self.open:
                    group.rules.append(near if any(group is other for other in self.near) else far)
        elif key in RIGHTS_KEYS:
            self.said.take(key, value, number, is_in_group=self.agents_seen > 0)
            self.closing, self.is_between = self.closing or key == USAGE, self.is_between or key != USAGE
        elif key:
            self.is_between = True
            if key in _CRAWL_DELAY:
                self._crawl_delay(value)

    def _user_agent(self, value: str) -> None:
        if self.closing or not self.agents_seen:
            self.said.group_begins()
        self.agents_seen += 1
        if self.closing:
            self.open, self.delayed, self.closing = [], [], False
            self.is_between, self.below, self.near = False, "", []
        if self.is_between and self.open:
            self.below = value[:NAME_CHARS_MAX]
        if value.split(maxsplit=1)[:1] == ["*"]:
            self._enter(self.everyone)
        if self.agent and self.agent in map(token_of, value.split(",")):
            self._enter(self.ours)

    def _enter(self, group: _Group) -> None:
        group.named = True
        if not any(self.said.of_group is one for one in group.said[-1:]):
            group.said.append(self.said.of_group)
        if self.below:
            self.near.append(group)
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


# No-break spaces, marks without width and the like, which copying from pages and word processors leaves. They are cut
# where ASCII blanks are, or a rule would be another one, and a forbidden page be fetched.
_WHITE = "\x85\xa0\u1680\u180e\u2028\u2029\u202f\u205f\u2060\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x2010)))
_WHITES = dict.fromkeys(map(ord, _WHITE), " ")
_ALL_WHITE = f"{_WHITE} \t\v\f"


def _trimmed(line: bytes) -> bytes:
    """A line without white space beyond ASCII around its key and its value; inside of the value it stays."""
    try:
        text, coding = line.decode(), "utf-8"
    except UnicodeDecodeError:
        text, coding = line.decode("latin-1"), "latin-1"
    key, colon, value = text.partition(":")
    if not colon:
        key, colon, value = text.strip(_ALL_WHITE).translate(_WHITES).partition(" ")
    return f"{key.translate(_WHITES)}{colon}{value.strip(_ALL_WHITE)}".encode(coding)


def _key_and_value(line: bytes) -> tuple[str, str]:
    """A line's key in lower case and its value, escaped to printable ASCII; ("", "") for any other line."""
    text = line.partition(b"#")[0]
    if not text.isascii():
        text = _trimmed(text)
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


Policy = Literal["parse", "allow_all", "disallow_all"]

SHARED_BYTES_MAX, SHARED_MAX = 4096, 1024  # robots.txt whose rules are cached: maximum size, number
RULE_BYTES = 700  # of memory for a rule, its pattern and how it is matched
READ_BYTES_MIN = 500_000  # RFC 9309 2.5 requires 512,000; a content coding may use up a little of what was received
WILDCARD_RULES_MAX = 5000  # more are simplified: each costs up to 5 us a check against the longest URLs
# Matching a pattern takes up to the product of its length and the URL's. Beyond this product (about 20 ms) a URL is
# checked by simplified rules. A URL of 200 bytes reaches it with 200 KB of wildcard patterns, one of 8 KB with 5 KB.
WILDCARD_WORK_MAX = 40_000_000
URL_CHARS_MAX = 8192  # of those that are queued


class RobotsVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`line_number` counts from 1; 0 and "" when no line decided, which means allowed."""

    allowed: bool
    line_number: int = 0
    line: str = ""
    below: str = ""  # as of a rule


class RobotsRules(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The rules of one robots.txt for one agent. Build with `parse`."""

    rules: tuple[Rule, ...] = ()
    crawl_delay_s: float | None = None  # as the site wrote it: finite, not negative, not clamped
    sitemaps: tuple[str, ...] = ()
    flagged: bool = False  # the file was not a robots.txt; most often it was an HTML page
    said: SiteRights | None = None  # about the use of pages; None: nothing

    @classmethod
    def parse(cls, body: bytes, agent: str, *, is_cut: bool = False) -> "RobotsRules":
        """Read what a site served. `agent` is a product token; a version is ignored. `is_cut`: more of it followed.

        Sites that run the same software have the same robots.txt: rules of short ones are cached and shared.
        """
        if is_cut or len(body) > SHARED_BYTES_MAX:
            return cls._parsed(body, agent, is_cut=is_cut)
        return _parsed_once(body, agent)

    @classmethod
    def _parsed(cls, body: bytes, agent: str, *, is_cut: bool = False) -> "RobotsRules":
        ours = "" if " " in agent.partition("/")[0].strip() else token_of(agent)  # no token has a blank
        reading = LineReading(ours)
        for number, line in lines_of(body, is_cut=is_cut):
            reading.take(line, number)
        group, said = reading.ours if reading.ours.named else reading.everyone, reading.said
        return cls(
            rules=_bounded(group.rules),
            crawl_delay_s=group.delay_s,
            said=site_rights_of(said.licenses, said.outside, list(chain.from_iterable(group.said))),
            sitemaps=tuple(dict.fromkeys(reading.sitemaps)),
            flagged=_is_markup(body, reading),
        )

    @classmethod
    def stored(cls, group: bytes) -> "RobotsRules":
        """Read what `our_group` wrote; b"" allows everything. Raises ValueError for anything else."""
        if not group:
            return cls()
        try:
            kept = _decode_group(group)
        except msgspec.MsgspecError as error:
            raise ValueError(f"not a stored robots.txt: {error}") from None
        return cls(
            rules=kept.rules, crawl_delay_s=kept.crawl_delay_s, sitemaps=kept.sitemaps, flagged=kept.flagged,
            said=kept.said,
        )  # fmt: skip

    def allows(self, url: str) -> bool:
        """May this canonical URL be fetched? /robots.txt itself always may."""
        if self._is_too_long(url):
            return self._simplified.allows(url)
        return not self.rules or (rule := self._matcher.deciding(url)) is None or rule.allow

    def with_rights(self, said: SiteRights) -> "RobotsRules":
        """The same with what a site says of the use of its pages elsewhere; what was built for the rules stays."""
        made = msgspec.structs.replace(self, said=said)
        vars(made).update({name: kept for name, kept in vars(self).items() if name != "memory_bytes"})
        return made

    def prepare(self) -> None:
        """Build what the first `allows` would build; called in a thread when there are many rules.

        Not through the cached properties: in Python 3.11 all instances share their lock, and the event loop would wait.
        """
        if not self.rules:
            return
        kept = vars(self)
        kept["_matcher"] = Matcher(self.rules)
        if URL_CHARS_MAX * self._wildcard_bytes > WILDCARD_WORK_MAX:
            kept["_simplified"] = self._made_simple()
            kept["_simplified"].prepare()

    def _is_too_long(self, url: str) -> bool:
        return len(url) * self._wildcard_bytes > WILDCARD_WORK_MAX

    def verdict(self, url: str) -> RobotsVerdict:
        """The same answer with the line that decided: the longest pattern that matches, Allow first."""
        if self._is_too_long(url):
            return self._simplified.verdict(url)
        rule = self._matcher.deciding(url)
        if rule is None:
            return RobotsVerdict(allowed=True)
        line = f"{'Allow' if rule.allow else 'Disallow'}: {rule.pattern}"
        return RobotsVerdict(allowed=rule.allow, line_number=rule.line_number, line=line, below=rule.below)

    def our_group(self) -> bytes:
        """The rules for our agent, for storage; `stored` reads them back."""
        return _encode_group(_Stored(self.flagged, self.crawl_delay_s, self.rules, self.sitemaps, self.said))

    @cached_property
    def memory_bytes(self) -> int:
        """Approximate memory that the rules take once they have been used."""
        of_rights = self.said.memory_bytes if self.said is not None else 0
        return 500 + of_rights + sum([RULE_BYTES + 3 * len(rule.pattern) for rule in self.rules])

    @cached_property
    def _matcher(self) -> "Matcher":
        return Matcher(self.rules)

    @cached_property
    def _wildcard_bytes(self) -> int:
        return sum(len(rule.pattern) for rule in self.rules if "*" in rule.pattern)

    @cached_property
    def _simplified(self) -> "RobotsRules":
        return self._made_simple()

    def _made_simple(self) -> "RobotsRules":
        return RobotsRules(rules=_bounded(self.rules, wildcard_rules_max=0))


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The stored form of rules."""

    flagged: bool
    crawl_delay_s: float | None
    rules: tuple[Rule, ...]
    sitemaps: tuple[str, ...]
    said: SiteRights | None = None


_encode_group = msgspec.msgpack.Encoder().encode
_decode_group = msgspec.msgpack.Decoder(_Stored).decode


@lru_cache(maxsize=SHARED_MAX)
def _parsed_once(body: bytes, agent: str) -> RobotsRules:
    return RobotsRules._parsed(body, agent)  # noqa: SLF001 - of this module


def robots_policy(status: int) -> Policy:
    """What the final status of a robots.txt fetch means (RFC 9309 section 2.3.1).

    429 counts as a server in trouble, not as a missing file; so do a status that nobody knows (600 and more), a 304,
    which answers what nobody asked, and 202 ("Accepted"), by which firewalls say "not yet". A redirect that was not
    followed (too many) means unavailable.
    """
    if 200 <= status < 300 and status != 202:
        return "parse"
    if status in (202, 304, 429) or status >= 500 or status < 200:
        return "disallow_all"
    return "allow_all"


def policy_of(response: Response, challenge: str = "") -> tuple[Policy, str]:
    """What the final response of a robots.txt fetch means, and the reason if nothing is allowed.

    The missing part of a file may forbid any page. So an incomplete file counts as unreachable (RFC 9309 2.3.1.4) and
    is fetched again; only a file that is cut at our limit is parsed, to the end of its last whole line (2.5,
    `is_cut_at_limit`). Bytes behind a whole content coding, or a wrong checksum, take nothing from it.

    `challenge`: the product that answered instead of the site, whatever the status. That tells nothing of the file.
    """
    if challenge:
        return "disallow_all", sentence_of(challenge)
    policy = robots_policy(response.status)
    if policy == "disallow_all":
        return policy, f"status {response.status}"
    missing = _missing_of(response) if policy == "parse" else ""
    return ("disallow_all", missing) if missing else (policy, "")


def is_cut_at_limit(response: Response) -> bool:
    """Whether more of the file followed than is read, before or after its content was decoded."""
    return response.truncated == "length"


def _missing_of(response: Response) -> str:
    """Why the body is not the whole file; "" when it is, or when it is as much as must be read."""
    is_doubtful = response.decoded is Decoded.UNSURE and not is_like_robots(response.body)
    if response.decoded >= Decoded.UNCODED or is_doubtful:
        return f"its body can't be decoded: {response.decode_error}"
    if is_cut_at_limit(response):
        return "" if len(response.body) >= READ_BYTES_MIN else "its body was cut at the limit and holds too little"
    if response.truncated:
        return f"its body was cut off by {response.truncated}"
    if response.status == 206:  # no range was asked for
        return "status 206, a part of the file"
    if response.status in (204, 205) and response.header("content-length") not in ("", "0"):
        return f"status {response.status} with a length: no content came"
    return ""


def _bounded(rules: Iterable[Rule], *, wildcard_rules_max: int = WILDCARD_RULES_MAX) -> tuple[Rule, ...]:
    """Beyond the bound, patterns with wildcards lose them, always towards crawling less."""
    kept: list[Rule] = []
    wildcards = 0
    for rule in rules:
        wildcards += "*" in rule.pattern
        if wildcards <= wildcard_rules_max or "*" not in rule.pattern:
            kept.append(rule)
        elif not rule.allow:
            pattern = rule.pattern.partition("*")[0].rstrip("$") or "/"  # a "$" at its end would be another
            kept.append(msgspec.structs.replace(rule, pattern=pattern))
    return tuple(kept)


def _is_markup(body: bytes, reading: LineReading) -> bool:
    return not reading.agents_seen and b"<" in body[:512] and body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"


ALLOW_ALL = RobotsRules()


class SharedRobots(NamedTuple):
    """What the frontier keeps for an origin: when it was read (wall s), and the rules for our agent."""

    read_at: int
    rules: RobotsRules

    def pack(self) -> bytes:
        """The stored form. The engine's scripts read the time at its beginning; no rules are stored as b""."""
        return b"%d %b" % (self.read_at, b"" if self.rules == ALLOW_ALL else self.rules.our_group())

    @classmethod
    def unpack(cls, blob: bytes) -> "SharedRobots | None":
        """None for an unknown format: robots.txt is then read again."""
        read_at, _, group = blob.partition(b" ")
        try:
            return cls(int(read_at), RobotsRules.stored(group))
        except ValueError:
            return None

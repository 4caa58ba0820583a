"""robots.txt (RFC 9309): may our agent ask for this URL, and which line says so.

Lines and groups are read here, as the RFC and the large crawlers read them; Protego, which does the matching of
patterns, is only ever given our own group in plain form. It would trip over what sites really serve: marks at the
start, unknown lines between User-agent lines, "User-agent: Foo Bar", CR line ends. Knows nothing of fetching.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec

from crawler.model import Response

if TYPE_CHECKING:
    from protego import Protego

Policy = Literal["parse", "allow_all", "disallow_all"]

LINE_BYTES_MAX = 8 * 2083 - 1  # as Google reads: what follows on one line is ignored
SHARED_BYTES_MAX, SHARED_MAX = 4096, 1024  # robots.txt whose rules are remembered: how long, how many
RULE_BYTES = 700  # of memory for a rule, its pattern and what Protego makes of it
READ_BYTES_MIN = 500_000  # RFC 9309 2.5 asks for 512,000; a content coding may take a little of what was received
WILDCARD_RULES_MAX = 5000  # more are simplified: each costs up to 5 us a check against the longest URLs

_BOM = b"\xef\xbb\xbf"
_COMPACT = b"# our group only\n"
_LINE = re.compile(rb"\r\n|\n|\r")
_LINE_NUMBER = re.compile(rb"#(\d+)\s*$")
_TOKEN = re.compile(r"[^\s/*]+")
_USER_AGENT = frozenset(("user-agent", "useragent", "user agent"))
_DISALLOW = frozenset(("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"))
_SITEMAP = frozenset(("sitemap", "sitemaps", "site-map"))
_CRAWL_DELAY = frozenset(("crawl-delay", "crawldelay", "crawl delay"))
_TWO_WORDS = frozenset(("allow", *_USER_AGENT, *_DISALLOW))  # a missing colon is forgiven for these


class RobotsVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`line_number` counts from 1; 0 and "" when no line decided, which means allowed."""

    allowed: bool
    line_number: int = 0
    line: str = ""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """An Allow or Disallow line of our group, its pattern escaped to ASCII."""

    allow: bool
    pattern: str
    line_number: int


@dataclass(frozen=True, kw_only=True)
class RobotsRules:
    """What one robots.txt says to one agent. Build with `parse`."""

    rules: tuple[Rule, ...] = ()
    crawl_delay_s: float | None = None  # as the site wrote it: finite, not negative, not clamped
    sitemaps: tuple[str, ...] = ()
    flagged: bool = False  # something else than a robots.txt was served: an HTML page, most often

    @classmethod
    def parse(cls, body: bytes, agent: str) -> "RobotsRules":
        """Read a body, or the bytes that `our_group` gave. `agent` is a product token; a version is ignored.

        Sites that one program serves have one robots.txt: rules of short ones are remembered, and shared.
        """
        return _parsed_once(body, agent) if len(body) <= SHARED_BYTES_MAX else cls._parsed(body, agent)

    @classmethod
    def _parsed(cls, body: bytes, agent: str) -> "RobotsRules":
        ours = "" if " " in agent.partition("/")[0].strip() else _token(agent)  # no token has a blank
        reading = _Reading(ours, compact=body.startswith(_COMPACT))
        for number, line in _lines(body):
            reading.take(line, number)
        return cls(
            rules=_bounded(reading.ours.rules if reading.ours.named else reading.everyone.rules),
            crawl_delay_s=reading.ours.delay_s if reading.ours.named else reading.everyone.delay_s,
            sitemaps=tuple(dict.fromkeys(reading.sitemaps)),
            flagged=_is_no_robots_txt(body, reading) or body.startswith(_COMPACT + b"# flagged\n"),
        )

    def allows(self, url: str) -> bool:
        """May this canonical URL be asked for? /robots.txt itself always may."""
        return not self.rules or self._protego.can_fetch(url or "/", "us")

    def verdict(self, url: str) -> RobotsVerdict:
        """The same answer with the line that decided: the longest pattern that matches, Allow first."""
        allowed = self.allows(url)
        deciding = [rule for rule in self.rules if rule.allow == allowed and _matches(rule, url or "/")]
        if not deciding or url.partition("?")[0].endswith("/robots.txt"):
            return RobotsVerdict(allowed=allowed)
        rule = max(deciding, key=lambda rule: len(rule.pattern))
        return RobotsVerdict(allowed=allowed, line_number=rule.line_number, line=_spell(rule))

    def our_group(self) -> bytes:
        """A robots.txt with only what concerns our agent, for storage; `parse` reads it back to the same rules."""
        lines = ["# flagged"] if self.flagged else []
        lines.append("User-agent: *")
        if self.crawl_delay_s is not None:
            lines.append(f"Crawl-delay: {self.crawl_delay_s!r}")
        lines += [f"{_spell(rule)} #{rule.line_number}" for rule in self.rules]
        lines += [f"Sitemap: {sitemap}" for sitemap in self.sitemaps]
        return _COMPACT + "\n".join(lines).encode() + b"\n"

    @cached_property
    def memory_bytes(self) -> int:
        """What they take in memory once they have been asked, roughly."""
        return 500 + sum([RULE_BYTES + 3 * len(rule.pattern) for rule in self.rules])

    @cached_property
    def _protego(self) -> "Protego":
        return _protego_of(self.rules)


@lru_cache(maxsize=SHARED_MAX)
def _parsed_once(body: bytes, agent: str) -> RobotsRules:
    return RobotsRules._parsed(body, agent)  # noqa: SLF001 - of this module


def robots_policy(status: int) -> Policy:
    """What the final status of a robots.txt fetch means (RFC 9309 section 2.3.1).

    429 counts as a server in trouble, not as a missing file. A redirect left over (too many) means unavailable.
    """
    if 200 <= status < 300:
        return "parse"
    if status == 429 or status >= 500 or status < 200:
        return "disallow_all"
    return "allow_all"


def policy_of(response: Response) -> tuple[Policy, str]:
    """What the final response of a robots.txt fetch means, and why nothing is allowed.

    What is missing may forbid any page. So a file that did not come whole counts as one that can't be read (RFC 9309
    2.3.1.4), and is fetched again; only one that is cut at our limit is parsed as far as it came (2.5).
    """
    policy = robots_policy(response.status)
    if policy == "disallow_all":
        return policy, f"status {response.status}"
    missing = _missing_of(response) if policy == "parse" else ""
    return ("disallow_all", missing) if missing else (policy, "")


def _missing_of(response: Response) -> str:
    """Why the body is not the whole file; "" when it is, or when it is as much of it as is read."""
    if response.decode_error:
        return f"its body can't be decoded: {response.decode_error}"
    if response.truncated == "length":
        return "" if len(response.body) >= READ_BYTES_MIN else "its body holds next to nothing for its length"
    if response.truncated:
        return f"its body was cut off by {response.truncated}"
    if response.status == 206:  # no range was asked for
        return "status 206, a part of the file"
    if response.status in (204, 205) and response.header("content-length") not in ("", "0"):
        return f"status {response.status} with a length: no content came"
    return ""


class _Group(msgspec.Struct):
    named: bool = False
    rules: list[Rule] = msgspec.field(default_factory=list)
    delay_s: float | None = None


class _Reading:
    """State while reading lines: which groups are open. Rules gather over all groups that name an agent."""

    def __init__(self, agent: str, *, compact: bool) -> None:
        self.agent = agent
        self.compact = compact
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
            if value:
                self.sitemaps.append(value)
        elif key == "allow" or key in _DISALLOW:
            self.closing = True
            if value and self.open:
                noted = _LINE_NUMBER.search(line) if self.compact else None
                rule = Rule(allow=key == "allow", pattern=value, line_number=int(noted[1]) if noted else number)
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
        if self.agent and self.agent in map(_token, value.split(",")):
            self._enter(self.ours)

    def _enter(self, group: _Group) -> None:
        group.named = True
        if not any(group is other for other in self.open):
            self.open.append(group)

    def _crawl_delay(self, value: str) -> None:
        """Goes to the agents named since the last delay: unlike rules it is often written once per agent."""
        try:
            delay_s = float(value)
        except ValueError:
            return
        if not math.isfinite(delay_s) or delay_s < 0:
            return
        for group in self.open:
            if group.delay_s is None or not any(group is other for other in self.delayed):
                group.delay_s = max(delay_s, group.delay_s or 0.0)
        self.delayed = list(self.open)


def _lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbered lines; UTF-16 with its mark is read as such, and whatever part of a UTF-8 mark there is, is cut."""
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        body = body.decode("utf-16", "replace").encode("utf-8", "replace")
    mark = next((n for n in (3, 2, 1) if body.startswith(_BOM[:n])), 0)
    whole = body.startswith(_COMPACT)
    for number, line in enumerate(_LINE.split(body[mark:]), 1):
        yield number, line if whole else line[:LINE_BYTES_MAX].replace(b"\0", b"")


def _key_and_value(line: bytes) -> tuple[str, str]:
    """A line's key in lower case and its value, escaped to ASCII; ("", "") for what is neither."""
    text = "".join([chr(b) if b < 0x80 else f"%{b:02X}" for b in line.partition(b"#")[0]]).strip()
    key, colon, value = text.partition(":")
    key = " ".join(key.lower().split())
    if not colon or key not in _TWO_WORDS:
        words = text.split()
        if len(words) == 2 and words[0].lower() in _TWO_WORDS:
            return words[0].lower(), words[1]
    return (key, value.strip()) if colon else ("", "")


def _token(name: str) -> str:
    """Product token, lower-cased, of a name with whatever follows it: "Foo/1.2 (x)" -> "foo"."""
    match = _TOKEN.match(name.strip())
    return match[0].lower() if match else ""


def _protego_of(rules: tuple[Rule, ...]) -> "Protego":
    from protego import Protego

    return Protego.parse("\n".join(["User-agent: *", *map(_spell, rules)]))


def _bounded(rules: list[Rule]) -> tuple[Rule, ...]:
    """Beyond the bound, patterns with wildcards lose them, always towards crawling less."""
    kept: list[Rule] = []
    wildcards = 0
    for rule in rules:
        wildcards += "*" in rule.pattern
        if wildcards <= WILDCARD_RULES_MAX or "*" not in rule.pattern:
            kept.append(rule)
        elif not rule.allow:
            pattern = rule.pattern.partition("*")[0] or "/"
            kept.append(Rule(allow=False, pattern=pattern, line_number=rule.line_number))
    return tuple(kept)


def _spell(rule: Rule) -> str:
    return f"{'Allow' if rule.allow else 'Disallow'}: {rule.pattern}"


def _matches(rule: Rule, url: str) -> bool:
    """Whether the rule alone reaches the URL, asked of Protego (an Allow by allowing it back)."""
    if not rule.allow:
        return not _protego_of((rule,)).can_fetch(url, "us")
    everything = Rule(allow=False, pattern="/", line_number=0)
    return _protego_of((everything, rule)).can_fetch(url, "us")


def _is_no_robots_txt(body: bytes, reading: _Reading) -> bool:
    return not reading.agents_seen and b"<" in body[:512] and body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"

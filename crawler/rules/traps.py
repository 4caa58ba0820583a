"""Crawler traps: infinite URL spaces. Decides from a URL and a little that was learned about its domain. Pure.

A URL is *suspect* by its form (or by where it was found) and is demoted, never more. Suspects are deferred only after
many of them were fetched and each led further into the same trap. So a space that ends is crawled to its end, however
odd it looks. docs/guide/traps.md has the rules and their thresholds.
"""

import enum
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from crawler.rules.trap_tokens import (
    REPEATS_MIN,
    Chain,
    Known,
    Tokens,
    known_by_chain,
    known_by_token,
    learn_chain,
    learn_tokens,
    number_of,
)
from crawler.rules.urls import host_of, is_ip, origin_of, registrable_domain
from crawler.settings.schema import TrapRule, TrapSettings

DIGESTS_MAX = 8
PLACES_MAX = 12  # counted one by one; later ones are counted together, by rule
REST = 0
SPANS_MAX = 8
LEVELS = 64


class Count(msgspec.Struct, frozen=True, array_like=True):
    """Fetched suspects of one rule in one place, and the levels (modulo 64, a bit each) at which some led further."""

    rule: str
    place: int = REST
    pages: int = 0
    levels: int = 0

    @property
    def steps(self) -> int:
        """At how many levels pages led further."""
        return self.levels.bit_count()


class TrapState(msgspec.Struct, frozen=True, array_like=True):
    """Everything learned about a domain: at most 1 KB in msgpack."""

    counts: tuple[Count, ...] = ()
    digests: tuple[tuple[str, int], ...] = ()  # the most frequent bodies, counted at least this often
    years: tuple[tuple[int, int], ...] = ()  # spans of years that the site itself lists, in order
    tokens: Tokens = Tokens()
    chains: tuple[Chain, ...] = ()  # the latest last

    @property
    def has_chain(self) -> bool:
        """Is one long enough to be suspect?"""
        return any(one.pages >= REPEATS_MIN for one in self.chains)

    def count(self, rule: str, place: str) -> Count:
        """The count of a rule in a place; zeroes when nothing was counted there."""
        number = number_of(place)
        for count in self.counts:
            if count.rule == rule and count.place == number:
                return count
        if sum(count.place != REST for count in self.counts) < PLACES_MAX:
            return Count(rule, number)
        return next((count for count in self.counts if count.rule == rule and count.place == REST), Count(rule))


NOTHING_LEARNED = TrapState()


def with_suspect(state: TrapState, rule: str, place: str, level: int | None) -> TrapState:
    """One more fetched page that was suspect by `rule`; `level` is its level if it led further, else None."""
    old = state.count(rule, place)
    levels = old.levels if level is None else old.levels | 1 << level % LEVELS
    new = Count(rule, old.place, old.pages + 1, levels)
    others = tuple(count for count in state.counts if (count.rule, count.place) != (rule, old.place))
    return msgspec.structs.replace(state, counts=(*others, new))


def with_digest(state: TrapState, digest: str) -> TrapState:
    """One more body. Counts are never too high (Misra and Gries, 1982): distinct bodies cancel out."""
    if any(known == digest for known, _ in state.digests):
        counted = tuple((known, n + (known == digest)) for known, n in state.digests)
    elif len(state.digests) < DIGESTS_MAX:
        counted = (*state.digests, (digest, 1))
    else:
        counted = tuple((known, n - 1) for known, n in state.digests if n > 1)
    return msgspec.structs.replace(state, digests=counted)


def with_years(state: TrapState, years: set[int]) -> TrapState:
    """More years that the site lists. Beyond the bound the closest spans are joined, so that less is suspect."""
    if all(any(low <= year <= high for low, high in state.years) for year in years):
        return state
    spans: list[tuple[int, int]] = []
    for low, high in sorted([*state.years, *((year, year) for year in years)]):
        if spans and low <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], max(high, spans[-1][1]))
        else:
            spans.append((low, high))
    while len(spans) > SPANS_MAX:
        closest = min(range(len(spans) - 1), key=lambda n: spans[n + 1][0] - spans[n][1])
        spans[closest : closest + 2] = [(spans[closest][0], spans[closest + 1][1])]
    return msgspec.structs.replace(state, years=tuple(spans))


# What is suspect in the form of a URL: its length, its host, repeated or too many segments and parameters.

# Values in URLs (cursors, filters) vary by some bytes from page to page: a smaller difference does not lead further.
LONGER_BYTES = 16
LEVEL_BYTES = 64
LABEL_REPEATS = 3  # of one label in a host: only wildcards in the DNS answer to such names


class Suspicion(msgspec.Struct, frozen=True):
    """A URL that a rule suspects.

    `place` is the part of the site whose suspects are counted together: elsewhere the same may be real. `level` is how
    far into the trap the URL is, from 1, and `measure` the same more finely; `step` is the least difference that
    counts. `evidence` replaces the number of observed steps where a rule has another proof.
    """

    rule: TrapRule
    place: str
    why: str
    level: int = 1
    measure: int = 0
    step: int = 1
    evidence: int | None = None

    def leads_to(self, other: "Suspicion") -> bool:
        return other.rule == self.rule and other.measure >= self.measure + self.step


def section_of(url: str) -> str:
    """Host and first segment of a canonical URL's path."""
    address = url.partition("?")[0]
    end = address.find("/", address.index("/", 8) + 1)
    return address if end < 0 else address[:end]


def is_plain(url: str, limits: TrapSettings) -> bool:
    """Is nothing suspect in the form of a canonical URL? A quick check: True for nearly all, False when in doubt."""
    dots = url.count(".", 8, url.index("/", 8))
    if len(url) > limits.long_bytes or dots > min(limits.host_labels, LABEL_REPEATS):
        return False
    if "?" not in url and url.count("/") - 2 < min(limits.repeats, limits.path_segments + 1):
        return True  # too few segments for any of them to come that often
    address, _, query = url.partition("?")
    segments = address.split("/")[3:]
    if len(segments) > limits.path_segments or len(set(segments)) != len(segments):
        return False
    if not query:
        return True
    parameters = query.split("&")
    return len(parameters) <= limits.parameters and len(set(parameters)) == len(parameters)


def suspicions_of_shape(url: str, limits: TrapSettings) -> Iterator[Suspicion]:
    """The suspicions of a canonical URL; the first one is named in verdicts."""
    address, _, query = url.partition("?")
    if len(url) > limits.long_bytes:
        level = (len(url) - limits.long_bytes) // LEVEL_BYTES + 1
        place = address if query else section_of(url)
        yield Suspicion("long", place, f"{len(url)} bytes > {limits.long_bytes}", level, len(url), LONGER_BYTES)
    if address.count(".", 8, address.index("/", 8)) > min(limits.host_labels, LABEL_REPEATS):
        yield from _of_host(host_of(url), limits)
    if address.count("/") - 2 >= min(limits.repeats, limits.path_segments + 1):
        yield from _of_path(address, limits)
    if query and query.count("&") + 1 >= min(limits.repeats, limits.parameters + 1):
        yield from _of_query(address, query, limits)


def _of_host(host: str, limits: TrapSettings) -> Iterator[Suspicion]:
    domain = "" if is_ip(host) else registrable_domain(host)
    if not domain or host == domain:
        return
    labels = host[: -len(domain) - 1].split(".")
    if len(labels) > limits.host_labels:
        yield _growing("hosts", labels[-1], len(labels), limits.host_labels, f"labels before {domain}")
    elif repeated := _repeated(labels, LABEL_REPEATS):
        yield Suspicion("hosts", labels[-1], f"label {repeated[0]} {repeated[1]} times", 1, len(labels))


def _of_path(address: str, limits: TrapSettings) -> Iterator[Suspicion]:
    segments = [segment for segment in address.split("/")[3:] if segment]
    if repeated := _repeated(segments, limits.repeats):
        yield _again(section_of(address), "segment", *repeated)
    if len(segments) > limits.path_segments:
        yield _growing("path", section_of(address), len(segments), limits.path_segments, "segments")


def _of_query(address: str, query: str, limits: TrapSettings) -> Iterator[Suspicion]:
    parameters = query.split("&")
    if repeated := _repeated(parameters, limits.repeats):
        yield _again(address, "parameter", *repeated)
    if len(parameters) > limits.parameters:
        yield _growing("query", address, len(parameters), limits.parameters, "parameters")


def _repeated(parts: list[str], times_min: int) -> tuple[str, int] | None:
    """The most frequent part and its count. Numbers don't count: /1/1/1/ is a shard or a tile."""
    if len(set(parts)) > len(parts) - times_min + 1:
        return None
    words = Counter(part for part in parts if part and not part.isdecimal())
    return next(((part, times) for part, times in words.most_common(1) if times >= times_min), None)


def _again(place: str, kind: str, part: str, times: int) -> Suspicion:
    return Suspicion("repeats", place, f"{kind} {part[:40]} {times} times", times, times)


def _growing(rule: TrapRule, place: str, size: int, limit: int, what: str) -> Suspicion:
    return Suspicion(rule, place, f"{size} {what} > {limit}", size - limit, size)


# Dates in URLs: a date is suspect if it is far from all dates that the site itself lists.
#
# A calendar links to the day, month or year before and after, without end. An archive has dates that undated pages or
# long lists of years link to. These are the anchors, and a date far from all of them is suspect. No clock is needed.


YEAR_FIRST, YEAR_LAST = 1400, 2199  # years that can be anchors; later ones come from endless calendars
YEARS_AHEAD, YEARS_BACK = 2, 40  # dates further after or before all years that the site lists are suspect
LISTING_YEARS = 6  # a dated page with links to this many years is a list; a calendar links to the next and the last

_DAY, _MONTH, _YEAR = 1, 31, 372  # only the order matters: ordinals may have gaps

_NEAR_YEAR = r"(19\d\d|2[01]\d\d)"  # where the digits may also be a number
_ANY_YEAR = r"([1-9]\d{3})"
_PADDED = r"(0[1-9]|1[0-2])"
_DAY_OF_MONTH = r"(0[1-9]|[12]\d|3[01])"
_QUICK = re.compile(r"[/=-][1-9]\d{3}").search
_IN_PATH = (
    re.compile(rf"/{_ANY_YEAR}/{_PADDED}(?:/{_DAY_OF_MONTH})?(?=[/.]|$)"),
    re.compile(rf"/{_ANY_YEAR}-{_PADDED}(?:-{_DAY_OF_MONTH})?(?=[/.]|$)"),
    re.compile(rf"/{_NEAR_YEAR}/([1-9])(?:/(\d\d?))?(?=[/.]|$)"),
    re.compile(rf"/{_NEAR_YEAR}{_PADDED}{_DAY_OF_MONTH}(?=/?$|\.\w+$)"),
)
_IN_VALUE = (
    re.compile(rf"{_ANY_YEAR}-{_PADDED}(?:-{_DAY_OF_MONTH}(?:T.*)?)?"),
    re.compile(rf"{_NEAR_YEAR}{_PADDED}{_DAY_OF_MONTH}"),  # not without the day: 200010 may be an offset
)
_WEEK_VALUE = re.compile(rf"{_ANY_YEAR}-?W(\d\d?)")
_DATE_NAMES = re.compile(r"date|day|month|week|when|from|start|begin|until|end", re.IGNORECASE)
_YEAR_NAME = re.compile(r"(?:\w*[_.-])?(?:year|yr|y)", re.IGNORECASE)
_MONTH_NAME = re.compile(r"(?:\w*[_.-])?(?:month|mon|m)", re.IGNORECASE)
_DAY_NAME = re.compile(r"(?:\w*[_.-])?(?:day|d)", re.IGNORECASE)


def date_of(url: str) -> int | None:
    """Ordinal of the first date in a canonical URL, larger for later dates; None without one."""
    if not _QUICK(url, 8):
        return None
    address, _, query = url.partition("?")
    start = address.index("/", 8)
    for form in _IN_PATH:
        if found := form.search(address, start):
            return _ordinal(found[1], found[2], found[3])
    return _date_in(query) if query else None


def year_of(date: int) -> int:
    """Year of an ordinal."""
    return date // _YEAR


def anchors(url: str, links: Iterable[str], *, first: bool) -> set[int]:
    """Years that a fetched page confirms; the `first` page of a domain also confirms its own."""
    own = date_of(url)
    years = {year_of(date) for date in map(date_of, links) if date is not None}
    if own is not None and len(years) < LISTING_YEARS:
        years = {year_of(own)} if first else set()
    return {year for year in years if YEAR_FIRST <= year <= YEAR_LAST}


def suspicion_of_date(url: str, spans: tuple[tuple[int, int], ...]) -> Suspicion | None:
    """Is the URL's date further from all anchors than the limits for an archive?"""
    date = date_of(url) if spans else None
    if date is None:
        return None
    year = year_of(date)
    if any(low - YEARS_BACK <= year <= high + YEARS_AHEAD for low, high in spans):
        return None
    distance = min(min(abs(date - low * _YEAR), abs(date - high * _YEAR)) for low, high in spans)
    return Suspicion("calendar", section_of(url), f"{year} is far from {_spelled(spans)}", distance // _MONTH, distance)


def _spelled(spans: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in spans)


def _ordinal(year: str, month: str | None, day: str | None) -> int:
    return int(year) * _YEAR + int(month or 1) * _MONTH + int(day or 1) * _DAY - _MONTH - _DAY


def _date_of_value(value: str) -> int | None:
    for form in _IN_VALUE:
        if found := form.fullmatch(value):
            return _ordinal(found[1], found[2], found[3])
    found = _WEEK_VALUE.fullmatch(value)
    return int(found[1]) * _YEAR + int(found[2]) * 7 if found else None


def _date_in(query: str) -> int | None:
    """A whole date in a parameter whose name is about time, or year (and month, day) in separate parameters."""
    year = month = day = None
    for parameter in query.split("&"):
        name, _, value = parameter.partition("=")
        if _DATE_NAMES.search(name) and (date := _date_of_value(value)) is not None:
            return date
        if _YEAR_NAME.fullmatch(name) and len(value) == 4 and value.isdecimal():
            year = year or (name, value)
        elif _MONTH_NAME.fullmatch(name) and value.isdecimal() and 1 <= int(value[:4]) <= 12:
            month = month or value
        elif _DAY_NAME.fullmatch(name) and value.isdecimal() and 1 <= int(value[:4]) <= 31:
            day = day or value
    if year is None or (month is None and not year[0].lower().endswith("year")):
        return None  # y=1234 alone is a coordinate
    return _ordinal(year[1], month, day)


# The verdict of all trap rules on a URL, and what a page teaches them.


# The suspects that are furthest in come first, although they are deeper by a link. So the end of the space is found if
# there is one, and a trap is detected after few fetches, not after all branches before it.
LEVEL_BONUS = 4
PENALTY = 1000.0  # subtracted from the priority of suspects: more than any depth and the bonus take or give
SAME_DIGEST = 50  # links of a body that came under this many URLs are suspect
LINKS_MAX = 1_000  # of a page that are learned from: about 2 ms
DATELESS_MAX = 16_384  # URLs that are remembered as having no date: the navigation of a site, page after page
DATELESS_CHARS_MAX = 256
DIGEST_CHARS = 12  # kept of a digest, from its end: 60 bits of base 32


class Action(enum.StrEnum):
    """What to do with a URL."""

    PASS = "pass"  # noqa: S105
    DEMOTE = "demote"  # queued behind all others of its domain
    DEFER = "park"  # kept and counted by rule, not fetched


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`rule` decided ("" for PASS), `why` names what it found; `penalty` is subtracted from the priority."""

    action: Action
    rule: str = ""
    why: str = ""
    penalty: float = 0.0


PASSED = Verdict(action=Action.PASS)


class TrapRules(msgspec.Struct, frozen=True):
    """The rules under given limits. URLs are canonical; all of a state are of one registrable domain."""

    limits: TrapSettings
    _dateless: set[str] = msgspec.field(default_factory=set)

    def judge(self, state: TrapState, url: str, *, parent: str = "", parent_digest: str = "") -> Verdict:
        """The verdict on `url`. `parent` is the page where it was found, and `parent_digest` its digest, "" when not
        known.

        Nothing is learned here. Without a state a URL is judged by its form alone, and never deferred.
        """
        doubt = None
        for suspicion in self._suspicions(state, url, parent, parent_digest):
            count = state.count(suspicion.rule, suspicion.place)
            evidence = count.steps if suspicion.evidence is None else suspicion.evidence
            if evidence >= self.limits.steps_max or count.pages >= self.limits.suspects_max:
                return Verdict(action=Action.DEFER, rule=suspicion.rule, why=suspicion.why)
            doubt = doubt or suspicion
        if doubt is None:
            return PASSED
        penalty = PENALTY - LEVEL_BONUS * min(doubt.level, LEVELS)
        return Verdict(action=Action.DEMOTE, rule=doubt.rule, why=doubt.why, penalty=penalty)

    def repeated(self, state: TrapState, digest: str) -> str:
        """The digest of a page if links may be suspect for it alone, else ""."""
        return digest if digest and self._times(state, digest[-DIGEST_CHARS:]) >= SAME_DIGEST else ""

    def learn(
        self, state: TrapState, url: str, *, links: Sequence[str] = (), digest: str = "", body: bytes = b""
    ) -> TrapState:
        """The state after a fetched page. To be called once for each page, before its links are judged.

        `links` is the target when the page redirects; `digest` is that of a body of status 200, else "", and `body` is
        that body. Links to other domains are ignored.
        """
        links = links[:LINKS_MAX]
        if digest and "soft_404" not in self.limits.off:
            state = with_digest(state, digest[-DIGEST_CHARS:])
        if "calendar" not in self.limits.off:
            dated = _of_same_domain(url, self._with_date(links))
            state = with_years(state, anchors(url, dated, first=not state.years))
        if "session" not in self.limits.off:
            tokens = learn_tokens(state.tokens, url, _of_same_domain(url, links))
            chains = learn_chain(state.chains, url, links, body)
            if tokens is not state.tokens or chains is not state.chains:
                state = msgspec.structs.replace(state, tokens=tokens, chains=chains)
        for suspicion in list(self._suspicions(state, url)):
            leads_on = self._leads_on(state, suspicion, _of_same_domain(url, links))
            state = with_suspect(state, suspicion.rule, suspicion.place, suspicion.level if leads_on else None)
        return state

    def _with_date(self, links: Sequence[str]) -> list[str]:
        """The links that may have a date. Those of the last pages that have none cost a look-up in a set."""
        dateless, dated = self._dateless, []
        for link in [link for link in links if link not in dateless]:
            if date_of(link) is not None:
                dated.append(link)
            elif len(link) <= DATELESS_CHARS_MAX:
                dateless.add(link)
        if len(dateless) > DATELESS_MAX:
            dateless.clear()
        return dated

    def _leads_on(self, state: TrapState, suspicion: Suspicion, links: Iterable[str]) -> bool:
        if suspicion.evidence is not None:
            return False
        if suspicion.rule == "calendar":
            dates = (suspicion_of_date(link, state.years) for link in links)
            return any(date is not None and suspicion.leads_to(date) for date in dates)
        return any(suspicion.leads_to(shape) for link in links for shape in suspicions_of_shape(link, self.limits))

    def _suspicions(self, state: TrapState, url: str, parent: str = "", parent_digest: str = "") -> Iterable[Suspicion]:
        """Empty for nearly all URLs, and fast: it is called for every new link."""
        plain = is_plain(url, self.limits)
        if plain and not (state.years or state.tokens.slot or (parent and state.has_chain) or parent_digest):
            return ()
        return self._looked_for(state, url, parent, parent_digest, plain=plain)

    def _looked_for(
        self, state: TrapState, url: str, parent: str, parent_digest: str, *, plain: bool
    ) -> Iterator[Suspicion]:
        off = self.limits.off
        if not plain:
            for suspicion in suspicions_of_shape(url, self.limits):
                if suspicion.rule not in off:
                    yield suspicion
        if state.years and "calendar" not in off and (found := suspicion_of_date(url, state.years)):
            yield found
        if state.tokens.slot and "session" not in off and (known := known_by_token(url, state.tokens)):
            yield _of_known(known)
        chains = state.chains if parent and state.has_chain and "session" not in off else ()
        if chains and (known := known_by_chain(url, chains, parent)):
            yield _of_known(known)
        if parent_digest and "soft_404" not in off:
            yield from self._of_parent(state, parent_digest[-DIGEST_CHARS:])

    def _of_parent(self, state: TrapState, digest: str) -> Iterator[Suspicion]:
        """Links of a body that many URLs return: its absolute links have been known since the first of them."""
        times = self._times(state, digest)
        if times >= SAME_DIGEST:
            why = f"found in a body that {times} URLs returned"
            yield Suspicion("soft_404", "", why, evidence=times - SAME_DIGEST)

    @staticmethod
    def _times(state: TrapState, digest: str) -> int:
        return next((n for known, n in state.digests if known == digest), 0)


def _of_known(known: Known) -> Suspicion:
    return Suspicion("session", known.place, known.why, evidence=known.evidence)


def _of_same_domain(url: str, links: Iterable[str]) -> Iterator[str]:
    """Nothing is compared before the first link is asked for: most pages need none."""
    origin, domain = f"{origin_of(url)}/", registrable_domain(host_of(url))
    for link in links:
        if link.startswith(origin) or registrable_domain(host_of(link)) == domain:
            yield link

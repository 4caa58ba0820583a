"""What is suspect in the form of a URL: its length, its host, repeated or too many segments and parameters."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from crawler.rules.places import is_ip, registrable_domain
from crawler.rules.urls import host_of
from crawler.settings.schema import TrapRule, TrapSettings

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

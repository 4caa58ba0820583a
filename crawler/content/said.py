"""What the headers of a response say about the use of its page. Pure."""

from collections.abc import Iterable, Iterator

from crawler.content.robots_directives import our_directives
from crawler.rules.rights import DIRECTIVES, LICENSE, LINK, POLICY, RESERVATION, ROBOTS, SIGNAL, USAGE
from crawler.rules.urls import join

NAMES = frozenset(name.encode() for name in (ROBOTS, USAGE, SIGNAL, RESERVATION, POLICY, LINK))
LINKS_READ_MAX = 100  # of the Link headers of one response


def says_something(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """May they say anything? Those of most pages do not."""
    return not NAMES.isdisjoint([name.lower() for name, _ in headers])


def said_by_headers(headers: Iterable[tuple[bytes, bytes]], url: str, agent: str) -> Iterator[tuple[str, str]]:
    """Keys and values of statements. The values of a header that is a list are one (RFC 9110 5.3)."""
    values: dict[bytes, list[str]] = {}
    for name, value in headers:
        if (lower := name.strip().lower()) in NAMES:
            values.setdefault(lower, []).append(value.decode("latin-1").strip())
    for name, lines in values.items():
        key = name.decode()
        if key == ROBOTS:
            words = [word for word in our_directives("\n".join(lines), agent) if word in DIRECTIVES]
            if words:
                yield key, ", ".join(dict.fromkeys(words))
        elif key == LINK:
            for target in licenses_in(", ".join(lines), url):
                yield LICENSE, target
        elif key in (USAGE, SIGNAL):
            yield key, ", ".join(lines)
        else:
            yield from ((key, line) for line in lines)


def licenses_in(value: str, url: str) -> list[str]:
    """The targets with rel=license of Link headers (RFC 8288), absolute."""
    found: dict[str, None] = {}
    for part in value.split("<")[1 : LINKS_READ_MAX + 1]:
        target, closing, parameters = part.partition(">")
        if closing and _is_license(parameters):
            found[join(url, target.strip()) or target.strip()] = None
    return list(found)


def _is_license(parameters: str) -> bool:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "rel":  # the first one counts
            return LICENSE in value.strip().rstrip(",").strip().strip('"').lower().split()
    return False

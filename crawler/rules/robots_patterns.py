"""Patterns of robots.txt compared with URLs, octet by octet: which rule decides."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec


class Rule(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An Allow or Disallow line of our group, its pattern escaped to printable ASCII.

    `below`: another agent, whose name is nearer. Between it and ours are only lines that don't end a group, such as
    Crawl-delay or Content-Signal. By RFC 9309 (2.2.1) the rule is for both; who wrote it may have meant otherwise.
    """

    allow: bool
    pattern: str
    line_number: int
    below: str = ""


class _Pattern(NamedTuple):
    """A pattern as it is compared: what is around its wildcards."""

    length: int
    parts: tuple[str, ...]
    is_anchored: bool
    rule: Rule

    @classmethod
    def of(cls, text: str, rule: Rule, *, is_anchored: bool = False) -> "_Pattern":
        return cls(len(text) + is_anchored, tuple(text.split("*")), is_anchored, rule)

    def matches(self, path: str) -> bool:
        first, *others = self.parts
        if not path.startswith(first):
            return False
        at = len(first)
        if not others:
            return at == len(path) or not self.is_anchored
        last = others.pop()
        for part in others:
            found = path.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        if self.is_anchored:
            return path.endswith(last) and at + len(last) <= len(path)
        return path.find(last, at) >= 0


class Matcher:
    """Finds the rule that decides: the longest that matches, and Allow of two with one length."""

    __slots__ = ("_patterns", "_prefixes", "_special")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        distinct = {(rule.allow, rule.pattern): rule for rule in reversed(rules)}  # the first of equal ones
        self._patterns = [pattern for rule in distinct.values() for pattern in _patterns_of(rule)]
        self._patterns.sort(key=lambda one: (one.length, one.rule.allow), reverse=True)
        self._special = [one for one in self._patterns if len(one.parts) > 1 or one.is_anchored]
        self._prefixes = tuple([one.parts[0] for one in self._patterns if len(one.parts) == 1 and not one.is_anchored])

    def deciding(self, url: str) -> Rule | None:
        start = url.find("/", url.find("://") + 3)
        path = url[start:] if start >= 0 else "/"
        if path.partition("?")[0] == "/robots.txt":
            return None
        if not path.isascii():
            path = path.encode("utf-8", "replace").decode("latin-1")
        if not _PLAIN.fullmatch(path):
            path = _ODD.sub(_octet, path)
        patterns = self._patterns if path.startswith(self._prefixes) else self._special
        return next((one.rule for one in patterns if one.matches(path)), None)


# An octet is "%" and two digits that are no letters of any path: neither "*F" nor "/%" is found within "%3F".
_DIGITS = {digit: chr(0x2460 + n) for n, digit in enumerate("0123456789ABCDEF")}
_AS_THEY_ARE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~=-"
_OCTETS = [
    chr(n) if chr(n) in _AS_THEY_ARE else f"%{_DIGITS[f'{n:02X}'[0]]}{_DIGITS[f'{n:02X}'[1]]}" for n in range(256)
]
_ODD = re.compile("%[0-9A-Fa-f]{2}|[^A-Za-z0-9_.~/=-]")
_PLAIN = re.compile("[A-Za-z0-9_.~/=-]*+")  # nothing odd: most paths
_CUT = re.compile("%([0-9A-Fa-f]?)$")


def _octet(odd: re.Match[str]) -> str:
    text = odd[0]
    return _OCTETS[int(text[1:], 16) if len(text) == 3 else ord(text)]


def _patterns_of(rule: Rule) -> Iterator[_Pattern]:
    parts = rule.pattern.removesuffix("$").split("*")
    is_anchored = rule.pattern.endswith("$")
    text = "*".join([_ODD.sub(_octet, part) for part in parts])
    yield _Pattern.of(text, rule, is_anchored=is_anchored)
    if rule.allow:
        if text.endswith("/index.html") and not is_anchored:  # as Google's parser: the folder, too
            yield _Pattern.of(text.removesuffix("index.html"), rule, is_anchored=True)
    elif any(map(_CUT.search, parts)):  # "Disallow: /*%" forbids whatever is escaped
        yield _Pattern.of("*".join(map(_begun, parts)), rule, is_anchored=is_anchored)


def _begun(part: str) -> str:
    """A part of a pattern that may end within an octet."""
    cut = _CUT.search(part)
    return (
        _ODD.sub(_octet, part[: cut.start()]) + f"%{_DIGITS.get(cut[1].upper(), '')}" if cut else _ODD.sub(_octet, part)
    )

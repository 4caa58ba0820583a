"""What a site says in robots.txt, and in tdmrep.json, about the use of its pages: read with the rules, kept with them.

    License           is for all agents, wherever it is (RSL 1.0)
    Content-Signal    is of its group. One that is in no group, before the first User-agent, is for us unless our own
                      group has a Content-Signal
    Content-Usage     likewise; it is a rule with a path, so it ends the names of a group. Of those of one group (or of
                      none) the ones with the longest path that matches apply, all of them (attach-05)

tdmrep.json is a list of rules, of which the first that matches applies (TDMRep, section 5.1).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from crawler.model import Statement
from crawler.rules.rights import LICENSE, NO, POLICY, PURPOSES, RESERVATION, SIGNAL, USAGE, meaning_of, statement
from crawler.rules.robots_patterns import Matcher, Rule

KEYS = frozenset((SIGNAL, USAGE, LICENSE))
ROBOTS_TXT, TDMREP = "robots.txt", "tdmrep.json"
TDMREP_PATH = "/.well-known/tdmrep.json"

LINES_MAX = 200  # of each kind that are kept of a site
# A pattern with wildcards is matched in up to the product of its length and the URL's (8 KiB): 30 million, 15 ms.
WILDCARD_BYTES_MAX = 4096
PATTERN_BYTES_MAX = 1024
ENTRIES_MAX = 10_000  # of a tdmrep.json that are looked at


class PathRule(msgspec.Struct, frozen=True, array_like=True):
    """What is said of the paths that match a pattern. `policy`: of tdmrep.json, "" for none."""

    pattern: str
    said: Statement
    policy: Statement | None = None


class SiteRights(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """What is said of the pages of an origin; `cut` lines are not kept, and what these forbid is in `everywhere`.

    `tdm`: the rules of tdmrep.json; None while nobody has read it.
    """

    everywhere: tuple[Statement, ...] = ()
    paths: tuple[PathRule, ...] = ()
    tdm: tuple[PathRule, ...] | None = None
    cut: int = 0

    def of_robots(self, url: str) -> list[Statement]:
        """What robots.txt says of a canonical URL."""
        said = list(self.everywhere)
        if self.paths and (rule := self._matcher.deciding(url)) is not None:
            said += [one.said for one in self.paths if one.pattern == rule.pattern]
        return said

    def of_tdmrep(self, url: str) -> list[Statement]:
        """What tdmrep.json says of it."""
        for number, one in enumerate(self.tdm or ()):
            if self._of_tdm[number].deciding(url) is not None:
                return [one.said, one.policy] if one.policy is not None else [one.said]
        return []

    @cached_property
    def memory_bytes(self) -> int:
        """Approximate memory that they take once they have been used."""
        return 500 * (len(self.everywhere) + len(self.paths) + len(self.tdm or ())) + 200

    @cached_property
    def _matcher(self) -> Matcher:
        return _matcher_of([one.pattern for one in self.paths])

    @cached_property
    def _of_tdm(self) -> list[Matcher]:
        return [_matcher_of([one.pattern]) for one in self.tdm or ()]

    def with_tdmrep(self, tdm: tuple[PathRule, ...], cut: int) -> "SiteRights":
        """The same once tdmrep.json was read."""
        return msgspec.structs.replace(self, tdm=tdm, cut=self.cut + cut)


NOTHING_SAID = SiteRights()


def _matcher_of(patterns: Sequence[str]) -> Matcher:
    return Matcher(tuple([Rule(allow=False, pattern=one, line_number=0) for one in patterns]))


class Line(msgspec.Struct, frozen=True):
    """A line of robots.txt about the use of pages."""

    key: str
    value: str
    number: int


class SaidLines:
    """Such lines while a robots.txt is read: those of no group, those of the open one, those of ours and of all."""

    def __init__(self) -> None:
        self.licenses: list[Line] = []
        self.outside: list[Line] = []
        self.of_group: list[Line] = []  # shared by all groups that are open: they are one group by RFC 9309

    def take(self, key: str, value: str, number: int, *, is_in_group: bool) -> None:
        line = Line(key, value, number)
        if key == LICENSE:
            self.licenses.append(line)
        else:
            (self.of_group if is_in_group else self.outside).append(line)

    def group_begins(self) -> list[Line]:
        """The list that the lines of a new group will be in."""
        self.of_group = []
        return self.of_group


def site_rights_of(licenses: Iterable[Line], outside: Sequence[Line], ours: Sequence[Line]) -> SiteRights | None:
    """What these lines say to us; None: nothing."""
    keys = {line.key for line in ours}
    lines = [*licenses, *(line for line in outside if line.key not in keys), *ours]
    if not lines:
        return None
    everywhere, paths = list[Statement](), list[PathRule]()
    forbidden, left_out, wildcard_bytes = dict[str, None](), 0, 0
    for line in lines:
        pattern, value = _path_and_value(line.value) if line.key == USAGE else ("", line.value)
        one, is_cut = statement(f"{ROBOTS_TXT}:{line.number}", line.key, value)
        left_out += is_cut
        wildcard_bytes += len(pattern) if "*" in pattern else 0
        fits = len(pattern) <= PATTERN_BYTES_MAX and wildcard_bytes <= WILDCARD_BYTES_MAX
        if line.key == USAGE and fits and len(paths) < LINES_MAX:
            paths.append(PathRule(pattern or "/", one))
        elif line.key != USAGE and len(everywhere) < LINES_MAX:
            everywhere.append(one)
        else:  # always towards less
            left_out += 1
            forbidden |= dict.fromkeys(_forbidden_by(one))
    if forbidden:
        everywhere.append(Statement(ROBOTS_TXT, USAGE, ", ".join(f"{one}=n" for one in forbidden)))
    return SiteRights(tuple(everywhere), tuple(paths), None, left_out)


_LABELS = {"search": "search", "ai_input": "ai-input", "ai_train": "train-ai"}


def _forbidden_by(one: Statement) -> Iterator[str]:
    """Labels of what a statement forbids."""
    said = meaning_of(one.key, one.value)
    for purpose in PURPOSES:
        if said.get(purpose) == NO:
            yield _LABELS.get(purpose, purpose)


def _path_and_value(value: str) -> tuple[str, str]:
    """Of the value of Content-Usage: its path ("" for none) and the preferences."""
    if not value.startswith("/"):
        return "", value
    path, _, rest = value.replace("\t", " ").partition(" ")
    return path, rest.strip()


def read_tdmrep(body: bytes) -> tuple[tuple[PathRule, ...], int]:
    """The rules of a tdmrep.json in their order, and how many entries are none, or were left out. Nothing is raised."""
    try:
        found: Any = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return (), 0
    if not isinstance(found, list):
        return (), 0
    rules, wildcard_bytes, left_out = list[PathRule](), 0, max(0, len(found) - ENTRIES_MAX)
    for number, entry in enumerate(found[:ENTRIES_MAX], 1):
        rule = _tdm_rule(entry, number) if isinstance(entry, dict) else None
        wildcard_bytes += len(rule.pattern) if rule is not None and "*" in rule.pattern else 0
        if rule is None or wildcard_bytes > WILDCARD_BYTES_MAX or len(rules) == LINES_MAX:
            left_out += 1
        else:
            rules.append(rule)
    return tuple(rules), left_out


def _tdm_rule(entry: dict[str, Any], number: int) -> PathRule | None:
    location, said, policy = entry.get("location"), entry.get(RESERVATION), entry.get(POLICY)
    value = said if isinstance(said, str) else "1" if said == 1 else "0" if said == 0 else ""
    if not isinstance(location, str) or not location or not value:
        return None
    # Octets, as the patterns of robots.txt.
    pattern = (location if location[0] in "/*" else f"/{location}").encode("utf-8", "replace").decode("latin-1")
    if len(pattern) > PATTERN_BYTES_MAX:
        return None
    place = f"{TDMREP}:{number}"
    return PathRule(
        pattern,
        statement(place, RESERVATION, value)[0],
        statement(place, POLICY, policy)[0] if isinstance(policy, str) else None,
    )

"""Crawler traps: infinite URL spaces. Decides from a URL and a little that was learned about its domain. Pure.

A URL is *suspect* by its form (or by where it was found) and is demoted, never more. Suspects are deferred only after
many of them were fetched and each led further into the same trap. So a space that ends is crawled to its end, however
odd it looks. docs/guide/traps.md has the rules and their thresholds.
"""

import msgspec

from crawler.rules.trap_tokens import (
    REPEATS_MIN,
    Chain,
    Tokens,
    number_of,
)

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

"""What is remembered of a domain for the trap rules: one bounded value. Knows no rule.

Lost, it is learned again: that costs fetches of suspects, never a page. Every function returns a new value.
"""

from hashlib import blake2b

import msgspec

DIGESTS_MAX = 8
PLACES_MAX = 12  # counted apart; those that come later are counted together, by rule
REST = 0
SPANS_MAX = 8
LEVELS = 64


class Count(msgspec.Struct, frozen=True, array_like=True):
    """Suspects of one rule in one place: fetched ones, and the levels (modulo 64, a bit each) at which some led on."""

    rule: str
    place: int = REST
    pages: int = 0
    levels: int = 0

    @property
    def steps(self) -> int:
        """At how many levels pages led on."""
        return self.levels.bit_count()


class Tokens(msgspec.Struct, frozen=True, array_like=True):
    """Where URLs seem to carry a token that is new on each page, and the pages known by their first one."""

    slot: str = ""
    repeats: int = 0  # pages fetched again under another token, whose links have yet another
    known: bytes = b""  # entries of sessions.py


class TrapState(msgspec.Struct, frozen=True, array_like=True):
    """All of it: at most 1 KB in msgpack."""

    counts: tuple[Count, ...] = ()
    digests: tuple[tuple[str, int], ...] = ()  # the most frequent bodies, counted at least this often
    years: tuple[tuple[int, int], ...] = ()  # spans of years that the site itself lists, in order
    tokens: Tokens = Tokens()

    def count(self, rule: str, place: str) -> Count:
        """What was counted there; zeroes for a rule and place that nothing was counted for."""
        number = _number(place)
        for count in self.counts:
            if count.rule == rule and count.place == number:
                return count
        if sum(count.place != REST for count in self.counts) < PLACES_MAX:
            return Count(rule, number)
        return next((count for count in self.counts if count.rule == rule and count.place == REST), Count(rule))


NOTHING_LEARNED = TrapState()


def with_suspect(state: TrapState, rule: str, place: str, level: int | None) -> TrapState:
    """One more fetched page that was suspect by `rule`; `level` is where it stood when it led on."""
    old = state.count(rule, place)
    levels = old.levels if level is None else old.levels | 1 << level % LEVELS
    new = Count(rule, old.place, old.pages + 1, levels)
    others = tuple(count for count in state.counts if (count.rule, count.place) != (rule, old.place))
    return msgspec.structs.replace(state, counts=(*others, new))


def _number(place: str) -> int:
    return int.from_bytes(blake2b(place.encode(), digest_size=4).digest(), "big") or 1


def with_digest(state: TrapState, digest: str) -> TrapState:
    """One more body. Counts are never too high (Misra and Gries, 1982): distinct bodies cancel each other out."""
    if any(known == digest for known, _ in state.digests):
        counted = tuple((known, n + (known == digest)) for known, n in state.digests)
    elif len(state.digests) < DIGESTS_MAX:
        counted = (*state.digests, (digest, 1))
    else:
        counted = tuple((known, n - 1) for known, n in state.digests if n > 1)
    return msgspec.structs.replace(state, digests=counted)


def with_years(state: TrapState, years: set[int]) -> TrapState:
    """More years that the site lists. Beyond the bound the closest spans become one, which only suspects less."""
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

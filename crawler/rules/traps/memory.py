"""What the trap rules have learned about a domain: one bounded, immutable value.

If it is lost, it is learned again: that costs fetches of suspects, never a page.
"""

from hashlib import blake2b

import msgspec

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


class Tokens(msgspec.Struct, frozen=True, array_like=True):
    """Where URLs seem to have a token that changes on each page, and the pages known by their first token."""

    slot: str = ""
    repeats: int = 0  # pages fetched again under a second token, whose links have a third
    known: bytes = b""  # entries of session_tokens.py


class TrapState(msgspec.Struct, frozen=True, array_like=True):
    """Everything learned about a domain: at most 1 KB in msgpack."""

    counts: tuple[Count, ...] = ()
    digests: tuple[tuple[str, int], ...] = ()  # the most frequent bodies, counted at least this often
    years: tuple[tuple[int, int], ...] = ()  # spans of years that the site itself lists, in order
    tokens: Tokens = Tokens()

    def count(self, rule: str, place: str) -> Count:
        """The count of a rule in a place; zeroes when nothing was counted there."""
        number = _number(place)
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


def _number(place: str) -> int:
    return int.from_bytes(blake2b(place.encode(), digest_size=4).digest(), "big") or 1


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

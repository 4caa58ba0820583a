"""Which URLs go first and how many: priorities, turns of users, budgets, links to other domains. Pure."""

from math import exp2, log2

import msgspec

from crawler.expressions import Expressions
from crawler.rules.urls import found_in_url
from crawler.settings import OrderSettings

QUANTA = 4096  # of one unit of score
QUANTISED_MIN, QUANTISED_MAX = -(2**31), 2**31 - 1  # what a signed 32-bit integer holds


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """What else is known about a URL when it is found.

    `links`: number of distinct links on the page that led to it, 0 for a seed. `sitemap_priority`: 0 to 1, None when no
    sitemap gave one. `changed_at`: the date that a sitemap or feed gave, wall clock, s.
    """

    links: int = 0
    sitemap_priority: float | None = None
    changed_at: float | None = None


NO_SIGNALS = Signals()


class Ordering(msgspec.Struct, frozen=True, kw_only=True):
    """The order of one crawl. Build with `of`; dates are wall clock, s."""

    settings: OrderSettings
    begun_at: float
    rules: Expressions

    @classmethod
    def of(cls, settings: OrderSettings, begun_at: float) -> "Ordering":
        """The settings are valid: `load` has compiled every pattern once."""
        return cls(settings=settings, begun_at=begun_at, rules=Expressions(rule.match for rule in settings.rules))

    def score(
        self,
        url: str,
        *,
        depth: int,
        found_at: float,
        signals: Signals = NO_SIGNALS,
        given: float | None = None,
        boost: float = 0.0,
    ) -> float:
        """Score of a canonical URL. A priority `given` with a seed replaces all terms; `boost`, that of its domain, is
        added.
        """
        priority = self.priority(url, depth=depth, found_at=found_at, signals=signals) if given is None else given
        at = found_at
        if self.settings.order == "freshness" and signals.changed_at is not None:
            at = min(found_at, signals.changed_at)  # no page is from the future
        waited = (at - self.begun_at) / self.settings.half_life_s
        return priority + boost + (waited if self.settings.order == "freshness" else -waited)

    def priority(self, url: str, *, depth: int, found_at: float, signals: Signals = NO_SIGNALS) -> float:
        """The sum of all terms: depth, matching rules, the page's number of links, the sitemap's priority and date."""
        s = self.settings
        if s.order == "breadth":
            return -float(depth)
        value = -s.depth_weight * depth
        if self.rules:
            value += sum(s.rules[number].add for number in sorted(found_in_url(self.rules, url)))
        if signals.links > 1:
            value -= s.links_weight * log2(signals.links)
        if signals.sitemap_priority is not None:
            value += s.sitemap_weight * (2 * signals.sitemap_priority - 1)  # 0.5 is the protocol's default: nothing
        if signals.changed_at is not None and s.order == "priority":
            value += s.sitemap_weight * exp2(-max(0.0, found_at - signals.changed_at) / s.half_life_s)
        return value


def quantise(score: float) -> int:
    """The score as the engine stores it: a signed 32-bit integer, 4,096 to the unit, clamped at +-524,288 units.

    A quantum is half_life / 4,096: 21 s at the default half-life of a day. URLs of equal priority that were found less
    than that apart may leave in either order. Otherwise the order is kept.
    """
    return round(min(max(score * QUANTA, QUANTISED_MIN), QUANTISED_MAX))

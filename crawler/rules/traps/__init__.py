"""Crawler traps: places where URLs have no end. Decides from a URL, and a little that was learned of its domain. Pure.

A URL is *suspect* by how it looks (or by where it was found) and is demoted, never more. Suspects are parked only after
many of them were fetched and each led further into the same thing: what ends by itself is therefore crawled to its
end, however odd it looks. docs/guide/traps.md has the rules and their thresholds.
"""

from crawler.rules.traps.memory import NOTHING_LEARNED, TrapState
from crawler.rules.traps.verdict import PASSED, Action, TrapRules, Verdict

__all__ = ["NOTHING_LEARNED", "PASSED", "Action", "TrapRules", "TrapState", "Verdict"]

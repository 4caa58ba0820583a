"""Crawler traps: infinite URL spaces. Decides from a URL and a little that was learned about its domain. Pure.

A URL is *suspect* by its form (or by where it was found) and is demoted, never more. Suspects are deferred only after
many of them were fetched and each led further into the same trap. So a space that ends is crawled to its end, however
odd it looks. docs/guide/traps.md has the rules and their thresholds.
"""

from crawler.rules.traps.memory import NOTHING_LEARNED, TrapState
from crawler.rules.traps.verdict import PASSED, Action, TrapRules, Verdict

__all__ = ["NOTHING_LEARNED", "PASSED", "Action", "TrapRules", "TrapState", "Verdict"]

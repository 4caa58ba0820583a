"""Trap states of domains in this instance's memory, and what follows for URLs that it has claimed.

The rules decide; this keeps their states. A state that is lost by a new owner, a restart or lack of room is learned
again: that costs fetches of suspects, but no page.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence

from crawler.model import Claim
from crawler.rules.trap_verdict import Action, TrapRules
from crawler.rules.traps import NOTHING_LEARNED, TrapState
from crawler.settings import TrapSettings

DOMAINS_MAX = 20_000  # of each kind: at most 1 KB each in msgpack, a few in Python


def deferral_reason(rule: str) -> str:
    """The reason that a rule's URLs are deferred with."""
    return f"trap:{rule}"


class TrapMemory:
    """The states of domains, for the crawl and for each run: what was fetched before is no repetition in another run.

    Those with suspects have their own room, so that the many others don't evict them.
    """

    def __init__(self, limits: TrapSettings, domains_max: int = DOMAINS_MAX) -> None:
        self._rules = TrapRules(limits)
        self._domains_max = domains_max
        self._plain: OrderedDict[str, TrapState] = OrderedDict()  # least recently used first
        self._suspect: OrderedDict[str, TrapState] = OrderedDict()
        self._released: OrderedDict[tuple[str, str], None] = OrderedDict()  # queue and reason; the engine has them all

    def state_of(self, domain: str, run: str = "") -> TrapState:
        key = _key(domain, run)
        return self._suspect.get(key) or self._plain.get(key, NOTHING_LEARNED)

    def learn(self, claim: Claim, links: Sequence[str], digest: str, body: bytes = b"") -> TrapState:
        """Learn from a claim's page, once, before its links are judged; the new state of its domain.

        `digest`: of a body of status 200, "" for others; `body`: that body. `links` includes the target of a redirect.
        """
        known = self.state_of(claim.domain, claim.run)
        state = self._rules.learn(known, claim.url, links=links, digest=digest, body=body)
        key = _key(claim.domain, claim.run)
        states = self._suspect if state.counts or state.tokens.slot or state.has_chain else self._plain
        if states is self._suspect:
            self._plain.pop(key, None)
        states[key] = state
        states.move_to_end(key)
        if len(states) > self._domains_max:
            states.popitem(last=False)
        return state

    def reason_to_defer(self, claim: Claim) -> str:
        """The reason to defer a claimed URL by what was learned since it was queued; "" for none.

        Seeds and their redirect targets are never deferred.
        """
        if claim.seed:
            return ""
        verdict = self._rules.judge(self.state_of(claim.domain, claim.run), claim.url)
        reason = deferral_reason(verdict.rule) if verdict.action is Action.DEFER else ""
        return "" if self.is_released(claim.queue, reason) else reason

    def is_released(self, queue: str, reason: str) -> bool:
        """Did an operator release the URLs of a queue that have this reason?"""
        return (queue, reason) in self._released

    def release(self, queue: str, reason: str) -> None:
        """An operator released the URLs of a queue that have this reason: fetch them, but still judge their links."""
        self._released[queue, reason] = None
        if len(self._released) > self._domains_max:
            self._released.popitem(last=False)  # the engine tells it again when a URL is deferred for that reason

    def forget(self, runs: Collection[str]) -> None:
        """Forget what was learned for these."""
        for states in (self._plain, self._suspect):
            for key in [key for key in states if " " in key and key.partition(" ")[0] in runs]:
                del states[key]


def _key(domain: str, run: str) -> str:
    return f"{run} {domain}" if run else domain

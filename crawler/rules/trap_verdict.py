"""The verdict of all trap rules on a URL, and what a page teaches them."""

import enum
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from crawler.rules.places import registrable_domain
from crawler.rules.trap_dates import anchors, date_of, suspicion_of_date
from crawler.rules.trap_shapes import Suspicion, is_plain, suspicions_of_shape
from crawler.rules.trap_tokens import (
    Known,
    known_by_chain,
    known_by_token,
    learn_chain,
    learn_tokens,
)
from crawler.rules.traps import LEVELS, TrapState, with_digest, with_suspect, with_years
from crawler.rules.urls import host_of, origin_of
from crawler.settings.schema import TrapSettings

# The suspects that are furthest in come first, although they are deeper by a link. So the end of the space is found if
# there is one, and a trap is detected after few fetches, not after all branches before it.
LEVEL_BONUS = 4
PENALTY = 1000.0  # subtracted from the priority of suspects: more than any depth and the bonus take or give
SAME_DIGEST = 50  # links of a body that came under this many URLs are suspect
LINKS_MAX = 1_000  # of a page that are learned from: about 2 ms
DATELESS_MAX = 16_384  # URLs that are remembered as having no date: the navigation of a site, page after page
DATELESS_CHARS_MAX = 256
DIGEST_CHARS = 12  # kept of a digest, from its end: 60 bits of base 32


class Action(enum.StrEnum):
    """What to do with a URL."""

    PASS = "pass"  # noqa: S105
    DEMOTE = "demote"  # queued behind all others of its domain
    DEFER = "park"  # kept and counted by rule, not fetched


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`rule` decided ("" for PASS), `why` names what it found; `penalty` is subtracted from the priority."""

    action: Action
    rule: str = ""
    why: str = ""
    penalty: float = 0.0


PASSED = Verdict(action=Action.PASS)


class TrapRules(msgspec.Struct, frozen=True):
    """The rules under given limits. URLs are canonical; all of a state are of one registrable domain."""

    limits: TrapSettings
    _dateless: set[str] = msgspec.field(default_factory=set)

    def judge(self, state: TrapState, url: str, *, parent: str = "", parent_digest: str = "") -> Verdict:
        """The verdict on `url`. `parent` is the page where it was found, and `parent_digest` its digest, "" when not
        known.

        Nothing is learned here. Without a state a URL is judged by its form alone, and never deferred.
        """
        doubt = None
        for suspicion in self._suspicions(state, url, parent, parent_digest):
            count = state.count(suspicion.rule, suspicion.place)
            evidence = count.steps if suspicion.evidence is None else suspicion.evidence
            if evidence >= self.limits.steps_max or count.pages >= self.limits.suspects_max:
                return Verdict(action=Action.DEFER, rule=suspicion.rule, why=suspicion.why)
            doubt = doubt or suspicion
        if doubt is None:
            return PASSED
        penalty = PENALTY - LEVEL_BONUS * min(doubt.level, LEVELS)
        return Verdict(action=Action.DEMOTE, rule=doubt.rule, why=doubt.why, penalty=penalty)

    def repeated(self, state: TrapState, digest: str) -> str:
        """The digest of a page if links may be suspect for it alone, else ""."""
        return digest if digest and self._times(state, digest[-DIGEST_CHARS:]) >= SAME_DIGEST else ""

    def learn(
        self, state: TrapState, url: str, *, links: Sequence[str] = (), digest: str = "", body: bytes = b""
    ) -> TrapState:
        """The state after a fetched page. To be called once for each page, before its links are judged.

        `links` is the target when the page redirects; `digest` is that of a body of status 200, else "", and `body` is
        that body. Links to other domains are ignored.
        """
        links = links[:LINKS_MAX]
        if digest and "soft_404" not in self.limits.off:
            state = with_digest(state, digest[-DIGEST_CHARS:])
        if "calendar" not in self.limits.off:
            dated = _of_same_domain(url, self._with_date(links))
            state = with_years(state, anchors(url, dated, first=not state.years))
        if "session" not in self.limits.off:
            tokens = learn_tokens(state.tokens, url, _of_same_domain(url, links))
            chains = learn_chain(state.chains, url, links, body)
            if tokens is not state.tokens or chains is not state.chains:
                state = msgspec.structs.replace(state, tokens=tokens, chains=chains)
        for suspicion in list(self._suspicions(state, url)):
            leads_on = self._leads_on(state, suspicion, _of_same_domain(url, links))
            state = with_suspect(state, suspicion.rule, suspicion.place, suspicion.level if leads_on else None)
        return state

    def _with_date(self, links: Sequence[str]) -> list[str]:
        """The links that may have a date. Those of the last pages that have none cost a look-up in a set."""
        dateless, dated = self._dateless, []
        for link in [link for link in links if link not in dateless]:
            if date_of(link) is not None:
                dated.append(link)
            elif len(link) <= DATELESS_CHARS_MAX:
                dateless.add(link)
        if len(dateless) > DATELESS_MAX:
            dateless.clear()
        return dated

    def _leads_on(self, state: TrapState, suspicion: Suspicion, links: Iterable[str]) -> bool:
        if suspicion.evidence is not None:
            return False
        if suspicion.rule == "calendar":
            dates = (suspicion_of_date(link, state.years) for link in links)
            return any(date is not None and suspicion.leads_to(date) for date in dates)
        return any(suspicion.leads_to(shape) for link in links for shape in suspicions_of_shape(link, self.limits))

    def _suspicions(self, state: TrapState, url: str, parent: str = "", parent_digest: str = "") -> Iterable[Suspicion]:
        """Empty for nearly all URLs, and fast: it is called for every new link."""
        plain = is_plain(url, self.limits)
        if plain and not (state.years or state.tokens.slot or (parent and state.has_chain) or parent_digest):
            return ()
        return self._looked_for(state, url, parent, parent_digest, plain=plain)

    def _looked_for(
        self, state: TrapState, url: str, parent: str, parent_digest: str, *, plain: bool
    ) -> Iterator[Suspicion]:
        off = self.limits.off
        if not plain:
            for suspicion in suspicions_of_shape(url, self.limits):
                if suspicion.rule not in off:
                    yield suspicion
        if state.years and "calendar" not in off and (found := suspicion_of_date(url, state.years)):
            yield found
        if state.tokens.slot and "session" not in off and (known := known_by_token(url, state.tokens)):
            yield _of_known(known)
        chains = state.chains if parent and state.has_chain and "session" not in off else ()
        if chains and (known := known_by_chain(url, chains, parent)):
            yield _of_known(known)
        if parent_digest and "soft_404" not in off:
            yield from self._of_parent(state, parent_digest[-DIGEST_CHARS:])

    def _of_parent(self, state: TrapState, digest: str) -> Iterator[Suspicion]:
        """Links of a body that many URLs return: its absolute links have been known since the first of them."""
        times = self._times(state, digest)
        if times >= SAME_DIGEST:
            why = f"found in a body that {times} URLs returned"
            yield Suspicion("soft_404", "", why, evidence=times - SAME_DIGEST)

    @staticmethod
    def _times(state: TrapState, digest: str) -> int:
        return next((n for known, n in state.digests if known == digest), 0)


def _of_known(known: Known) -> Suspicion:
    return Suspicion("session", known.place, known.why, evidence=known.evidence)


def _of_same_domain(url: str, links: Iterable[str]) -> Iterator[str]:
    """Nothing is compared before the first link is asked for: most pages need none."""
    origin, domain = f"{origin_of(url)}/", registrable_domain(host_of(url))
    for link in links:
        if link.startswith(origin) or registrable_domain(host_of(link)) == domain:
            yield link

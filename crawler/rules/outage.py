"""Whether our own network works: whose fault it is when a request brings no answer. Pure.

An absent answer looks the same when a host is away and when our resolver is, or our way to all hosts. So the others are
the witnesses. Only those count that answered lately, at least three registrable domains of them: a name that never
resolved proves nothing. If anybody is answered right after a request failed, the host of that request is at fault. If
nobody is, some witnesses are asked. It is our network only if none of them answers; one of them is asked again at
growing intervals then, and the first answer of anybody ends it.

So nobody who fails can stop a crawl in which others answer, and nobody who answers can hold up one that is down. Nor
can those that answered first and then died together stop one of which nobody else was asked yet: while it is taken for
our network, every other attempt is for somebody who waits. The answer of a DNS server that a name does not exist is an
answer. Times are ms on a clock that stands still while the machine sleeps: what answered before a laptop was closed is
a witness when it is opened.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice, takewhile

import msgspec

from crawler.model import FailureKind
from crawler.rules.health import Policy, jitter_of

KNOWN_MS = 600_000  # who answered in this time is a witness
WITNESSES_MIN = 3  # registrable domains: fewer prove nothing, and each site is judged by itself
WITNESSES_MAX = 1_000  # that are remembered; and that wait
# Before it is taken for our network: whoever has some of the witnesses fail has not all of these, which are any.
ASKED_MAX = 16
CHECK_MS = 250  # between two checks that found nothing wrong
TRUST_MS = 1_000  # where the next check would be later than this, hosts are at fault without one
AGAIN_MS = 60_000  # until somebody who waits is tried again
WAIT_MS = 1_000  # between two looks whether it works again
PAUSES = Policy(attempts=1, backoff_s=1.0, factor=2.0, max_s=15.0)  # between two attempts while nothing answers
# Without an answer of a host. Our own network may be the cause.
DOUBTFUL = frozenset({FailureKind.CONNECT, FailureKind.TLS, FailureKind.TIMEOUT, FailureKind.DISCONNECTED})


class Way(StrEnum):
    """What may fail of our own network."""

    NAMES = "names"  # the DNS servers
    HOSTS = "hosts"  # connections


class Witness(msgspec.Struct):
    """An origin that answered, the last one of its domain, or that waits. `delay_ms`: between two requests to it."""

    origin: str
    is_name: bool
    delay_ms: int
    answered_ms: int
    asked_ms: int | None = None  # by us, whether it still does


class _State(msgspec.Struct):
    """`since_ms`: since when nothing answers; None: it works. `failures`: of checks since then. `waiting`: who waits
    for it, by registrable domain, one of each.
    """

    since_ms: int | None = None
    failures: int = 0
    waiting: dict[str, Witness] = msgspec.field(default_factory=dict)
    next_ms: int = 0  # when a witness may be asked next
    check_ms: int = 0  # when the next check may begin


class NetworkHealth:
    """What is known of our own network, as one instance sees it."""

    def __init__(self) -> None:
        self._witnesses: OrderedDict[str, Witness] = OrderedDict()  # by registrable domain, the last one to answer last
        self._states = {way: _State() for way in Way}

    def answered(self, domain: str, origin: str, *, is_name: bool, delay_ms: int, now_ms: int) -> None:
        """A host answered a request."""
        known = self._witnesses.get(domain)
        asked_ms = known.asked_ms if known is not None else None
        self._note(domain, Witness(origin, is_name, delay_ms, now_ms, asked_ms))
        self.works(Way.HOSTS)

    def _note(self, domain: str, witness: Witness) -> None:
        self._witnesses[domain] = witness
        self._witnesses.move_to_end(domain)
        if len(self._witnesses) > WITNESSES_MAX:
            self._witnesses.popitem(last=False)

    def works(self, way: Way) -> None:
        """Somebody was answered who was not asked for it."""
        if self._states[way].since_ms is not None:
            self._states[way] = _State()

    def is_away(self, way: Way) -> bool:
        """Does nothing answer on this way?"""
        return self._states[way].since_ms is not None

    @property
    def is_any_away(self) -> bool:
        return any(state.since_ms is not None for state in self._states.values())

    def check_wait_ms(self, way: Way, *, now_ms: int) -> int | None:
        """How long until witnesses may be asked whether this way works; None: a host that failed is at fault."""
        wait_ms = max(0, self._states[way].check_ms - now_ms)
        known = islice(self._known(way, now_ms), WITNESSES_MIN)
        return None if wait_ms > TRUST_MS or len(list(known)) < WITNESSES_MIN else wait_ms

    def to_check(self, way: Way, *, now_ms: int) -> list[Witness]:
        """Whom to ask whether this way works."""
        return _in_turn(self._of(way), now_ms)[:ASKED_MAX]

    def waits(self, domain: str, origin: str, *, is_name: bool) -> None:
        """A request to this origin waits for the way to hosts. Those for a name are tried again by themselves."""
        waiting = self._states[Way.HOSTS].waiting
        if domain not in waiting and len(waiting) < WITNESSES_MAX:
            waiting[domain] = Witness(origin, is_name, AGAIN_MS, answered_ms=0)

    def to_probe(self, way: Way, *, now_ms: int) -> Witness | None:
        """Whom to ask whether it works again, if it is time: nobody before its own delay is over."""
        state = self._states[way]
        if state.since_ms is None or now_ms < state.next_ms:
            return None
        witnesses, waiting = self._of(way), state.waiting.values()
        for some in (waiting, witnesses) if state.failures % 2 else (witnesses, waiting):
            for one in _in_turn(some, now_ms)[:1]:
                if now_ms >= _when_asked(one) + one.delay_ms:
                    return one
        return None

    def _of(self, way: Way) -> Iterator[Witness]:
        """Whoever answered, the last one first."""
        return (one for one in reversed(self._witnesses.values()) if one.is_name or way is Way.HOSTS)

    def _known(self, way: Way, now_ms: int) -> Iterator[Witness]:
        """Those that answered lately."""
        return takewhile(lambda one: now_ms - one.answered_ms <= KNOWN_MS, self._of(way))

    def checked(self, way: Way, *, answered: Witness | None, now_ms: int) -> None:
        """Note who answered, if anybody did."""
        state = self._states[way]
        if answered is not None:
            domain = next((one for one, waits in state.waiting.items() if waits is answered), None)
            if domain is not None:  # a witness from now on
                answered.answered_ms = now_ms
                self._note(domain, answered)
            # The next check asks another one: so nobody is asked before its own delay is over.
            is_paced = way is Way.HOSTS and domain is None
            pause_ms = max(CHECK_MS, answered.delay_ms // WITNESSES_MIN if is_paced else 0)
            self._states[way] = _State(check_ms=now_ms + pause_ms)
            return
        if state.since_ms is None:
            state.since_ms = now_ms
        state.failures += 1
        state.next_ms = now_ms + PAUSES.backoff_ms(state.failures)

    def wait_ms(self, way: Way, *, now_ms: int) -> int:
        """How long what needs this way waits until it has been tried again; 0: it works."""
        state = self._states[way]
        return 0 if state.since_ms is None else max(WAIT_MS, state.next_ms - now_ms)


def _in_turn(witnesses: Iterable[Witness], now_ms: int) -> list[Witness]:
    """Those that were asked least recently come first; among equals, nobody can choose to."""
    return sorted(witnesses, key=lambda one: (_when_asked(one), jitter_of(one.origin, now_ms)))


def _when_asked(witness: Witness) -> int:
    return -KNOWN_MS if witness.asked_ms is None else witness.asked_ms

"""What the frontier's model is made of: URLs and queues with their states, and the figures that the tests use."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from crawler.frontier.states import PENDING, State
from crawler.model import Candidate, Request

DEFAULT_DELAY_MS = 1000
OUT_MAX = 4
BLOCK = 2  # URLs in a block, in these tests
IDLE_MS = 1500  # after its clock has run out, an idle queue's record is packed; in these tests
PER_STORE = 1
NAMES_MAX = 2  # names of queues in a block of their index; in these tests
DEPTH_MAX = 3  # what is deeper is deferred
HOSTS_MAX = 2  # of a domain, without those that people release
TOP_MAX = 2  # queues in the list of those with most pages
PER_QUEUE_MAX = 3
AHEAD_MS = 2000
VISIBILITY_MS = 3000
LOOK_MS = 1000  # until the owner looks again whether a borrower is done
BORROWED_MS = 20_000
LEFT_MS = 2500
SHORT_MS = 1000
AGAIN_MS = 60_000  # until the next probe of a silent origin
RECALLED = 0  # all URLs of an origin go back
QUICK_MAX = 3  # URLs that a queue hands out at once because they end without answers; in these tests
GRANTED = "-"
USERS = ("ann", "bob@b.test")  # besides the crawl itself


UNENDED = (*PENDING, State.DEFERRED)


def row_of(queue: str, user: str) -> str:
    """Where the URLs of a user are."""
    return f"{queue}|@{user}" if user else queue


def rows_of(queue: str) -> list[str]:
    """Where URLs of a queue may wait."""
    return [row_of(queue, user) for user in ("", *USERS)]


@dataclass
class Url:
    candidate: Candidate
    depth: int  # by the shortest path that was found
    user: str = ""
    state: State = State.QUEUED
    attempts: int = 0
    deliveries: int = 0
    deaths: int = 0
    died_with: str = ""
    token: str = ""
    deferred: str = ""  # why, while it is deferred; too deep is "depth:N"
    until_ms: int = 0  # deadline of a claim, due time of a retry; of a scheduled one the wall time
    status: int = 0  # of its page
    retries: int = 0
    dead_for: str = ""  # the reason of its dead letter
    failures: list[str] = field(default_factory=list)  # kinds, while it is pending or a dead letter
    is_sent: bool = False  # as noted, until it is to be sent again

    @property
    def request(self) -> Request | None:
        """As it is in the queue."""
        request = self.candidate.request
        return replace(request, is_sent=True) if request is not None and self.is_sent else request

    @property
    def score(self) -> int:
        """As it is in the queue: the order, and what is known of the URL; the depth as it was added."""
        c = self.candidate
        known = [(255 - c.depth, 13), (c.seed, 12), (c.redirects, 8), (min(self.attempts, 15), 4)]
        return (round(c.score * 4096) << 21) + sum(n << by for n, by in known) + min(self.deliveries, 15)


@dataclass
class Queue:
    next_ms: int = 0
    delay_ms: int | None = None
    borrower: str = ""  # the session that borrowed a slot, "done:..." when its request has ended
    borrower_seen: int | None = None  # when the owner first saw that, or the waiter
    waiter: str = ""  # the borrower that waits, or GRANTED until the owner has had its own turn
    stop: str = ""  # why nothing of it is handed out
    boost: int = 0
    quick: int = 0  # see AsideModel
    aside_ms: int | None = None  # when a claim looks at its origins that do not answer
    left_until_ms: int = 0  # when the owner looks again at a queue that it left to the borrower

    @property
    def is_deferred(self) -> bool:
        """Do none of its URLs count as pending?"""
        return self.stop not in ("", "paused", "pages")

    def defers(self, user: str) -> bool:
        """Do those of this user not? A budget is for the crawl's own."""
        return self.is_deferred or (self.stop == "pages" and not user)

    @property
    def patience_ms(self) -> int:
        return DEFAULT_DELAY_MS if self.delay_ms is None else self.delay_ms

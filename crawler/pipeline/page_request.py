"""What is kept of a request for a page while it runs, and of its answer."""

import msgspec

from crawler.frontier.frontier import Settlement
from crawler.model import Claim, FetchResult, Response
from crawler.pipeline.schedule import QueueSlot


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim asks for next at a cookie wall (see cookie_walls): with which cookies, and as which URL on the way
    (0: the page itself). `first`: the page's own redirect, its result when the way leads nowhere.
    """

    url: str
    cookies: dict[str, str]
    first: Response | None = None
    number: int = 0


class PageRequest(msgspec.Struct):
    """A request for a page, from connecting to the end of its answer. `started_at` is wall clock, s."""

    slot: QueueSlot
    claim: Claim
    started_at: float
    step: Step | None = None  # at a cookie wall
    is_sent: bool = False  # the last check was passed; started_at is its time from then on


class Answered(msgspec.Struct, frozen=True):
    """Its end: what came, what its queue does now, and when that was (wall clock, s)."""

    page_request: PageRequest
    result: FetchResult
    settled: Settlement
    finished_at: float

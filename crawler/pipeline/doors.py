"""What the workers of an instance use, and what they keep of a request while it runs. No logic."""

import msgspec

from crawler.archive.inflight_log import InflightLog
from crawler.frontier.frontier import Frontier, Settlement
from crawler.membership.heartbeat import Heartbeat
from crawler.membership.ownership import Ownership
from crawler.model import Claim, FetchResult, Response
from crawler.pipeline.attempt_notes import History
from crawler.pipeline.handle import HandlerStage
from crawler.pipeline.internal_errors import InternalErrors
from crawler.pipeline.parse import PageParser
from crawler.pipeline.schedule import Lane, Workbench
from crawler.pipeline.trap_memory import TrapMemory
from crawler.robots.cache import RobotsCache
from crawler.robots.reader import RobotsReader
from crawler.runtime.counters import Flow
from crawler.web.fetcher import Fetcher


class Doors(msgspec.Struct, frozen=True):
    """What the workers use."""

    frontier: Frontier
    ownership: Ownership
    heartbeat: Heartbeat
    bench: Workbench
    fetcher: Fetcher
    robots: RobotsCache
    robots_reader: RobotsReader
    parser: PageParser
    flow: Flow
    inflight_log: InflightLog
    history: History
    traps: TrapMemory
    handling: HandlerStage
    internal_errors: InternalErrors


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim asks for next at a cookie wall (see cookie_walls): with which cookies, and as which URL on the way
    (0: the page itself). `first`: the page's own redirect, its result when the way leads nowhere.
    """

    url: str
    cookies: dict[str, str]
    first: Response | None = None
    number: int = 0


class Exchange(msgspec.Struct):
    """A request for a page, from connecting to the end of its answer. `started_at` is wall clock, s."""

    lane: Lane
    claim: Claim
    started_at: float
    step: Step | None = None  # at a cookie wall
    is_sent: bool = False  # the last check was passed; started_at is its time from then on


class Answered(msgspec.Struct, frozen=True):
    """Its end: what came, what its queue does now, and when that was (wall clock, s)."""

    exchange: Exchange
    result: FetchResult
    settled: Settlement
    finished_at: float

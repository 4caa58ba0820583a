"""What every handler gets: the call with its types, and what all calls share."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from aiohttp import web

from crawler.api.access import Identity
from crawler.api.body_stream import BodyStream
from crawler.api.browser_sessions import BrowserSessions
from crawler.api.event_hub import EventHub
from crawler.api.idempotency import Idempotency
from crawler.api.live_crawl import LiveCrawl
from crawler.api.places import Places
from crawler.api.problem import Limits
from crawler.api.shared_answers import SharedAnswers
from crawler.crawl.opening import OpenCrawl
from crawler.frontier.operator_log import Actor, Via
from crawler.views.dead_letter_changes import LetterList
from crawler.views.ring import RingMembers

Query = TypeVar("Query")
Body = TypeVar("Body")


class NoQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No parameters."""


class NoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing, or an empty object."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all requests share. `root`: what each path begins with, "" or a path without its last slash."""

    root: str
    live: LiveCrawl
    limits: Limits
    sessions: BrowserSessions
    hub: EventHub
    idempotency: Idempotency
    seed_places: Places
    event_places: Places
    letter_sums: SharedAnswers[LetterList]
    rings: SharedAnswers[RingMembers]
    metrics_domains: int  # how many of the busiest have metrics


@dataclass(frozen=True, kw_only=True)
class Call(Generic[Query, Body]):
    """One request. `body` is None where the handler reads it itself."""

    http: web.Request
    context: Context
    identity: Identity
    query: Query
    body: Body
    stream: BodyStream  # for handlers that read the body themselves
    while_admitted: Callable[[], AbstractAsyncContextManager[None]]  # raises ProblemError when the sender no longer is

    @property
    def name(self) -> str:
        """The part of the path that names something, like a domain."""
        return self.part("name")

    def part(self, name: str) -> str:
        """A part of the path, by its name in the route."""
        return self.http.match_info[name]

    @property
    def actor(self) -> Actor:
        """The sender, for the operator log."""
        return Actor(who=self.identity.who, via=Via.API)

    async def crawl(self) -> OpenCrawl:
        """The crawl as it is now. Raises EngineError."""
        return await self.context.live.current()

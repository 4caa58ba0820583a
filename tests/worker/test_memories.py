"""What a site can make many of: each memory of an instance, filled ten times over, stays within its bound.

It forgets what docs/internals/security.md names. What it still knows is right, and what it forgot is learned again.
"""

import asyncio
import importlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from crawler.frontier import placement
from crawler.frontier.placement import Placement
from crawler.frontier.runs import ActiveRun
from crawler.handlers.crawler import Crawler
from crawler.hosts import robots_cache, robots_reader
from crawler.hosts.robots_cache import RobotsCache
from crawler.hosts.robots_reader import RobotsReader
from crawler.instance import rebalance
from crawler.model import Claim, Failure, FailureKind, FetchResult
from crawler.routing import router, runs_known
from crawler.routing.recent_urls import URL_CHARS_MAX, RecentUrls
from crawler.routing.router import Router
from crawler.routing.runs_known import RunBook
from crawler.routing.traps_learned import TrapMemory
from crawler.rules import places as url_places
from crawler.rules import proxy_health, trap_verdict, urls
from crawler.rules import robots as robots_txt
from crawler.rules import scope as scope_rules
from crawler.rules import sites as site_rules
from crawler.rules.cookies import Jar
from crawler.rules.job_runs import RunRecord, RunSpec
from crawler.rules.places import Fingerprints
from crawler.rules.proxy_health import Fault, ProxyHealth
from crawler.rules.scope import ScopeRules
from crawler.rules.signatures import Wish
from crawler.rules.sites import SiteRules, of_queues
from crawler.rules.trap_verdict import TrapRules
from crawler.rules.urls import JoinCache, join_all
from crawler.settings import (
    DnsSettings,
    FetchSettings,
    IdentitySettings,
    ScopeSettings,
    Settings,
    SiteSettings,
    TrapSettings,
)
from crawler.web import connection_pool, fetcher, resolver, signing
from crawler.web import tls as tls_context
from crawler.web.connection_pool import Pool
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from crawler.web.signing import Signer
from crawler.web.signing_keys import SigningKeys, new_key
from crawler.web.tls import ResumingContext
from crawler.worker import (
    address_limit,
    cookie_walls,
    hooks,
    internal_errors,
    page_requests,
    response_policy,
    schedule,
    slow_hosts,
)
from crawler.worker import reaching as reaching_module
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.cookie_walls import CookieWalls
from crawler.worker.hooks import Hooks
from crawler.worker.internal_errors import InternalErrors
from crawler.worker.open_claims import OpenClaims
from crawler.worker.outcomes import Refused
from crawler.worker.page_requests import Answered, PageRequest, StaleRequests, Step
from crawler.worker.reaching import Reached, Reaching
from crawler.worker.response_policy import Recall, ResponsePolicy
from crawler.worker.schedule import QueueSlot, Scheduler
from crawler.worker.slow_hosts import SlowHosts
from crawler.worker.turn import AwaitReach
from tests.support.patience import others_run
from tests.worker.policy_lab import SETTLED, answer, claim_at, failure
from tests.worker.test_bounded_memory import response
from tests.worker.test_links_of_a_group import RECORD
from tests.worker.test_returned_claims import FakeDuePartitions, FakeFrontier, rebalance_of
from tests.worker.test_schedule import batch, claim

BOUND = 20
MANY = 10 * BOUND
UNUSED: Any = SimpleNamespace()
ROOT = Path(__file__).parents[2]


class Filled(NamedTuple):
    """A memory after numbers from 0 to MANY - 1 came into it: its size, and what it says of each of them."""

    size: int
    answers: list[bool | None]  # right, wrong, or None for nothing


def right(found: Iterable[Any], expected: Callable[[int], Any] = lambda _: True) -> list[bool | None]:
    """Answers, where `found` has None for nothing."""
    return [None if one is None else one == expected(n) for n, one in enumerate(found)]


def known(found: Iterable[Any]) -> list[bool | None]:
    """Answers of a memory that has no values: what it has is there."""
    return [True if one else None for one in found]


def origin(n: int) -> str:
    return f"http://h{n}.test"


def scheduler_of() -> Scheduler:
    return Scheduler(OpenClaims(MANY), concurrency_per_queue=1)


# --- each memory ---


async def claims_in_memory(patch: pytest.MonkeyPatch) -> Filled:
    """The claimer asks for no more than there is room for; it is the same for any number of queues."""
    claims = OpenClaims(BOUND)
    for n in range(MANY):
        if claims.room > 0:
            claims.opened([claim(n, queue=f"h{n}.test", partition=n)])
    return Filled(claims.total, known(claims.has_any(n) for n in range(MANY)))


async def slots(patch: pytest.MonkeyPatch) -> Filled:
    now = 1_000_000
    patch.setattr(schedule, "monotonic_ms", lambda: now)
    scheduler, claims = scheduler_of(), list[Claim]()
    for n in range(MANY):
        scheduler.put(batch(n, queue=f"h{n}.test", delay_ms=1000))
        if n >= BOUND:  # the claims of others have ended
            claims += scheduler.take_out(lambda one, n=n: one.queue == f"h{n - BOUND}.test")  # type: ignore[misc]
    now += 1000 + schedule.KEPT_MS
    scheduler.forget_idle()
    return Filled(len(scheduler.slots()), known(scheduler.delay_of(f"h{n}.test") == 1000 for n in range(MANY)))


async def waiting_at_addresses(patch: pytest.MonkeyPatch) -> Filled:
    scheduler = scheduler_of()
    for n in range(MANY):
        scheduler.wait_at(f"192.0.2.{n}", claim(n, partition=n))
        if n >= BOUND:
            scheduler.remove([n - BOUND])
    return Filled(len(scheduler._waiting_at), known(scheduler.waiting_at(f"192.0.2.{n}") for n in range(MANY)))


async def origins(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(fetcher, "_ORIGINS_MAX", BOUND)
    one = Fetcher(Settings(), resolver=UNUSED, version="1")
    for n in range(MANY):
        one._origin_and_target(f"{origin(n)}/")
    hosts = [one._origins.get(origin(n)) for n in range(MANY)]
    return Filled(len(one._origins), right([found and found.host for found in hosts], lambda n: f"h{n}.test"))


def signer_of(patch: pytest.MonkeyPatch) -> Signer:
    patch.setattr(signing, "SIGNED_MAX", BOUND)
    patch.setattr(signing, "ASKED_MAX", BOUND)
    identity = IdentitySettings(sign="always")
    return Signer(identity, SigningKeys((new_key(nbf=0),)), clock=lambda: 1e9)


async def signatures(patch: pytest.MonkeyPatch) -> Filled:
    one = signer_of(patch)
    made = [one.lines(f"h{n}.test") for n in range(MANY)]
    return Filled(len(one._signed), right([one._signed.get(f"h{n}.test") for n in range(MANY)], lambda n: made[n]))


async def wishes(patch: pytest.MonkeyPatch) -> Filled:
    one = signer_of(patch)
    for n in range(MANY):
        one.answered(f"h{n}.test", 401, f'a{n}=("@authority")'.encode(), was_signed=False)
    found = [one._wishes.get(f"h{n}.test") for n in range(MANY)]
    return Filled(len(one._wishes), right(found, lambda n: Wish(f"a{n}")))


async def unmet_wishes(patch: pytest.MonkeyPatch) -> Filled:
    one = signer_of(patch)
    for n in range(MANY):
        one.answered(f"h{n}.test", 401, b'a=("@path")', was_signed=False)
    return Filled(len(one._unmet), known(f"h{n}.test" in one._unmet for n in range(MANY)))


class FakeConnection:
    is_spoiled = False
    idle_since = 0.0
    is_closed = False

    def is_usable(self) -> bool:
        return not self.is_closed

    def abort(self) -> None:
        self.is_closed = True


async def idle_connections(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(connection_pool, "IDLE_MAX", BOUND)
    pool, one = Pool(FetchSettings(concurrency=1), UNUSED), Fetcher(Settings(), resolver=UNUSED, version="1")
    places = [one._origin_and_target(f"{origin(n)}/")[0] for n in range(MANY)]
    opened: list[Any] = [FakeConnection() for _ in places]
    for place, connection in zip(places, opened, strict=True):
        pool.put(place, connection)
    size, taken = len(pool._idle), [pool.take(place) for place in places]
    assert [connection.is_closed for connection in opened] == [found is None for found in taken]
    await pool.close()
    return Filled(size, right(taken, lambda n: opened[n]))


async def sessions(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(tls_context, "SESSIONS_MAX", BOUND)
    context = ResumingContext.create(insecure=True)
    for n in range(MANY):
        made: Any = SimpleNamespace(session_reused=False, session=n, version=lambda: "TLSv1.2")
        context.learn_session(f"h{n}.test", made)
    found = [context._sessions.get(f"h{n}.test") for n in range(MANY)]
    return Filled(len(context._sessions), right(found, lambda n: n))


async def names(patch: pytest.MonkeyPatch) -> Filled:
    one = CachingResolver(DnsSettings(cache_size=BOUND), allow_private=True)

    async def ask(host: str) -> Any:
        address = f"192.0.2.{host[1:-5]}".encode()
        return SimpleNamespace(cnames=[], nodes=[SimpleNamespace(addr=(address, 0), ttl=300)])

    patch.setattr(one, "_ask_in_turn", ask)
    for n in range(MANY):
        await one.lookup(f"h{n}.test")
    found = [one.cached(f"h{n}.test") for n in range(MANY)]
    return Filled(len(one._cache), right(found, lambda n: (f"192.0.2.{n}",)))


class FakeReach:
    """Looks up a name when it is told to, and remembers nothing."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    def known_address_of(self, url: str) -> None:
        return None

    async def address_of(self, url: str) -> str:
        await self.may_answer.wait()
        return url.split("/")[2]


def waiting(reaching: Reaching, one: Claim) -> bool:
    """Begin to wait for its name, if that may be."""
    end = reaching.of(one)
    assert isinstance(end, AwaitReach)
    if not reaching.is_full:
        end.began(lambda: None)
        return True
    return False


async def reaching_of(*, claims_max: int = MANY) -> tuple[Reaching, FakeReach]:
    fake: Any = FakeReach()
    return Reaching(fake, claims_max=claims_max, connects_max=1), fake


def host_claim(n: int) -> Claim:
    return replace(claim(n), url=f"http://h{n}.test/")


async def claims_for_names(patch: pytest.MonkeyPatch) -> Filled:
    reaching, _ = await reaching_of(claims_max=BOUND)
    found = [waiting(reaching, host_claim(n)) for n in range(MANY)]
    size = reaching._count
    await reaching.close()
    return Filled(size, known(found))


async def look_ups(patch: pytest.MonkeyPatch) -> Filled:
    """The claims have left meanwhile: the names are late."""
    patch.setattr(reaching_module, "ATTEMPTS_MAX", BOUND)
    reaching, _ = await reaching_of()
    found = []
    for n in range(MANY):
        found.append(waiting(reaching, host_claim(n)))
        for key in [*reaching._attempts]:
            if reaching._attempts[key].waiting:
                reaching._is_late(key)
    size = len(reaching._attempts)
    await reaching.close()
    return Filled(size, known(found))


async def results(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(reaching_module, "RESULTS_MAX", BOUND)
    reaching, fake = await reaching_of()
    fake.may_answer.set()
    for n in range(MANY):
        waiting(reaching, host_claim(n))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    size = len(reaching._results)
    return Filled(size, right([address_in(reaching, n) for n in range(MANY)], lambda n: f"h{n}.test"))


def address_in(reaching: Reaching, n: int) -> str | None:
    found = reaching.of(host_claim(n))
    return found.address if isinstance(found, Reached) else None


async def late_names(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(reaching_module, "RESULTS_MAX", BOUND)
    reaching, fake = await reaching_of()
    for n in range(MANY):
        fake.may_answer = asyncio.Event()
        waiting(reaching, host_claim(n))
        await asyncio.sleep(0)
        for key in [*reaching._attempts]:
            reaching._is_late(key)
        fake.may_answer.set()
        for _ in range(3):
            await asyncio.sleep(0)
    reaching._results.clear()
    size = len(reaching._late)
    return Filled(size, right([address_in(reaching, n) for n in range(MANY)], lambda n: f"h{n}.test"))


async def answering(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(slow_hosts, "ANSWERED_MAX", BOUND)
    hosts = SlowHosts(scheduler_of(), workers=4)
    for n in range(MANY):
        hosts.note(origin(n), answered=True, took_ms=1)
    return Filled(len(hosts._held_ms), known(hosts.is_quick(origin(n)) for n in range(MANY)))


async def holding(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(slow_hosts, "ANSWERED_MAX", BOUND)
    hosts = SlowHosts(scheduler_of(), workers=4)
    for n in range(MANY):
        hosts.note(origin(n), answered=False, took_ms=slow_hosts.PROMPT_MS)
    return Filled(len(hosts._silent), known(hosts.kind_of(origin(n)) is address_limit.Kind.SLOW for n in range(MANY)))


async def addresses(patch: pytest.MonkeyPatch) -> Filled:
    """Each has promised times far ahead, so that it is worth keeping."""
    patch.setattr(address_limit, "KEPT_MAX", BOUND)
    limiter = AddressLimiter(scheduler_of(), limit=1)
    for n in range(MANY):
        assert limiter.enter(str(n)) is None
        limiter._known[str(n)].promised_ms = [1e15]
        limiter.left(str(n), took_ms=n)
        assert limiter.open_at(str(n)) == 0
    return Filled(len(limiter._known), known(str(n) in limiter._known for n in range(MANY)))


async def silent_origins(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(response_policy, "ORIGINS_MAX", BOUND)
    policy, slot = ResponsePolicy(Settings()), QueueSlot("a.test", 1)
    for n in range(MANY):
        policy.of_page(slot, claim_at(origin(n)), failure(FailureKind.CONNECT))
        policy.promise(claim_at(origin(n)), 1000 + n)
    found = [policy.promised_ms(claim_at(origin(n))) or None for n in range(MANY)]
    assert [policy.has_failed(origin(n)) for n in range(MANY)] == [one is not None for one in found]
    return Filled(len(policy._silent), right(found, lambda n: 1000 + n))


async def recalled(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(response_policy, "RECALLED_MAX", BOUND)
    policy, slot, sizes = ResponsePolicy(Settings()), QueueSlot("a.test", 1), []
    slot.has_aside = True
    for n in range(MANY - 1):  # the one that would be too many is the first of the next set
        _, recall = policy.of_page(slot, claim_at(origin(n)), answer())
        assert recall, "recalled once at least"
        sizes.append(len(slot.recalled))
    return Filled(max(sizes), known(origin(n) in slot.recalled for n in range(MANY)))


async def told(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(rebalance, "TOLD_MAX", BOUND)
    one = rebalance_of(FakeFrontier(), Scheduler(OpenClaims(MANY), concurrency_per_queue=1), FakeDuePartitions())
    for n in range(MANY):
        await one.recall(claim_at(origin(n)), Recall(origin(n)))
    return Filled(len(one._told), known(origin(n) in one._told for n in range(MANY)))


def cache_of_robots() -> RobotsCache:
    return RobotsCache(UNUSED, Settings())


async def robots(patch: pytest.MonkeyPatch, prefix: str = "", lines: int = 0) -> Filled:
    one = cache_of_robots()
    more = b"".join(b"Disallow: /%d/*x\n" % n for n in range(lines))
    for n in range(MANY):
        place = origin(n) + prefix
        body = b"User-agent: *\nDisallow: /%d\n" % n + more
        await one.judge(place, FetchResult(url=place, response=response(place, body)))
    found = [one.known(origin(n) + prefix) for n in range(MANY)]
    rules = [entry.rules if entry else None for entry in found]
    forbidden = [known and not known.allows(f"{origin(n)}/{n}") for n, known in enumerate(rules)]
    return Filled(len(one._entries), right(forbidden))


async def robots_entries(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(robots_cache, "CACHED_ORIGINS_MAX", BOUND)
    return await robots(patch)


async def robots_bytes(patch: pytest.MonkeyPatch) -> Filled:
    """Targets of redirects are kept by their URLs, which count too."""
    patch.setattr(robots_cache, "CACHED_BYTES_MAX", BOUND * 8300)
    return await robots(patch, prefix="/" + "x" * 7000)


async def robots_reads(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(robots_reader, "FETCHES_MAX", BOUND)

    async def redirect(url: str, **_: Any) -> FetchResult:
        moved = replace(response(url, location="/elsewhere"), status=301)
        return FetchResult(url=url, response=moved)

    web: Any = SimpleNamespace(fetch=redirect, place=lambda url: ("a.test", 1))
    one = RobotsReader(cache_of_robots(), web, web)
    for n in range(MANY):
        assert (await one.read("a.test", origin(n))).entry is None
    found = [one._fetches.get(origin(n)) for n in range(MANY)]
    return Filled(len(one._fetches), right([f and f.url for f in found], lambda n: f"{origin(n)}/elsewhere"))


def wall_claim(n: int) -> Claim:
    return replace(claim(n), url=f"{origin(n)}/")


async def chains(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(cookie_walls, "KEPT_MAX", BOUND)
    walls = CookieWalls()
    for n in range(MANY):
        one = wall_claim(n)
        assert walls.starts(one, response(one.url, set_cookie=f"k={n}"), one.url, lambda _: False)
    size, steps = len(walls._steps), [walls.take(wall_claim(n)) for n in range(MANY)]
    return Filled(size, right([step and step.jar.cookies[0].value for step in steps], str))


def answered(one: Claim, url: str, body: bytes) -> Answered:
    result = FetchResult(url=url, response=response(url, body))
    return Answered(PageRequest(QueueSlot("a.test", 1), one, 0.0), result, SETTLED, 1.0)


async def chain_ends(patch: pytest.MonkeyPatch) -> Filled:
    """An origin whose redirects led nowhere twice: its redirects are not followed."""
    patch.setattr(cookie_walls, "ORIGINS_MAX", BOUND)
    walls, may_follow = CookieWalls(), []
    for n in [n for n in range(MANY) for _ in range(2)]:
        one, url = wall_claim(n), f"{origin(n)}/x"
        walls.continues(one, Step(url=url, jar=Jar(), number=1), answered(one, url, b""), lambda _: True)
    size = len(walls._misses)
    for n in range(MANY):
        one = wall_claim(n)
        may_follow.append(walls.starts(one, response(one.url, set_cookie="k=v"), f"{origin(n)}/x", lambda _: True))
    return Filled(size, known(not follows for follows in may_follow))


async def chain_answers(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(cookie_walls, "ANSWERS_MAX", BOUND)
    walls = CookieWalls()
    for n in range(MANY):
        one, url = claim_at("http://a.test", n), f"http://a.test/{n}"
        step = Step(url=url, jar=Jar(), number=1)
        walls.continues(one, step, answered(one, url, str(n).encode()), lambda _: True)
    size, found = len(walls._answers), [walls.answer_for(claim_at("http://a.test", n), 2.0) for n in range(MANY)]
    bodies = [one.result.response.body if one and one.result.response else None for one in found]
    return Filled(size, right(bodies, lambda n: str(n).encode()))


async def trap_states(patch: pytest.MonkeyPatch) -> Filled:
    """Domains with suspects have their own room: the many others are forgotten."""
    traps = TrapMemory(TrapSettings(), domains_max=BOUND)
    innocent = replace(claim(0), url="http://i.test/?a=1&b=2&c=3&d=4&e=5&f=6&g=7&h=8", domain="i.test")
    suspect = traps.learn(innocent, [], "d" * 16)
    for n in range(MANY):
        traps.learn(replace(claim(n), domain=f"h{n}.test"), [], f"{n:016}")
    assert traps.state_of("i.test") == suspect
    assert suspect.counts
    found = [traps.state_of(f"h{n}.test").digests or None for n in range(MANY)]
    return Filled(len(traps._plain), right(found, lambda n: ((f"{n:016}"[-trap_verdict.DIGEST_CHARS :], 1),)))


async def released(patch: pytest.MonkeyPatch) -> Filled:
    traps = TrapMemory(TrapSettings(), domains_max=BOUND)
    for n in range(MANY):
        traps.release(f"h{n}.test", "trap:long")
    return Filled(len(traps._released), known((f"h{n}.test", "trap:long") in traps._released for n in range(MANY)))


async def stale_requests(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(page_requests, "MET_STALE_MAX", BOUND)
    stale = StaleRequests()
    met = FetchResult(url="", failure=Failure(kind=FailureKind.DISCONNECTED), stale_connection=True)
    for n in range(MANY):
        assert stale.is_first(claim(n), met), "although the table is full"
    size, again = len(stale._urls), [stale.is_first(claim(n), met) for n in range(MANY - 1, -1, -1)]
    return Filled(size, known(not first for first in again[::-1]))


async def recent_urls(patch: pytest.MonkeyPatch) -> Filled:
    recent = RecentUrls(BOUND)
    for n in range(MANY - 1):
        recent.add(f"{origin(n)}/", n)
        recent.add("http://long.test/" + "x" * URL_CHARS_MAX, n)
    size = len(recent._young) + len(recent._old)
    assert not any(len(url) > URL_CHARS_MAX for url in [*recent._young, *recent._old])
    depths = [{**recent._old, **recent._young}.get(f"{origin(n)}/") for n in range(MANY)]
    return Filled(size, right(depths, lambda n: n))


def router_of(sites: Sequence[SiteSettings] = ()) -> Router:
    rules = ScopeRules.of(ScopeSettings(mode="domain"), ["domain:a.test"])
    return Router(RECORD, rules, RecentUrls(100), sites=sites)


async def out_of_scope(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(router, "OUT_OF_SCOPE_MAX", BOUND)
    one, refused = router_of(), Counter[str]()
    for n in range(MANY - 1):
        assert one.links(claim(1), [f"{origin(n)}/"], refused) == []
    assert [c.url for c in one.links(claim(1), ["http://a.test/in"], refused)] == ["http://a.test/in"]
    found = one._out_of_scope
    return Filled(len(found._young) + len(found._old), known(found.knows(f"{origin(n)}/", 0) for n in range(MANY)))


async def book_of_runs() -> RunBook:
    async def look(asked: Iterable[str]) -> dict[str, ActiveRun]:
        return {run: ActiveRun(run_record(run), 0) for run in asked}

    def run_record(run: str) -> RunRecord:
        return RunRecord(run=run, user="u", name="j", nominal=1, started_at=1.0, spec=RunSpec(depth=int(run)))

    store: Any = SimpleNamespace(look=look)
    book = RunBook(store, router_of(), TrapMemory(TrapSettings()))
    for n in range(MANY):
        await book.learn([str(n)])
    return book


async def runs(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(runs_known, "RUNS_MAX", BOUND)
    book = await book_of_runs()
    found = [book._known.get(str(n)) for n in range(MANY)]
    depths = [one.record.spec.depth if one and one.record else None for one in found]
    return Filled(len(book._known), right(depths, lambda n: n))


async def run_routers(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(runs_known, "ROUTERS_MAX", BOUND)
    book = await book_of_runs()
    made = [book.router_of(str(n)) for n in range(MANY)]
    assert [one._run.run for one in made if one is not None] == [str(n) for n in range(MANY)]
    return Filled(len(book._routers), known(str(n) in book._routers for n in range(MANY)))


async def run_fingerprints(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(url_places, "RUNS_MAX", BOUND)
    one = Fingerprints(bytes(16))
    expected = [Fingerprints(bytes(16), str(n + 1)).of("http://a.test/") for n in range(MANY)]
    assert [one.of_run(str(n + 1)).of("http://a.test/") for n in range(MANY)] == expected
    return Filled(len(one._of_runs), known(str(n + 1) in one._of_runs for n in range(MANY)))


async def places(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(placement, "PLACES_MAX", BOUND)
    one = Placement(RECORD)
    for n in range(MANY):
        assert one.of(f"{origin(n)}/")[0] == f"h{n}.test"
    size, found = one._place.cache_info().currsize, []
    for n in range(MANY - 1, -1, -1):
        hits = one._place.cache_info().hits
        one.of(f"{origin(n)}/")
        found.append(one._place.cache_info().hits > hits)
    return Filled(size, known(found[::-1]))


async def scope_verdicts(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(scope_rules, "_AUTHORITIES_MAX", BOUND)
    rules = ScopeRules.of(ScopeSettings(mode="domain"), ["domain:a.test"])
    for n in range(MANY):
        assert not rules.allows(f"{origin(n)}/")
        assert rules.allows("http://a.test/")
    known_hosts = rules._by_authority
    return Filled(len(known_hosts), right([known_hosts.get(f"h{n}.test") for n in range(MANY)], lambda _: False))


async def site_tables(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(site_rules, "_ORIGINS_MAX", BOUND)
    sites = [SiteSettings(match="h7.test", delay_s=3.0)]
    rules, of_queue = SiteRules.of(sites, "delay_s"), of_queues(sites, "delay_s")
    assert rules is not None
    for n in range(MANY):
        assert [table.number for table in rules.fitting(f"{origin(n)}/")] == [0] * (n == 7)
        assert (of_queue(f"h{n}.test") is not None) == (n == 7)
    cached: Any = of_queue
    assert cached.cache_info().currsize == BOUND
    found = [rules._by_origin.get(origin(n)) for n in range(MANY)]
    return Filled(len(rules._by_origin), known(one is not None for one in found))


async def joins(patch: pytest.MonkeyPatch) -> Filled:
    joined = JoinCache(BOUND)
    for n in range(MANY - 1):
        assert join_all(f"{origin(n)}/x", ["y"], cache=joined) == ([f"{origin(n)}/y"], 0)
        long = f"{origin(n)}/{'f' * 1000}/"
        assert join_all(f"{long}x", ["y"], cache=joined) == ([f"{long}y"], 0)
    assert all(len(folder) < 1000 for folder, _ in joined._folders)
    found = [joined._folders.get((f"{origin(n)}/", urls.BYTES_MAX)) for n in range(MANY)]
    return Filled(sum(map(len, joined._folders.values())), right(found, lambda n: {"y": f"{origin(n)}/y"}))


async def dateless(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(trap_verdict, "DATELESS_MAX", BOUND)
    rules, state, sizes = TrapRules(TrapSettings()), TrapMemory(TrapSettings()).state_of("a.test"), []
    for n in range(MANY):
        rules.learn(state, "http://a.test/", links=[f"http://a.test/{'x' * (n + 1)}"])
        sizes.append(len(rules._dateless))
    return Filled(max(sizes), known(f"http://a.test/{'x' * (n + 1)}" in rules._dateless for n in range(MANY)))


def hooks_of(*events: Any) -> Hooks:
    app = Crawler()
    for event in events:
        app.listeners[event].append(lambda *_: None)
    return Hooks(app, UNUSED)


async def events(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(hooks, "WAITING_MAX", BOUND)
    one = hooks_of("skip")
    for n in range(MANY):
        one.accepted(Refused(claim=claim(n), reason="robots"))
    numbers = [arguments[0] for _, arguments in one._waiting]
    return Filled(len(numbers), known(claim(n).url in numbers for n in range(MANY)))


async def ended_queues(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(hooks, "ENDED_MAX", BOUND)
    one = hooks_of("domain_done")
    for n in range(MANY):
        one.accepted(Refused(claim=claim(n, queue=f"h{n}.test", partition=n), reason="robots"))
    size, found = one.ended.count, one.ended.take(MANY)
    assert one.ended.count == 0
    assert size == sum(map(len, found.values()))
    return Filled(size, right([found.get(f"h{n}.test") for n in range(MANY)], lambda n: {f"h{n}.test": n}))


async def error_files(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(internal_errors, "FILES_MAX", BOUND)
    written: list[Path] = []
    patch.setattr(internal_errors, "open", lambda path, *_, **__: written.append(path) or StringIO(), raising=False)
    one = InternalErrors(Path("/nowhere"))
    for n in range(MANY):
        one._write_file("http://a.test/", f"kind {n}", "")
    assert len(written) == len(one._kinds)
    return Filled(len(one._kinds), known(f"kind {n}" in one._kinds for n in range(MANY)))


async def troubled_targets(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(proxy_health, "TARGETS_MAX", BOUND)
    one = ProxyHealth(give_up_ms=1)
    for n in range(MANY):
        one.failed(origin(n), f"h{n}.test", Fault.EITHER, "", now_ms=1)
    return Filled(len(one._troubled), known(origin(n) in one._troubled for n in range(MANY)))


async def served_targets(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(proxy_health, "TARGETS_MAX", BOUND)
    one = ProxyHealth(give_up_ms=1)
    for n in range(MANY):
        one.served(origin(n), now_ms=1)
    return Filled(len(one._answered), known(origin(n) in one._answered for n in range(MANY)))


async def new_targets(patch: pytest.MonkeyPatch) -> Filled:
    patch.setattr(proxy_health, "TARGETS_MAX", BOUND)
    one = ProxyHealth(give_up_ms=1)
    for n in range(proxy_health.DOMAINS_MAX):
        one.failed(origin(n), str(n), proxy_health.Fault.EITHER, "", now_ms=1)
    for n in range(MANY):
        one.wait_ms(f"{origin(n)}.new", now_ms=2)
    return Filled(len(one._first), known(f"{origin(n)}.new" in one._first for n in range(MANY)))


Fill = Callable[[pytest.MonkeyPatch], Awaitable[Filled]]
OLDEST, NEWEST, ALL = "the oldest", "the newest", "all"  # what goes
FILLS: dict[str, tuple[Fill, str]] = {
    "claims in memory": (claims_in_memory, NEWEST),
    "queue slots": (slots, OLDEST),
    "claims that wait at an address": (waiting_at_addresses, OLDEST),
    "origins of the fetcher": (origins, OLDEST),
    "signatures": (signatures, OLDEST),
    "authorities that ask for signatures": (wishes, OLDEST),
    "authorities that take no signature of ours": (unmet_wishes, OLDEST),
    "idle connections": (idle_connections, OLDEST),
    "TLS sessions": (sessions, OLDEST),
    "names in the resolver's cache": (names, OLDEST),
    "claims that wait for a name": (claims_for_names, NEWEST),
    "look-ups that have begun": (look_ups, NEWEST),
    "results of look-ups": (results, OLDEST),
    "names that came late": (late_names, OLDEST),
    "origins that answered": (answering, OLDEST),
    "origins that held a request for long": (holding, OLDEST),
    "address counters": (addresses, NEWEST),
    "silent origins": (silent_origins, OLDEST),
    "recalled origins of a queue": (recalled, ALL),
    "last words on origins": (told, OLDEST),
    "targets that a proxy failed for": (troubled_targets, OLDEST),
    "targets that a proxy served": (served_targets, OLDEST),
    "targets that try a failing proxy for the first time": (new_targets, OLDEST),
    "robots.txt": (robots_entries, OLDEST),
    "bytes of robots.txt": (robots_bytes, OLDEST),
    "robots.txt that are being read": (robots_reads, OLDEST),
    "cookie walls": (chains, OLDEST),
    "origins whose redirects led nowhere": (chain_ends, OLDEST),
    "responses on the way through a cookie wall": (chain_answers, OLDEST),
    "trap states": (trap_states, OLDEST),
    "queues whose traps were released": (released, OLDEST),
    "stale marks": (stale_requests, OLDEST),
    "recent URLs": (recent_urls, OLDEST),
    "URLs out of scope": (out_of_scope, OLDEST),
    "runs": (runs, OLDEST),
    "routers of runs": (run_routers, OLDEST),
    "fingerprints of runs": (run_fingerprints, ALL),
    "places of hosts": (places, OLDEST),
    "scope of hosts": (scope_verdicts, ALL),
    "`[[sites]]` of origins": (site_tables, ALL),
    "joined links": (joins, ALL),
    "links without a date": (dateless, ALL),
    "events for hooks": (events, OLDEST),
    "queues with ended claims, for `domain_done`": (ended_queues, OLDEST),
    "kinds of internal errors": (error_files, NEWEST),
}


@pytest.mark.parametrize("row", FILLS)
async def test_a_memory_is_bounded_and_never_wrong(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill, goes = FILLS[row]
    found = await fill(monkeypatch)
    assert 0 < found.size <= BOUND
    assert False not in found.answers, "what is still known is right"
    kept = [n for n, one in enumerate(found.answers) if one]
    expected = {OLDEST: range(MANY - len(kept), MANY), NEWEST: range(len(kept)), ALL: kept}[goes]
    assert kept in ([*expected], [n - 1 for n in expected])


# --- the table of the docs ---

SHARED: dict[str, Any] = {  # least recently used caches that all of a process share
    "domains of hosts": url_places.registrable_domain,
    "public addresses": resolver.is_public,
    "rules of short robots.txt": robots_txt._parsed_once,
}
_ROW = re.compile(r"^\| (.+?) \| `([\w/]+\.(?:py|lua))` \| (.+?) \| (.+?) \|$", re.MULTILINE)
_NUMBER = re.compile(r"([\d,]+) \(`([\w.]+)`\)")
PAGE = (ROOT / "docs" / "internals" / "security.md").read_text("utf-8")
TABLE = _ROW.findall(PAGE.partition("## What a site can make many of")[2].partition("\n## ")[0])
NUMBERS = [(file, name, text) for _, file, bound, _ in TABLE for text, name in _NUMBER.findall(bound)]


def test_the_docs_have_each_memory_of_an_instance_once() -> None:
    rows = [what for what, file, _, _ in TABLE if file.endswith(".py")]
    assert sorted(rows) == sorted([*FILLS, *SHARED])
    assert all((ROOT / file).exists() for _, file, _, _ in TABLE if file.endswith(".py"))


@pytest.mark.parametrize(("file", "name", "text"), NUMBERS, ids=[f"{file}:{name}" for file, name, _ in NUMBERS])
def test_a_number_of_the_docs_is_that_of_the_code(file: str, name: str, text: str) -> None:
    number = int(text.replace(",", ""))
    if file.endswith(".lua"):
        code = (ROOT / "crawler" / "frontier" / "lua" / file).read_text("utf-8")
        assert re.search(rf"\b{name.rpartition('.')[2]} = {number}\b", code)
    elif "." in name:
        section, _, key = name.partition(".")
        assert getattr(getattr(Settings(), section), key) == number
    else:
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        assert getattr(module, name) == number


def test_files_of_the_engine_in_the_docs_exist() -> None:
    files = [file for _, file, _, _ in TABLE if file.endswith(".lua")]
    assert len(files) > 8
    assert all((ROOT / "crawler" / "frontier" / "lua" / file).exists() for file in files)


@pytest.mark.parametrize("row", SHARED)
def test_a_cache_of_the_process_has_the_bound_of_the_docs(row: str) -> None:
    (bound,) = [bound for what, _, bound, _ in TABLE if what == row]
    assert f"{SHARED[row].cache_parameters()['maxsize']:,} (" in bound


# --- what attackers do to the others ---


async def test_look_ups_of_attackers_keep_others_waiting_only_until_some_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching_module, "ATTEMPTS_MAX", BOUND)
    reaching, fake = await reaching_of()
    assert sum(waiting(reaching, host_claim(n)) for n in range(MANY)) == BOUND
    assert not waiting(reaching, host_claim(MANY))
    fake.may_answer.set()
    await others_run()
    assert waiting(reaching, host_claim(MANY))
    await reaching.close()


def test_a_url_whose_mark_was_pushed_out_gets_no_more_than_one_more_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_requests, "MET_STALE_MAX", BOUND)
    stale, met = (
        StaleRequests(),
        FetchResult(url="", failure=Failure(kind=FailureKind.DISCONNECTED), stale_connection=True),
    )
    tries = [stale.is_first(claim(-1), met)]
    for n in range(MANY):
        stale.is_first(claim(n), met)
    tries += [stale.is_first(claim(-1), met) for _ in range(2)]
    assert tries == [True, True, False]
    assert stale.is_first(claim(-1), met), "an attempt was counted in between"
    assert not stale.is_first(claim(-1), answer()), "it answered"
    assert stale.is_first(claim(-1), met)


async def test_one_domain_with_many_queues_does_not_grow_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "ENDED_MAX", BOUND)
    ended = hooks.EndedQueues()
    ended.add("i.test", {"i.test": 1})
    for n in range(MANY):
        ended.add("a.test", {f"h{n}.a.test": 2})
        assert ended.count <= BOUND
    ended.add("j.test", {"j.test": 3})
    assert ended.take(MANY)["j.test"] == {"j.test": 3}

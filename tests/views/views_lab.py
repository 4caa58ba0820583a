"""A crawl that is open, with some URLs added and nothing fetched, for tests of the service functions."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.crawl.opening import OpenCrawl, make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.errors import EngineError
from crawler.frontier.codec import DeadLetter
from crawler.frontier.leases import Acquired
from crawler.frontier.operator_log import Actor, OperatorLog, Via
from crawler.frontier.owner import ClaimRequest, Fence, Settlement
from tests.crawl.harness import settings_of
from tests.support.engine import Engine

ANN = Actor(who="ann", via=Via.API)
DOMAIN = "docs.example"
URLS = tuple(f"https://{DOMAIN}/p{n}" for n in range(5))


@contextlib.asynccontextmanager
async def seeded(folder: Path, engine: Engine, *urls: str) -> AsyncIterator[OpenCrawl]:
    """An open crawl with these URLs."""
    async with open_crawl(settings_of(folder, frontier__redis=engine.url), create=True) as crawl:
        await make_seeder(crawl).add_all([GivenUrl("test", url) for url in urls or URLS])
        yield crawl


class LogIsGoneError(EngineError):
    """The operator log can't be written."""


class BrokenLog(OperatorLog):
    """An operator log that nothing can be written to."""

    async def add(self, actor: Actor, action: str, target: str = "", detail: str = "") -> int:
        raise LogIsGoneError(f"{actor.who} {action} {target} {detail}")


def without_log(crawl: OpenCrawl) -> OpenCrawl:
    """The same crawl, whose operator log can't be written."""
    same = replace(crawl)
    vars(same)["operator_log"] = BrokenLog(crawl.engine, crawl.keys)
    return same


async def check_nothing_unlogged(crawl: OpenCrawl, change: Callable[[OpenCrawl], Awaitable[object]]) -> None:
    """Where its entry in the log can't be written, a change changes nothing."""
    before = await all_keys(crawl)
    with pytest.raises(LogIsGoneError):
        await change(without_log(crawl))
    assert await all_keys(crawl) == before


async def logged(crawl: OpenCrawl) -> list[tuple[str, str, str]]:
    """(action, target, detail) of all entries, all of which are Ann's."""
    found = await crawl.operator_log.read()
    assert {(one.who, one.via) for one in found} <= {(ANN.who, ANN.via)}
    return [(one.action, one.target, one.detail) for one in found]


async def all_keys(crawl: OpenCrawl) -> dict[bytes, bytes]:
    """Everything that the engine stores of the crawl, as it dumps it."""
    names = sorted(await crawl.engine.command("KEYS", "*"))
    return dict(zip(names, await crawl.engine.commands([("DUMP", name) for name in names]), strict=True))


async def give_up(crawl: OpenCrawl, reason_of: Callable[[str], str] = lambda _: "timeout", *, since_ms: int = 0) -> int:
    """Make dead letters of all pending URLs, each with the reason that its URL has; how many.

    `since_ms`: on the clocks of the partitions; the second time, later than all delays of the first.
    """
    leases = await crawl.leases.read(range(crawl.record.partitions))
    acquired = await crawl.leases.acquire(crawl.session, "n", [(lease, 0) for lease in leases])
    epochs = {one.partition: one.epoch for one in acquired if isinstance(one, Acquired)}
    done, more = 0, -1
    for now in range(since_ms, 10**9, 10**6):
        if done == more:
            break
        more = done
        fences = [Fence(partition, crawl.session, epoch, now) for partition, epoch in epochs.items()]
        done = await _give_up_due(crawl, fences, reason_of, done)
    await crawl.leases.release(fences)
    return done


async def _give_up_due(crawl: OpenCrawl, fences: Sequence[Fence], reason_of: Callable[[str], str], done: int) -> int:
    """Those that are due now; how many there are in all. They have failed at second 1, 2, 3 and so on."""
    request = ClaimRequest(
        request_id=f"r{fences[0].now_ms}", urls_max=128, per_queue_max=128, ahead_ms=10_000, visibility_ms=60_000,
        default_delay_ms=0, out_max=128,
    )  # fmt: skip
    replies = await crawl.frontier.claim([(fence, request) for fence in fences])
    calls = []
    for fence, reply in zip(fences, replies, strict=True):
        assert not isinstance(reply, EngineError)
        for claim in (claim for batch in reply.batches for claim in batch.claims):
            done += 1
            letter = DeadLetter(
                url=claim.url, queue=claim.queue, domain=claim.domain, depth=claim.depth, seed=claim.seed,
                reason=reason_of(claim.url), detail="no answer", attempts=1, failed_at=float(done), score=claim.score,
                run=claim.run,
            )  # fmt: skip
            settled = Settlement(next_fetch_ms=0)
            calls.append(crawl.frontier.dead_letter(fence, claim, settled, letter, is_attempt=True))
    await crawl.frontier.end(calls)
    return done

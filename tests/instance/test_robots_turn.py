"""A turn that was spent on robots.txt counts on its queue's clock, however it ended."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.errors import EngineDown
from crawler.frontier.frontier import QueueBatch
from crawler.instance.clock import monotonic_ms
from crawler.instance.outcome import NotEntitledError
from crawler.instance.permitting import Permits
from crawler.instance.workbench import Workbench
from crawler.model import Claim
from crawler.settings import PolitenessSettings

CLAIM = Claim(
    url="http://a.test/", fingerprint="1", visit=1, partition=1, epoch=1, token="t", domain="a.test", queue="a.test",
    depth=0, redirects=0, attempts=0, deliveries=0, seed=False,
)  # fmt: skip


class RedirectedRobots:
    """robots.txt was asked for, its redirect wants a turn elsewhere, and that fails."""

    def __init__(self, error: Exception, *, sent: bool) -> None:
        self._error = error
        self._sent = sent

    async def fetch(self, claim: Claim, origin: str, before_send: Callable[[], None]) -> Any:
        if self._sent:
            before_send()
        raise self._error


@pytest.mark.parametrize(("sent", "wait_ms"), [(True, 1000), (False, 0)])
@pytest.mark.parametrize("error", [EngineDown("no answer"), NotEntitledError()])
async def test_robots_asked_for_in_vain_make_their_queue_wait(error: Exception, sent: bool, wait_ms: int) -> None:
    """The engine was silent when the redirect's target was to be reserved: the first request was made all the same."""
    bench: Workbench = Workbench(concurrency_per_queue=1)
    bench.put(QueueBatch(queue="a.test", delay_ms=-1, claims=(CLAIM,)))
    lane, claim = await bench.take()
    unused: Any = SimpleNamespace()
    robots: Any = RedirectedRobots(error, sent=sent)
    permits = Permits(unused, unused, bench, robots, PolitenessSettings(), before_send=lambda _: None)
    began_ms = monotonic_ms()
    assert await permits.ask(lane, claim) is None
    assert lane.active == 0
    assert lane.next_ms - began_ms >= wait_ms if wait_ms else lane.next_ms <= monotonic_ms()

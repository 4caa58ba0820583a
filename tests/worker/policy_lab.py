"""Response policies for tests, with a clock that is set."""

import pytest
from msgspec.structs import replace

from crawler.frontier.owner import Settlement
from crawler.hosts.robots_cache import RobotsEntry
from crawler.hosts.robots_reader import RobotsResult
from crawler.model import Claim, Failure, FailureKind, FetchResult, Response
from crawler.settings import load
from crawler.worker import response_policy
from crawler.worker.response_policy import ResponsePolicy
from tests.worker.test_schedule import claim

SETTLED = Settlement(next_fetch_ms=0)
HERE, OTHER = "http://a.test", "http://b.a.test"  # origins of one queue


class Clock:
    """The monotonic clock of the policy, ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000
        monkeypatch.setattr(response_policy, "monotonic_ms", lambda: self.now)


def policy_with(**options: object) -> ResponsePolicy:
    return ResponsePolicy(load(environment={}, options={k.replace("__", "."): v for k, v in options.items()}))


def claim_at(origin: str, n: int = 1) -> Claim:
    """A claim of the queue a.test."""
    return replace(claim(n), url=f"{origin}/{n}", token=f"{origin} {n}", fingerprint=f"{origin} {n}")


def answer(status: int = 200, *, fetch_ms: int = 80, retry_after_ms: int = 0, truncated: str = "") -> FetchResult:
    response = Response(
        url="http://a.test/", status=status, reason="", http_version="1.1", headers=(), raw_body=b"", body=b"",
        truncated=truncated, request_head=b"", remote_ip="", started_at=0.0, fetch_ms=fetch_ms,
    )  # fmt: skip
    return FetchResult(url=response.url, response=response, fetch_ms=fetch_ms, retry_after_ms=retry_after_ms)


def failure(kind: FailureKind) -> FetchResult:
    return FetchResult(url="http://a.test/", failure=Failure(kind=kind, detail="as it is"))


def unreadable(
    clock: Clock, kind: FailureKind | None = FailureKind.CONNECT, *, is_requested: bool = True, for_ms: int = 2000
) -> RobotsResult:
    """A robots.txt that can't be read, which is known for a while."""
    entry = RobotsEntry(rules=None, failure=kind, expires_ms=clock.now + for_ms, expires_at=0.0)
    return RobotsResult(entry, is_requested=is_requested)

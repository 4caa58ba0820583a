"""The description against the real application: requests made from it, valid and invalid, find no broken promise."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import requests
from hypothesis import HealthCheck, Phase, given, strategies

from crawler.api.routes import ROUTES
from crawler.frontier.api_tokens import ApiTokens, Role
from tests.api.api_lab import QUICK, served
from tests.support.engine import Engine
from tests.views.views_lab import give_up, seeded

STREAMS = ("/v1/events", "/login")  # without an end; works once
# 422: what a schema can't tell, like a reason that does not go with a command.
ACCEPTED = ["2xx", "3xx", "401", "403", "404", "409", "422"]
REJECTED = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]
CONFIG = {
    "checks": {
        "positive_data_acceptance": {"expected-statuses": ACCEPTED},
        "negative_data_rejection": {"expected-statuses": REJECTED},
    }
}
KNOWN = {"user": "ann", "name": "news"}  # instead of names of what there is not, in half of the requests to jobs
JOB = {"name": "news", "executionInterval": "PT1H", "seeds": ["https://docs.example/"]}
KINDS = ("positive", "negative")
PATHS = sorted({route.path for route in ROUTES} - set(STREAMS))


@dataclass(frozen=True)
class Target:
    url: str
    headers: dict[str, str]
    schema: Any


@pytest.fixture(scope="module")
def target(_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The application in a thread with a loop of its own: the tests' requests block."""
    import schemathesis  # 18 MB, in the workers that use it
    from schemathesis.config import SchemathesisConfig

    _engine.flush()
    ready, done = threading.Event(), asyncio.Event()
    found: dict[str, str] = {}
    folder = tmp_path_factory.mktemp("schema")
    loop = asyncio.new_event_loop()

    async def run() -> None:
        async with seeded(folder / "c", _engine) as crawl:
            await give_up(crawl)
            text = await ApiTokens(crawl.engine, crawl.keys).add("ann", Role.WRITE)
            async with served(crawl, limits=QUICK) as api:
                found.update(url=api.url(""), token=f"Bearer {text}")
                ready.set()
                await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert ready.wait(20)
        headers = {"Authorization": found["token"]}
        config = SchemathesisConfig.from_dict(CONFIG)
        schema = schemathesis.openapi.from_url(f"{found['url']}/openapi.json", headers=dict(headers), config=config)
        yield Target(found["url"], headers, schema)
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(20)
        loop.close()


def check(target: Target, path: str, examples: int, kind: str) -> None:
    from schemathesis import GenerationMode

    mode = GenerationMode(kind)
    for method in target.schema[path]:
        operation = target.schema[path][method]

        @hypothesis.settings(
            max_examples=examples, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode), is_known=strategies.booleans())
        def sent(case: Any, *, is_known: bool) -> None:
            if is_known and mode is GenerationMode.POSITIVE and "user" in case.path_parameters:
                requests.post(f"{target.url}/v1/users/ann/jobs", json=JOB, headers=target.headers, timeout=20)
                case.path_parameters |= {name: KNOWN[name] for name in case.path_parameters}
            case.call_and_validate(base_url=target.url, headers=target.headers, timeout=20)

        has_input = any((operation.query, operation.headers, operation.body))
        if mode is GenerationMode.POSITIVE or has_input:
            sent()


@pytest.mark.parametrize("path", PATHS)
def test_some_requests_of_each_kind_are_answered_as_described(target: Target, path: str) -> None:
    for kind in KINDS:
        check(target, path, 3, kind)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_requests_of_each_kind_are_answered_as_described(target: Target, path: str, kind: str) -> None:
    check(target, path, 150, kind)


def test_every_route_is_tested(target: Target, tmp_path: Path) -> None:
    assert {*target.schema} == {*PATHS, *STREAMS}

"""Two users at one server, each of whom tries to harm the other: keys, log, streams, turns, rates, jobs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.api.places import Places, Turns
from crawler.api.problem import Limits, ProblemError
from crawler.frontier.api_answers import ANSWERS_MAX
from crawler.frontier.api_tokens import Role
from crawler.frontier.operator_log import ENTRIES_MAX, Actor, Via
from tests.api.api_lab import QUICK, Served, served, served_crawl
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.views.views_lab import DOMAIN, seeded

PAUSE = f"/v1/domains/{DOMAIN}/pause"
NDJSON = {"Content-Type": "application/x-ndjson"}
JOB = {"executionInterval": "PT3H", "seeds": ["https://docs.example/"]}
ROOT = Actor(who="root", via=Via.CLI)


async def log_of(api: Served, token: dict[str, str], query: str = "") -> list[tuple[str, str, str]]:
    """(who, action, target) of what a token reads."""
    _, found = await api.get(f"/v1/log{query}", **token)
    return [(one["who"], one["action"], one["target"]) for one in found["entries"]]


@pytest.mark.slow(seconds=10)
async def test_one_users_keys_push_out_no_answer_of_another(api: Served) -> None:
    ann, eves = await api.token(), [await api.token(user="eve") for _ in range(2)]
    assert (await api.send("POST", PAUSE, ann | {"Idempotency-Key": "k"}))[1]["is_changed"] is True
    for n in range(2 * ANSWERS_MAX // 10):
        keys = [eves[i % 2] | {"Idempotency-Key": f"{n}.{i}"} for i in range(10)]
        await asyncio.gather(*(api.send("POST", PAUSE, key) for key in keys))
    again = await api.send("POST", PAUSE, ann | {"Idempotency-Key": "k"})
    assert (again[1]["is_changed"], again[2].get("Idempotent-Replayed")) == (True, "true")
    assert int(await api.crawl.engine.command("HLEN", api.crawl.keys.api_answers)) <= ANSWERS_MAX


@pytest.mark.slow(seconds=10)
async def test_one_users_commands_push_out_no_entry_of_another(api: Served) -> None:
    ann, eve = await api.token(), await api.token(user="eve")
    assert (await api.send("POST", PAUSE, ann))[0] == 200
    for n in range(ENTRIES_MAX // 20 + 20):
        paths = [f"/v1/domains/d{n}-{i}.example/pause" for i in range(20)]
        await asyncio.gather(*(api.send("POST", path, eve) for path in paths))
    assert ("ann", "pause", DOMAIN) in await log_of(api, ann, f"?limit={ENTRIES_MAX}")
    assert ("ann", "pause", DOMAIN) in [(e.who, e.action, e.target) for e in await api.crawl.operator_log.read()]


async def test_repeated_commands_fill_no_log(api: Served) -> None:
    eve = await api.token(user="eve")
    paths = (PAUSE, "/v1/domains/other.example/release", "/v1/pause", "/v1/users/eve/jobs/news/pause")
    assert (await api.send("POST", "/v1/users/eve/jobs", eve, json=JOB | {"name": "news"}))[0] == 201
    for path in paths * 12:
        assert (await api.send("POST", path, eve, json={}))[0] in (200, 409), path
    _, found = await api.get("/v1/log", **eve)
    assert [(one["target"], one["times"]) for one in found["entries"]] == [
        ("eve/news", 1),
        (DOMAIN, 12),
        ("other.example", 12),
        ("", 12),
        ("eve/news", 12),
    ]


async def test_the_log_is_filtered_before_it_is_paged_and_has_a_next(api: Served) -> None:
    ann, eve = await api.token(), await api.token(user="eve")
    for n in range(5):
        assert (await api.send("POST", "/v1/users/ann/jobs", ann, json=JOB | {"name": f"a{n}"}))[0] == 201
    for n in range(9):
        assert (await api.send("POST", "/v1/users/eve/jobs", eve, json=JOB | {"name": f"e{n}"}))[0] == 201
    anns = [("ann", "jobs add", f"ann/a{n}") for n in range(5)]
    assert await log_of(api, ann, "?limit=2") == anns[3:]
    pages, after = [], "0"
    while after:
        _, found = await api.get(f"/v1/log?limit=2&after={after}", **ann)
        pages.append([one["target"] for one in found["entries"]])
        after = found["next"]
    assert pages == [["ann/a0", "ann/a1"], ["ann/a2", "ann/a3"], ["ann/a4"]]
    _, found = await api.get("/v1/log?limit=14&after=0", Cookie=(await api.browser())["Cookie"])
    assert (len(found["entries"]), found["next"]) == (14, ""), "the operator's browser sees all"


async def test_nobody_reads_names_of_other_users_in_the_log(api: Served) -> None:
    ann, eve = await api.token(), await api.token(Role.READ, user="eve")
    await api.send("POST", PAUSE, ann)
    await api.send("POST", "/v1/users/ann/jobs", ann, json=JOB | {"name": "secret"})
    log = api.crawl.operator_log
    for action, target, detail in (
        ("users", "ann", "weight 2"),
        ("users", "eve", "weight 3"),
        ("users", "eve2", "weight 3"),
        ("token add", "", "user ann, role write"),
        ("jobs pause", "eve/own", ""),
        ("jobs pause", "eve2/other", ""),
    ):
        await log.add(ROOT, action, target, detail)
    expected = [("", "pause", DOMAIN), ("", "users", "eve"), ("", "jobs pause", "eve/own")]
    assert await log_of(api, eve) == expected
    async with api.http.get(api.url("/v1/events"), headers=eve | {"Last-Event-ID": "0.0"}) as response:
        raw = await response.content.readuntil(b"event: overview")
    assert raw.count(b"event: log") == len(expected)
    for name in (b"ann", b"root", b"eve2", b"secret"):
        assert name not in raw
    assert ("root", "users", "ann") in await log_of(api, await api.browser())


async def test_one_user_takes_no_more_streams_than_stay_free(tmp_path: Path, engine: Engine) -> None:
    limits = replace(QUICK, event_clients=8)
    async with (
        asyncio.timeout(PATIENCE_S),
        seeded(tmp_path / "c", engine) as crawl,
        served(crawl, limits=limits) as api,
        contextlib.AsyncExitStack() as stack,
    ):

        async def streams(token: dict[str, str]) -> int:
            for count in range(10):
                one = await stack.enter_async_context(api.http.get(api.url("/v1/events"), headers=token))
                if one.status != 200:
                    assert (one.status, one.headers["Retry-After"]) == (503, "60")
                    return count
            raise AssertionError("without an end")

        eve = await api.token(user="eve")
        assert await streams(eve) == 4
        assert await streams(await api.token(user="eve")) == 0, "tokens of one user have one share"
        assert await streams(await api.token()) == 2
        assert await streams(await api.browser()) == 1


async def test_one_user_can_not_take_all_uploads_of_seeds(tmp_path: Path, engine: Engine) -> None:
    is_over = asyncio.Event()

    async def hanging() -> AsyncIterator[bytes]:
        yield b'"https://eve.example/"\n'
        await is_over.wait()

    limits = replace(QUICK, linger_s=0.05)
    async with (
        asyncio.timeout(PATIENCE_S),
        served_crawl(tmp_path, engine, limits=limits) as api,
        asyncio.TaskGroup() as group,
    ):
        ann, eve = await api.token(), await api.token(user="eve")
        for count in (1, 2):
            group.create_task(api.send("POST", "/v1/seeds", eve | NDJSON, data=hanging()))
            while len(await api.crawl.members.read()) < count:
                await asyncio.sleep(0.001)
        status, found, _ = await api.send("POST", "/v1/seeds", eve, json={"urls": ["https://eve.example/2"]})
        assert (status, "you have 2, and 2 of 4 are free" in found["detail"]) == (503, True)
        assert (await api.send("POST", "/v1/seeds", ann, json={"urls": ["https://ann.example/"]}))[1]["new"] == 1
        is_over.set()


def test_a_place_is_free_again_when_what_had_it_failed() -> None:
    places = Places(2, "streams", 5)
    for _ in range(3):
        with contextlib.suppress(ValueError), places.taken("ann"):
            with pytest.raises(ProblemError):
                places.taken("ann").__enter__()
            raise ValueError


async def test_requests_of_one_client_leave_turns_to_others() -> None:
    turns, gate, done = Turns(4), asyncio.Event(), []

    async def request(owner: str, *, is_slow: bool = False) -> None:
        async with turns.taken(owner, is_slow=is_slow):
            done.append(owner)
            await gate.wait()

    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(request("eve"))
        await asyncio.sleep(0)
        group.create_task(request("ann"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert done == ["eve", "eve", "ann"]
        gate.set()
    assert len(done) == 51


async def test_refusals_of_one_user_use_up_no_requests_of_another(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(requests_per_s=0.001, requests_burst=5, shutdown_s=0.5)
    async with seeded(tmp_path / "c", engine) as crawl, served(crawl, limits=limits) as api:
        ann, eve = await api.token(Role.READ), await api.token(Role.READ, user="eve")
        found = [(await api.send("POST", PAUSE, eve))[0] for _ in range(8)]
        assert found == [403] * 5 + [429] * 3, "by her token, although they come from the address of all"
        assert [(await api.get("/healthz", **ann))[0], (await api.get("/healthz"))[0]] == [200, 200]


async def test_no_user_reads_or_changes_jobs_of_another(api: Served) -> None:
    ann, eve = await api.token(), await api.token(user="eve")
    assert (await api.send("POST", "/v1/users/ann/jobs", ann, json=JOB | {"name": "news"}))[0] == 201
    before = (await api.get("/v1/users/ann/jobs/news", **ann))[1]
    path = "/v1/users/ann/jobs"
    for method, more, body in (
        ("GET", "", None), ("GET", "/news", None), ("GET", "/news/history", None), ("GET", "/news/failed", None),
        ("POST", "", JOB | {"name": "x"}), ("PATCH", "/news", {"depth": 1}), ("DELETE", "/news", {}),
        ("POST", "/news/run", {}), ("POST", "/news/pause", {}), ("POST", "/news/failed/retry", {"all": True}),
    ):  # fmt: skip
        status, found, _ = await api.send(method, f"{path}{more}", eve, **({} if body is None else {"json": body}))
        assert status == 404, (method, more, found)
    assert (await api.get("/v1/jobs", **eve))[1]["jobs"] == []
    assert (await api.get("/v1/users/ann/jobs/news", **ann))[1] == before

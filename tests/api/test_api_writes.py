"""What can be changed: operator commands, seeds, dead letters; sent twice, in parts, and wrong."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from crawler.api.problem import Limits
from crawler.frontier.api_answers import ANSWERS_MAX, BODY_MAX, KEPT_S, ApiAnswers, StoredAnswer
from crawler.frontier.api_tokens import Role
from crawler.views import operator
from tests.api.api_lab import Served, served
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.views.views_lab import DOMAIN, URLS, give_up, seeded

NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
async def token(api: Served) -> dict[str, str]:
    return await api.token()


async def log_of(api: Served) -> list[tuple[str, str, str]]:
    return [(one.action, one.target, one.detail) for one in await api.crawl.operator_log.read()]


async def test_commands_change_the_crawl_and_are_logged(api: Served, token: dict[str, str]) -> None:
    async def give(command: str, **body: object) -> dict[str, object]:
        status, found, _ = await api.send("POST", f"/v1/domains/{DOMAIN}/{command}", token, json=body)
        assert status == 200, found
        return dict(found)

    assert (await give("pause"))["paused"] is True
    assert (await api.crawl.operator.overrides()).stop_of(DOMAIN) == "paused"
    assert (await give("resume"))["is_changed"] is True
    assert (await give("block"))["urls"] == len(URLS)
    assert (await give("unblock"))["blocked"] is False
    assert (await give("boost", boost=-3))["boost"] == -3
    assert (await give("delay", delay_s=7.5))["delay_ms"] == 7500
    assert (await give("delay", delay_s=None))["delay_ms"] is None
    assert (await give("release"))["released"] == 0
    assert (await give("purge"))["purged"] == len(URLS)
    assert (await api.send("POST", "/v1/pause", token))[1]["domain"] is None
    assert (await api.send("POST", "/v1/resume", token))[0] == 200
    actions = ["pause", "resume", "block", "unblock", "boost", "delay", "delay", "release", "purge", "pause", "resume"]
    assert [action for action, _, _ in await log_of(api)] == actions
    _, found = await api.get("/v1/log?limit=2", **token)
    assert [one["id"] for one in found["entries"]] == [10, 11]
    assert [one["id"] for one in (await api.get("/v1/log?after=9", **token))[1]["entries"]] == [10, 11]


async def test_no_delay_is_set_below_that_of_the_crawl(tmp_path: Path, engine: Engine) -> None:
    async with seeded(tmp_path / "c", engine) as crawl:
        politeness = msgspec.structs.replace(crawl.settings.politeness, delay_s=2.0)
        polite = msgspec.structs.replace(crawl, settings=msgspec.structs.replace(crawl.settings, politeness=politeness))
        async with served(polite) as api:
            token = await api.token()
            for delay_s, expected in ((0, 422), (1.999, 422), (2, 200), (86_400, 200), (86_401, 422), ("2", 422)):
                body = {"delay_s": delay_s}
                status, found, _ = await api.send("POST", f"/v1/domains/{DOMAIN}/delay", token, json=body)
                assert status == expected, (delay_s, found)
            assert [detail for _, _, detail in await log_of(api)] == ["2 s", "1 d 00 h"]


@pytest.mark.parametrize(
    ("path", "kind", "body", "status"),
    [
        ("delay", "application/json", b"{}", 422),
        ("delay", "application/json", b"", 400),
        ("delay", "application/json", b'{"delay_s": 5', 400),
        ("delay", "application/json", b'{"delay_s": 5, "x": 1}', 422),
        ("delay", "application/json", b'{"delay_s": NaN}', 400),
        ("delay", "application/json", b"[" * 100_000, 422),
        ("delay", "application/json", b'{"delay_s": 1' + b"0" * 5000 + b"}", 422),
        ("delay", "text/plain", b'{"delay_s": 5}', 415),
        ("delay", "application/x-www-form-urlencoded", b"delay_s=5", 415),
        ("boost", "application/json", b'{"boost": 10}', 422),
        ("boost", "application/json", b'{"boost": true}', 422),
        ("boost", "application/json", b'{"boost": 1.5}', 422),
        ("pause", "application/json", b'{"x": 1}', 422),
        ("pause", "application/json", b"\xff", 400),
        ("release", "application/json", b'{"reason": "paused"}', 422),
    ],
)
async def test_a_wrong_body_changes_nothing(
    api: Served, token: dict[str, str], path: str, kind: str, body: bytes, status: int
) -> None:
    headers = token | {"Content-Type": kind}
    found_status, found, _ = await api.send("POST", f"/v1/domains/{DOMAIN}/{path}", headers, data=body)
    assert (found_status, found["status"]) == (status, status), found
    assert await log_of(api) == []


async def test_compressed_bodies_are_refused(api: Served, token: dict[str, str]) -> None:
    headers = token | {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    assert (await api.send("POST", f"/v1/domains/{DOMAIN}/boost", headers, data=b"x"))[0] == 415


async def test_seeds_come_as_a_document_or_as_lines(api: Served, token: dict[str, str]) -> None:
    urls = ["https://new.example/", URLS[0], "ftp://x/", "new.example", "https://u:p@new.example/"]
    status, found, _ = await api.send("POST", "/v1/seeds", token, json={"urls": urls})
    assert (status, found["new"], found["seen"], found["invalid"]) == (200, 1, 1, 3)
    assert [one["where"] for one in found["complaints"]] == ["URL 3", "URL 4", "URL 5"]
    lines = [*(json.dumps(f"https://new.example/{n}") for n in range(2_500)), "", json.dumps({"url": URLS[0]})]
    body = "\r\n".join(lines).encode()

    async def in_parts() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 7_001):
            yield body[start : start + 7_001]

    status, found, _ = await api.send("POST", "/v1/seeds", token | NDJSON, data=in_parts())
    assert (status, found["new"], found["seen"]) == (200, 2_500, 1)
    assert [entry[::2] for entry in await log_of(api)] == [("seed", "5 URLs"), ("seed", "a stream of URLs")]
    assert await api.crawl.members.read() == {}, "the seeder has left"


async def test_seeds_may_be_for_a_later_time(api: Served, token: dict[str, str]) -> None:
    urls = ["https://a.example/", "https://b.example/"]
    document = {"urls": urls, "at": "2127-01-31T13:00+01:00"}
    assert (await api.send("POST", "/v1/seeds", token, json=document))[1]["new"] == 2
    lines = b'{"url": "https://c.example/", "at": "2127-01-31T11:00Z"}\n{"url": "https://d.example/"}'
    assert (await api.send("POST", "/v1/seeds", token | NDJSON, data=lines))[1]["new"] == 2
    totals = (await api.get("/v1/totals", **token))[1]["totals"]
    assert (totals["scheduled"], totals["first_visible_at"]) == (3, 4957066800.0)
    assert (await api.get("/v1/explain?url=https://a.example/", **token))[1]["visible_at"] == 4957070400.0
    assert [entry[2] for entry in await log_of(api)] == ["2 URLs, for 2127-01-31 12:00:00 UTC", "a stream of URLs"]
    status, found, _ = await api.send("POST", "/v1/seeds", token, json=document | {"at": "tomorrow"})
    assert (status, "at 'tomorrow': expected a time" in found["detail"]) == (422, True)


async def test_a_wrong_line_names_itself_and_ends_the_stream(api: Served, token: dict[str, str]) -> None:
    for line, word in ((b"nonsense", "line 3"), (b'{"url": 1}', "line 3"), (b'{"url": "x", "depth": 1}', "depth")):
        body = b'"https://a.example/"\n\n' + line + b'\n"https://b.example/"'
        status, found, _ = await api.send("POST", "/v1/seeds", token | NDJSON, data=body)
        assert (status, word in found["detail"]) == (422, True), found
    status, found, _ = await api.send("POST", "/v1/seeds", token | NDJSON, data=b'"' + b"x" * 100_000)
    assert (status, "line 1" in found["detail"]) == (413, True)


async def test_seeds_that_name_files_or_need_no_scheme_are_not_urls(
    api: Served, token: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "seeds.txt").write_text("https://new.example/")
    urls = [str(tmp_path / "seeds.txt"), f"file://{tmp_path}/seeds.txt", "-", "a.example"]
    assert (await api.send("POST", "/v1/seeds", token, json={"urls": urls}))[1]["invalid"] == len(urls)


async def test_dead_letters_are_put_back_and_purged_by_choice(api: Served, token: dict[str, str]) -> None:
    await give_up(api.crawl)
    for body in ({}, {"all": False}, {"all": True, "domain": DOMAIN}, {"urls": [URLS[0]], "all": True}, {"urls": []}):
        assert (await api.send("POST", "/v1/dead-letters/purge", token, json=body))[0] == 422
    assert await log_of(api) == []
    assert (await api.send("POST", "/v1/dead-letters/retry", token, json={"urls": [URLS[0]]}))[1]["letters"] == 1
    assert (await api.send("POST", "/v1/dead-letters/retry", token, json={"urls": [URLS[0]]}))[0] == 404
    assert (await api.send("POST", "/v1/dead-letters/retry", token, json={"domain": DOMAIN}))[1]["letters"] == 4
    assert (await api.send("POST", "/v1/dead-letters/purge", token, json={"all": True}))[1]["letters"] == 0


PAUSE = f"/v1/domains/{DOMAIN}/pause"


async def test_the_same_key_has_the_same_answer_once(api: Served, token: dict[str, str]) -> None:
    keyed = token | {"Idempotency-Key": "k1"}
    first = await api.send("POST", PAUSE, keyed)
    again = await api.send("POST", PAUSE, keyed)
    assert first[:2] == again[:2]
    assert first[1]["is_changed"] is True
    assert ("Idempotent-Replayed" in first[2], again[2]["Idempotent-Replayed"]) == (False, "true")
    assert len(await log_of(api)) == 1
    assert (await api.send("POST", PAUSE, token | {"Idempotency-Key": "k2"}))[1]["is_changed"] is False
    other = await api.token(user="eve")
    found = (await api.send("POST", PAUSE, other | {"Idempotency-Key": "k1"}))[1]
    assert found["is_changed"] is False, "keys are a token's"


async def test_the_same_key_for_another_request_is_422(api: Served, token: dict[str, str]) -> None:
    keyed = token | {"Idempotency-Key": "k1"}
    boost = f"/v1/domains/{DOMAIN}/boost"
    assert (await api.send("POST", boost, keyed, json={"boost": 1}))[0] == 200
    assert (await api.send("POST", boost, keyed, json={"boost": 2}))[0] == 422
    assert (await api.send("POST", PAUSE, keyed))[0] == 422
    assert (await api.send("POST", PAUSE, token | {"Idempotency-Key": ""}))[0] == 400
    assert (await api.send("POST", PAUSE, token | {"Idempotency-Key": "k" * 256}))[0] == 400


async def test_a_key_whose_request_runs_is_409_and_one_that_failed_is_free(
    api: Served, token: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed, gate, pause = token | {"Idempotency-Key": "k1"}, asyncio.Event(), operator.pause

    async def slow(*arguments: object, **more: object) -> object:
        await gate.wait()
        return await pause(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(operator, "pause", slow)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(api.send("POST", PAUSE, keyed))
        async with asyncio.timeout(PATIENCE_S):
            while not await api.crawl.engine.command("EXISTS", api.crawl.keys.api_answers):
                await asyncio.sleep(0.001)
        assert (await api.send("POST", PAUSE, keyed))[0] == 409
        gate.set()
    assert (first.result()[0], (await api.send("POST", PAUSE, keyed))[0]) == (200, 200)
    failing = token | {"Idempotency-Key": "k2"}
    boost = f"/v1/domains/{DOMAIN}/boost"
    assert (await api.send("POST", boost, failing, json={"boost": 99}))[0] == 422
    assert (await api.send("POST", boost, failing, json={"boost": 1}))[0] == 200


async def test_a_stream_of_seeds_is_compared_as_a_whole(api: Served, token: dict[str, str]) -> None:
    keyed, body = token | NDJSON | {"Idempotency-Key": "k1"}, b'"https://a.example/"\n"https://b.example/"\n'
    assert (await api.send("POST", "/v1/seeds", keyed, data=body))[1]["new"] == 2
    assert (await api.send("POST", "/v1/seeds", keyed, data=body))[1]["new"] == 2
    assert (await api.send("POST", "/v1/seeds", keyed, data=body + b'"https://c.example/"'))[0] == 422
    assert len(await log_of(api)) == 1


@pytest.mark.slow(ci=True)
async def test_answers_are_kept_for_a_day_and_not_more_than_some(api: Served) -> None:
    answers = ApiAnswers(api.crawl.engine, api.crawl.keys)
    assert await answers.begin("a", 1000.0) is None
    assert await answers.begin("a", 1000.0 + KEPT_S - 1) == StoredAnswer(at=1000.0)
    assert await answers.begin("a", 1000.0 + KEPT_S) is None
    await answers.finish("a", StoredAnswer(at=1000.0 + KEPT_S, fingerprint="f", status=200, body="{}"))
    for n in range(ANSWERS_MAX + 50):
        assert await answers.begin(f"k{n}", 200_000.0 + n) is None
    kept = int(await api.crawl.engine.command("HLEN", api.crawl.keys.api_answers))
    assert ANSWERS_MAX // 2 < kept <= ANSWERS_MAX
    for n in range(2 * ANSWERS_MAX):
        assert await answers.begin(f"eve:{n}", 201_500.0 + n) is None
    assert await answers.begin(f"k{ANSWERS_MAX + 49}", 203_500.0) is not None, "what eve does drops her own"
    assert await answers.begin(f"k{ANSWERS_MAX + 49}", 200_000.0) is not None, "the newest stay"
    assert await answers.begin("a", 200_000.0) is None, "the oldest go"


async def test_an_answer_that_is_too_long_to_keep_is_not_repeated(
    api: Served, token: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = operator.pause

    async def long(*arguments: object, **more: object) -> object:
        found = await pause(*arguments, **more)  # type: ignore[arg-type]
        return msgspec.structs.replace(found, text="x" * BODY_MAX)

    monkeypatch.setattr(operator, "pause", long)
    keyed = token | {"Idempotency-Key": "k1"}
    assert (await api.send("POST", PAUSE, keyed))[0] == 200
    assert (await api.send("POST", PAUSE, keyed))[0] == 409
    assert len(await log_of(api)) == 1


async def test_large_bodies_are_cut_off(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(body_bytes=1000, seed_list_bytes=2000, seed_stream_bytes=3000, shutdown_s=0.2, linger_s=0.05)
    async with seeded(tmp_path / "c", engine) as crawl, served(crawl, limits=limits) as api:
        token = await api.token(Role.WRITE)

        json_ = token | {"Content-Type": "application/json"}
        lines, spaces = token | NDJSON, b" " * 5000
        cases = ((PAUSE, json_, spaces[:1001]), ("/v1/seeds", json_, spaces[:2001]), ("/v1/seeds", lines, b"\n" * 3001))
        for path, headers, body in cases:
            assert (await api.send("POST", path, headers, data=body))[0] == 413, path
        for path, headers, _ in cases:
            reply = await api.raw(
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nTransfer-Encoding: chunked\r\n"
                f"Authorization: {headers['Authorization']}\r\nContent-Type: {headers['Content-Type']}\r\n\r\n".encode()
                + b"1000\r\n" + b" " * 4096 + b"\r\n", until_closed=False,
            )  # fmt: skip
            assert reply.startswith(b"HTTP/1.1 413 "), reply
        assert await log_of(api) == [("seed", "", "a stream of URLs")]
        assert (await api.get("/healthz"))[0] == 200

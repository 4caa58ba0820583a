"""Jobs by HTTP: made, changed, triggered and removed; whose they are; what became of their times."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from crawler.api.metrics import metrics_text
from crawler.frontier.api_tokens import Role
from crawler.frontier.jobs import job_id
from crawler.frontier.leases import Acquired
from crawler.frontier.operator_log import Actor, Via
from crawler.frontier.owner import Fence
from crawler.rules.job_plan import Plan, RunResult, ended, plan
from crawler.rules.jobs import Row, State
from crawler.runtime.clocks import wall_s
from crawler.views.users import set_weight
from tests.api.api_lab import PROBLEM, Served
from tests.api.scraped_crawl import values_of

ACTOR = Actor(who="ops", via=Via.CLI)
SEED = "https://docs.example/"
NEWS: dict[str, Any] = {"name": "news", "executionInterval": "PT3H", "seeds": [SEED]}


@pytest.fixture
async def token(api: Served) -> dict[str, str]:
    return await api.token()


class Ann:
    """Requests to the jobs of Ann, with her token."""

    def __init__(self, api: Served, token: dict[str, str]) -> None:
        self.api = api
        self.token = token

    async def send(self, method: str, path: str = "", body: Any = None, *, status: int = 200) -> Any:
        """The answer, which must have this status."""
        options = {} if body is None else {"json": body}
        got, found, _ = await self.api.send(method, f"/v1/users/ann/jobs{path}", self.token, **options)
        assert got == status, found
        return found

    async def add(self, **given: Any) -> Any:
        return await self.send("POST", "", NEWS | given, status=201)


@pytest.fixture
def ann(api: Served, token: dict[str, str]) -> Ann:
    return Ann(api, token)


async def fence_of(api: Served, job: str) -> Fence:
    """That of the owner of the job's partition, which is this session."""
    crawl = api.crawl
    partition = crawl.jobs.home_of(job)
    (lease,) = await crawl.leases.read([partition])
    (got,) = await crawl.leases.acquire(crawl.session, "n", [(lease, 0)])
    assert isinstance(got, Acquired)
    return Fence(partition, crawl.session, got.epoch, 0)


async def step(api: Served, name: str, fence: Fence, result: RunResult | None = None) -> tuple[str, ...]:
    """What the owner does: decide what is due, or that a run has ended; ids of runs that start."""
    stored = await api.crawl.jobs.find("ann", name)
    made = plan(stored.job, wall_s()) if result is None else ended(stored.job, result, wall_s())
    await api.crawl.jobs.change(stored, made, fence)
    return tuple(record.run for record in made.starts)


async def put(api: Served, name: str, *rows: Row) -> None:
    """Rows of history, as if they had been decided."""
    stored = await api.crawl.jobs.find("ann", name)
    await api.crawl.jobs.change(stored, Plan(job=stored.job, put=rows), None)


async def fail(api: Served, name: str, n: int) -> list[str]:
    """So many runs that used up their attempts; their ids, newest first."""
    job = (await api.crawl.jobs.find("ann", name)).job
    at = job.done_to
    rows = [
        Row(
            nominal=at + i, to=at + i, count=1, state=State.STARTED, revision=1, run=f"{job.id}.1.x{i}", attempts=2,
            failed_at=at + i + 1.0, reason="no usable page: 1 failed",
        )
        for i in range(1, n + 1)
    ]  # fmt: skip
    await put(api, name, *rows)
    return [row.run for row in reversed(rows)]


async def test_failed_runs_are_listed_repeated_and_dismissed(ann: Ann) -> None:
    await ann.add()
    third, second, first = await fail(ann.api, "news", 3)
    assert (await ann.send("GET", "/news"))["failed"] == 3
    found = (await ann.send("GET", "/news/failed"))["failed"]
    assert [(one["run"], one["attempts"], one["job"]) for one in found] == [
        (third, 2, "news"), (second, 2, "news"), (first, 2, "news"),
    ]  # fmt: skip
    assert found[0]["reason"] == "no usable page: 1 failed"
    assert await ann.send("POST", "/news/failed/retry", {"runs": [second]}) == {"runs": 1, "left": 2}
    assert (await ann.send("GET", "/news"))["waiting"] == 1
    refused = await ann.send("POST", "/news/failed/dismiss", {"runs": [first, second]}, status=404)
    assert refused["detail"] == f"{second!r} is not a failed run of job news; nothing was changed"
    assert await ann.send("POST", "/news/failed/dismiss", {"all": True}) == {"runs": 2, "left": 0}
    assert (await ann.send("GET", "/news/failed")) == {"failed": []}
    assert [one["state"] for one in (await ann.send("GET", "/news/history"))["rows"]] == ["started"] * 3
    for body in ({}, {"runs": [first], "all": True}):
        assert "choose which" in (await ann.send("POST", "/news/failed/retry", body, status=422))["detail"]


def brief(view: dict[str, Any]) -> dict[str, Any]:
    """A job as in lists."""
    return {name: value for name, value in view.items() if name not in ("lastRows", "sentence", "facts")}


async def test_a_job_is_created_read_and_listed(ann: Ann) -> None:
    made = await ann.add(maxRetryCount=3, retryDelay="PT90S", depth=2, jitter="30")
    assert made["isRecurring"] is True
    assert made["schedule"] == "every 3 hours, up to 30 s later"
    shown = {name: made[name] for name in ("executionInterval", "jitter", "retryDelay", "catchupWindow")}
    assert shown == {"executionInterval": "PT3H", "jitter": "PT30S", "retryDelay": "PT1M30S", "catchupWindow": "P1D"}
    assert (made["maxRetryCount"], made["depth"], made["pages"], made["scope"]) == (3, 2, None, None)
    assert (made["user"], made["state"], made["seeds"], made["seedsTotal"]) == ("ann", "active", [SEED], 1)
    due = datetime.fromisoformat(made["next"]) - datetime.now(UTC)
    assert timedelta(hours=2, minutes=59) < due <= timedelta(hours=3)
    assert await ann.send("GET", "/news") == made
    assert await ann.send("GET") == {"jobs": [brief(made)], "next": ""}
    again = await ann.send("POST", "", NEWS, status=409)
    assert "already" in again["detail"]
    log = [(e.who, e.via, e.action, e.target) for e in await ann.api.crawl.operator_log.read()]
    assert log[0] == ("ann", "api", "jobs add", "ann/news")


async def test_a_job_is_created_as_clients_were_promised(ann: Ann) -> None:
    body = {"executionInterval": "PT3H", "maxRetryCount": 3, "isRecurring": True, "seeds": [SEED]}
    got, found, headers = await ann.api.send("POST", "/users/ann/jobs?x=%26", ann.token, json=body)
    assert (got, headers["Location"]) == (308, "/v1/users/ann/jobs?x=%26"), found
    got, made, _ = await ann.api.send("POST", "/users/ann/jobs", ann.token, json=body, allow_redirects=True)
    assert (got, made["name"], made["job_id"]) == (201, "docs.example-PT3H", job_id("ann", "docs.example-PT3H"))
    again = await ann.send("POST", "", body, status=201)
    assert again["name"] == "docs.example-PT3H-2"
    assert [one["job_id"] for one in (await ann.send("GET"))["jobs"]] == [made["job_id"], again["job_id"]]
    for path in ("/users", "/users/ann/jobs/news/run"):
        assert (await ann.api.send("POST", path, ann.token))[2]["Location"] == f"/v1{path}"
    assert (await ann.api.send("POST", "/usersx", ann.token))[0] == 404
    assert (await ann.api.send("POST", "/users/ann/jobs", json=body))[0] == 401


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"cron": "0 3 * * *", "seeds": ["http://[2001:db8::1]:8080/"]}, "2001-db8--1-cron"),
        ({"at": "2099-01-01", "seeds": ["http://127.0.0.1:80/x"]}, "127.0.0.1-once"),
        ({"executionInterval": "90", "sitemap": f"https://{'a' * 60}.example/s.xml"}, f"{'a' * 40}-PT1M30S"),
        ({"executionInterval": "3649d", "seeds": [f"http://{'a.' * 60}example/"]}, f"{'a.' * 19}a-P3649D"),
    ],
)
async def test_a_name_is_made_of_any_host_and_schedule(ann: Ann, given: dict[str, Any], name: str) -> None:
    assert (await ann.send("POST", "", given, status=201))["name"] == name


async def test_the_nearest_known_name_is_told_for_each_body(ann: Ann) -> None:
    await ann.add()
    for path, body, says in (
        ("/news", {"retrydelay": "1"}, "`retrydelay`: did you mean `retryDelay`?"),
        ("/news/failed/retry", {"run": ["x"]}, "`run`: did you mean `runs`?"),
    ):
        method = "PATCH" if path == "/news" else "POST"
        assert (await ann.send(method, path, body, status=422))["detail"] == says
    line = {"Content-Type": "application/x-ndjson"} | ann.token
    found = (await ann.api.send("POST", "/v1/seeds", line, data=b'{"uri": "http://a.example/"}\n'))[1]
    assert found["detail"] == "line 1: `uri`: did you mean `url`?; lines before it may be added"
    found = (await ann.api.send("GET", "/v1/users/ann/jobs?limits=3", ann.token))[1]
    assert found["detail"] == "parameters: `limits`: did you mean `limit`?"


async def test_only_what_is_given_changes(ann: Ann) -> None:
    made = await ann.add(depth=2, scope="host", sitemap="https://docs.example/map.xml")
    changed = await ann.send("PATCH", "/news", {"depth": None, "maxRetryCount": 1})
    assert brief(changed) == brief(made) | {"depth": None, "maxRetryCount": 1, "revision": 2}
    same = await ann.send("PATCH", "/news", {"executionInterval": "3h"})
    assert same["next"] == made["next"]  # an interval that stays keeps its times
    moved = await ann.send("PATCH", "/news", {"cron": "0  6 * * *", "timezone": "Europe/Paris"})
    assert (moved["executionInterval"], moved["cron"], moved["isRecurring"]) == (None, "0 6 * * *", True)
    moved = await ann.send("PATCH", "/news", {"seeds": []})
    assert (moved["seeds"], moved["sitemap"]) == ([], "https://docs.example/map.xml")
    found = await ann.send("PATCH", "/news", {"sitemap": None}, status=422)
    assert found["detail"] == "a job needs seeds, a sitemap, or both"
    once = await ann.send("PATCH", "/news", {"executionInterval": "1d", "isRecurring": False})
    assert (once["isRecurring"], once["executionInterval"], once["cron"]) == (False, None, None)
    left = datetime.fromisoformat(once["at"]) - datetime.now(UTC)
    assert timedelta(hours=23) < left <= timedelta(days=1)
    assert once["next"] == once["at"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"executionInterval": "PT0S"}, "from 1 second"),
        ({"executionInterval": "P1M"}, "weeks or days"),
        ({"executionInterval": "soon"}, "not a valid duration"),
        ({"executionInterval": 3}, "$.executionInterval"),
        ({"cron": "* * * * *"}, "give one of"),
        ({"at": "2040-01-01T00:00Z"}, "give one of"),
        ({"executionInterval": None}, "$.executionInterval"),
        (
            {"isRecurring": True, "executionInterval": ..., "at": "2040-01-01T00:00Z"},
            '"isRecurring": true does not fit',
        ),
        ({"isRecurring": False, "executionInterval": ..., "cron": "* * * * *"}, '"isRecurring": false needs'),
        ({"executionInterval": ...}, "give one of"),
        ({"executionInterval": ..., "at": "2020-01-01T00:00Z"}, "has passed"),
        ({"timezone": "Europe/Atlantis"}, "Europe/Atlantis"),
        ({"jitter": "P1D"}, "jitter"),
        ({"seeds": []}, "needs seeds, a sitemap"),
        ({"seeds": ["file:///etc/passwd"]}, "not http or https"),
        ({"seeds": ["/etc/passwd"]}, "not a URL"),
        ({"seeds": ["http://a:b@docs.example/"]}, "user or password"),
        ({"seeds": "urls.txt"}, "$.seeds"),
        ({"sitemap": "file:///etc/passwd"}, "not http or https"),
        ({"sitemap": "sitemap.xml"}, "not a URL"),
        ({"name": "../x"}, "$.name"),
        ({"maxRetryCount": 101}, "$.maxRetryCount"),
        ({"depth": 256}, "$.depth"),
        ({"pages": 0}, "$.pages"),
        ({"retryDelay": "-1"}, "retryDelay"),
        ({"catchupWindow": "0"}, "the catch-up window"),
        ({"overlap": "wait"}, "$.overlap"),
        ({"app": "app.py"}, "unknown field `app`; known: executionInterval, cron, at, "),
        ({"is_reccuring": True}, "`is_reccuring`: did you mean `isRecurring`?"),
        ({"execution_interval": "PT3H"}, "`execution_interval`: did you mean `executionInterval`?"),
        ({"maxRetries": 3}, "`maxRetries`: did you mean `maxRetryCount`?"),
        ({"x` - at `$": 3}, "unknown field `x`; known"),
        ({"y" * 100_000: 3}, f"unknown field `{'y' * 64}`; known"),
    ],
)
async def test_a_job_that_is_not_valid_is_refused(ann: Ann, given: dict[str, Any], says: str) -> None:
    body = {name: value for name, value in (NEWS | given).items() if value is not ...}
    found = await ann.send("POST", "", body, status=422)
    assert says in found["detail"]
    assert (await ann.send("GET"))["jobs"] == []


async def test_a_token_sees_only_the_jobs_of_its_user(ann: Ann) -> None:
    await ann.add()
    api, bob = ann.api, await ann.api.token(user="bob")
    fence = await fence_of(api, (await ann.send("GET", "/news"))["job_id"])
    await ann.send("POST", "/news/run")
    (run,) = await step(api, "news", fence)
    assert (await ann.send("GET", "/news"))["running"] == [run]
    for method, path, body in (
        ("GET", "", None), ("POST", "", NEWS), ("GET", "/news", None), ("PATCH", "/news", {"depth": 1}),
        ("DELETE", "/news", None), ("POST", "/news/run", None), ("POST", "/news/pause", None),
        ("POST", "/news/resume", None), ("GET", "/news/history", None), ("GET", "/news/preview", None),
    ):  # fmt: skip
        answers = []
        for name in ("ann", "zoe"):  # one who has jobs, and one who there is not
            options = {} if body is None else {"json": body}
            status, found, headers = await api.send(method, f"/v1/users/{name}/jobs{path}", bob, **options)
            assert (status, headers["Content-Type"]) == (404, PROBLEM), (method, path)
            answers.append(found)
        assert answers[0] == answers[1]
    asked = [await api.send("GET", f"/v1/explain?url={SEED}&run={run}", who) for who in (ann.token, bob)]
    assert [status for status, *_ in asked] == [200, 404]
    there, nowhere = [await api.send("GET", f"/v1/runs/{one}", bob) for one in (run, run.replace("-m", "0-m"))]
    assert (there[0], nowhere[0]) == (404, 404)
    assert there[1]["detail"].replace(run, "") == nowhere[1]["detail"].replace(run.replace("-m", "0-m"), "")
    assert (await api.send("GET", "/v1/jobs", bob))[1] == {"jobs": [], "next": ""}
    assert (await api.send("GET", "/v1/users/bob/jobs?after=ann/a", bob))[0] == 422
    assert (await api.send("GET", "/v1/jobs?after=ann/a", bob))[0] == 422
    assert (await api.send("GET", "/v1/log", bob))[1]["entries"] == []
    assert len((await api.send("GET", "/v1/log", ann.token))[1]["entries"]) == 2
    assert [one["name"] for one in (await api.send("GET", "/v1/jobs", ann.token))[1]["jobs"]] == ["news"]
    assert (await ann.send("GET", "/news"))["state"] == "active"


async def test_the_operators_browser_sees_the_jobs_of_all(ann: Ann) -> None:
    api = ann.api
    await ann.add()
    for headers in (await api.browser(), await api.browser()):
        status, found, _ = await api.send("GET", "/v1/jobs", headers)
        assert (status, [(one["user"], one["name"]) for one in found["jobs"]]) == (200, [("ann", "news")])
        assert (await api.send("GET", "/v1/users/ann/jobs/news", headers))[0] == 200
    assert (await api.send("POST", "/v1/users/ann/jobs/news/pause"))[0] == 401
    assert (await api.send("POST", "/v1/users/ann/jobs/news/pause", await api.browser()))[1]["state"] == "paused"
    named_so = await api.token(user="browser")
    assert (await api.send("GET", "/v1/users/ann/jobs/news", named_so))[0] == 404
    reader = await api.token(Role.READ)
    assert (await api.send("GET", "/v1/users/ann/jobs/news", reader))[0] == 200
    assert (await api.send("POST", "/v1/users/ann/jobs/news/run", reader))[0] == 403


async def test_entries_of_the_log_about_jobs_of_others_are_no_events(ann: Ann) -> None:
    api, bob = ann.api, await ann.api.token(user="bob")
    async with api.http.get(api.url("/v1/events"), headers=bob) as stream:
        await anext(aiter(stream.content))  # it listens
        await ann.add()
        await api.send("POST", "/v1/pause", ann.token)
        kinds = []
        async for line in stream.content:
            kinds += [line] if b"jobs add" in line else []
            if b'"action":"pause"' in line:
                break
        assert kinds == []


async def test_lists_come_in_pages_and_with_the_last_rows(ann: Ann) -> None:
    for name in ("a", "b2", "b1", "c"):
        await ann.add(name=name)
    first = await ann.send("GET", "?limit=3")
    assert [one["name"] for one in first["jobs"]] == ["a", "b1", "b2"]
    assert first["next"] == "ann/b2"
    second = await ann.send("GET", f"?limit=3&after={first['next']}")
    assert ([one["name"] for one in second["jobs"]], second["next"]) == (["c"], "")
    found = await ann.send("GET", "?match=B&limit=1")
    assert ([one["name"] for one in found["jobs"]], found["next"]) == (["b1"], "ann/b1")
    found = await ann.send("GET", f"?match=b&limit=1&after={found['next']}")
    assert ([one["name"] for one in found["jobs"]], found["next"]) == (["b2"], "")
    assert "lastRows" not in first["jobs"][0]
    await put(ann.api, "a", Row(nominal=60, to=60, count=1, state=State.PAUSED, revision=1))
    (shown,) = (await ann.send("GET", "?limit=1&rows=5"))["jobs"]
    assert shown["lastRows"] == [
        {"nominal": "1970-01-01T00:01:00Z", "state": "paused", "result": "paused", "revision": 1}
    ]


async def test_history_has_pages_without_a_gap_or_a_double(ann: Ann) -> None:
    await ann.add()
    rows = [Row(nominal=n, to=n, count=1, state=State.SKIPPED_OVERLAP, revision=1) for n in (60, 120, 180)]
    rows += [Row(nominal=120, to=120, count=1, state=State.STARTED, revision=1, is_manual=True, run="x")]
    rows += [Row(nominal=240, to=360, count=3, state=State.MISSED_WINDOW, revision=1)]
    await put(ann.api, "news", *rows)
    whole = await ann.send("GET", "/news/history")
    assert whole["next"] == ""
    assert whole["rows"][0] == {
        "from": "1970-01-01T00:04:00Z", "to": "1970-01-01T00:06:00Z", "count": 3, "state": "missed_window",
        "result": "missed", "revision": 1,
    }  # fmt: skip
    for limit in (1, 2, 3, 4):
        paged, after = [], ""
        while True:
            page = await ann.send("GET", f"/news/history?limit={limit}{after}")
            paged += page["rows"]
            if not page["next"]:
                break
            after = f"&after={page['next']}"
        assert paged == whole["rows"], limit


async def test_a_pause_that_goes_on_is_in_the_history(ann: Ann) -> None:
    await ann.add(executionInterval="PT1S")
    assert (await ann.send("POST", "/news/pause"))["next"] is None
    assert "paused already" in (await ann.send("POST", "/news/pause", status=409))["detail"]
    stored = await ann.api.crawl.jobs.find("ann", "news")
    (pause,) = stored.job.pauses
    assert pause[0] <= wall_s()
    assert (await ann.send("POST", "/news/resume"))["state"] == "active"
    assert "not paused" in (await ann.send("POST", "/news/resume", status=409))["detail"]


async def test_a_run_is_triggered_by_hand_and_read_while_and_after_it_runs(ann: Ann) -> None:
    made = await ann.add(scope="host", pages=5)
    fence = await fence_of(ann.api, made["job_id"])
    wanted = await ann.send("POST", "/news/run")
    assert (wanted["waiting"], len(wanted["requested"])) == (1, 1)
    (run,) = await step(ann.api, "news", fence)
    await ann.send("PATCH", "/news", {"pages": 9})
    found = (await ann.api.send("GET", f"/v1/runs/{run}", ann.token))[1]
    assert (found["run"], found["user"], found["job"]) == (run, "ann", "news")
    assert (found["row"]["outcome"], found["row"]["manual"]) == ("running", True)
    assert found["row"]["nominal"] == wanted["requested"][0]
    assert (found["counts"]["added"], found["counts"]["pages"]) == (0, 0)
    assert found["definition"]["pages"] == 5  # what it ran with, not what the job has become
    result = RunResult(run=run, is_success=True, started_at=wall_s(), pages=5, errors=1, bytes=2000)
    await step(ann.api, "news", fence, result)
    found = (await ann.api.send("GET", f"/v1/runs/{run}", ann.token))[1]
    assert found["row"] == (await ann.send("GET", "/news/history"))["rows"][0]
    assert (found["row"]["outcome"], found["row"]["pages"], found["counts"]) == ("finished", 5, None)
    for wrong in (f"{run}x", run.replace("-m", ""), "x", "a.b", "a.b.c", "%ff.1.1", "9" * 900):
        assert (await ann.api.send("GET", f"/v1/runs/{wrong}", ann.token))[0] == 404, wrong


async def test_metrics_tell_of_jobs_that_nobody_triggers(ann: Ann) -> None:
    names = ("crawler_jobs", "crawler_runs_active", "crawler_jobs_oldest_due_seconds")

    async def read() -> list[float]:
        values = values_of((await metrics_text(ann.api.crawl))[0].decode())
        return [values[name,] for name in names]

    assert await read() == [0, 0, 0]
    await ann.add(name="a")
    made = await ann.add()
    assert await read() == [2, 0, 0]
    await ann.send("POST", "/news/run")
    fence = await fence_of(ann.api, made["job_id"])
    await step(ann.api, "news", fence)
    assert await read() == [2, 1, 0]
    stored = await ann.api.crawl.jobs.find("ann", "news")
    await ann.api.crawl.jobs.change(stored, Plan(job=stored.job, due=wall_s() - 100), None)
    assert 100 <= (await read())[2] < 200


async def test_a_removed_job_is_gone_with_its_history(ann: Ann) -> None:
    await ann.add()
    assert await ann.send("DELETE", "/news") == {"removed": "news"}
    assert (await ann.send("GET"))["jobs"] == []
    for method, path in (("GET", "/news"), ("DELETE", "/news"), ("GET", "/news/history"), ("POST", "/news/run")):
        assert "no job 'news'" in (await ann.send(method, path, status=404))["detail"]


async def test_a_request_that_is_sent_again_acts_once(ann: Ann) -> None:
    key = {"Idempotency-Key": "k1"} | ann.token
    answers = [await ann.api.send("POST", "/v1/users/ann/jobs", key, json=NEWS) for _ in range(2)]
    assert [status for status, _, _ in answers] == [201, 201]
    assert answers[0][1] == answers[1][1]
    key["Idempotency-Key"] = "k2"
    for _ in range(2):
        await ann.api.send("POST", "/v1/users/ann/jobs/news/run", key)
    assert (await ann.send("GET", "/news"))["waiting"] == 1


async def test_many_seeds_are_counted_and_not_shown(ann: Ann) -> None:
    made = await ann.add(seeds=[f"{SEED}{n}" for n in range(100)])
    assert (made["seeds"], made["seedsTotal"]) == ([], 100)
    kept = await ann.send("PATCH", "/news", {"scope": "any", "depth": 1})
    assert kept["seedsTotal"] == 100


async def test_next_times_are_shown_before_and_after_a_job_is_made(ann: Ann) -> None:
    paris, token = "cron=30+2+*+*+*&timezone=Europe/Paris&times=400", ann.token
    found = (await ann.api.get(f"/v1/schedules/preview?{paris.replace('400', '100')}", **token))[1]
    assert (len(found["times"]), found["schedule"]) == (100, "at 02:30 every day, Europe/Paris")
    assert found["times"][0].keys() == {"nominal", "local", "note"}
    assert (await ann.api.get(f"/v1/schedules/preview?{paris}", **token))[0] == 400
    await ann.add()
    shown = await ann.send("GET", "/news/preview?times=3")
    assert shown["schedule"] == "every 3 hours"
    assert shown["times"][0]["nominal"] == (await ann.send("GET", "/news"))["next"]
    assert len(shown["times"]) == 3
    for query, status in (
        ("executionInterval=PT3H&isRecurring=false", 200), ("executionInterval=PT3H&isRecurring=maybe", 400),
        ("", 422), ("executionInterval=1h&cron=*+*+*+*+*", 422), ("executionInterval=1h&jitter=x", 422),
        ("at=2040-01-01&isRecurring=true", 422),
    ):  # fmt: skip
        assert (await ann.api.get(f"/v1/schedules/preview?{query}", **token))[0] == status, query
    once = (await ann.api.get("/v1/schedules/preview?executionInterval=PT3H&isRecurring=false", **token))[1]
    assert len(once["times"]) == 1


async def test_users_and_weights_are_listed_with_a_token_its_user_alone(ann: Ann, api: Served) -> None:
    await set_weight(api.crawl, "ann", 3, actor=ACTOR)
    await set_weight(api.crawl, "ben@b.example", 0.5, actor=ACTOR)
    rows = [
        {"user": None, "weight": 1.0, "waiting": None},
        {"user": "ann", "weight": 3.0, "waiting": 0},
        {"user": "ben@b.example", "weight": 0.5, "waiting": 0},
    ]
    assert (await api.send("GET", "/v1/users", await api.browser()))[:2] == (200, {"users": rows})
    assert (await api.send("GET", "/v1/users", ann.token))[:2] == (200, {"users": rows[1:2]})


async def test_an_address_is_a_name_of_a_user(api: Served) -> None:
    token = await api.token(user="ben@b.example")
    got, made, _ = await api.send("POST", "/v1/users/ben@b.example/jobs", token, json=NEWS)
    assert (got, made["user"]) == (201, "ben@b.example")

"""`crawler jobs`: what it takes, what it refuses, and what it prints."""

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.folder import open_or_create
from crawler.cli import jobs as jobs_command
from crawler.cli.main import main
from crawler.crawl.opening import open_crawl
from crawler.jobs import clock_check
from crawler.rules.job_plan import Plan
from crawler.rules.jobs import Row, State
from crawler.runtime.clocks import wall_s
from crawler.settings import load
from crawler.views.job_lines import history_table
from crawler.views.job_view import history_row
from tests.cli.cli_lab import exit_code
from tests.support.engine import Engine

BAD_INPUT, TAKEN = 2, 4
URL = "http://a.example/"
ACTIONS = (
    "add", "list", "show", "edit", "pause", "resume", "rm", "run", "end", "history", "diff", "failed", "retry",
    "dismiss", "preview",
)  # fmt: skip


class Desk:
    """`crawler jobs` on one engine."""

    def __init__(self, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
        self.engine, self._capsys = engine, capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = exit_code(["jobs", *words, "--redis", self.engine.url])
        out, err = self._capsys.readouterr()
        return code, out.strip(), err.strip()

    def say(self, *words: str) -> str:
        code, out, err = self.run(*words)
        assert (code, err) == (0, "")
        return out

    def json(self, *words: str) -> dict[str, Any]:
        return dict(json.loads(self.say(*words, "--json")))

    def refused(self, *words: str) -> str:
        code, out, err = self.run(*words)
        assert (code, out, err.count("\n")) == (BAD_INPUT, "", 0), (code, out, err)
        return err


@pytest.fixture
def desk(engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(engine, capsys)


def seconds_until(view: dict[str, Any]) -> float:
    return datetime.fromisoformat(view["next"]).timestamp() - datetime.now(UTC).timestamp()


def test_a_job_is_added_listed_shown_and_removed(desk: Desk) -> None:
    said = desk.say("add", "news", "--every", "PT3H", URL, "--depth", "1")
    assert re.fullmatch(r"job news added: every 3 hours, next in [23] h \d\d m", said)
    header, row = desk.say("list").splitlines()
    assert header.split() == ["job", "user", "state", "when", "next", "running", "failed"]
    assert row.split()[:6] == ["news", "default", "active", "every", "3", "hours"]
    sentence, _, *lines = desk.say("show", "news").splitlines()
    assert re.fullmatch(r"Every 3 hours: next in [23] h \d\d m\.", sentence)
    shown = dict(line.split("  ", 1) for line in lines)
    assert shown["job"].strip() == "news of user default, active"
    assert (shown["seeds"].strip(), shown["limits"].strip(), shown["retries"].strip()) == (URL, "depth 1", "none")
    assert desk.say("history", "news") == "no time has come yet"
    assert desk.refused("end", "news") == "crawler: no run of job news is active"
    assert desk.say("rm", "news") == "job news removed"
    assert desk.say("list") == "no jobs yet: 'crawler jobs add' adds one"


def test_every_option_of_a_definition_is_kept(desk: Desk) -> None:
    given = desk.json(
        "add", "all", "--cron", "30 2 * * *", "--timezone", "Europe/Paris", "--jitter", "5m", URL,
        "--sitemap", "http://b.example/s.xml", "--scope", "host", "--depth", "2", "--pages", "100", "--priority", "5",
        "--retries", "3", "--retry-delay", "10m", "--overlap", "queue", "--catchup", "all", "--catchup-window", "PT2H",
        "--user", "ann",
    )  # fmt: skip
    wanted = {
        "user": "ann", "cron": "30 2 * * *", "timezone": "Europe/Paris", "jitter": "PT5M", "seeds": [URL],
        "sitemap": "http://b.example/s.xml", "scope": "host", "depth": 2, "pages": 100, "priority": 5.0,
        "maxRetryCount": 3, "retryDelay": "PT10M", "overlap": "queue", "catchup": "all", "catchupWindow": "PT2H",
        "schedule": "at 02:30 every day, Europe/Paris, up to 300 s later", "executionInterval": None, "at": None,
        "state": "active",
    }  # fmt: skip
    assert {name: given[name] for name in wanted} == wanted
    assert desk.json("show", "all", "--user", "ann")["job_id"] == given["job_id"]
    shown = desk.say("show", "all", "--user", "ann")
    assert f"{URL}, sitemap http://b.example/s.xml" in shown
    assert "scope host, depth 2, pages 100, priority 5" in shown
    assert "all, at most 2 h 00 m back" in shown
    assert "3, after 10 m 00 s" in shown


def test_a_name_is_free_to_each_user_once(desk: Desk) -> None:
    for user in ("ann", "bob"):
        desk.say("add", "news", "--every", "1h", URL, "--user", user)
    code, _, err = desk.run("add", "news", "--every", "1h", URL, "--user", "bob")
    assert (code, err.count("\n")) == (TAKEN, 0)
    assert err == "crawler: there is a job 'news' of user bob already: edit it, or use another name"
    assert [one["user"] for one in desk.json("list")["jobs"]] == ["ann", "bob"]
    assert [one["user"] for one in desk.json("list", "--user", "bob")["jobs"]] == ["bob"]
    assert "no job 'news' of user default" in desk.refused("show", "news")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give one of --every, --cron and --at"),
        (("--every", "1h", "--at", "2030-01-01"), "give one of --every, --cron and --at"),
        (("--every", "soon"), "--every 'soon' is not a valid duration"),
        (("--every", "0.5"), "--every '0.5': expected whole seconds"),
        (("--every", "P1M"), "or cron '0 0 1 * *' for each month"),
        (("--cron", "* * *"), "--cron '* * *': expected five fields"),
        (("--cron", "0 0 30 2 *"), "never fires"),
        (("--at", "2020-01-01T00:00Z"), "--at '2020-01-01T00:00Z' has passed"),
        (("--at", "tomorrow"), "--at 'tomorrow': expected a time like 2027-01-31T12:00"),
        (("--at", "2030-01-01", "--timezone", "Europe/Pariss"), "did you mean Europe/Paris?"),
        (("--every", "1h", "--jitter", "2h"), "--jitter 7200: expected seconds from 0 to below 3,600"),
        (("--every", "1h", "--jitter", "x"), "--jitter: 'x' is not a valid duration"),
        (("--every", "1h", "--retries", "101"), "the number of retries must be from 0 to 100"),
        (("--every", "1h", "--retries", "x"), "--retries: 'x' is not a valid number"),
        (("--every", "1h", "--retry-delay", "soon"), "--retry-delay: 'soon' is not a valid duration"),
        (("--every", "1h", "--catchup-window", "0"), "the catch-up window must be more than 0"),
        (("--every", "1h", "--depth", "300"), "the depth must be from 0 to 255"),
        (("--every", "1h", "--pages", "-1"), "the limit of pages must be from 0 to 9,007,199,254,740,992"),
        (("--every", "1h", "--priority", "nan"), "the priority must be from -100,000 to 100,000"),
        (("--every", "1h", "--overlap", "never"), "invalid choice: 'never'"),
        (("--every", "1h", "--catchup", "some"), "invalid choice: 'some'"),
        (("--every", "1h", "--scope", "world"), "invalid choice: 'world'"),
        (("--every", "1h", "--sitemap", "no url"), "invalid URL 'no url'"),
        (("--every", "1h", "--seeds", "missing.txt"), "can't read seed file missing.txt"),
        (("--every", "1h", "--user", "a b"), "'a b' is not a valid name of a user"),
        (("--every", "1h", "--unknown"), "--unknown"),
    ],
)
def test_a_bad_definition_is_refused_in_one_line(desk: Desk, words: tuple[str, ...], said: str) -> None:
    assert said in desk.refused("add", "x", URL, *words)


def test_names_and_seeds_are_needed(desk: Desk) -> None:
    assert "give seeds: URLs, --seeds FILE or --sitemap URL" in desk.refused("add", "x", "--every", "1h")
    assert "'.x' is not a valid name" in desk.refused("add", ".x", URL, "--every", "1h")
    assert "required: NAME" in desk.refused("show")
    assert "invalid choice: 'start'" in desk.refused("start", "x")


@pytest.mark.parametrize("action", [one for one in ACTIONS if one not in ("add", "list", "edit", "diff")])
def test_a_job_that_is_not_there_is_refused_in_one_line(desk: Desk, action: str) -> None:
    desk.say("add", "other", "--every", "1h", URL)
    which = ["--all"] if action in ("retry", "dismiss") else []
    assert "there is no job 'news' of user bob" in desk.refused(action, "news", *which, "--user", "bob")


def test_nothing_is_made_where_there_is_no_crawl(desk: Desk) -> None:
    assert "crawl 'main' does not exist yet" in desk.refused("list")
    assert "crawl 'main' does not exist yet" in desk.refused("run", "news")


def test_seeds_of_a_file_are_kept_and_invalid_lines_are_told(desk: Desk, tmp_path: Path) -> None:
    lines = [f"http://a.example/{n}" for n in range(40)]
    lines[7:7] = ["# a comment", "", "ftp://x/", "http://a.example/0"]
    (tmp_path / "urls.txt").write_text("\n".join([*lines, "http://ann:secret@a.example/"]))
    code, out, err = desk.run("add", "many", "--every", "1h", "--seeds", "urls.txt", "--json")
    first, second = err.splitlines()
    assert (code, json.loads(out)["seedsTotal"]) == (0, 40)
    assert first == "crawler: urls.txt line 10: 'ftp://x/': not http or https"
    assert second.startswith("crawler: urls.txt line 45: 'http://ann:***@a.example/': has a user or password")
    assert "40 URLs" in desk.say("show", "many")
    (tmp_path / "bad.txt").write_text("ftp://x/\n")
    code, out, err = desk.run("add", "none", "--every", "1h", "--seeds", "bad.txt")
    assert (code, out, err.splitlines()[-1]) == (BAD_INPUT, "", "crawler: no valid seed URL")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    assert "no URL in empty.txt" in desk.refused("add", "none", "--every", "1h", "--seeds", "empty.txt")


def test_a_seed_without_scheme_is_a_page_of_a_host(desk: Desk) -> None:
    code, out, err = desk.run("add", "news", "--every", "1h", "a.example/guide", "--json")
    assert (code, json.loads(out)["seeds"]) == (0, ["https://a.example/guide"])
    assert err == "crawler: taking a.example/guide as https://a.example/guide"


def test_an_edit_changes_only_what_is_given(desk: Desk) -> None:
    before = desk.json(
        "add", "news", "--every", "1000", URL, "--jitter", "10", "--depth", "3", "--scope", "host", "--retries", "2",
        "--overlap", "allow",
    )  # fmt: skip
    after = desk.json("edit", "news", "--pages", "7")
    texts = {"sentence", "facts"}
    assert {name for name in before if before[name] != after[name]} - texts == {"pages", "revision"}
    assert after["next"] == before["next"], "an interval that stays keeps its times"
    for words in (("--jitter", "0"), ("--timezone", "Europe/Paris"), ("--every", "1000s")):
        assert desk.json("edit", "news", *words)["next"] == before["next"]
    faster = desk.json("edit", "news", "--every", "500")
    assert 490 < seconds_until(faster) <= 500, "another interval counts from now"
    other = desk.json("edit", "news", "http://b.example/", "http://c.example/")
    assert other["seeds"] == ["http://b.example/", "http://c.example/"]
    reset = desk.json("edit", "news", "--depth", "-1", "--scope", "crawl", "--pages", "0", "--retries", "0")
    assert (reset["depth"], reset["scope"], reset["pages"], reset["maxRetryCount"]) == (None, None, None, 0)
    cron = desk.json("edit", "news", "--cron", "0 6 * * *")
    assert (cron["cron"], cron["executionInterval"], cron["timezone"]) == ("0 6 * * *", None, "Europe/Paris")
    assert (cron["seeds"], cron["overlap"], cron["revision"]) == (other["seeds"], "allow", 9)
    assert "give what to change" in desk.refused("edit", "news")
    assert "there is no job" in desk.refused("edit", "other", "--depth", "1")
    assert "give one of --every, --cron and --at" in desk.refused("edit", "news", "--every", "1h", "--at", "2030-01-01")


def test_many_seeds_give_way_to_few(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text("\n".join(f"http://a.example/{n}" for n in range(100)))
    desk.say("add", "news", "--every", "1h", "--seeds", "urls.txt", URL)
    assert desk.json("show", "news")["seedsTotal"] == 101
    assert desk.json("edit", "news", "--depth", "1")["seedsTotal"] == 101
    assert desk.json("edit", "news", URL)["seeds"] == [URL]


def test_a_paused_job_is_told_as_such(desk: Desk) -> None:
    desk.say("add", "news", "--every", "1h", URL)
    assert desk.say("pause", "news") == "job news is paused"
    code, _, err = desk.run("pause", "news")
    assert (code, err) == (TAKEN, "crawler: job news is paused already")
    assert (desk.json("show", "news")["state"], desk.json("show", "news")["next"]) == ("paused", None)
    assert desk.say("list").splitlines()[1].split()[-2:] == ["-", "-"]
    assert "paused" in desk.say("preview", "news").splitlines()[-1]
    assert desk.say("resume", "news").startswith("job news is resumed: next in ")
    assert desk.run("resume", "news")[0] == TAKEN


def test_a_manual_run_waits_for_an_instance(desk: Desk) -> None:
    desk.say("add", "news", "--every", "1h", URL)
    assert desk.say("run", "news") == "a run of job news starts when an instance runs: 'crawler run' starts one"
    assert desk.json("run", "news")["waiting"] == 2
    assert re.match(r"Every hour: next in [0-9a-z ]+; 2 runs wait\.\n", desk.say("show", "news"))


def test_the_next_times_have_both_clocks_and_notes(desk: Desk) -> None:
    desk.say("add", "utc", "--every", "1h", URL)
    title, *rows = desk.say("preview", "utc").splitlines()
    assert (title, len(rows)) == ("UTC", 10)
    assert all(row.endswith("Z") for row in rows)
    desk.say("add", "paris", "--cron", "30 2 * * 7", "--timezone", "Europe/Paris", URL)
    title, *rows = desk.say("preview", "paris", "--times", "53").splitlines()
    assert title.split() == ["UTC", "Europe/Paris"]
    assert len([row for row in rows if "comes twice" in row or "does not exist" in row]) == 2
    times = desk.json("preview", "paris", "--times", "3")["times"]
    assert [set(one) for one in times] == [{"nominal", "local", "note"}] * 3
    desk.say("add", "once", "--at", "2030-01-31T12:00", "--timezone", "Europe/Paris", URL)
    assert desk.json("preview", "once")["times"] == [
        {"nominal": "2030-01-31T11:00:00Z", "local": "2030-01-31 12:00:00+01:00", "note": ""}
    ]
    assert "--times" in desk.refused("preview", "once", "--times", "0")


def test_a_long_list_is_cut_and_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_command, "PAGE", 2)
    for n in range(5):
        desk.say("add", f"job{n}", "--every", "1h", URL)
    assert len(desk.say("list").splitlines()) == 1 + 5
    cut = desk.say("list", "--limit", "3").splitlines()
    assert len(cut) == 1 + 3 + 2
    assert cut[-1] == "the first 3; --limit 0 lists all"
    assert [one["name"] for one in desk.json("list", "--limit", "0")["jobs"]] == [f"job{n}" for n in range(5)]


def row(nominal: int, state: State = State.STARTED, **known: Any) -> Row:
    return Row(**{"nominal": nominal, "to": nominal, "count": 1, "state": state, "revision": 1} | known)


def test_a_history_reads_as_what_became_of_each_time() -> None:
    at = "2027-01-31T{:02}:00:00Z".format

    def s(hour: int) -> int:
        return int(datetime.fromisoformat(at(hour)).timestamp())

    rows = [
        row(s(9), run="x.1.9", attempts=1, picked_at=s(9)),
        row(s(6), State.MISSED_WINDOW, to=s(8), count=3),
        row(s(5), State.FAILED_TO_START, run="x.1.5", attempts=3, failed_at=s(5), reason="no valid seed URL"),
        row(s(4), State.SKIPPED_OVERLAP),
        row(
            s(3),
            run="x.1.3-m",
            attempts=1,
            picked_at=s(3),
            started_at=s(3),
            completed_at=s(4),
            pages=1204,
            is_manual=True,
        ),
    ]
    cells = [
        [cell.strip() for cell in line.split("  ") if cell]
        for line in history_table([*map(history_row, rows)]).splitlines()
    ]
    assert cells == [
        ["time", "result", "run", "pages", "errors"],
        [at(9), "running", "x.1.9"],
        [f"{at(6)} to {at(8)} (3)", "missed"],
        [at(5), "failed to start, attempt 3", "x.1.5", "0", "0", "no valid seed URL"],
        [at(4), "skipped (overlap)"],
        [at(3), "finished, manual", "x.1.3-m", "1,204", "0"],
    ]


def test_an_action_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs"]) == BAD_INPUT
    assert capsys.readouterr().err == "crawler: jobs: give an action, like add or list (see 'crawler jobs --help')\n"


@pytest.mark.parametrize("action", ["", *ACTIONS])
def test_help_tells_each_option_in_lines_that_fit(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", *filter(None, [action]), "--help"]) == 0
    text = capsys.readouterr().out
    assert "==SUPPRESS==" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert text.startswith(f"usage: crawler jobs {action}".rstrip())


def fail(desk: Desk, name: str, *runs: str) -> None:
    """Runs of a job that used up their attempts, the oldest first."""

    async def put() -> None:
        settings = load(environment={}, options={"frontier.redis": desk.engine.url})
        async with open_crawl(settings, create=False) as crawl:
            stored = await crawl.jobs.find("default", name)
            rows = [
                Row(
                    nominal=n, to=n, count=1, state=State.STARTED, revision=1, run=run, attempts=3,
                    failed_at=1_800_000_000.0 + n, reason="no usable page: 1 failed",
                )
                for n, run in enumerate(runs, 1)
            ]  # fmt: skip
            await crawl.jobs.change(stored, Plan(job=stored.job, put=tuple(rows)), None)

    asyncio.run(put())


def test_failed_runs_are_listed_repeated_and_dismissed(desk: Desk) -> None:
    for name in ("news", "docs"):
        desk.say("add", name, "--every", "1h", URL)
    assert desk.say("failed") == "no failed runs"
    fail(desk, "docs", "d.1.1")
    fail(desk, "news", "n.1.1", "n.1.2", "n.1.3")
    header, first, *rows = desk.say("failed").splitlines()
    assert header.split() == ["failed", "at", "job", "time", "run", "attempts", "why"]
    assert first.split()[1:] == [
        "default/news",
        "1970-01-01T00:00:03Z",
        "n.1.3",
        "3",
        "no",
        "usable",
        "page:",
        "1",
        "failed",
    ]
    assert [row.split()[1] for row in rows] == ["default/news", "default/docs", "default/news"]
    assert [one["run"] for one in desk.json("failed", "docs")["failed"]] == ["d.1.1"]
    assert desk.say("failed", "news", "--limit", "1").splitlines()[-1] == "the last 1 of 3; --limit 0 lists all"
    assert [row.split()[-1] for row in desk.say("list").splitlines()] == ["failed", "1", "3"]
    assert "; 3 failed runs ('crawler jobs failed' tells why).\n" in desk.say("show", "news")
    said = desk.say("retry", "news", "n.1.2")
    assert (
        said == "1 failed run of job news to be repeated: each starts when an instance runs: 'crawler run' starts one"
    )
    assert desk.json("show", "news")["waiting"] == 1
    assert "'n.1.2' is not a failed run of job news; nothing was changed" in desk.refused("retry", "news", "n.1.2")
    assert desk.say("dismiss", "news", "n.1.1") == "1 failed run of job news dismissed, 1 left"
    assert desk.json("dismiss", "news", "--all") == {"runs": 1, "left": 0}
    for words in (["retry", "news"], ["dismiss", "news", "n.1.1", "--all"]):
        assert "choose which: ids of failed runs, or --all" in desk.refused(*words)
    desk.say("rm", "docs")
    assert desk.say("failed") == "no failed runs"


def test_a_prune_dismisses_old_failed_runs(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    def prune(*words: str) -> str:
        assert main(["prune", *words, "--redis", desk.engine.url]) == 0
        return capsys.readouterr().out

    open_or_create("crawl-data")
    for name, count in (("news", 3), ("docs", 1)):
        desk.say("add", name, "--every", "1h", URL)
        job = desk.json("show", name)["job_id"]
        fail(desk, name, *(f"{job}.1.{n}" for n in range(1, count + 1)))
    assert "Would remove 2 failed runs from the lists" in prune("--keep-runs", "1", "--dry-run")
    assert len(desk.json("failed")["failed"]) == 4
    assert "failed run" not in prune("--domain", "a.example", "--keep-runs", "1")
    assert "Removed 2 failed runs from the lists of their jobs." in prune("--keep-runs", "1")
    assert [one["run"][-2:] for one in desk.json("failed")["failed"]] == [".3", ".1"]
    assert "Removed 1 failed run from" in prune("--older-than", "2027-01-15T08:00:02")
    assert [one["run"][-2:] for one in desk.json("failed")["failed"]] == [".3"]
    assert len(desk.json("history", "news")["rows"]) == 3


def test_a_wrong_clock_changes_no_job(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.say("add", "news", "--every", "1h", URL)
    fail(desk, "news", "n.1.1")
    monkeypatch.setattr(clock_check, "wall_s", lambda: wall_s() + 3630)  # half a minute of room
    for words in (
        ("add", "other", "--every", "1h", URL), ("edit", "news", "--depth", "1"), ("pause", "news"), ("resume", "news"),
        ("run", "news"), ("retry", "news", "--all"),
    ):  # fmt: skip
        code, out, err = desk.run(*words)
        assert (code, out) == (TAKEN, "")
        assert err == (
            "crawler: this machine's clock is 1 h 00 m ahead of the engine's, so nothing was changed: "
            "set the clock that is wrong, and try again"
        )
    assert [one["name"] for one in desk.json("list")["jobs"]] == ["news"]
    desk.say("rm", "news")


def test_shells_complete_the_actions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    text = capsys.readouterr().out
    assert "--catchup-window" in text
    assert f"_shtab_crawler_jobs_subparsers=({' '.join(ACTIONS)})" in text

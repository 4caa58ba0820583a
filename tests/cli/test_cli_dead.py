"""`crawler dead` and `crawler history` on crawls of a site with pages that fail: some heal, some never do."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from tests.cli.cli_lab import HOST, QUICK, in_process, page
from tests.crawl.harness import crawl, settings_of
from tests.support.engine import Engine
from tests.support.processes import nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

TRIES = 2
BAD_INPUT = 2
NEVER = ("/never1", "/never2")
QUICK_RETRIES = {"retry__attempts": TRIES, "retry__backoff_s": 0.02}


def site_of_trouble() -> dict[tuple[str, str], Resource]:
    """Two pages that heal after the last try of a crawl, two that always fail, and one that is well."""
    web = {(HOST, path): Resource(fails=TRIES, body="well again") for path in ("/heals1", "/heals2")}
    web |= {(HOST, path): Resource(status=500) for path in NEVER}
    web[HOST, "/"] = page("/heals1", "/heals2", *NEVER, "/well", "/private/x")
    web[HOST, "/well"] = page("/")
    web[HOST, "/robots.txt"] = Resource(content_type="text/plain", body="User-agent: *\nDisallow: /private/\n")
    return web


@dataclass
class Lab:
    """A crawl that has ended, on an engine that runs."""

    folder: Path
    engine: Engine
    home: str
    capsys: pytest.CaptureFixture[str]

    def url(self, path: str) -> str:
        return self.home.rstrip("/") + path

    def run(self, *words: str) -> tuple[int, str, str]:
        """A command on this crawl: exit code, output, errors."""
        self.capsys.readouterr()
        code = main([*words, "--dir", str(self.folder), "--redis", self.engine.url])
        out, err = self.capsys.readouterr()
        return code, out, err

    def json(self, *words: str) -> list[dict[str, Any]]:
        code, out, err = self.run(*words, "--json")
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    def crawl(self, **options: Any) -> set[str]:
        """Crawl until nothing is pending; the paths that were committed."""
        settings = settings_of(self.folder, frontier__redis=self.engine.url, **(QUICK_RETRIES | options))
        done = asyncio.run(crawl(settings, [self.home]))
        assert done.errors == []
        assert done.twice == []
        return {url.removeprefix(self.home.rstrip("/")) for url in done.statuses}

    def audit(self) -> dict[str, Any]:
        (report,) = self.json("audit")
        assert {name: found for name, found in report["findings"].items() if found and found["count"]} == {}
        return report

    @property
    def dead(self) -> set[str]:
        return {one["url"].removeprefix(self.home.rstrip("/")) for one in self.json("dead", "list")}


@pytest.fixture
def lab(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[Lab]:
    with serve_resources(site_of_trouble()) as site:
        lab = Lab(tmp_path / "c", engine, site.url(HOST), capsys)
        assert lab.crawl() == {"/", "/well"}
        yield lab


def test_letters_are_listed_newest_first_with_a_count_for_each_reason(lab: Lab) -> None:
    _, out, _ = lab.run("dead", "list", "--limit", "3")
    header, *rows = out.splitlines()
    assert header.split() == ["failed", "at", "reason", "attempts", "URL"]
    assert [row.split()[3:5] for row in rows[:3]] == [["server_error", str(TRIES)]] * 3
    assert rows[3:] == ["", "4 dead letters: server_error 4", rows[-1]]
    assert "newest 3" in rows[-1]
    when = [row[:19] for row in rows[:3]]
    assert when == sorted(when, reverse=True)
    assert lab.dead == {"/heals1", "/heals2", *NEVER}
    assert lab.json("dead", "list", "--reason", "timeout") == []
    assert len(lab.json("dead", "list", "--limit", "2", "--domain", HOST, "--reason", "server_error")) == 2


def test_a_letter_is_shown_with_each_attempt(lab: Lab) -> None:
    (letter,) = lab.json("dead", "show", lab.url("/never1"))
    assert (letter["reason"], letter["detail"], letter["attempts"]) == ("server_error", "status 500", TRIES)
    times = [failure["at"] for failure in letter["failures"]]
    assert len(times) == TRIES
    assert times == sorted(times)
    assert times[-1] == letter["failed_at"]
    code, out, _ = lab.run("dead", "show", lab.url("/never1"))
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[-TRIES:]] == ["1", "2"]


@pytest.mark.slow(ci=True)
def test_what_is_put_back_is_fetched_by_the_next_crawl_and_every_sum_stays_right(lab: Lab) -> None:
    before = lab.audit()
    assert (before["seen"], before["dead"], before["pending"]) == (7, 4, 0)
    code, out, _ = lab.run("dead", "retry", "--domain", HOST)
    assert (code, out.partition(";")[0]) == (0, "4 URLs put back")
    between = lab.audit()
    assert (between["seen"], between["dead"], between["pending"]) == (7, 0, 4)
    assert lab.crawl() == {"/", "/well", "/heals1", "/heals2"}
    after = lab.audit()
    assert (after["seen"], after["dead"], after["pending"], after["commits"]) == (7, 2, 0, 4)
    assert lab.dead == set(NEVER)
    (letter,) = lab.json("dead", "show", lab.url(NEVER[0]))
    assert len(letter["failures"]) == TRIES, "attempts of its first life are among those of its second"


def test_a_letter_is_put_back_by_its_url_and_a_second_time_it_is_not_there(lab: Lab) -> None:
    assert lab.json("dead", "retry", lab.url("/heals1")) == [{"retried": 1}]
    code, _, err = lab.run("dead", "retry", lab.url("/heals1"))
    assert code == BAD_INPUT
    assert "not a dead letter" in err
    assert lab.crawl() == {"/", "/well", "/heals1"}
    assert lab.dead == {"/heals2", *NEVER}


def test_what_is_purged_is_not_crawled_again_though_pages_lead_there(lab: Lab) -> None:
    assert lab.json("dead", "purge", "--reason", "server_error", "--limit", "3") == [{"purged": 3}]
    assert lab.audit()["refused"] == 1 + 3
    assert lab.json("dead", "purge", "--all") == [{"purged": 1}]
    report = lab.audit()
    assert (report["seen"], report["dead"], report["refused"]) == (7, 0, 1 + 4)
    assert lab.crawl() == {"/", "/well"}
    (stats,) = lab.json("stats")
    assert stats["totals"]["refused"] == {"purged": 4, "robots": 1}
    assert lab.json("dead", "list") == []
    assert lab.run("dead", "list")[1] == "No dead letters.\n"
    assert "purge" in lab.run("explain", lab.url("/never1"))[1].splitlines()[0]


UNCLEAR = [
    (("retry",), "--all"),
    (("purge",), "--all"),
    (("purge", "--limit", "3"), "--all"),
    (("show",), "name one URL"),
    (("show", "http://a.test/", "http://b.test/"), "name one URL"),
    (("list", "http://a.test/"), "takes no URL"),
    (("retry", "http://a.test/", "--all"), "alone"),
    (("retry", "--reason", "bad_luck"), "dns_error"),
    (("retry", "no url"), "invalid URL"),
    (("list", "--limit", "0"), "--limit"),
    (("show", "http://a.test/"), "not a dead letter"),
]


def test_what_is_not_said_clearly_changes_nothing_and_is_told_in_one_line(lab: Lab) -> None:
    for words, said in UNCLEAR:
        code, out, err = lab.run("dead", *words)
        assert (code, out, err.count("\n")) == (BAD_INPUT, "", 1), words
        assert said in err
        assert len(lab.dead) == 4, words


def test_an_unknown_action_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dead", "resurrect"]) == BAD_INPUT
    assert capsys.readouterr().err.count("\n") == 1


def test_the_history_of_a_url_has_every_attempt_of_every_session(lab: Lab) -> None:
    lab.run("dead", "retry", "--all")
    lab.crawl()
    found = lab.json("history", lab.url("/heals1"))
    assert [one["status"] for one in found] == ["failed"] * TRIES + ["finished"]
    assert [one["became"] for one in found] == ["retry", "dead", "committed"]
    assert [one["attempt"] for one in found] == [1, 2, 1]
    assert [one.get("http_status") for one in found] == [None, None, 200]
    assert len({one["session"] for one in found}) == 2
    for one in found:
        assert one["claimed"] <= one["started"] <= one.get("finished", one.get("failed"))
    code, out, _ = lab.run("history", lab.url("/heals1"))
    assert code == 0
    assert [line.split()[3:5] for line in out.splitlines()[1:4]] == [
        ["1", "failed"],
        ["2", "failed"],
        ["1", "finished"],
    ]
    assert "crawler explain" in out.splitlines()[-1]


def test_the_history_of_a_domain_agrees_with_what_was_requested_and_refused(lab: Lab) -> None:
    found = lab.json("history", "--domain", f"http://{HOST}:1/x")
    assert sorted(one["became"] for one in found) == ["committed"] * 2 + ["dead"] * 4 + ["refused"] + ["retry"] * 4
    (refused,) = (one for one in found if one["became"] == "refused")
    assert (refused["status"], refused["kind"], refused["attempt"]) == ("refused", "robots", 0)
    in_order = lab.json("history", "--domain", HOST, "--limit", "11")
    ended = [max(v for k, v in one.items() if k in ("finished", "failed", "refused")) for one in in_order]
    assert ended == sorted(ended)
    assert sorted(map(str, found)) == sorted(map(str, in_order))
    assert lab.json("history", "--domain", HOST, "--limit", "1")[0]["became"] == "dead"
    table = lab.run("history", "--domain", HOST, "--limit", "2")[1]
    assert "the last 2 of 11" in table
    assert lab.json("history", "--domain", "other.test") == []


def test_history_that_is_switched_off_leaves_nothing_and_says_so(lab: Lab) -> None:
    for file in (lab.folder / "history").iterdir():
        file.unlink()
    lab.run("dead", "retry", "--all")
    lab.crawl(history__bytes_max=0)
    code, out, _ = lab.run("history", lab.url("/heals1"))
    assert code == 0
    assert out.splitlines()[0].startswith("No attempt at ")
    assert list((lab.folder / "history").iterdir()) == []


@pytest.mark.parametrize("words", [(), ("http://a.test/", "--domain", "b.test"), ("http://a.test/", "http://b.test/")])
def test_a_history_of_nothing_or_of_two_things_is_refused_in_one_line(lab: Lab, words: tuple[str, ...]) -> None:
    code, out, err = lab.run("history", *words)
    assert (code, out, err.count("\n")) == (BAD_INPUT, "", 1)


@pytest.mark.processes
def test_a_crawl_that_has_ended_goes_on_with_what_was_put_back_into_its_own_engine(tmp_path: Path) -> None:
    """The embedded engine was stopped with the crawl: each command starts it, and stops it again."""
    tries = ("--set", f"retry.attempts={TRIES}", "--set", "retry.backoff_s=0.02")
    where = ("--dir", str(tmp_path / "c"))
    with serve_resources(site_of_trouble()) as site, nursery() as programs:
        crawl = ("crawl", site.url(HOST), *QUICK, *tries, *where)
        assert "Finished: 2 pages" in in_process(programs, *crawl).out
        back = in_process(programs, "dead", "retry", "--all", *where)
        assert (back.code, back.out) == (0, "4 URLs put back; no instance is running: start one with 'crawler crawl'\n")
        assert "Finished: 2 pages" in in_process(programs, *crawl).out
        assert in_process(programs, "audit", *where).code == 0
        assert programs.left() == []

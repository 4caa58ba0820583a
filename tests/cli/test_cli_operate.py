"""`crawler pause`, `block`, `delay`, `boost`, `purge`, `release`, their opposites, and what others say of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.cli.main import main
from tests.cli.cli_lab import HOST, QUICK, in_process, page
from tests.cli.operate_lab import Lab
from tests.support.engine import Engine
from tests.support.processes import nursery
from tests.support.serving import serve_resources

PAGES = 20
ALL = PAGES + 1
TAKEN_IN = 5
BAD_INPUT = 2


@pytest.fixture
def lab(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[Lab]:
    names = [f"/p{n}" for n in range(PAGES)]
    web = {(HOST, name): page("/") for name in names} | {(HOST, "/"): page(*names)}
    with serve_resources(web) as site:
        yield Lab(tmp_path / "c", engine, site, capsys)


def test_what_is_deferred_is_shown_explained_and_released(lab: Lab) -> None:
    assert lab.crawl(budget__urls=TAKEN_IN) == TAKEN_IN
    left = ALL - TAKEN_IN
    lines = lab.say("stats", HOST).splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("deferred")] == [
        f"{left} beyond the budget of URLs"
    ]
    assert "deferred" in lab.say("stats")
    assert lab.json("stats")["totals"]["deferred"] == left
    assert lab.json("stats", HOST)["deferred"] == {"urls": left}
    told = [lab.json("explain", lab.site.url(HOST, f"/p{n}")) for n in range(PAGES)]
    deferred = [one for one in told if one["state"] == "deferred"]
    assert len(deferred) == left
    assert {one["deferred"] for one in deferred} == {"urls"}
    assert f"crawler release {HOST}" in deferred[0]["verdict"]
    lab.audit()
    assert lab.say("release", HOST, "--urls", "6").startswith("6 URLs released; no instance is running")
    assert lab.json("release") == {"domain": None, "released": left - 6}
    assert lab.crawl(budget__urls=TAKEN_IN) == ALL
    lab.audit()


@pytest.mark.slow(ci=True)
def test_a_domain_is_blocked_and_unblocked_while_nothing_runs(lab: Lab) -> None:
    lab.crawl(crawl__pages_max=3)
    waiting = lab.json("stats", HOST)["pending"]
    assert lab.say("block", lab.site.url(HOST)) == f"{HOST} is now blocked: {waiting} URLs deferred"
    assert lab.say("block", HOST).startswith(f"{HOST} was already blocked")
    assert "blocked by an operator" in lab.say("stats", HOST)
    assert (lab.json("stats", HOST)["pending"], lab.json("stats")["totals"]["deferred"]) == (0, waiting)
    deferred = [lab.site.url(HOST, f"/p{n}") for n in range(PAGES)]
    assert sum(f"'crawler unblock {HOST}'" in lab.say("explain", url) for url in deferred) == waiting
    lab.audit()
    assert lab.crawl() == ALL - waiting
    assert lab.say("release", HOST) == "0 URLs released"
    assert f"{waiting} URLs back in its queue" in lab.say("unblock", HOST)
    assert lab.say("unblock", HOST) == f"{HOST} was not blocked"
    assert lab.crawl() == ALL
    lab.audit()


@pytest.mark.slow(ci=True)
def test_a_crawl_that_had_ended_goes_on_when_its_budgets_are_raised(lab: Lab) -> None:
    assert lab.crawl(budget__pages=TAKEN_IN) == TAKEN_IN
    assert lab.crawl(budget__pages=TAKEN_IN) == TAKEN_IN
    assert lab.crawl(budget__pages=TAKEN_IN + 2) == TAKEN_IN + 2
    assert lab.crawl(budget__pages=0) == ALL
    lab.audit()


def test_a_crawl_that_is_paused_says_so(lab: Lab) -> None:
    lab.crawl(crawl__pages_max=3)
    assert "The crawl is now paused" in lab.say("pause")
    assert "paused" in lab.say("stats").splitlines()[0]
    assert lab.json("stats")["totals"]["paused"] is True
    urls = [lab.site.url(HOST, f"/p{n}") for n in range(PAGES)]
    assert any("the whole crawl is paused" in lab.say("explain", url) for url in urls)
    assert lab.say("pause", HOST).startswith(f"{HOST} is now paused")
    assert lab.say("resume").startswith("The crawl is resumed with")
    assert f"'crawler resume {HOST}'" in lab.say("stats", HOST)
    assert lab.say("resume", HOST).startswith(f"{HOST} is resumed with")
    assert lab.say("resume", HOST) == f"{HOST} was not paused"


def test_a_purged_domain_ends_refused(lab: Lab) -> None:
    lab.crawl(crawl__pages_max=3)
    waiting = lab.json("stats", HOST)["pending"]
    assert lab.say("purge", HOST) == f"{HOST}: {waiting} URLs dropped"
    found = lab.json("stats", HOST)
    assert (found["pending"], found["refused"]) == (0, {"purged": waiting})
    assert lab.crawl() == ALL - waiting
    lab.audit()


def test_a_delay_that_was_ordered_is_shown_until_it_is_taken_back(lab: Lab) -> None:
    settings = ["--set", "crawl.partitions=16"]
    assert main(["seed", "--dir", str(lab.folder), "--redis", lab.engine.url, *settings, lab.site.url(HOST)]) == 0
    assert lab.say("delay", HOST, "2.5") == f"{HOST}: 2.5 s between requests from now on"
    assert "2.5 s (by an operator)" in lab.say("stats", HOST)
    assert lab.json("stats", HOST)["ordered_delay_ms"] == 2500
    assert "robots.txt" in lab.say("delay", HOST, "auto")
    assert "by an operator" not in lab.say("stats", HOST)


@pytest.mark.slow(ci=True)
def test_a_boost_is_shown_until_it_is_taken_back(lab: Lab) -> None:
    lab.crawl(crawl__pages_max=3)
    assert lab.say("boost", lab.site.url(HOST), "5") == f"{HOST}: boost 5; fetched before domains without a boost"
    assert "5, by an operator" in lab.say("stats", HOST)
    assert lab.json("stats", HOST)["boost"] == 5
    url = lab.site.url(HOST, "/p1")
    assert "5, by an operator" in lab.say("explain", url)
    assert lab.json("boost", HOST, "-9") == {"domain": HOST, "boost": -9}
    assert "after domains without a boost" in lab.say("stats", HOST)
    assert lab.run("boost", "best.example", "9", "--ahead")[::2] == (
        0,
        "",
    )
    assert lab.say("boost").splitlines() == ["domain        boost", "best.example      9", f"{HOST:<12}     -9"]
    assert lab.json("boost") == {"domain": None, "boosts": {"best.example": 9, HOST: -9}}
    assert lab.run("boost", "best.example", "0")[0] == 0
    assert lab.json("explain", url)["boost"] == -9
    assert lab.say("boost", HOST, "0") == f"{HOST}: no boost"
    assert "boost" not in lab.say("stats", HOST) + lab.say("explain", url)
    assert (lab.say("boost"), lab.json("boost")["boosts"]) == ("no domain has a boost", {})
    assert lab.crawl() == ALL
    lab.audit()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("block",), "DOMAIN"),
        (("boost", "a.test"), "give a boost"),
        (("boost",), "is not a crawl folder"),
        (("boost", "a.test", "10"), "from -9 to 9"),
        (("boost", "a.test", "-10"), "from -9 to 9"),
        (("boost", "a.test", "1.5"), "whole number"),
        (("boost", "a.test", "high"), "whole number"),
        (("boost", "a.test", "1"), "is not a crawl folder"),
        (("delay", "a.test", "soon"), "soon"),
        (("delay", "a.test", "-5"), "-5"),
        (("delay", "a.test", "90000"), "auto"),
        (("release", "--urls", "-1"), "number of URLs"),
        (("release", "--reason", "blocked"), "crawler unblock"),
        (("release", "--reason", "trap:nonsense"), "expected one of urls, "),
        (("release", "--reason", "urls "), "expected one of urls, "),
        (("block", "http://site.example/x"), "block acts on all of a domain: 'crawler block site.example'"),
        (("unblock", "www.site.example/x"), "'crawler unblock site.example'"),
        (("pause", "https://site.example/?a"), "'crawler pause site.example'"),
        (("purge", "site.example/x"), "'crawler purge site.example'"),
        (("pause", "http://"), "http://"),
        (("purge", "a.test"), "is not a crawl folder"),
    ],
)
def test_bad_input_gets_one_line_that_says_what_to_do(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main([*words, "--dir", str(tmp_path / "none")])
    except SystemExit as left:
        code = left.code
    err = capsys.readouterr().err
    assert (code, len(err.splitlines())) == (BAD_INPUT, 1)
    assert said in err


def test_orders_work_on_the_embedded_engine_of_a_crawl_that_has_stopped(tmp_path: Path, lab: Lab) -> None:
    here = ("--dir", str(tmp_path / "e"))
    with nursery({}) as programs:
        first = in_process(programs, "crawl", *here, *QUICK, "--set", "budget.urls=5", lab.site.url(HOST))
        assert first.code == 0, first.err
        assert f"Deferred: urls {ALL - TAKEN_IN} ({HOST}): beyond budget.urls" in first.out
        assert in_process(programs, "release", *here).out.startswith(f"{ALL - TAKEN_IN} URLs released")
        assert in_process(programs, "purge", *here, HOST).out == f"{HOST}: {ALL - TAKEN_IN} URLs dropped\n"
        assert in_process(programs, "crawl", *here, *QUICK).code == 0
        assert in_process(programs, "audit", *here).code == 0

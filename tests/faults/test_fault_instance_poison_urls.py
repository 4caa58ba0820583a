"""Pages that end the process that fetches them, and processes that are killed for no fault of their pages."""

from pathlib import Path

import pytest

from crawler.runtime.crash_points import VARIABLE
from tests.crawl.lab import name_server
from tests.faults.instance_lab import (
    SETTINGS,
    EngineView,
    LittleWeb,
    assert_exported_once,
    assert_polite,
    fetched,
    little_web,
)
from tests.support.engine import Engine
from tests.support.processes import Nursery, Program, nursery

pytestmark = pytest.mark.processes

DELAY_S = 0.05
KILLED, EXITED = -9, 33


def crawl(programs: Nursery, web: LittleWeb, folder: Path, url: str, *options: str, **environment: str) -> Program:
    place = ("--dir", str(folder), "--delay", str(DELAY_S), "--concurrency", "16", "--quiet", *options)
    return programs.crawler("crawl", url, *place, **environment)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("action", "code"),
    [("fetch.answered@{}=kill", KILLED), pytest.param("page.parsed@{}=exit:33", EXITED, marks=pytest.mark.slow)],
    ids=["kill", "exit"],
)
def test_a_poison_url_is_given_up_after_three_crashes_others_are_fetched(
    tmp_path: Path, engine: Engine, action: str, code: int
) -> None:
    """Every process that gets this page dies with all its work, until the page is given up."""
    folder = tmp_path / "c"
    with name_server() as dns, little_web(domains=5, delay_s=0.1) as web, engine.client() as client:
        poison_url = web.url("d1.test", "/p1")
        with nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns, VARIABLE: action.format(poison_url)}) as programs:
            codes = [crawl(programs, web, folder, web.seed, "--redis", engine.url).wait(60) for _ in range(4)]
        dead, requests = EngineView(client).dead(), web.requests()
    assert codes == [code, code, code, 0]
    assert fetched(requests)["http://d1.test/p1"] == 3
    assert {url: reason for url, reason in dead.items() if not url.endswith("/broken")} == {poison_url: "poison_url"}
    assert_exported_once(web, folder, without={poison_url})
    assert_polite(requests, DELAY_S)


@pytest.mark.slow
def test_three_kills_with_a_hundred_claims_out_give_up_nothing(tmp_path: Path, engine: Engine) -> None:
    """As by the kernel when memory is short: what only waited in the process's hands is under no suspicion."""
    folder, out = tmp_path / "c", []
    with name_server() as dns, little_web(domains=4, pages=45) as web, engine.client() as client:
        view = EngineView(client)
        with nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            for n in (30, 15, 15):
                point = {VARIABLE: f"page.parsed@/p#{n}=kill"}
                dying = crawl(programs, web, folder, web.seed, "--redis", engine.url, **point)
                assert dying.wait(60) == KILLED
                out.append(view.claims_out())
            last = crawl(programs, web, folder, web.seed, "--redis", engine.url)
            assert last.wait(60) == 0, last.err
        dead, requests = view.dead(), web.requests()
    assert min(out) >= 100, f"{out} claims out: this test tests too little"
    assert {url for url in dead if not url.endswith("/broken")} == set()
    assert_exported_once(web, folder)
    assert_polite(requests, DELAY_S)

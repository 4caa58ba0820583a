"""Budgets of depth and hosts in a crawl: it ends, what is beyond is kept and shown, and a raised budget takes it up."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, page
from tests.cli.operate_lab import Lab
from tests.support.engine import Engine
from tests.support.serving import serve_resources
from tests.support.web import Resource

Web = dict[tuple[str, str], Resource]


@pytest.fixture
def lab_of(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[Web], Lab]]:
    with contextlib.ExitStack() as open_sites:
        yield lambda web: Lab(tmp_path / "c", engine, open_sites.enter_context(serve_resources(web)), capsys)


def test_what_is_too_deep_is_kept_and_a_raised_budget_takes_it_up(lab_of: Callable[[Web], Lab]) -> None:
    chain = {(HOST, f"/{n}"): page(f"/{n + 1}", f"/{n}/leaf") for n in range(6)}
    leaves = {(HOST, f"/{n}/leaf"): page() for n in range(6)} | {(HOST, "/6"): page()}
    lab = lab_of(chain | leaves | {(HOST, "/"): page("/0")})
    assert lab.crawl(budget__depth=2) == 4
    assert lab.json("stats", HOST)["parked"] == {"depth": 2}
    assert "2 beyond the budget of depth" in lab.say("stats", HOST)
    told = lab.json("explain", lab.site.url(HOST, "/2"))
    assert (told["state"], told["parked"]) == ("parked", "depth:3")
    assert "budget of depth" in told["verdict"]
    lab.audit()
    assert lab.crawl(budget__depth=3) == 6
    assert lab.crawl(budget__depth=4) == 8
    lab.audit()
    assert lab.say("release", HOST, "--reason", "depth").startswith("2 URLs released")
    assert lab.crawl(budget__depth=4) == 10
    assert lab.crawl() == len(chain) + len(leaves) + 1
    assert lab.json("stats", HOST)["parked"] == {}
    lab.audit()


def test_a_shorter_path_to_what_was_too_deep_brings_it_back(lab_of: Callable[[Web], Lab]) -> None:
    """The long way is quick, and the short one leads over a page that takes its time."""
    lab = lab_of(
        {
            (HOST, "/"): page("/quick", "/slow"),
            (HOST, "/quick"): page("/further"),
            (HOST, "/further"): page("/wanted", "/unwanted"),
            (HOST, "/slow"): page("/wanted", delay_s=1.0),
            (HOST, "/wanted"): page(),
            (HOST, "/unwanted"): page(),
        }
    )
    assert lab.crawl(budget__depth=2, politeness__concurrency_per_queue=4) == 5
    assert lab.json("stats")["totals"]["parked"] == 1
    assert lab.json("explain", lab.site.url(HOST, "/wanted"))["state"] == "committed"
    lab.audit()

"""Budgets of depth, hosts and linked domains: the crawl ends, what is beyond is kept, a raised budget takes it up."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, page
from tests.cli.operate_lab import Lab
from tests.support.engine import Engine
from tests.support.serving import serve_linked
from tests.support.web import Resource

Web = dict[tuple[str, str], Resource]
LabOf = Callable[[Callable[[int], Web]], Lab]


@pytest.fixture
def lab_of(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[LabOf]:
    """A lab whose web is made for the port that it gets."""
    with contextlib.ExitStack() as open_sites:
        yield lambda make: Lab(tmp_path / "c", engine, open_sites.enter_context(serve_linked(make)), capsys)


@pytest.mark.slow(ci=True)
def test_what_is_too_deep_is_kept_and_a_raised_budget_takes_it_up(lab_of: LabOf) -> None:
    chain = {(HOST, f"/{n}"): page(f"/{n + 1}", f"/{n}/leaf") for n in range(6)}
    leaves = {(HOST, f"/{n}/leaf"): page() for n in range(6)} | {(HOST, "/6"): page()}
    lab = lab_of(lambda _: chain | leaves | {(HOST, "/"): page("/0")})
    assert lab.crawl(budget__depth=2) == 4
    assert lab.json("stats", HOST)["deferred"] == {"depth": 2}
    assert "2 beyond the budget of depth" in lab.say("stats", HOST)
    told = lab.json("explain", lab.site.url(HOST, "/2"))
    assert (told["state"], told["deferred"]) == ("deferred", "depth:3")
    assert "budget of depth" in told["verdict"]
    lab.audit()
    assert lab.crawl(budget__depth=3) == 6
    assert lab.crawl(budget__depth=4) == 8
    lab.audit()
    assert lab.say("release", HOST, "--reason", "depth").startswith("2 URLs released")
    assert lab.crawl(budget__depth=4) == 10
    assert lab.crawl(budget__depth=0) == len(chain) + len(leaves) + 1
    assert lab.json("stats", HOST)["deferred"] == {}
    lab.audit()


def test_a_shorter_path_to_what_was_too_deep_brings_it_back(lab_of: LabOf) -> None:
    """The long way is quick, and the short one leads over a page that takes its time."""
    lab = lab_of(
        lambda _: {
            (HOST, "/"): page("/quick", "/slow"),
            (HOST, "/quick"): page("/further"),
            (HOST, "/further"): page("/wanted", "/unwanted"),
            (HOST, "/slow"): page("/wanted", delay_s=1.0),
            (HOST, "/wanted"): page(),
            (HOST, "/unwanted"): page(),
        }
    )
    assert lab.crawl(budget__depth=2, politeness__concurrency_per_queue=4) == 5
    assert lab.json("stats")["totals"]["deferred"] == 1
    assert lab.json("explain", lab.site.url(HOST, "/wanted"))["state"] == "committed"
    lab.audit()


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("queue_by", ["domain", "host"])
def test_urls_of_further_hosts_are_kept_and_a_raised_budget_takes_hosts_up(lab_of: LabOf, queue_by: str) -> None:
    """Four hosts of one domain, each with two pages; the home page is on one of them, and another domain has three."""

    def web(port: int) -> Web:
        found = {(f"{n}.a.test", "/"): page("/more") for n in "bcd"} | {(f"{n}.a.test", "/more"): page() for n in "bcd"}
        hosts = ("b.a.test", "c.a.test", "d.a.test", "b.test")
        found["a.test", "/"] = page(*(f"http://{host}:{port}/" for host in hosts))
        found["b.test", "/"] = page(*(f"http://{host}:{port}/" for host in ("1.b.test", "2.b.test")))
        return found | {("1.b.test", "/"): page(), ("2.b.test", "/"): page()}

    lab = lab_of(web)
    options = {"frontier__queue_by": queue_by, "scope__mode": "any"}
    assert lab.crawl(host="a.test", budget__hosts=2, **options) == 5
    assert lab.json("stats")["totals"]["deferred"] == 3
    deferred = [host for host in ("b", "c", "d") if _state(lab, f"{host}.a.test") == "deferred"]
    shown = lab.json("stats", "a.test" if queue_by == "domain" else f"{deferred[0]}.a.test")["deferred"]
    assert shown == {"hosts": 2 if queue_by == "domain" else 1}
    assert "on hosts beyond the budget of hosts" in lab.say("explain", lab.site.url(f"{deferred[0]}.a.test", "/"))
    lab.audit()
    assert lab.crawl(host="a.test", budget__hosts=3, **options) == 8
    assert lab.json("stats")["totals"]["deferred"] == 1
    lab.audit()
    assert lab.crawl(host="a.test", budget__hosts=0, **options) == 10
    assert lab.json("stats")["totals"]["deferred"] == 0
    lab.audit()


def _state(lab: Lab, host: str) -> str:
    return str(lab.json("explain", lab.site.url(host, "/"))["state"])

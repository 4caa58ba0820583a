"""Crawls that lose something for each reason: the list has each with its number and an example, also after kills."""

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from crawler.crawl.opening import open_crawl
from crawler.frontier.deferred import CRAWL_URLS
from crawler.settings import Settings
from crawler.views.losses import Kind, Loss
from crawler.views.whole import losses
from tests.cli.cli_lab import HOST, in_process, page
from tests.crawl.failing_lab import KINDS, NAMES, SCALE, failing_servers
from tests.crawl.harness import crawl, settings_of
from tests.crawl.lab import QUICK
from tests.support.dns_server import DnsServer
from tests.support.patience import PATIENCE_S
from tests.support.processes import nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

FORBIDDEN, FAILING, LARGE, PAGES = 3, 4, 2, 20
LINKS, LINKS_MAX = 60, 50
LEFT_OUT = LINKS - LINKS_MAX
BODY_MAX = 4_000
APPS = ("/app0", "/app1")  # made by scripts

GIVEN_UP = {
    "reset": "disconnected", "no-reply": "disconnected", "silence": "timeout", "no-http": "protocol",
    "busy-429": "server_busy", "busy-503-after-1s": "server_busy", "busy-503-nonsense": "server_busy",
    "error-500": "server_error", "big-headers": "headers_too_large", "refused": "connect", "no-tls": "tls",
    "no-such-host": "dns_not_found", "dns-broken": "dns_error", "dns-silent": "dns_error",
}  # fmt: skip
CUT = {"cut-off": "body:disconnect", "too-slow": "body:time", "lying-gzip": "decode_error"}


async def losses_in(settings: Settings) -> list[Loss]:
    async with open_crawl(settings, create=False) as opened:
        return await losses(opened)


def counts(found: list[Loss]) -> dict[tuple[str, str], int]:
    return {(one.kind, one.reason): one.count for one in found}


@pytest.mark.timeout(90)
async def test_each_way_to_fail_is_a_loss_with_its_number_and_an_example(tmp_path: Path) -> None:
    known = {f"{name}.test": answer for name, answer in NAMES.items()}
    async with failing_servers() as urls, DnsServer({"*.test": ["127.0.0.1"]} | known) as dns:
        kinds = [key for key in KINDS.__struct_fields__ if hasattr(getattr(KINDS, key), "backoff_s")]
        settings = settings_of(
            tmp_path / "c", dns__nameservers=[dns.address], dns__timeout_s=1.0, dns__tries=1, dns__negative_ttl_s=0.01,
            dns__ttl_min_s=0.0, fetch__idle_timeout_s=0.6, fetch__total_timeout_s=1.2, fetch__connect_timeout_s=0.6,
            robots__obey=False, hosts__probe_s=0.3,  # of names that a busy machine sets aside while they are looked up
            **{f"retry__{kind}__backoff_s": 1 / SCALE for kind in kinds},
        )  # fmt: skip
        await crawl(settings, list(urls.values()))
    found = await losses_in(settings)
    expected = Counter((Kind.GIVEN_UP, reason) for reason in GIVEN_UP.values())
    expected.update((Kind.CUT, reason) for reason in CUT.values())
    assert counts(found) == expected
    reasons = {urls[way]: reason for way, reason in (GIVEN_UP | CUT).items()}
    assert {one.reason: reasons[one.example] for one in found} == {reason: reason for reason in reasons.values()}


@pytest.mark.timeout(90)
async def test_a_host_that_stays_silent_is_told_by_the_audit_as_unrequested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(
        tmp_path / "c", fetch__connect_timeout_s=0.2, hosts__failures=1, hosts__give_up_s=0.05, hosts__probe_s=0.1,
        retry__connect__attempts=2,
    )  # fmt: skip
    await crawl(settings, [f"http://127.0.0.1:9999/p{n}" for n in range(6)])
    found = counts(await losses_in(settings))
    assert await asyncio.to_thread(main, ["audit", "--dir", str(tmp_path / "c"), "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["findings"]["unrequested"]["count"] == found[Kind.GIVEN_UP, "host_dead"] > 0
    assert {(one["kind"], one["reason"]): one["count"] for one in report["losses"]} == found


def lossy() -> dict[tuple[str, str], Resource]:
    """A home page that leads to pages that are whole, too large, failing and forbidden, and to one with many links."""
    forbidden = [f"/private/{n}" for n in range(FORBIDDEN)]
    failing = [f"/error{n}" for n in range(FAILING)]
    large = [f"/large{n}" for n in range(LARGE)]
    pages = [f"/p{n}" for n in range(PAGES)]
    web = {(HOST, name): page(delay_s=0.05) for name in pages}
    web |= {(HOST, name): Resource(body="<script src=/app.js></script><div id=app></div>") for name in APPS}
    web[HOST, "/"] = page(*pages, *forbidden, *failing, *large, *APPS, "/many", "/loop0", "http://elsewhere.test/")
    web[HOST, "/robots.txt"] = Resource(content_type="text/plain", body="User-agent: *\nDisallow: /private/\n")
    web |= {(HOST, name): page(status=500) for name in failing}
    web |= {(HOST, name): Resource(body="x" * (BODY_MAX + 1)) for name in large}
    web[HOST, "/many"] = page(*(f"/?{n}" for n in range(LINKS)))
    web |= {(HOST, f"/?{n}"): page() for n in range(LINKS)}
    web |= {(HOST, f"/loop{n}"): Resource(status=302, headers={"Location": f"/loop{n + 1}"}) for n in range(5)}
    return web


LOST = {
    ("given up", "server_error"): FAILING,
    ("skipped", "robots"): FORBIDDEN,
    ("skipped", "redirects"): 1,
    ("cut", "body:length"): LARGE,
    ("cut", "links"): LEFT_OUT,
    ("cut", "scripts"): len(APPS),
}
OPTIONS = (
    "--delay", "0", "--set", f"fetch.body_bytes_max={BODY_MAX}", "--set", f"fetch.links_max={LINKS_MAX}",
    "--set", "scope.redirects_max=3", "--set", "fetch.concurrency=2",
)  # fmt: skip


@pytest.mark.slow(ci=True)
@pytest.mark.processes
@pytest.mark.timeout(120)
def test_the_numbers_are_exact_after_kills_and_all_commands_show_the_same(tmp_path: Path) -> None:
    folder = str(tmp_path / "c")
    with serve_resources(lossy()) as site, nursery(QUICK) as programs:
        for requests in (6, 20, 40):
            program = programs.crawler("crawl", site.url(HOST), "--dir", folder, *OPTIONS, "--quiet")
            deadline = time.monotonic() + PATIENCE_S
            while len(site.requests()) < requests and time.monotonic() < deadline:
                time.sleep(0.01)
            program.kill()
        ended = in_process(programs, "crawl", site.url(HOST), "--dir", folder, *OPTIONS)
        assert ended.code == 0, ended.err

        def shown(*words: str) -> Any:
            ran = in_process(programs, *words, "--dir", folder, "--json")
            assert ran.code == 0, ran.err
            return json.loads(ran.out)

        found = shown("stats", "--losses")["losses"]
        assert {(one["kind"], one["reason"]): one["count"] for one in found} == LOST
        examples = {one["reason"]: one["example"].removeprefix(site.url(HOST)) for one in found}
        assert examples["robots"].startswith("private/")
        assert examples["server_error"].startswith("error")
        assert examples["body:length"].startswith("large")
        assert (examples["links"], examples["redirects"]) == ("many", "loop3")
        stats = shown("stats")
        assert stats["losses"] == found
        assert stats["totals"]["dead"] == FAILING
        assert shown("audit", "--set", f"fetch.links_max={LINKS_MAX}")["losses"] == found
        lines = [line for line in ended.out.splitlines() if line.startswith(("Given up: ", "Skipped: ", "Cut: "))]
        assert [line.partition(" (")[0] for line in lines] == [
            f"Cut: links {LEFT_OUT}", f"Given up: server_error {FAILING}", f"Skipped: robots {FORBIDDEN}",
            f"Cut: body:length {LARGE}", "Skipped: redirects 1",
        ]  # fmt: skip
        assert f"{len(APPS)} pages seem to be built by JavaScript" in ended.out
        text = in_process(programs, "stats", "--losses", "--dir", folder).out
        assert text.splitlines()[1].split()[:3] == [str(LEFT_OUT), "cut", "links"]
        in_process(programs, "dead", "purge", "--all", "--dir", folder)
        left = {(one["kind"], one["reason"]): one["count"] for one in shown("stats", "--losses")["losses"]}
        assert left == {key: n for key, n in LOST.items() if key[0] != "given up"}


@pytest.mark.slow(ci=True)
async def test_deferred_urls_are_a_loss_until_they_are_released(tmp_path: Path) -> None:
    web = {(HOST, f"/p{n}"): page() for n in range(9)} | {(HOST, "/"): page(*(f"/p{n}" for n in range(9)))}
    with serve_resources(web) as site:
        for budget, deferred in ({"budget__urls": 4}, ("urls", 6)), ({"budget__crawl_urls": 4}, (CRAWL_URLS, 6)):
            settings = settings_of(tmp_path / deferred[0], **budget)
            await crawl(settings, [site.url(HOST)])
            (one,) = await losses_in(settings)
            assert (one.kind, one.reason, one.count, one.example) == (Kind.DEFERRED, *deferred, HOST)
            await crawl(settings_of(tmp_path / deferred[0], **dict.fromkeys(budget, 0)), [site.url(HOST)])
            assert await losses_in(settings) == []

"""What a crawl depends on is stored with it, and what a setting refuses waits for the setting to change."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.opening import open_crawl
from crawler.frontier.stats import Totals
from crawler.settings import Settings
from tests.cli.cli_lab import Ran, in_process
from tests.crawl.harness import crawl, entries_of, lab_names
from tests.crawl.lab import QUICK
from tests.crawl.rebuild_lab import Lab, audit
from tests.support.engine import Engine
from tests.support.processes import Nursery, nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST = "kept.test"
WEB = {
    (HOST, "/"): Resource(body="<a href='/a'>x</a><a href='http://10.1.2.3:22/'>x</a>", content_type="text/html"),
    (HOST, "/a"): Resource(body="a", content_type="text/html"),
}


async def totals_of(settings: Settings) -> Totals:
    async with open_crawl(settings, create=False) as opened:
        return await opened.stats.totals()


async def test_urls_at_private_addresses_wait_until_these_are_allowed(tmp_path: Path, engine: Engine) -> None:
    with serve_resources(WEB) as site:
        async with lab_names() as dns:
            lab = Lab(site, dns, engine, tmp_path)
            strict = lab.settings(fetch__allow_private=False)
            assert not (await crawl(strict, [site.url(HOST)])).entries
            totals = await totals_of(strict)
            assert (totals.pending, totals.dead, totals.deferred_by) == (0, 0, {"allow_private": 1})
            assert await audit(strict) == 0
            again = await crawl(strict, [])
            assert not again.entries
            done = await crawl(lab.settings(), [])
            totals = await totals_of(strict)
            assert {url.removeprefix(site.url(HOST)) for url in done.statuses} == {"", "a"}
            assert (totals.deferred, totals.dead_by) == (0, {"port_refused": 1}), "no setting allows that port"
            assert await audit(strict) == 0


APP = """\
from crawler import Crawler
app = Crawler()
@app.page()
def each(page):
    yield {"url": page.url}
"""
REFUSED = [  # option that a later command names, the setting
    (["--scope", "host"], "scope.mode"),
    (["--depth", "3"], "scope.depth_max"),
    (["--include", "x"], "scope.include"),
    (["--exclude", "x,y"], "scope.exclude"),
    (["--set", "scope.follow=handlers"], "scope.follow"),
    (["--set", "scope.redirected_seeds=follow"], "scope.redirected_seeds"),
    (["--ignore-robots"], "robots.obey"),
    (["--set", "robots.sitemaps=no"], "robots.sitemaps"),
    (["-U", "other/1"], "fetch.user_agent"),
    (["--set", "fetch.body_bytes_max=99"], "fetch.body_bytes_max"),
    (["--set", "fetch.links_max=9"], "fetch.links_max"),
    (["--set", "fetch.accept_language=de"], "fetch.accept_language"),
    (["--set", "traps.off=long"], "traps.off"),
]
FIXED = [
    (["--order", "priority"], "frontier.order"),
    (["--set", "frontier.queue_by=host"], "frontier.queue_by"),
    (["--set", "crawl.partitions=9"], "crawl.partitions"),
]
CHANGED = [  # of the whole crawl, and said
    (["--delay", "0.01"], "politeness.delay_s", 0.01),
    (["--concurrency-per-queue", "2"], "politeness.concurrency_per_queue", 2),
    (["--contact", "https://a.example/"], "fetch.contact", "https://a.example/"),
    (["--set", "fetch.total_timeout_s=30"], "fetch.total_timeout_s", 30.0),
    (["--set", "retry.attempts=2"], "retry.attempts", 2),
    (["--set", "hosts.failures=7"], "hosts.failures", 7),
    (["--set", "budget.urls=1000"], "budget.urls", 1000),
]
OF_THE_COMMAND = [["-c", "3"], ["--pages", "50"], ["--time", "50"], ["--set", "log.level=error"], ["-q"]]


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with nursery({name: value for name, value in QUICK.items() if not name.endswith("ALLOW_PRIVATE")}) as one:
        yield one


@pytest.mark.slow(ci=True)
@pytest.mark.timeout(120)
def test_each_option_is_kept_with_the_crawl_or_with_the_machine_or_is_the_commands(
    programs: Nursery, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "other.py").write_text(APP)
    with serve_resources({("127.0.0.1", path): page for (_, path), page in WEB.items()}) as site:
        url = site.url("127.0.0.1")

        def ran(*words: str, command: str = "crawl") -> Ran:
            return in_process(programs, command, *words, "--dir", "d", cwd=tmp_path)

        def stored() -> dict[str, Any]:
            return dict(json.loads(ran("--json", command="settings").out))

        begun = ran(url, "--allow-private", "--delay", "0", "--app", "shop.py", "-q")
        assert (begun.code, begun.err) == (0, ""), "nothing is said of a crawl that begins"
        before = stored()
        assert before["needs"]["allow_private"]
        assert before["needs"]["app"] == "shop.py"
        # The options of the first command need not be given again on this machine.
        assert ran(url, "-q").err == ""
        for option, key in REFUSED:
            refused = ran(url, *option)
            assert refused.code == 2, option
            assert f"this crawl has {key} = " in refused.err, option
            assert f"settings --dir d {key}=" in refused.err.replace("'", ""), option
        for option, key in FIXED:
            fixed = ran(url, *option)
            assert (fixed.code, f"this crawl has {key} = " in fixed.err) == (2, True), option
            assert "which can't change: leave it out, or use another --dir" in fixed.err, option
        for option in OF_THE_COMMAND:
            assert ran(url, *option).code == 0, option
        assert stored() == before
        for option, key, value in CHANGED:
            changed = ran(url, *option, "-q")
            assert (changed.code, f"changed for the whole crawl: {key} = " in changed.err) == (0, True), option
            assert stored()["settings"][key] == value
            assert ran(url, "-q").err == "", "it holds for the next one, too"
        # What is refused by the way is changed by an explicit command.
        assert ran("scope.depth_max=3", "traps.off=long", command="settings").out == (
            "changed for the whole crawl: scope.depth_max = 3 (it was -1)\n"
            "changed for the whole crawl: traps.off = long (it was none)\n"
        )
        again = ran("scope.depth_max=3", command="settings").out
        assert again == "nothing changed: the crawl has these values\n"
        assert ran(url, "--depth", "3", "-q").err == ""
        assert ran("fetch.concurrency=3", command="settings").code == 2
        assert ran("frontier.order=priority", command="settings").code == 2
        # Permissions: the crawl needs them, and only this machine gives them.
        other = ran(url, "--app", "other.py")
        assert (other.code, "not to other.py" in other.err) == (2, True)
        permissions = tmp_path / "d" / "permissions.json"
        assert permissions.stat().st_mode & 0o777 == 0o600
        for spoil in (lambda: permissions.chmod(0o644), permissions.unlink):
            spoil()
            needed = ran(url)
            assert (needed.code, "add --allow-private" in needed.err) == (2, True)
            needed = ran(url, "--allow-private")
            assert (needed.code, "add --app with that file" in needed.err) == (2, True)
        (tmp_path / "shop.py").write_text(APP + "\n")
        allowed = ran(url, "--allow-private", "--app", "shop.py", "-q")
        assert (allowed.code, "rehandle" in allowed.err) == (0, True), "its file has changed"
        assert ran("handlers.app=other.py", command="settings").code == 0
        assert stored()["needs"]["app"] == "other.py"
        assert ran(url, "-q").err == ""


@pytest.mark.parametrize("mode", ["domain", "any"])
def test_a_second_command_without_the_first_ones_options_keeps_its_queue(
    programs: Nursery, tmp_path: Path, mode: str
) -> None:
    web = {("127.0.0.1", "/"): Resource(body="".join(f"<a href=/{n}>x</a>" for n in range(20)))}
    web |= {("127.0.0.1", f"/{n}"): Resource(body="x") for n in range(20)}
    with serve_resources(web) as site:
        url = site.url("127.0.0.1")
        words = ("crawl", url, "--dir", "d", "-q")
        first = ("--allow-private", "--delay", "0", "--scope", mode, "--pages", "3")
        assert in_process(programs, *words, *first, cwd=tmp_path).code == 0
        (tmp_path / "d" / "permissions.json").unlink()  # as on another machine
        assert in_process(programs, *words, cwd=tmp_path).code == 2
        assert in_process(programs, *words, "--allow-private", cwd=tmp_path).code == 0
        assert len(entries_of(tmp_path / "d")) == 21

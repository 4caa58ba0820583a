"""`crawler forget` of a crawl with several folders: one is worked in, or can't be written, or the command is killed."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from crawler.runtime.crash_points import VARIABLE
from crawler.views import forgetting
from tests.cli.cli_lab import Ran
from tests.cli.forget_lab import KEPT, OTHER, VICTIM, ForgetLab, outputs, page, two_labs, unlike, web
from tests.crawl.harness import lab_names
from tests.jobs.jobs_lab import running, until
from tests.support.engine import Engine
from tests.support.processes import Nursery
from tests.support.serving import serve_linked

LEFT, KILLED = 8, -9
MORE = 40


def web_with_more(port: int) -> dict[tuple[str, str], Any]:
    """Pages of another site that link to the domain, for an instance to find later."""
    return web(port) | {(KEPT, f"/more{n}"): page("More", f"http://{VICTIM}:{port}/new{n}") for n in range(MORE)}


async def ran_by(lab: ForgetLab, *words: str) -> Ran:
    return await asyncio.to_thread(lab.program, *words)


def said(lab: ForgetLab, needle: str) -> Callable[[], Awaitable[bool]]:
    async def is_said() -> bool:
        return needle in (await ran_by(lab, "stats")).out

    return is_said


def stopped(lab: ForgetLab) -> Callable[[], Awaitable[bool]]:
    async def is_stopped() -> bool:
        found = await asyncio.to_thread(lab.engine_has)
        return any(name.endswith(b" stops") and VICTIM in repr(value) for name, value in found.items())

    return is_stopped


@pytest.mark.slow(ci=True)
def test_an_instance_that_runs_elsewhere_fetches_nothing_more(
    tmp_path: Path, programs: Nursery, engine: Engine
) -> None:
    with serve_linked(web_with_more) as site:
        one, two = two_labs(tmp_path, site, programs, engine)
        one.crawl(site.url(KEPT), crawl__pages_max=5)

        async def forget_meanwhile() -> None:
            async with lab_names() as dns, running(two.settings(dns__nameservers=[dns])):
                await until(said(one, "pending   0"), "its pages")
                await ran_by(one, "pause", VICTIM)
                await until(stopped(one), "its owner to pause it")
                assert (await ran_by(one, "seed", site.url(VICTIM, "/w1"), site.url(VICTIM, "/w2"))).code == 0
                ran = await ran_by(one, "forget", VICTIM)
                assert (ran.code, ran.err) == (LEFT, "")
                assert ran.out.startswith(f"Nothing of {VICTIM} is fetched any more. Nothing is removed yet: stop n-0 ")
                assert ran.out.count("not reached: ") == 3, "both folders, and the engine"
                assert f"{two.folder} on " in ran.out
                numbers = iter(range(MORE))

                async def follows() -> bool:
                    await ran_by(one, "seed", site.url(KEPT, f"/more{next(numbers)}"))
                    return await said(one, "forgotten")()

                await until(follows, "the instance to refuse a link to it")
                asked = len(site.requests())
                await ran_by(one, "resume", VICTIM)
                await until(said(one, "excluded "), "what waits to be refused")
                await until(said(one, "pending   0"), "all of it")
                assert [request for request in site.requests()[asked:] if VICTIM in request.host] == []

        asyncio.run(forget_meanwhile())
        before = one.kept(), two.kept()
        ran = one.run("forget", VICTIM)
        assert (ran.code, f"not reached: {two.folder} on " in ran.out) == (LEFT, True), ran
        ran = one.run("forget", VICTIM, "--dir", str(two.folder))
        assert (ran.code, ran.err, "not reached" in ran.out) == (0, "", False), ran
        one.forgotten()
        two.forgotten(has_link=False)
        assert (unlike(before[0], one.kept()), unlike(before[1], two.kept())) == ([], [])
        assert one.run("audit", "--dir", str(two.folder)).code == 0


@pytest.mark.slow(ci=True)
def test_a_folder_that_cannot_be_written_is_not_reached(
    tmp_path: Path, programs: Nursery, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_linked(web) as site:
        one, two = two_labs(tmp_path, site, programs, engine)
        one.crawl(site.url(KEPT), site.url(OTHER, "/to"), crawl__pages_max=12)
        two.crawl()
    before = one.kept(), two.kept()
    has_access = os.access

    def access(path: Any, mode: int) -> bool:
        return two.folder not in (Path(path), *Path(path).parents) and has_access(path, mode)

    monkeypatch.setattr(forgetting.os, "access", access)
    for words in (("--dir", str(two.folder)), ()):  # in either order
        ran = (two if not words else one).run("forget", VICTIM, *(words or ("--dir", str(one.folder))))
        assert (ran.code, ran.err) == (LEFT, ""), ran
        lines = [line for line in ran.out.splitlines() if line.startswith("not reached")]
        assert lines[-1].endswith(f"{two.folder} can't be written: make it writable, and give the same command again")
    assert unlike(before[1], two.kept()) == []
    assert two.found("TITLECANARY")
    monkeypatch.undo()
    assert one.run("forget", VICTIM, "--dir", str(two.folder)).code == 0
    one.forgotten()
    two.forgotten(has_link=False)
    assert (unlike(before[0], one.kept()), unlike(before[1], two.kept())) == ([], [])
    assert one.run("audit", "--dir", str(two.folder)).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("pages", [6, 20])  # of the first folder: what it fetched last, the second one's index has
def test_kills_with_two_folders_leave_what_the_next_call_completes(
    tmp_path: Path, programs: Nursery, engine: Engine, pages: int
) -> None:
    with serve_linked(web) as site:
        one, two = two_labs(tmp_path, site, programs, engine)
        one.crawl(site.url(KEPT), site.url(OTHER, "/to"), crawl__pages_max=pages)
        two.crawl()
    before = one.kept(), two.kept()
    words = ("--dir", str(two.folder), *outputs(one, "pages.jsonl", "items.jsonl"))
    kills = at = 0
    while True:
        at += 1 + at // 4
        ran = one.program("forget", VICTIM, *words, **{VARIABLE: f"forget.step#{at}=kill"})
        assert (unlike(before[0], one.kept()), unlike(before[1], two.kept())) == ([], [])
        if ran.code != KILLED:
            break
        kills += 1
    assert (ran.code, kills > 8) == (0, True), ran
    for lab in (one, two):
        assert lab.found("BODYCANARY", "TITLECANARY", "HEADCANARY", "ITEMCANARY", "METACANARY", "DEADCANARY") == {}
    assert one.run("audit", *words).code == 0
    backup = str(tmp_path / "after.backup")
    assert one.run("backup", backup).code == 0
    assert one.run("crawls", "rm", "main", "--yes").code == 0
    assert one.run("restore", backup).code == 0
    assert "forgotten on 20" in one.say("explain", site.url(VICTIM))
    assert one.run("audit", *words).code == 0

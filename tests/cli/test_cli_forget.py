"""`crawler forget` on real crawls: nothing of a domain is left or comes back, and nothing of others changes."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from crawler.archive import forget_files
from crawler.archive.folder import alone_in, open_existing, open_or_create
from crawler.runtime.crash_points import VARIABLE
from tests.cli.cli_lab import in_process
from tests.cli.forget_lab import (
    KEPT,
    LINKED,
    OTHER,
    OUTPUTS,
    VICTIM,
    ForgetLab,
    entries,
    outputs,
    two_labs,
    unlike,
    web,
)
from tests.crawl.harness import warc_of_pages
from tests.support.engine import Engine
from tests.support.processes import Nursery
from tests.support.serving import serve_linked

KILLED, LEFT, TAKEN, BAD_INPUT = -9, 8, 4, 2


@pytest.fixture
def lab(tmp_path: Path, programs: Nursery) -> Iterator[ForgetLab]:
    with serve_linked(web) as site:
        one = ForgetLab(tmp_path, site, programs)
        one.crawl(site.url(KEPT), site.url(OTHER, "/to"))
        yield one


def with_everything(lab: ForgetLab) -> None:
    """What operators and people add: URLs that wait, that are scheduled, a job, commands on the domain."""
    victim = lab.site.url(VICTIM)
    lab.run("seed", f"{victim}WAITCANARY", f"{victim}SEEDCANARY")
    lab.run("seed", f"{victim}LATERCANARY", "--at", "2099-01-01T00:00:00")
    for words in (("delay", VICTIM, "3"), ("boost", VICTIM, "2"), ("pause", VICTIM)):
        assert lab.run(*words).code == 0
    assert lab.run("jobs", "add", "daily", "--cron", "0 3 * * *", f"{victim}JOBCANARY", lab.site.url(KEPT)).code == 0


@pytest.mark.slow(ci=True)
def test_nothing_of_a_domain_is_left_and_others_are_unchanged(lab: ForgetLab) -> None:
    where, before = outputs(lab, *OUTPUTS), lab.kept()
    with_everything(lab)
    everywhere = lab.found("BODYCANARY", "TITLECANARY", "HEADCANARY", "COOKIECANARY", "ITEMCANARY", "QUERYCANARY",
                           "DEADCANARY", "METACANARY", "LABELCANARY", "WAITCANARY", "SEEDCANARY", "JOBCANARY",
                           "LATERCANARY", LINKED)  # fmt: skip
    assert len(everywhere) == 14, "each canary is somewhere before"
    would = json.loads(lab.say("forget", VICTIM, "--dry-run", "--json", *where))
    assert lab.kept() == before
    ran = lab.run("forget", VICTIM, "--json", *where)
    assert (ran.code, ran.err) == (0, ""), ran
    done = json.loads(ran.out)
    for name in ("pages", "records", "bytes", "files_removed", "files_rewritten"):
        assert done["folders"][name] == would["folders"][name]
    assert done["engine"]["waiting"] == would["engine"]["waiting"] == 3
    assert done["engine"]["dead_letters"] == would["engine"]["dead_letters"] == 1
    assert {one["state"] for one in done["places"]} == {"done"}
    lab.forgotten()
    assert unlike(before, lab.kept()) == []
    assert lab.run("audit", *where).code == 0


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_what_the_next_call_completes(lab: ForgetLab) -> None:
    where, before = outputs(lab, *OUTPUTS), lab.kept()
    with_everything(lab)
    kills = at = 0
    while True:
        at += 1 + at // 4  # each of the first, then some
        ran = lab.program("forget", VICTIM, *where, **{VARIABLE: f"forget.step#{at}=kill"})
        if ran.code != KILLED:
            break
        kills += 1
        assert unlike(before, lab.kept()) == []
        if (lab.folder / "forget.begun").exists():
            ran = lab.run("prune", "--older-than", "1d")
            assert (ran.code, "a forget was interrupted" in ran.err) == (TAKEN, True)
    assert (ran.code, kills > 8) == (0, True), ran
    lab.forgotten()
    assert unlike(before, lab.kept()) == []
    assert lab.run("audit", *where).code == 0


@pytest.mark.slow(ci=True)
def test_nothing_brings_a_forgotten_domain_back(lab: ForgetLab) -> None:
    victim = lab.site.url(VICTIM)
    assert lab.run("backup", str(lab.home / "before.backup")).code == 0
    before = lab.kept()
    lab.say("forget", VICTIM)
    asked = len(lab.site.requests())
    assert "forgotten on 20" in lab.say("explain", victim)
    ran = lab.run("seed", victim)
    assert (ran.code, "this domain was forgotten" in ran.err) == (BAD_INPUT, True), ran
    (lab.home / "urls.txt").write_text(f"{victim}seen\n{lab.site.url(KEPT, '/seen')}\n")
    assert "1 of forgotten domains left out" in lab.say("import", "seen", str(lab.home / "urls.txt"))
    lab.crawl(lab.site.url(KEPT, "/?new"), lab.site.url(OTHER, "/to?again"))
    lab.forgotten()
    assert lab.run("crawls", "rm", "main", "--yes").code == 0
    ran = lab.run("rebuild")
    assert ran.code == 0, ran
    lab.crawl(lab.site.url(KEPT, "/?newer"))
    lab.forgotten()
    assert unlike(before, {url: found for url, found in lab.kept().items() if url in before}) == []
    requests = [one for one in lab.site.requests()[asked:] if VICTIM in one.host]
    assert requests == [], "nothing of it was requested any more"


@pytest.mark.slow(ci=True)
def test_an_older_engine_and_an_output_that_is_not_named_are_said(lab: ForgetLab) -> None:
    backup = str(lab.home / "before.backup")
    assert lab.run("backup", backup).code == 0
    kept = outputs(lab, "pages.db", "items.db")
    ran = lab.run("forget", VICTIM)
    assert (ran.code, ran.err) == (LEFT, "")
    assert ran.out.count("name its target with -o") == 2
    assert any(VICTIM in entry.url and entry.pruned for entry in entries(lab.folder)), "its keys are needed"
    ran = lab.run("forget", VICTIM, *kept)
    assert (ran.code, "not reached" in ran.out) == (0, False), ran
    lab.forgotten()
    assert lab.run("crawls", "rm", "main", "--yes").code == 0
    ran = lab.run("restore", backup)
    assert ran.code == 0, ran
    ran = lab.run("stats")
    assert "from before this crawl forgot 1 domain" in ran.err
    assert lab.run("forget", VICTIM, *kept).code == 0
    lab.forgotten()
    assert lab.run("audit").code == 0


@pytest.mark.slow(ci=True)
def test_what_is_in_the_way_is_one_line_and_changes_nothing(lab: ForgetLab) -> None:
    before = lab.found(VICTIM)
    with open_existing(lab.folder).exclusive("prune"):
        ran = lab.run("forget", VICTIM)
        assert (ran.code, "prune.lock" in ran.err) == (TAKEN, True)
    with alone_in(open_existing(lab.folder), 1234):
        ran = lab.run("forget", VICTIM, "--dry-run")
        assert (ran.code, f"the crawl in {lab.folder} (pid 1234); stop all" in ran.err) == (TAKEN, True), ran
    (lab.folder / "prune.db").write_bytes(b"")
    ran = lab.run("forget", VICTIM)
    assert (ran.code, "a prune was interrupted" in ran.err) == (TAKEN, True)
    (lab.folder / "prune.db").unlink()
    for word, why in (
        (f"www.{VICTIM}", f"'crawler forget {VICTIM}'"), (f"http://{VICTIM}/page", "acts on all of a domain"),
        ("a b", "not a"), ("", "not a"),
    ):  # fmt: skip
        ran = lab.run("forget", word)
        assert (ran.code, why in ran.err, ran.err.count("\n")) == (BAD_INPUT, True, 1), ran
    other = open_or_create(lab.home / "other")
    ran = in_process(lab.programs, "forget", VICTIM, *lab.where(), "--dir", str(other.root), cwd=lab.home)
    assert (ran.code, "is not a folder of the crawl" in ran.err) == (TAKEN, True), ran
    assert lab.found(VICTIM) == before


@pytest.mark.slow(ci=True)
def test_a_domain_that_is_not_there_and_one_that_was_forgotten(lab: ForgetLab) -> None:
    before = lab.kept()
    (lab.folder / "history" / "1.jsonl").write_text(f'{{"url":"{lab.site.url(KEPT)}"}}\n')
    (lab.folder / "log" / "x.log").write_text(f"about {KEPT}\n")
    files = {
        path: path.read_bytes() for name in ("history", "log", "journal") for path in (lab.folder / name).iterdir()
    }
    for word in ("nobody.test", "127.0.0.1:8080", "[::1]", "BÜCHER.example", "xn--bcher-kva.example", "test", "co.uk"):
        ran = lab.run("forget", word)
        assert (ran.code, ran.err) == (0, ""), ran
        assert " 0 pages, 0 records" in ran.out
    assert {path: path.read_bytes() for path in files} == files, "below a public suffix are other domains"
    assert "0 files removed, 3 rewritten" in lab.say("forget", f"http://{VICTIM.upper()}.:8080/")
    assert ": 0 pages, 0 records" in lab.say("forget", VICTIM)
    lab.forgotten()
    assert unlike(before, lab.kept()) == []
    assert "forgotten on 20" in lab.say("explain", "http://xn--bcher-kva.example:99/x")
    assert lab.run("audit").code == 0


@pytest.mark.slow(ci=True)
def test_damage_and_files_of_nobody_are_said_and_stay(lab: ForgetLab) -> None:
    warc = warc_of_pages(lab.folder)
    warc.write_bytes(warc.read_bytes()[:-40])
    (lab.folder / "notes.txt").write_text(f"about {VICTIM}\n")
    (lab.folder / "log" / "x.damaged").write_bytes(b"\x1f\x8b")
    ran = lab.run("forget", VICTIM)
    assert (ran.code, ran.err) == (LEFT, "")
    for place, why in (
        (warc.name, "damaged from byte"),
        ("notes.txt", "no part of the crawl"),
        ("x.damaged", "remove"),
    ):
        assert any(place in line and why in line and line.startswith("not reached") for line in ran.out.splitlines())
    assert "TITLECANARY" in lab.found("TITLECANARY"), "what is damaged stays"
    for path in ((lab.folder / "notes.txt"), (lab.folder / "log" / "x.damaged")):
        path.unlink()
    ran = lab.run("rebuild", "--refetch")
    assert ran.code == 0, ran
    for path in (lab.folder / "log").glob("*.damaged"):
        path.unlink()
    assert lab.run("forget", VICTIM).code == 0
    lab.forgotten()


@pytest.mark.slow(ci=True)
def test_a_full_disk_ends_it_and_the_next_call_goes_on(lab: ForgetLab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.kept()
    free = forget_files.shutil.disk_usage
    monkeypatch.setattr(forget_files.shutil, "disk_usage", lambda _: free("/")._replace(free=10))
    ran = lab.run("forget", VICTIM)
    assert (ran.code, "make room and give the same command again" in ran.err) == (5, True), ran
    monkeypatch.undo()
    assert unlike(before, lab.kept()) == []
    assert lab.run("forget", VICTIM).code == 0
    lab.forgotten()
    assert unlike(before, lab.kept()) == []


@pytest.mark.slow(ci=True)
def test_pages_of_ended_runs_and_of_a_second_folder(tmp_path: Path, programs: Nursery, engine: Engine) -> None:
    with serve_linked(web) as site:
        one, two = two_labs(tmp_path, site, programs, engine)
        one.crawl(site.url(KEPT), site.url(OTHER, "/to"), crawl__pages_max=12)
        two.crawl()
        before = one.kept(), two.kept()
        ran = one.run("forget", VICTIM)
        assert (ran.code, f"{two.folder} on " in ran.out) == (LEFT, True), ran
        ran = one.run("audit", "--dir", str(two.folder))
        assert (ran.code, "has not reached them" in ran.out) == (0, True), ran
        ran = two.run("forget", VICTIM, "--dir", str(one.folder))
        assert (ran.code, "BGREWRITEAOF" in ran.out) == (0, True), ran
        one.forgotten()
        two.forgotten(has_link=False)
        assert (unlike(before[0], one.kept()), unlike(before[1], two.kept())) == ([], [])
        assert one.run("audit", "--dir", str(two.folder)).code == 0


@pytest.mark.slow(seconds=150)
@pytest.mark.timeout(600)
def test_five_thousand_pages_of_twenty_thousand_killed_five_times(tmp_path: Path, programs: Nursery) -> None:
    with serve_linked(partial(web, kept=15_000, victims=5_000)) as site:
        lab = ForgetLab(tmp_path, site, programs)
        assert lab.crawl(site.url(KEPT), site.url(OTHER, "/to"), archive__warc_bytes_max=1_000_000) > 20_000
    where, before = outputs(lab, "pages.jsonl", "items.db"), lab.kept()
    assert len(before) > 15_000
    for at in (2, 9, 14, 25, 31):
        ran = lab.program("forget", VICTIM, *where, **{VARIABLE: f"forget.step#{at}=kill"})
        assert ran.code == KILLED, ran
    ran = lab.program("forget", VICTIM, *where)
    assert ran.code == 0, ran  # a busy machine has lines of progress, too
    lab.forgotten()
    assert unlike(before, lab.kept()) == []
    assert lab.run("audit").code == 0

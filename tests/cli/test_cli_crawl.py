"""`crawler crawl` and its companions as people use them: real processes against a small web on loopback."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, QUICK, SMALL_PAGES, crawler, in_process, small, small_site
from tests.support.engine import running_engine
from tests.support.patience import wait_until
from tests.support.processes import Nursery, nursery
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with small() as site:
        yield site


@pytest.fixture(scope="module")
def finished(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """Where a crawl is that has ended, as options; read only."""
    folder = tmp_path_factory.mktemp("finished") / "crawl"
    with nursery() as programs, running_engine() as engine:
        where = ("--dir", str(folder), "--redis", engine.url)
        ran = crawler(programs, "crawl", site.url(HOST), *QUICK, *where)
        assert ran.code == 0, ran.err
        assert f"Finished: {SMALL_PAGES} pages" in ran.out
        assert "warc" in ran.out
        assert "crawler export" in ran.out
        yield where


def exported(text: str) -> dict[str, int]:
    records = [json.loads(line) for line in text.splitlines()]
    assert len(records) == len({record["url"] for record in records})
    return {record["url"]: record["status"] for record in records}


@pytest.mark.slow(ci=True)
def test_a_crawl_ends_by_itself_and_exports_each_page_once(
    finished: tuple[str, ...], site: Site, programs: Nursery
) -> None:
    ran = in_process(programs, "export", *finished)
    assert ran.code == 0
    pages = exported(ran.out)
    assert pages == {site.url(HOST, f"/p{n}"): 200 for n in range(12)} | {
        site.url(HOST): 200,
        site.url(HOST, "/gone"): 404,
        site.url(HOST, "/moved"): 301,
    }


def test_export_writes_text_and_links_to_files_of_both_formats(
    finished: tuple[str, ...], tmp_path: Path, programs: Nursery
) -> None:
    lines, rows = tmp_path / "a.jsonl", tmp_path / "a.csv"
    ran = in_process(programs, "export", *finished, "-o", str(lines), "-o", str(rows), "--columns", "text,links")
    assert ran.code == 0
    home = next(r for r in map(json.loads, lines.read_text().splitlines()) if r["depth"] == 0)
    assert len(home["links"]) == 16
    assert "x" in home["text"]
    assert rows.read_text().count("\n") == SMALL_PAGES + 1


def test_export_to_a_reader_that_goes_away_is_quiet(finished: tuple[str, ...], programs: Nursery) -> None:
    command = [sys.executable, "-m", "crawler", "export", *finished]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=programs.environment, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_stats_numbers_equal_what_happened(finished: tuple[str, ...], programs: Nursery) -> None:
    found = json.loads(in_process(programs, "stats", "--json", *finished).out)
    totals, (domain,) = found["totals"], found["domains"]
    assert totals["fetched"] == domain["fetched"] == SMALL_PAGES
    assert totals["status"] == domain["status"] == {"2": 13, "3": 1, "4": 1}
    assert totals["robots_denied"] == domain["robots_denied"] == 1
    assert (totals["pending"], totals["dead"], totals["domains"], totals["in_flight"]) == (0, 0, 1, 0)
    assert (domain["domain"], domain["queued"], domain["claimed"], domain["owner"]) == (HOST, 0, 0, "")
    one = json.loads(in_process(programs, "stats", HOST, "--json", *finished).out)
    stops = {"deferred": {}, "ordered_delay_ms": None, "boost": 0, "crawl_paused": False, "crawl_spent": ""}
    same = domain | {name: one[name] for name in ("next_fetch_in_ms", "rates")} | stops  # these go on
    assert {name: one[name] for name in same} == same
    assert one["sentence"] == f"Done: all of its URLs are fetched or given up ({SMALL_PAGES} pages)."


def test_stats_and_ring_are_readable(finished: tuple[str, ...], site: Site, programs: Nursery) -> None:
    ran = in_process(programs, "stats", *finished)
    assert ran.code == 0
    assert "pages     15 (2xx 13, 3xx 1, 4xx 1)" in ran.out
    assert "delay" in in_process(programs, "stats", HOST, *finished).out
    assert "No instance is running" in in_process(programs, "ring", *finished).out
    place = json.loads(in_process(programs, "ring", "show", site.url(HOST), "--json", *finished).out)
    assert (place["domain"], place["owner"]) == (HOST, "")
    assert place["epoch"] >= 1


@pytest.mark.parametrize(
    ("target", "state", "said"),
    [
        ("/", "committed", "status 200"),
        ("/gone", "committed", "status 404"),
        ("/private/x", "refused", "line 2: Disallow: /private/"),
        ("/nowhere", "unknown", "no link to it was found"),
    ],
)
def test_explain_says_what_became_of_a_url(
    finished: tuple[str, ...], site: Site, programs: Nursery, target: str, state: str, said: str
) -> None:
    url = site.url(HOST, target)
    ran = in_process(programs, "explain", url, *finished)
    assert ran.code == 0
    assert said in ran.out
    if target == "/private/x":
        found = json.loads(in_process(programs, "explain", url, "--json", *finished).out)
        assert (found["state"], found["robots"]["allowed"], found["robots"]["line_number"]) == (state, False, 2)


def test_explain_names_the_scope_rule_and_fetches_robots_when_asked(
    finished: tuple[str, ...], programs: Nursery, tmp_path: Path
) -> None:
    ran = in_process(programs, "explain", "HTTP://Elsewhere.TEST:80/a#b", *finished)
    assert "out of scope (no seed is in domain elsewhere.test)" in ran.out
    assert "http://elsewhere.test/a (canonical form of HTTP://Elsewhere.TEST:80/a#b)" in ran.out
    with small() as other:
        folder = str(tmp_path / "c")
        in_process(programs, "seed", other.url(HOST), "--dir", folder)
        url = other.url(HOST, "/private/x")
        assert "not read yet" in in_process(programs, "explain", url, "--dir", folder).out
        asked = in_process(programs, "explain", url, "--dir", folder, "--fetch-robots", "--allow-private")
        assert "forbidden (line 2: Disallow: /private/" in asked.out
        assert [r.target for r in other.requests()] == ["/robots.txt"]


def test_the_same_crawl_again_says_that_it_is_finished_and_asks_nothing(
    site: Site, programs: Nursery, tmp_path: Path
) -> None:
    command = ("crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"), "--depth", "0")
    assert in_process(programs, *command).code == 0
    before = len(site.requests())
    ran = in_process(programs, *command)
    assert ran.code == 0
    assert "This crawl is finished: 1 page, and no given URL is new" in ran.err
    assert len(site.requests()) == before


def test_ctrl_c_stops_in_order_and_the_same_command_resumes(programs: Nursery, tmp_path: Path) -> None:
    with small(40, delay_s=0.05) as slow:
        command = ("crawl", slow.url(HOST), *QUICK, "--dir", str(tmp_path / "c"))
        first = programs.crawler(*command)
        wait_until(lambda: len(slow.requests()) >= 5)
        first.interrupt()
        assert first.wait() == 10
        assert "crawler: stopped; the same command resumes: crawler crawl" in first.err
        assert programs.left() == []
        second = in_process(programs, *command)
        assert second.code == 0
        assert "Resuming:" in second.err
        asked = [r.target for r in slow.requests() if not r.is_robots]
        assert sorted(asked) == sorted(set(asked))
        assert len(asked) == 40 + 3


@pytest.mark.slow(ci=True)
def test_a_second_signal_forces_and_nothing_is_lost(programs: Nursery, tmp_path: Path) -> None:
    web = small_site(4)
    web[HOST, "/p0"].delay_s = 3600.0
    with serve_resources(web) as slow:
        command = ("crawl", slow.url(HOST), *QUICK, "--dir", str(tmp_path / "c"))
        first = programs.crawler(*command)
        wait_until(slow.delayed)
        first.interrupt()
        first.wait_for("Stopping")
        time.sleep(0.35)  # less would count as the same press
        first.interrupt()
        assert first.wait() == 11
        assert "forced; the same command resumes" in first.err
        assert programs.left() == []
        slow.end_delays()
        assert in_process(programs, *command).code == 0
        assert len(exported(in_process(programs, "export", "--dir", str(tmp_path / "c")).out)) == 7


@pytest.mark.slow(ci=True)
def test_instances_of_one_command_share_the_work_and_leave_nobody_behind(programs: Nursery, tmp_path: Path) -> None:
    """Also where modules of somebody have the names of ours, and for pages that worker processes parse."""
    for name in ("crawler.py", "redis.py"):
        (tmp_path / name).write_text("raise RuntimeError\n")
    web = small_site(30)
    web[HOST, "/p5"] = Resource(body="<title>long</title>" + "".join(f"<b x{n}>" for n in range(4000)) + "<p>/" * 9000)
    with serve_resources(web) as site:
        output = tmp_path / "pages.jsonl"
        command = ("crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"), "-n", "2", "-o", str(output))
        ran = crawler(programs, *command, cwd=tmp_path)
        assert ran.code == 0, ran.err
        assert "Given up" not in ran.out
        assert len(exported(output.read_text())) == 33
        assert programs.left() == []


@pytest.mark.slow(ci=True)
def test_children_end_when_their_parent_is_killed(programs: Nursery, tmp_path: Path) -> None:
    with small(40, delay_s=0.2) as site:
        parent = programs.crawler("crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"), "-n", "2")
        wait_until(lambda: len(site.requests()) >= 3)
        parent.kill()
        wait_until(lambda: not programs.left())


@pytest.mark.parametrize("command", ["crawl", "run"])
def test_a_disk_without_room_is_told_at_once_even_when_quiet(
    site: Site, tmp_path: Path, programs: Nursery, command: str
) -> None:
    folder = ("--dir", str(tmp_path / "c"), "--quiet", "--set", f"archive.disk_free_bytes_min={2**53}")
    urls = (site.url(HOST),) if command == "crawl" else ()
    crawling = programs.crawler(command, *urls, *QUICK, *folder)
    crawling.wait_for(r"nothing is fetched until it has .* \(archive\.disk_free_bytes_min\)")
    crawling.interrupt()
    assert crawling.wait() == 10


def arenas(pid: int) -> list[str]:
    """Where malloc keeps memory for some threads of a process apart from others (glibc: from multiples of 64 MiB)."""
    nameless = r"^([0-9a-f]+)-[0-9a-f]+ rw-p .* 0 *$"  # nor of a file: its inode is 0
    starts = re.findall(nameless, Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)
    return [start for start in starts if int(start, 16) % (64 << 20) == 0]


@pytest.mark.slow(ci=True)
def test_run_waits_for_work_that_seed_adds_and_stops_on_a_signal(programs: Nursery, tmp_path: Path) -> None:
    with small() as site:
        folder = str(tmp_path / "c")
        waiting = programs.crawler("run", *QUICK, "--dir", folder)
        waiting.wait_for("waits for work")
        ran = in_process(programs, "seed", site.url(HOST), "--dir", folder, *QUICK)
        assert (ran.code, ran.out) == (0, "1 new, 0 already seen, 0 out of scope, 0 invalid\n")
        wait_until(lambda: any(not r.is_robots for r in site.requests()))
        ring = json.loads(in_process(programs, "ring", "--json", "--dir", folder).out)
        (member,) = ring["members"]
        assert (member["state"], member["held"], member["suggested"]) == ("alive", 16, 16)
        other = in_process(programs, "crawl", site.url(HOST), *QUICK, "--dir", folder)
        assert other.code == 4
        assert f"an instance is running in {folder} (pid {waiting.pid}); use --dir, or 'crawler seed'" in other.err
        assert arenas(waiting.pid) == [], "all threads share the heap: what one frees, the others take"
        waiting.terminate()
        assert waiting.wait() == 10


@pytest.mark.slow(ci=True)
def test_the_links_of_a_seed_given_to_a_running_instance_are_followed(programs: Nursery, tmp_path: Path) -> None:
    with small() as site:
        waiting = programs.crawler("run", *QUICK, "--dir", str(tmp_path / "c"))
        try:
            waiting.wait_for("waits for work")
            in_process(programs, "seed", site.url(HOST), "--dir", str(tmp_path / "c"), *QUICK)
            wait_until(lambda: sum(1 for r in site.requests() if not r.is_robots) >= SMALL_PAGES)
        finally:
            waiting.terminate()
            waiting.wait()


def test_page_and_time_limits_end_with_success_and_say_what_is_left(programs: Nursery, tmp_path: Path) -> None:
    with small(40, delay_s=0.02) as site:
        command = ("crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"))
        pages = in_process(programs, *command, "--pages", "3")
        assert pages.code == 0
        assert "Page limit reached: 3 pages" in pages.out
        assert "URLs are left" in pages.err
        timed = in_process(programs, *command, "--time", "200ms")
        assert timed.code == 0
        assert "Time is up" in timed.out


@pytest.mark.slow(ci=True)
def test_results_on_stdout_are_nothing_but_results(site: Site, programs: Nursery, tmp_path: Path) -> None:
    ran = crawler(
        programs, "crawl", "-np", "-i", "-", "--dir", str(tmp_path / "c"), "-o", "-", *QUICK,
        stdin=f"# seeds\n\n{site.url(HOST)}\nfoo\n",
    )  # fmt: skip
    assert ran.code == 0
    assert len(exported(ran.out)) == SMALL_PAGES
    assert "crawler: standard input line 4: 'foo': not a URL" in ran.err
    assert "Finished:" in ran.err


@pytest.mark.slow(ci=True)
def test_quiet_says_nothing(site: Site, programs: Nursery, tmp_path: Path) -> None:
    ran = in_process(programs, "crawl", site.url(HOST), "--depth", "0", "-q", *QUICK, "--dir", str(tmp_path / "c"))
    assert (ran.code, ran.out, ran.err) == (0, "", "")

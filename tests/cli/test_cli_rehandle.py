"""`crawler rehandle` as people run it: what it prints, its exit codes, and kills of the whole process."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.index_reader import IndexReader
from crawler.archive.items import ItemReader
from crawler.runtime.crash_points import VARIABLE
from tests.cli.cli_lab import HOST, QUICK, SMALL_PAGES, Ran, crawler, forget_apps, in_process, page, small_site
from tests.support.processes import Nursery
from tests.support.serving import Site, serve_resources

KILLED = -9
URLS = """
from crawler import Crawler
app = Crawler()

@app.page()
async def every(page):
    yield {"url": page.url}
"""
FOLLOWS = """
from crawler import Crawler
app = Crawler()

@app.page()
async def every(page):
    yield {"url": page.url, "title": page.title}
    yield {"url": page.url, "links": len(page.links())}
    page.follow("/extra", label="extra")

@app.page(label="extra")
async def extra(page):
    yield {"extra": page.url}
"""
FAILS = (
    URLS
    + """
    if page.url.endswith("p1"):
        raise KeyError("price \\x1b[31m")
"""
)


def items_in(folder: Path) -> list[str]:
    return sorted(
        json.dumps(json.loads(item), sort_keys=True) for _, _, item in ItemReader(open_existing(folder)).items()
    )


class Lab:
    """An app and a crawl in the nursery's folder; `crawl-data` is the default."""

    def __init__(self, programs: Nursery, site: Site, patched: pytest.MonkeyPatch) -> None:
        self.programs, self.site, self.patched = programs, site, patched
        self.home = Path(programs.folder)
        self.write(URLS)

    def write(self, app: str) -> None:
        (self.home / "shop.py").write_text(app)

    def run(self, *words: str, **env: str) -> Ran:
        """In this process, unless `env` has it killed."""
        if env:
            return crawler(self.programs, *words, **env)
        forget_apps(self.patched)  # it may have been written again
        return in_process(self.programs, *words)

    def crawl(self, *words: str, **env: str) -> Ran:
        return self.run("crawl", self.site.url(HOST), *QUICK, "-q", *words, **env)

    def crawl_all(self, *words: str) -> None:
        """Many pages, in their time."""
        process = self.programs.crawler("crawl", self.site.url(HOST), *QUICK, "-q", "--app", "shop.py", *words)
        assert process.wait(400) == 0, process.err

    @property
    def items(self) -> list[str]:
        return items_in(self.home / "crawl-data")

    def audit(self) -> None:
        ran = self.run("audit")
        assert ran.code == 0, ran.out + ran.err


@pytest.fixture
def lab(programs: Nursery, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    with serve_resources(small_site() | {(HOST, "/extra"): page()}) as site:
        yield Lab(programs, site, monkeypatch)


@pytest.mark.slow(ci=True)
@pytest.mark.processes
def test_from_a_crawl_without_an_app_to_its_items(lab: Lab) -> None:
    assert lab.crawl().code == 0
    ran = lab.run("rehandle")
    assert (ran.code, ran.err) == (2, "crawler: this crawl has no app: name one with --app, like --app shop.py\n")
    ran = lab.run("rehandle", "--app", "shop.py", "-o", "items.jsonl")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"Handled {SMALL_PAGES} pages again: 13 items (0 before); 13 pages have other items now.",
        "The app of the crawl is shop.py now.",
    ]
    assert len((lab.home / "items.jsonl").read_text().splitlines()) == 13
    lab.write(FOLLOWS)
    ran = lab.run("rehandle")
    assert ran.out.splitlines() == [
        f"Handled {SMALL_PAGES} pages again: 26 items (13 before); 13 pages have other items now.",
        "1 new URL to crawl: 'crawler crawl' fetches them.",
    ]
    lab.audit()
    ran = lab.crawl("-o", "items.jsonl")
    assert (ran.code, ran.err) == (0, ""), "the app is that of the crawl, as it was handled last"
    assert len((lab.home / "items.jsonl").read_text().splitlines()) == 27 == len(lab.items)
    lab.audit()
    told = json.loads(lab.run("rehandle", "--json").out)
    assert (told["pages"], told["items"], told["items_before"], told["changed"]) == (SMALL_PAGES + 1, 27, 27, 0)
    assert "rehandle" in lab.run("oplog").out


@pytest.mark.slow(ci=True)
@pytest.mark.processes
def test_failures_and_missing_bodies_are_told_and_have_exit_codes(lab: Lab) -> None:
    assert lab.crawl("--app", "shop.py").code == 0
    before = lab.items
    lab.write(FAILS)
    ran = lab.run("rehandle")
    assert ran.code == 13
    assert ran.err.startswith("crawler: the handler failed on 1 page, whose items stay as they were: ")
    assert "The handler failed on 1 page, like " in ran.out
    assert "KeyError" in ran.out
    assert "\x1b" not in ran.out + ran.err
    assert lab.items == before
    lab.write(URLS)
    shutil.rmtree(lab.home / "crawl-data" / "warc")
    ran = lab.run("rehandle")
    assert (ran.code, lab.items) == (5, before)
    assert ran.out.startswith("Handled 0 pages again: 13 items (13 before); 0 pages have other items now.")
    assert (
        f"{SMALL_PAGES} pages not handled, like {lab.site.url(HOST)}: its body is in a file that is not in this"
        in ran.out
    )
    assert ran.err.count("\n") == 1
    told = lab.run("rehandle", "--json")
    assert (told.code, json.loads(told.out)["unreadable"]) == (5, {"not_found": SMALL_PAGES})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--app", "none.py"), "file none.py does not exist"),
        (("--app", "shop.py", "--domain", "http://"), "invalid URL"),
        (("--app", "shop.py", "--dir", "elsewhere"), "is not a crawl folder"),
        (("--app", "shop.py", "-o", "items.txt"), "items.txt"),
    ],
)
def test_bad_input_is_one_line(programs: Nursery, words: tuple[str, ...], said: str) -> None:
    (Path(programs.folder) / "shop.py").write_text(URLS)
    with serve_resources({(HOST, "/"): page()}) as site:
        assert in_process(programs, "crawl", site.url(HOST), *QUICK, "-q").code == 0
        ran = in_process(programs, "rehandle", *words)
    assert (ran.code, said in ran.err, ran.err.count("\n")) == (2, True, 1), ran.err


@pytest.mark.slow(ci=True)
@pytest.mark.processes
def test_what_a_killed_crawl_had_not_indexed_is_handled_too(lab: Lab) -> None:
    ran = lab.crawl("--app", "shop.py", **{VARIABLE: "ack.answered#2=kill"})
    assert ran.code == KILLED
    lab.write(FOLLOWS)
    indexed = len(list(IndexReader(open_existing(lab.home / "crawl-data")).entries()))
    assert lab.run("rehandle").code == 0
    entries = list(IndexReader(open_existing(lab.home / "crawl-data")).entries())
    assert len(entries) > indexed
    assert all('"url"' not in item or "title" in item or "links" in item for item in lab.items)
    assert lab.crawl().code == 0
    assert all('"url"' not in item or "title" in item or "links" in item for item in lab.items)
    assert len(lab.items) == 2 * 13 + 1
    lab.audit()


@pytest.mark.slow(ci=True)
@pytest.mark.processes
@pytest.mark.leaves_engines
def test_an_instance_that_runs_is_left_alone(lab: Lab) -> None:
    assert lab.crawl("--app", "shop.py").code == 0
    process = lab.programs.crawler("run", "--app", "shop.py", "--allow-private")
    process.wait_for("waits for work")
    ran = lab.run("rehandle")
    assert (ran.code, "stop all instances first" in ran.err, ran.err.count("\n")) == (4, True, 1), ran.err


@pytest.mark.slow
@pytest.mark.processes
def test_kill_9_at_any_step_and_the_same_command_again_gives_what_one_run_gives(lab: Lab) -> None:
    assert lab.crawl("--app", "shop.py").code == 0
    shutil.copytree(lab.home / "crawl-data", lab.home / "one")
    lab.write(FOLLOWS)
    assert lab.run("rehandle", "--dir", "one").code == 0
    wanted, kills, at = items_in(lab.home / "one"), 0, 1
    while True:
        ran = lab.run("rehandle", **{VARIABLE: f"rehandle.step#{at}=kill"})
        if ran.code != KILLED:
            break
        kills, at = kills + 1, at + 2
        lab.audit()
    assert ran.code == 0, ran.err
    assert kills >= 8
    assert lab.run("rehandle").code == 0
    assert lab.items == wanted
    lab.audit()
    assert lab.crawl().code == 0
    assert len(lab.items) == len(wanted) + 1
    lab.audit()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_five_thousand_pages_killed_five_times_have_the_items_of_a_fresh_crawl(
    programs: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"/p{n}" for n in range(5_000)]
    web = {(HOST, name): page(f"{name}/x") for name in names} | {(HOST, "/"): page(*names), (HOST, "/extra"): page()}
    quick = ("--depth", "1", "--concurrency-per-queue", "16")
    with serve_resources(web) as site:
        lab = Lab(programs, site, monkeypatch)
        lab.crawl_all(*quick)
        lab.write(FOLLOWS)
        for where in ("page#700", "page#4300", "begun#1", "line#2500", "counted#1"):
            name, _, number = where.partition("#")
            ran = lab.run("rehandle", **{VARIABLE: f"rehandle.step@{name}#{number}=kill"})
            assert ran.code == KILLED, (where, ran.err)
        assert lab.run("rehandle").code == 0
        assert lab.crawl().code == 0
        lab.crawl_all("--dir", "fresh", *quick)
    assert lab.items == items_in(lab.home / "fresh")
    assert len(lab.items) == 2 * 5_001 + 1
    lab.audit()

"""`--app` on the command line: apps that can't be used, and what a crawl with one says."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, QUICK, crawler, forget_apps, in_process, page, small
from tests.support.patience import wait_until
from tests.support.processes import Nursery, nursery
from tests.support.serving import serve_resources

pytestmark = pytest.mark.processes

APP = """
import sys
from crawler import Crawler

app = Crawler()

@app.page("*/p*")
async def product(page):
    yield {"url": page.url, "title": page.title}
    yield "no item"

@app.page("*/")
def home(page):
    page.log.warning("seen")
    return {"url": page.url}

@app.on_finish
def over(why):
    print("over:", why, file=sys.stderr)
"""


@pytest.fixture
def programs() -> "Nursery":
    with nursery({}) as programs:
        yield programs  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_apps(monkeypatch)


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("none.py", "crawler: --app none.py: file none.py does not exist"),
        ("broken.py", "broken.py:2: ZeroDivisionError: division by zero"),
        ("empty.py", "crawler: --app empty.py: it makes no Crawler"),
        ("idle.py", "crawler: --app idle.py: it has no handler"),
        ("shop.py:other", "crawler: --app shop.py:other: it has no other"),
        ("no_module:app", "crawler: --app no_module:app: module no_module does not exist"),
    ],
)
@pytest.mark.parametrize("command", [("crawl", "http://a.test/"), ("crawl", "http://a.test/", "-n", "2"), ("run",)])
def test_an_app_that_can_not_be_used_is_one_line_before_anything_is_made(
    programs: Nursery, tmp_path: Path, command: tuple[str, ...], app: str, said: str
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "broken.py").write_text("x = 1\n1 / 0\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "idle.py").write_text("from crawler import Crawler\napp = Crawler()\n")
    ran = in_process(programs, *command, "--app", app, cwd=tmp_path)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "crawl-data").exists()


def test_following_handlers_alone_needs_an_app(programs: Nursery, tmp_path: Path) -> None:
    ran = in_process(programs, "crawl", "http://a.test/", "--set", "scope.follow=handlers", cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "scope.follow = handlers needs handlers.app (--app)" in ran.err


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("instances", [(), ("-n", "2")])
def test_a_crawl_with_an_app_says_how_many_items_there_are_and_exports_them(
    programs: Nursery, tmp_path: Path, instances: tuple[str, ...]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with small() as site:
        ran = crawler(programs, "crawl", site.url(HOST), "--app", "shop:app", *QUICK, *instances, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "Items: 13\n" in ran.out
    assert "Cut: items_invalid 12 (http://127.0.0.1:" in ran.out
    assert "crawler export --items -o items.jsonl" in ran.out
    assert ran.err.count("over: finished") == max(1, len(instances))
    exported = in_process(programs, "export", "--items", cwd=tmp_path)
    items = [json.loads(line) for line in exported.out.splitlines()]
    assert len(items) == len({item["url"] for item in items}) == 13
    log = "".join(path.read_text() for path in (tmp_path / "crawl-data" / "log").glob("*.log"))
    invalid = [json.loads(line) for line in log.splitlines() if "item.invalid" in line]
    assert len(invalid) == 12
    assert invalid[0]["handler"] == "product"
    assert "got str" in invalid[0]["reason"]
    assert '"event": "seen"' in log
    assert re.search(r"items +13\n", in_process(programs, "stats", cwd=tmp_path).out)


@pytest.mark.slow(ci=True)
def test_a_crawl_says_how_many_items_were_dropped_and_rehandle_too(
    programs: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_apps(monkeypatch)
    drops = """
@app.item
def pages(item):
    return item if "title" in item else None
"""
    (tmp_path / "shop.py").write_text(APP.replace('    yield "no item"\n', "") + drops)
    with small() as site:
        ran = in_process(programs, "crawl", site.url(HOST), "--app", "shop:app", *QUICK, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "Items: 12\n" in ran.out
    assert re.search(r"Cut: items_dropped 1 \(http://127.0.0.1:\d+/\): items that your functions of @app.item", ran.out)
    losses = in_process(programs, "stats", "--losses", cwd=tmp_path).out
    assert re.search(r"(?m)^1 +cut +items_dropped ", losses)
    audited = in_process(programs, "audit", cwd=tmp_path)
    assert audited.code == 0, audited.out
    ran = in_process(programs, "rehandle", cwd=tmp_path)
    assert ran.out.splitlines()[1:] == ["1 item dropped by functions of @app.item."]
    assert "  items go through pages\n" in in_process(programs, "check", "shop.py", cwd=tmp_path).out


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        ("    1 / 0", 13, "Handler product: failed on 12 pages, all that it got: 12 times ZeroDivisionError"),
        (
            "    page.follow('/', label='none')",
            13,
            "12 times ValueError: no handler has the label 'none' (there are: none)",
        ),
        ("    1 / (page.url[-1] != '3')", 0, "Handler product: failed on 1 of 12 pages: ZeroDivisionError"),
    ],
)
def test_a_handler_that_failed_has_a_line_and_one_that_failed_on_each_page_a_code(
    programs: Nursery, tmp_path: Path, body: str, code: int, line: str
) -> None:
    (tmp_path / "shop.py").write_text(APP.replace('    yield "no item"\n', f"{body}\n"))
    with small() as site:
        ran = in_process(programs, "crawl", site.url(HOST), "--app", "shop:app", *QUICK, cwd=tmp_path)
    assert line in ran.out
    assert ran.code == code, ran.err
    assert ("handler product failed on each of its pages; mend it, then" in ran.err) is bool(code)


def test_a_crawl_whose_app_has_no_handler_for_its_pages_says_how_to_find_out(programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP.replace('"*/', '"elsewhere.test/'))
    with small() as site:
        ran = in_process(programs, "crawl", site.url(HOST), "--app", "shop:app", *QUICK, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "Items: 0 (which handler a URL goes to, if any: crawler check shop:app URL)" in ran.out


def test_an_audit_reads_the_items_that_commits_name(programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with small() as site:
        ran = in_process(programs, "crawl", site.url(HOST), "--app", "shop:app", *QUICK, "-q", cwd=tmp_path)
    assert ran.code == 0, ran.err
    sound = in_process(programs, "audit", cwd=tmp_path)
    assert (sound.code, "their items" in sound.out) == (0, False)
    (file,) = (tmp_path / "crawl-data" / "items").iterdir()
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)
    torn = in_process(programs, "audit", cwd=tmp_path)
    assert torn.code == 8
    assert "commits without their items" in torn.out
    assert "damaged at byte" in torn.out
    export = in_process(programs, "export", "--items", cwd=tmp_path)
    assert export.code == 5
    assert f"items/{file.name}: items not readable" in export.err
    assert 0 < len(export.out.splitlines()) < 13
    file.unlink()
    assert "is in no folder given" in in_process(programs, "audit", cwd=tmp_path).out


def test_a_dead_letter_shows_the_traceback(programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from crawler import Crawler\napp = Crawler()\n@app.page('*/bad')\ndef bad(page):\n    return page.none.such\n"
    )
    with serve_resources({(HOST, "/"): page("/bad"), (HOST, "/bad"): page("/")}) as site:
        again = ("--set", "retry.handler.backoff_s=0")
        ran = in_process(programs, "crawl", site.url(HOST), "--app", "shop.py", *QUICK, *again, cwd=tmp_path)
        assert f"Given up: handler 1 ({site.url(HOST, '/bad')}): your handler failed" in ran.out
        shown = in_process(programs, "dead", "show", site.url(HOST, "/bad"), cwd=tmp_path).out
        assert "reason     handler (AttributeError: 'Page' object has no attribute 'none' (shop.py:5 in bad))" in shown
        assert 'shop.py", line 5, in bad\n      return page.none.such' in shown
        assert len(in_process(programs, "dead", "list", "--reason", "handler", cwd=tmp_path).out.splitlines()) > 1


@pytest.mark.slow(ci=True)
def test_a_handler_that_hangs_in_its_thread_holds_up_no_end_of_the_process(programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import threading\nfrom crawler import Crawler\napp = Crawler()\n"
        "@app.page('*/p*', timeout_s=0.2)\ndef hangs(page):\n    threading.Event().wait()\n"
    )
    with small(4) as site:
        again = ("--set", "retry.handler.attempts=1")
        ran = crawler(programs, "crawl", site.url(HOST), "--app", "shop.py", *QUICK, *again, cwd=tmp_path)
    assert ran.code == 13, ran.err
    assert "Given up: handler 4 (http://127.0.0.1:" in ran.out


@pytest.mark.slow(ci=True)
def test_ctrl_c_lets_handlers_end_and_keeps_what_they_yielded(
    programs: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_apps(monkeypatch)
    (tmp_path / "shop.py").write_text(
        "import asyncio\nfrom crawler import Crawler\napp = Crawler()\n"
        "@app.page()\nasync def slow(page):\n    await asyncio.sleep(0.5)\n    yield {'url': page.url}\n"
    )
    with small(40, delay_s=0.05) as site:
        command = ("crawl", site.url(HOST), "--app", "shop.py", *QUICK, "--dir", str(tmp_path / "c"))
        running = programs.crawler(*command, cwd=tmp_path)
        wait_until(lambda: len(site.requests()) >= 6)
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 10, running.err
        assert in_process(programs, *command, cwd=tmp_path).code == 0
    exported = in_process(programs, "export", "--items", "--dir", str(tmp_path / "c"))
    urls = [json.loads(line)["url"] for line in exported.out.splitlines()]
    assert len(urls) == len(set(urls)) == 41

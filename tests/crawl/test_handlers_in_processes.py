"""Parts of a user's program outside of the pipeline: handlers in other processes, and hooks."""

from collections import Counter
from pathlib import Path

import pytest

from crawler.redaction import learn_login
from tests.crawl.handlers_lab import HOST, lab, page
from tests.support.serving import serve_resources
from tests.support.web import Resource


@pytest.mark.slow(ci=True)
async def test_handlers_in_processes_may_hang_and_die_and_the_crawl_goes_on(tmp_path: Path) -> None:
    names = ["/dies", "/hangs", "/raises", "/fine", "/list"]
    web = {(HOST, name): page(title=name) for name in names} | {(HOST, "/"): page(*names)}
    made = lab(
        tmp_path,
        """
        import os, time
        here = os.getpid()

        @app.page("*/dies", processes=True)
        def dies(page):
            os._exit(3)

        @app.page("*/hangs", processes=True, timeout_s=0.2)
        async def hangs(page):
            time.sleep(60)

        @app.page("*/raises", processes=True)
        async def raises(page):
            print("to nobody")
            yield {}
            raise ValueError(page.title)

        @app.page("*/list", processes=True, label="x")
        def follows(page):
            page.follow("/hidden", label="x", priority=2)
            yield 1

        @app.page("*/fine", "*/hidden", processes=True)
        async def fine(page):
            yield {"title": page.css_first("h1").text(), "pid": os.getpid(), "label": page.label, "depth": page.depth}
        """,
        handlers__processes=1,
        retry__handler__attempts=1,
    )
    web[HOST, "/hidden"] = page(title="hidden")
    with serve_resources(web) as site:
        await made.crawl(site.url(HOST))
        site_url = site.url(HOST, "")
    items = {item["title"]: item for item in made.items if item}
    assert items.keys() == {"/fine"}
    assert items["/fine"]["pid"] != made.told("here")
    assert (items["/fine"]["label"], items["/fine"]["depth"]) == ("", 1)
    details = {url.removeprefix(site_url): letter.detail for url, letter in (await made.letters()).items()}
    assert details.pop("/raises").startswith("ValueError: /raises (shop.py:")
    assert "process died" in details.pop("/dies")
    assert "process died" in details.pop("/hangs")
    assert details == {}
    assert (await made.totals()).items_invalid == 2


@pytest.mark.slow(ci=True)
async def test_an_expensive_page_is_handled_in_another_process(tmp_path: Path) -> None:
    app = """
        import os
        here, refused = os.getpid(), []

        @app.page()
        async def every(page):
            yield {"title": page.title, "elements": len(page.css("i")), "pid": os.getpid()}

        @app.on_fetch
        async def looks(page):
            for name in ("html", "text"):
                try:
                    getattr(page, name)
                except RuntimeError:
                    refused.append((page.title, name))
        """
    expensive = "<title>expensive</title>" + "<i></i>" * 700_000
    made = lab(tmp_path, app)
    with serve_resources({(HOST, "/"): page("/expensive"), (HOST, "/expensive"): Resource(body=expensive)}) as site:
        await made.crawl(site.url(HOST))
    found = {item["title"]: item for item in made.items}
    assert found["A page"]["pid"] == made.told("here")
    assert found["expensive"]["pid"] != made.told("here")
    assert found["expensive"]["elements"] == 700_000
    assert made.told("refused") == [("expensive", "html"), ("expensive", "text")]


async def test_hooks_hear_what_happens_and_their_failures_change_nothing(tmp_path: Path) -> None:
    web = {
        (HOST, "/"): page("/private/x", "/broken", "/gone", "/fails"),
        (HOST, "/broken"): Resource(fails=100),
        (HOST, "/gone"): Resource(status=404, body="gone"),
        (HOST, "/fails"): page(),
        (HOST, "/robots.txt"): Resource(content_type="text/plain", body="User-agent: *\nDisallow: /private/\n"),
    }
    made = lab(
        tmp_path,
        """
        heard = []

        @app.page("*/fails")
        def fails(page):
            raise ValueError("no")

        @app.on_fetch
        async def fetched(page):
            heard.append(("fetch", page.status, page.url.rpartition("/")[2]))
            raise ValueError("a hook may fail")

        @app.on_skip
        def skipped(url, reason):
            heard.append(("skip", reason, url.rpartition("/")[2]))

        @app.on_error
        def failed(url, failure):
            heard.append(("error", failure.kind.value, url.rpartition("/")[2]))

        @app.on_domain_done
        def done(domain):
            heard.append(("domain_done", domain))

        @app.on_finish
        def silent(why):
            raise SystemExit(3)

        @app.on_finish
        async def finished(why):
            heard.append(("finish", why))
        """,
    )
    with serve_resources(web) as site:
        await made.crawl(site.url(HOST))
    heard = made.told("heard")
    assert Counter(heard) == Counter(
        {("fetch", 200, ""): 1, ("fetch", 404, "gone"): 1, ("fetch", 200, "fails"): 2, ("skip", "robots", "x"): 1,
         ("error", "server_error", "broken"): 3, ("error", "handler", "fails"): 2,
         ("domain_done", HOST): heard.count(("domain_done", HOST)), ("finish", "finished"): 1}
    )  # fmt: skip
    assert ("domain_done", HOST) in heard
    assert heard[-1] == ("finish", "finished")


async def test_a_process_knows_the_secrets_of_its_instance_and_logs_without_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    learn_login("me", "hush/word-of-mine")
    made = lab(
        tmp_path,
        """
        @app.page(processes=True)
        async def every(page):
            page.log.warning("told hush/word-of-mine hush%2Fword-of-mine")
            yield {"title": page.title}
            page.follow("/x?p=hush%2Fword-of-mine")
        """,
        retry__handler__attempts=1,
    )
    with serve_resources({(HOST, "/"): page(title="a")}) as site:
        await made.crawl(site.url(HOST))
    (letter,) = (await made.letters()).values()
    assert letter.detail.startswith("ValueError: a URL with the password of a login is not followed")
    said = capfd.readouterr().err
    assert "warning told *** *** url=" in said
    assert "word-of-mine" not in said


async def test_an_app_that_configures_logging_keeps_that_in_its_process(tmp_path: Path) -> None:
    made = lab(
        tmp_path,
        """
        import logging
        logging.basicConfig(filename=FILE, format="%(message)s", level="INFO")

        @app.page(processes=True)
        async def every(page):
            page.log.info("told %s", page.title)
        """.replace("FILE", repr(str(tmp_path / "own.log"))),
    )
    with serve_resources({(HOST, "/"): page(title="a")}) as site:
        await made.crawl(site.url(HOST))
    assert "told a" in (tmp_path / "own.log").read_text()

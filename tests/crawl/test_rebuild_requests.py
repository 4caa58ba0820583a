"""A crawl with requests of all kinds whose engine lost everything: nothing is lost, and no order is sent twice."""

import contextlib
from collections import Counter
from pathlib import Path

import pytest

from crawler.testing import Answer, Asked, serve
from tests.crawl.harness import crawl, settings_of
from tests.crawl.rebuild_lab import audit, opened, rebuild
from tests.support.engine import Engine

HOST = "shop.test"
EACH = 8
APP = f"""
from crawler import Crawler

app = Crawler()

@app.page("*/")
async def front(page):
    for n in range({EACH}):
        page.follow("/order", form={{"n": n}}, label="done", meta={{"n": n}})
        page.follow("/find", form={{"n": n}}, label="done", meta={{"n": n}}, idempotent=True)
        page.follow("/list", key=str(n), label="done", meta={{"n": n}})
        page.follow("/hush", form={{"n": n}}, label="done", meta={{"n": n}}, secret=True, idempotent=True)

@app.page(label="done")
async def done(page):
    yield {{"path": page.url[-5:], "n": page.meta["n"]}}
"""


class Shop:
    hosts = (HOST,)

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, bytes]] = Counter()

    def answer(self, url: str) -> Answer | None:
        raise NotImplementedError

    def respond(self, asked: Asked) -> Answer | None:
        if asked.url.endswith("/robots.txt"):
            return None
        self.asked[asked.url, asked.body] += 1
        return Answer(headers=((b"Content-Type", b"text/html"),), body=b"<p>thanks")


@pytest.mark.slow(ci=True)
async def test_a_rebuild_restores_requests_and_repeats_no_order(tmp_path: Path, engine: Engine) -> None:
    (tmp_path / "shop.py").write_text(APP)
    shop = Shop()
    with serve(shop) as web:
        options = {key.replace(".", "__"): value for key, value in web.settings.items()}
        settings = settings_of(
            tmp_path / "c", handlers__app=str(tmp_path / "shop.py"), frontier__redis=engine.url, **options
        )
        limited = settings_of(
            tmp_path / "c", handlers__app=str(tmp_path / "shop.py"), frontier__redis=engine.url, crawl__pages_max=12,
            **options,
        )  # fmt: skip
        some = await crawl(limited, [f"http://{HOST}/"])
        assert not some.errors
        before = len(some.entries)
        assert 10 < before < 1 + 4 * EACH
        engine.flush()
        report = await rebuild(settings)
        assert (report.flaws, report.unplaced) == ([], 0)
        done = await crawl(settings, [])
        assert not done.errors
        assert len({entry.fingerprint for entry in done.entries}) == len(done.entries)
        letters = []
        async with opened(settings) as found, contextlib.aclosing(found.letters.read()) as read:
            async for batch in read:
                letters += [one.letter for one in batch]
    assert len(done.entries) + len(letters) == 1 + 4 * EACH
    assert {letter.reason for letter in letters} == {"outcome_unknown"}
    assert {letter.url.rpartition("/")[2] for letter in letters} == {"order", "hush"}
    assert {letter.detail for letter in letters if letter.url.endswith("hush")} == {"its body was not kept"}
    assert max(n for (url, _), n in shop.asked.items() if url.endswith("/order")) == 1
    for path in ("list", "find"):
        assert len([entry for entry in done.entries if entry.url.endswith(path)]) == EACH
    assert await audit(settings) == 0

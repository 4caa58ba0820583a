"""Item files that can't be written: nothing is acked without its items, and the crawl ends exact later."""

import errno
import json
from collections import Counter
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.items import ItemReader
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.faults.instance_lab import assert_exact, little_web
from tests.faults.torn_writes import crawl_until_it_fails, tear_write
from tests.support.engine import Engine

APP = """
from crawler import Crawler

app = Crawler()

@app.page()
async def every(page):
    yield {"url": page.url, "n": 0}
    yield {"url": page.url, "n": 1}
"""


def yielded(folder: Path) -> Counter[tuple[str, int]]:
    reader = ItemReader(open_existing(folder))
    found = Counter((item["url"], item["n"]) for item in (json.loads(text) for _, _, text in reader.items()))
    assert reader.missing == []
    return found


@pytest.mark.parametrize("warc", [True, False])
@pytest.mark.parametrize(("room", "code"), [(10, errno.EIO), (400, errno.EIO)])
async def test_a_failed_item_write_prevents_the_ack_and_each_item_appears_once(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, room: int, code: int, warc: bool
) -> None:
    """A write reaches the disk in part and then fails."""
    came = tear_write(monkeypatch, ".items.gz", room, code)
    folder, app = tmp_path / "c", tmp_path / "shop.py"
    app.write_text(APP)
    with little_web(domains=4, pages=4) as web:
        async with lab_names() as dns:
            settings = settings_of(
                folder, dns__nameservers=[dns], scope__mode="any", politeness__delay_s=0.02, archive__sync_s=0.05,
                crawl__partitions=16, frontier__redis=engine.url, handlers__app=str(app), archive__warc=warc,
            )  # fmt: skip
            await crawl_until_it_fails(settings, [web.seed], code, came)
            before = yielded(folder)
            done = await crawl(settings, [web.seed])
    assert done.errors == []
    assert_exact(web, done.entries)
    fine = [url for url, status in web.expected().items() if status == 200]
    assert yielded(folder) == Counter({(url, n): 1 for url in fine for n in (0, 1)})
    assert not before - yielded(folder)

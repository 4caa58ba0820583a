"""A process dies when the children of a page are in the frontier and the page is not acked."""

from pathlib import Path

import pytest

from crawler.rules.places import partition_of
from crawler.runtime.crash_points import VARIABLE
from tests.crawl.lab import name_server
from tests.faults.instance_lab import (
    PARTITIONS,
    SETTINGS,
    EngineView,
    assert_exported_once,
    assert_polite,
    fetched,
    little_web,
)
from tests.support.engine import Engine
from tests.support.processes import nursery

pytestmark = pytest.mark.processes

DELAY_S = 0.05
KILLED = -9


@pytest.mark.slow(ci=True)
def test_links_added_before_a_crash_come_once_and_their_page_again(tmp_path: Path, engine: Engine) -> None:
    home = tmp_path / "c"
    with name_server() as dns, little_web(domains=4) as web, engine.client() as client:
        view = EngineView(client)
        assert partition_of("d0.test", PARTITIONS) != partition_of("d1.test", PARTITIONS)
        with nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            place = ("--redis", engine.url, "--dir", str(home), "--delay", str(DELAY_S), "--quiet")
            dying = programs.crawler("crawl", web.seed, *place, **{VARIABLE: "route.added=kill"})
            assert dying.wait() == KILLED
            parent, child = "http://d0.test/", "http://d1.test/"
            assert fetched(web.requests()) == {parent: 1}
            assert view.added_of(partition_of("d1.test", PARTITIONS)) == 1, "the child had not been added"
            assert view.totals("done") == [0], "the parent was acked"
            again = programs.crawler("crawl", web.seed, *place)
            assert again.wait(60) == 0, again.err
        requests = web.requests()
    times = fetched(requests)
    assert (times.pop(parent), times[child]) == (2, 1)
    assert set(times.values()) == {1}
    assert_exported_once(web, home)
    assert_polite(requests, DELAY_S)

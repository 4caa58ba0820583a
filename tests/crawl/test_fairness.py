"""With more due queues than slots, each is served in its turn: the huge site gets no more than the small ones."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.crawl.harness import crawl, settings_of
from tests.crawl.lab import name_server
from tests.support.pace import turns_of
from tests.support.serving import serve_resources
from tests.support.web import Resource

HUGE = 600
DELAY_S = 0.1


def site(host: str, pages: int, fetch_s: float) -> dict[tuple[str, str], Resource]:
    """A home page that leads to all others."""
    links = "".join(f"<a href='/{n}'>{n}</a>" for n in range(1, pages))
    found = {(host, f"/{n}"): Resource(body=f"<p>{host} {n}</p>", delay_s=fetch_s) for n in range(1, pages)}
    found[host, "/"] = Resource(body=links, delay_s=fetch_s)
    found[host, "/robots.txt"] = Resource(body="", content_type="text/plain", delay_s=fetch_s)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("sites", "pages", "fetch_s", "turned_max_s"), [(60, 6, 0.05, 0.3), (400, 3, 0.02, 3.0)])
async def test_queues_are_served_in_due_order_and_no_site_starves_others(
    tmp_path: Path, sites: int, pages: int, fetch_s: float, turned_max_s: float
) -> None:
    """Small sites and a huge one on 6 slots, a fraction of what the delays would allow.

    Claims of 60 sites fit in memory: the instance decides which is next. Those of 400 do not: the engine decides.
    `turned_max_s`: how far groups of commits and rounds of claims may change the order; of 400, claimed ones go first.
    """
    small = [f"s{n}.test" for n in range(sites)]
    found = site("huge.test", HUGE, fetch_s)
    for host in small:
        found |= site(host, pages, fetch_s)
    with serve_resources(found) as web, name_server() as dns:
        settings = settings_of(
            tmp_path / "c", dns__nameservers=[dns], politeness__delay_s=DELAY_S, fetch__concurrency=6,
            crawl__pages_max=sites * pages + 100, crawl__partitions=1,
        )  # fmt: skip
        await crawl(settings, [web.url("huge.test"), *map(web.url, small)])
        turns = turns_of(web.requests(), delay_s=DELAY_S)
    done_at = max(turns[host][-1].start for host in small)
    of_huge = sum(turn.start <= done_at for turn in turns["huge.test"])
    assert all(len(turns[host]) == pages + 1 for host in small)
    assert of_huge <= 2 * (pages + 1), "as often as the others, while they have pages left"
    first, last = ([turns[host][n].start for host in small] for n in (0, -1))
    assert max(first) < min(last), "no site has its last turn before all have had their first"
    served = sorted((turn for host in small for turn in turns[host][1:]), key=lambda turn: turn.start)
    odd = len(served) // 50  # turns that a busy machine may delay
    turned = [b for a, b in pairwise(served) if b.due < a.due - turned_max_s]
    assert len(turned) <= odd, f"in the order of their due times: {turned}"
    late = sorted(turn.late for turn in served)
    assert late[-1 - odd] < 3 * late[len(late) // 2], "all about equally late"

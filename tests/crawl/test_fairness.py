"""With more due queues than slots, each is served in its turn: the huge site gets no more than the small ones."""

from itertools import pairwise
from pathlib import Path

from tests.crawl.harness import crawl, settings_of
from tests.crawl.lab import name_server
from tests.support.pace import turns_of
from tests.support.serving import serve_resources
from tests.support.web import Resource

SMALL, PAGES, HUGE = 60, 6, 600
FETCH_S = 0.05
DELAY_S = 0.1
LATE_MAX_S = 0.3  # what groups of commits and rounds of claims may turn round


def site(host: str, pages: int) -> dict[tuple[str, str], Resource]:
    """A home page that leads to all others."""
    links = "".join(f"<a href='/{n}'>{n}</a>" for n in range(1, pages))
    found = {(host, f"/{n}"): Resource(body=f"<p>{host} {n}</p>", delay_s=FETCH_S) for n in range(1, pages)}
    found[host, "/"] = Resource(body=links, delay_s=FETCH_S)
    found[host, "/robots.txt"] = Resource(body="", content_type="text/plain", delay_s=FETCH_S)
    return found


async def test_queues_are_served_in_the_order_in_which_they_became_due_and_a_huge_site_starves_nobody(
    tmp_path: Path,
) -> None:
    """60 sites of 6 pages and one of 600 on 6 slots: a sixth of what the delays would allow."""
    small = [f"s{n}.test" for n in range(SMALL)]
    pages = site("huge.test", HUGE)
    for host in small:
        pages |= site(host, PAGES)
    with serve_resources(pages) as web, name_server() as dns:
        settings = settings_of(
            tmp_path / "c", dns__nameservers=[dns], politeness__delay_s=DELAY_S, fetch__concurrency=6,
            crawl__pages_max=SMALL * PAGES + 100,
        )  # fmt: skip
        await crawl(settings, [web.url("huge.test"), *map(web.url, small)])
        turns = turns_of(web.requests(), delay_s=DELAY_S)
    done_at = max(turns[host][-1].start for host in small)
    of_huge = sum(turn.start <= done_at for turn in turns["huge.test"])
    assert all(len(turns[host]) == PAGES + 1 for host in small)
    assert of_huge <= 2 * (PAGES + 1), "as often as the others, while they have pages left"
    served = sorted((turn for host in small for turn in turns[host][1:]), key=lambda turn: turn.start)
    assert [b for a, b in pairwise(served) if b.due < a.due - LATE_MAX_S] == [], "in the order of their due times"
    late = sorted(turn.late for turn in served)
    assert late[-1] < 3 * late[len(late) // 2], "all about equally late"

"""The generated web of many_sites.py, of any size: site sizes follow a power law, pages are generated on request.

The site dN-CAP-ALPHA.test has size_of(N, cap=CAP, alpha=ALPHA / 100) pages. Page k links to the next FAN pages after
FAN * k, so a site with pages left always has a known one; and to the home pages of two sites with smaller numbers.
Every response takes LATENCY_S. The web server (tests/support/web_server.py) loads this file.
"""

import random
import re
from functools import cache

from tests.support.web import Resource

FAN = 8
LATENCY_S = 0.1
ROBOTS = Resource(body="User-agent: *\nDisallow: /private/\n", content_type="text/plain", delay_s=LATENCY_S)
MISSING = Resource(status=404, body="<p>no such page</p>")
FILLER = "<p>" + "Words that stand for the text of a page and lead nowhere. " * 60 + "</p>"
_NAME = re.compile(r"d(\d+)-(\d+)-(\d+)\.test")


@cache
def size_of(number: int, *, cap: int, alpha: float) -> int:
    """Pages of a site: at least k of them with probability k ** -alpha, never more than `cap`."""
    chance = random.Random(f"site {number}").random()
    return min(cap, int((1 - chance) ** (-1 / alpha)))


def host_of(number: int, *, cap: int, alpha: float) -> str:
    return f"d{number}-{cap}-{round(100 * alpha)}.test"


def answer_anywhere(host: str, target: str, port: int) -> Resource:
    """What the server answers."""
    name = _NAME.fullmatch(host)
    if name is None:
        return MISSING
    number, cap, alpha = int(name[1]), int(name[2]), int(name[3]) / 100
    if target == "/robots.txt":
        return ROBOTS
    page = 0 if target == "/" else int(target.removeprefix("/p/")) if target.startswith("/p/") else -1
    size = size_of(number, cap=cap, alpha=alpha)
    if not 0 <= page < size:
        return MISSING
    links = [f"/p/{k}" for k in range(FAN * page + 1, min(size, FAN * page + FAN + 1))]
    rng = random.Random(f"page {number} {page}")
    others = [rng.randrange(number + 1) for _ in range(2)]
    links += [f"http://{host_of(other, cap=cap, alpha=alpha)}:{port}/" for other in others]
    anchors = "".join(f"<a href='{link}'>{link}</a>\n" for link in ["/", *links])
    title = f"<!doctype html><title>{host} {page}</title>"
    return Resource(body=f"{title}<h1>{page} of {size}</h1>{anchors}{FILLER}", delay_s=LATENCY_S)

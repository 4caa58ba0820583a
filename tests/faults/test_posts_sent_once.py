"""Orders sent by POST while processes are killed: none reaches its shop twice, and none is lost in silence."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.runtime.crash_points import POINTS, VARIABLE
from crawler.testing import Answer, Asked, serve
from crawler.testing.web_server import ServedWeb
from tests.support.processes import Nursery, nursery

pytestmark = pytest.mark.processes

HOSTS = ["shop.test", "stall.test"]
EACH = 6
ORDERS = {f"{host} {n}" for host in HOSTS for n in range(EACH)}
KILLED = -9
APP = f"""
from crawler import Crawler

app = Crawler()


@app.start
def start():
    for host in {HOSTS}:
        yield f"http://{{host}}/"


@app.page("*.test/")
def front(page):
    for n in range({EACH}):
        order = {{"order": f"{{page.domain}} {{n}}"}}
        page.follow("/order", form=order, meta=order, label="order")


@app.page(label="order")
async def ordered(page):
    yield {{"order": page.meta["order"], "said": page.body.decode()}}
"""
# Where a kill finds an order on its way, and how often the point is passed before.
DEEP = {
    "request.noted": 3, "fetch.checked": 6, "fetch.answered": 6, "page.parsed": 5, "page.handled": 5,
    "archive.written": 2, "archive.synced": 2, "route.added": 2, "ack.answered": 2, "index.synced": 1,
    "drain.answered": 1, "claim.taken": 2,
}  # fmt: skip


class Shop:
    """Notes each order that arrives."""

    hosts = HOSTS

    def __init__(self) -> None:
        self.orders: Counter[str] = Counter()

    def answer(self, url: str) -> Answer | None:
        raise NotImplementedError

    def respond(self, asked: Asked) -> Answer | None:
        if asked.method == "POST":
            order = asked.body.decode().removeprefix("order=").replace("+", " ")
            self.orders[order] += 1
            return Answer(headers=((b"Content-Type", b"text/plain"),), body=f"thanks for {order}".encode())
        if asked.url.endswith("/robots.txt"):
            return None
        return Answer(headers=((b"Content-Type", b"text/html"),), body=b"<a href=/other>other</a>")


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def web(shop: Shop) -> Iterator[ServedWeb]:
    with serve(shop) as web:
        yield web


@pytest.fixture
def programs(web: ServedWeb) -> Iterator[Nursery]:
    with nursery(web.environment | {"CRAWLER_RETRY_BACKOFF_S": "0.05"}) as programs:
        yield programs


def test_the_points_are_those_of_a_crawl() -> None:
    assert DEEP.keys() <= set(POINTS)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "point", [p if p == "fetch.checked" else pytest.param(p, marks=pytest.mark.slow) for p in DEEP]
)
def test_orders_are_sent_once_whatever_is_killed(point: str, shop: Shop, programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    options = ["--app", str(tmp_path / "app.py"), "--dir", str(tmp_path / "c"), "--delay", "0.02", "--quiet"]

    def crawl(killed_at: int = 0) -> int:
        environment = {VARIABLE: f"{point}#{killed_at}=kill"} if killed_at else {}
        program = programs.crawler("crawl", *options, "-o", str(tmp_path / "orders.jsonl"), **environment)
        code = program.wait()
        assert code in (KILLED, 0), program.err
        return code

    assert crawl(DEEP[point]) == KILLED
    assert crawl(1) in (KILLED, 0)
    assert crawl() == 0
    items = [json.loads(line) for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    committed = Counter(item["order"] for item in items)
    listed = programs.crawler("dead", "list", "--dir", str(tmp_path / "c"), "--json")
    assert listed.wait() == 0, listed.err
    letters = [json.loads(line) for line in listed.out.splitlines()]
    assert {letter["reason"] for letter in letters} <= {"outcome_unknown"}
    unknown = {letter["request"]["meta"]["order"] for letter in letters}
    assert set(committed.values()) == {1}
    assert committed.keys() | unknown == ORDERS
    assert not committed.keys() & unknown
    assert max(shop.orders.values()) == 1
    assert shop.orders.keys() >= committed.keys()
    audit = programs.crawler("audit", "--dir", str(tmp_path / "c"))
    assert audit.wait() == 0, audit.out

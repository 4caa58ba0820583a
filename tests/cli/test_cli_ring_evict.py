"""`crawler ring evict`: a healthy instance lets go at once, one that hangs is taken over, and both end with 10."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crawl.lab import QUICK
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.support.processes import Nursery, nursery

pytestmark = pytest.mark.processes

INTERRUPTED = 10
PARTITIONS = int(QUICK["CRAWLER_CRAWL_PARTITIONS"])
SHORT = {"FRONTIER_CALL_TIMEOUT_S": "1", "MEMBERSHIP_DEAD_S": "4"}


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with nursery(QUICK) as programs:
        yield programs


class Crawl:
    """Instances on one engine, each with a folder of its own, as on as many machines."""

    def __init__(self, programs: Nursery, engine: Engine, folder: Path) -> None:
        self.programs, self.engine, self.folder = programs, engine, folder

    def start(self, *nodes: str):
        running = [self.programs.crawler("run", *self.place(node), "--node", node) for node in nodes]
        for program in running:
            program.wait_for("waits for work")
        self.wait_for_owners(*nodes)
        return running

    def place(self, folder: str) -> list[str]:
        return ["--redis", self.engine.url, "--dir", str(self.folder / folder)]

    def ring(self, *words: str, **settings: str) -> tuple[int, str, str]:
        environment = {f"CRAWLER_{name}": value for name, value in settings.items()}
        asked = self.programs.crawler("ring", *words, *self.place("asks"), **environment)
        return asked.wait(), asked.out, asked.err

    def owners(self) -> Counter[str]:
        """Partitions by node, as the leases have them."""
        client = self.engine.client()
        found = Counter[str]()
        for partition in range(PARTITIONS):
            session, node = client.hmget(f"{{main:{partition}}}:m", "session", "node")
            found[(node or b"").decode() if session else ""] += 1
        client.close()
        return found

    def wait_for_owners(self, *nodes: str) -> None:
        """Until the nodes own everything between them."""
        deadline = time.monotonic() + PATIENCE_S
        while set(self.owners()) != set(nodes):
            assert time.monotonic() < deadline, self.owners()
            time.sleep(0.1)


@pytest.mark.slow
def test_an_evicted_instance_lets_go_at_once_and_a_hung_one_is_taken_over(
    programs: Nursery, engine: Engine, tmp_path: Path
) -> None:
    crawl = Crawl(programs, engine, tmp_path)
    first, second, third = crawl.start("web-0", "web-1", "web-2")
    had = crawl.owners()["web-1"]

    code, out, err = crawl.ring("evict", "web-1", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["by_itself"]
    assert found["partitions"] == had
    assert found["others"] == ["web-0", "web-2"]
    assert second.wait() == INTERRUPTED
    crawl.wait_for_owners("web-0", "web-2")

    third.pause()
    code, out, err = crawl.ring("evict", "web-2")
    assert (code, err) == (0, "")
    assert "is evicted: it did not answer; others took over its" in out
    assert set(crawl.owners()) == {"web-0"}
    third.resume()
    assert third.wait() == INTERRUPTED
    assert set(crawl.owners()) == {"web-0"}, "what woke up took nothing back"

    code, out, err = crawl.ring("evict", "web-0")
    assert (code, err) == (0, "")
    assert "Nobody else takes part; its partitions wait." in out
    assert first.wait() == INTERRUPTED
    assert crawl.owners() == {"": PARTITIONS}


@pytest.mark.slow
def test_a_hung_instance_with_nobody_to_take_over_is_said_to_keep_its_partitions(
    programs: Nursery, engine: Engine, tmp_path: Path
) -> None:
    crawl = Crawl(programs, engine, tmp_path)
    (only,) = crawl.start("web-0")
    only.pause()
    code, _, err = crawl.ring("evict", "web-0", **SHORT)  # it waits for less
    assert code == 4
    assert f"web-0 is evicted, but it still holds {PARTITIONS} partitions" in err
    assert "nobody else takes part who could take them over" in err
    only.resume()
    assert only.wait() == INTERRUPTED
    assert set(crawl.owners()) == {""}, "awake again it let go"

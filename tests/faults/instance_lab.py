"""What the tests of faults of instances, disks, names and web servers share: a little web, instances, and judges.

The judges trust what the crawler did not write itself (the web server's log, the engine's leases, the records in the
archive) more than its own reports.
"""

import contextlib
import gzip
import json
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import redis
from warcio.archiveiterator import ArchiveIterator

from crawler.archive.folder import open_existing
from crawler.archive.warc_reader import read_record
from crawler.errors import EngineDown
from crawler.model import CommitEntry
from crawler.version import program_version
from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, closest_pairs
from tests.support.processes import Nursery, Program
from tests.support.serving import Request, Site, _listening, _serving
from tests.support.web import ATTEMPTS, Resource

TAKEOVER_S = 10.0  # I8
PARTITIONS = 16
SETTINGS = QUICK | {"CRAWLER_CRAWL_PARTITIONS": str(PARTITIONS), "CRAWLER_SCOPE_MODE": "any"}
# A program started with this has another host name, so its lock file proves nothing to others.
ELSEWHERE = ("unshare", "--uts", "sh", "-c", 'hostname elsewhere; exec "$@"', "-")


def may_be_elsewhere() -> bool:
    return subprocess.run([*ELSEWHERE, "true"], capture_output=True, check=False).returncode == 0


class LittleWeb(Site):
    """dN.test, each with a home page, `pages` others, a redirect, a page that always fails and a forbidden one.

    Every home leads to the home of the next domain, every page to a page of another one: whatever is lost shows.
    Nothing links to /late, which is for tests that add work at the end.
    """

    def __init__(self, site: Site, domains: int, pages: int) -> None:
        super().__init__(site.port, site._log, site.process)
        self.domains, self.pages = domains, pages

    @property
    def seed(self) -> str:
        return self.url("d0.test")

    @property
    def homes(self) -> list[str]:
        return [self.url(f"d{n}.test") for n in range(self.domains)]

    @property
    def late(self) -> list[str]:
        return [self.url(f"d{n}.test", "/late") for n in range(self.domains)]

    def expected(self) -> dict[str, int]:
        """What a correct crawl commits: URL -> status."""
        found = {}
        for n in range(self.domains):
            host = f"d{n}.test"
            found |= {self.url(host, f"/p{k}"): 200 for k in range(self.pages)}
            found |= {self.url(host): 200, self.url(host, "/moved"): 301}
        return found

    def requests_of(self, agent: str) -> list[Request]:
        """Those whose User-Agent is this one's, by start time."""
        return [request for request in self.requests() if request.agent == agent]


@contextlib.contextmanager
def little_web(domains: int = 5, pages: int = 4, *, delay_s: float = 0.0) -> Iterator[LittleWeb]:
    """`delay_s` is how long each page takes."""
    with _listening() as listener:
        port = listener.getsockname()[1]
        with _serving(listener, resources=_resources(port, domains, pages, delay_s)) as (log, process):
            yield LittleWeb(Site(port, log, process), domains, pages)


def _resources(port: int, domains: int, pages: int, delay_s: float) -> dict[tuple[str, str], Resource]:
    web: dict[tuple[str, str], Resource] = {}
    for n in range(domains):
        host, other = f"d{n}.test", f"http://d{(n + 1) % domains}.test:{port}"
        links = ["/private/x", "/broken", "/moved", f"{other}/", *(f"/p{k}" for k in range(pages))]
        web[host, "/"] = _page(links, delay_s)
        for k in range(pages):
            web[host, f"/p{k}"] = _page(["/", f"{other}/p{(k + 1) % pages}"], delay_s)
        web[host, "/moved"] = Resource(status=301, headers={"Location": f"{other}/p0"})
        web[host, "/broken"] = Resource(fails=1_000_000)
        web[host, "/late"] = _page([], delay_s)
        web[host, "/robots.txt"] = Resource(content_type="text/plain", body="User-agent: *\nDisallow: /private/\n")
    return web


def _page(links: Iterable[str], delay_s: float) -> Resource:
    body = "<title>A page</title>" + "".join(f'<a href="{link}">x</a>' for link in links)
    return Resource(body=body, delay_s=delay_s)


# -- instances ----------------------------------------------------------------------------------------------------


def speaking_as(name: str) -> tuple[str, str]:
    """Options that tell an instance from others in the log of the web server: the user agent is the whole crawl's, the
    contact in it is not.
    """
    return "--contact", f"http://{name}/"


def agent_of(name: str) -> str:
    """The User-Agent of an instance with these options."""
    return f"shardcrawl/{program_version()} (+http://{name}/)"


def run_instance(programs: Nursery, folder: Path, n: int, *options: str, **environment: str) -> Program:
    """`crawler run` as node-N with a crawl folder of its own, speaking as node-N if no option names another one."""
    place = ["--dir", str(folder / f"c{n}"), "--node", f"node-{n}", *speaking_as(f"node-{n}")]
    return programs.crawler("run", *place, *options, **environment)


def seed(programs: Nursery, folder: Path, urls: Iterable[str], *options: str) -> None:
    """Give running instances work. Seeds may be given again: a machine too busy to answer in time gets a second try."""
    for _ in range(3):
        program = programs.crawler("seed", *urls, "--dir", str(folder / "seeder"), *options)
        if program.wait() != EngineDown.exit_code:
            break
    assert program.process.returncode == 0, program.err


def wait_until(condition: Callable[[], object], what: str, *, timeout_s: float = 60.0, every_s: float = 0.05) -> float:
    """Seconds until the condition held."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        time.sleep(every_s)
    return time.monotonic() - began


def events(folder: Path, n: int) -> list[dict[str, Any]]:
    """What node-N logged into its crawl folder."""
    log = folder / f"c{n}" / "log" / f"node-{n}.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def is_stopped(program: Program) -> bool:
    """Has it got a SIGSTOP?"""
    return Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class EngineView:
    """Leases and counters in the engine: plain reads, without code of the crawler."""

    def __init__(self, client: "redis.Redis[bytes]", crawl: str = "main", partitions: int = PARTITIONS) -> None:
        self._client, self._crawl, self.partitions = client, crawl, partitions

    def _key(self, partition: int, name: str) -> str:
        return f"{{{self._crawl}:{partition}}}:{name}"

    def _meta(self, *fields: str) -> list[list[bytes]]:
        with self._client.pipeline(transaction=False) as pipe:
            for partition in range(self.partitions):
                pipe.hmget(self._key(partition, "m"), list(fields))
            return pipe.execute()

    def leases(self) -> dict[int, tuple[str, int]]:
        """Partition -> (node, epoch); the node is empty where there is no owner."""
        rows = self._meta("session", "node", "epoch")
        return {p: ((node or b"").decode() * bool(s), int(epoch or 0)) for p, (s, node, epoch) in enumerate(rows)}

    def held_by(self, node: str) -> set[int]:
        return {partition for partition, (holder, _) in self.leases().items() if holder == node}

    def members(self) -> dict[str, dict[str, Any]]:
        """What the sessions on the member list say of themselves, by node."""
        said = map(json.loads, self._client.hvals(f"{{{self._crawl}}}:members"))
        return {member["node"]: member for member in said}

    def state_of(self, node: str) -> str:
        """The declared state of a node's session; '' when it is not on the list."""
        said: str = self.members().get(node, {}).get("state", "")
        return said

    def added_of(self, partition: int) -> int:
        """How many URLs ever became pending in a partition."""
        return int(self._client.hget(self._key(partition, "m"), "added") or 0)

    def totals(self, *fields: str) -> list[int]:
        """Sums over all partitions."""
        return [sum(int(value or 0) for value in column) for column in zip(*self._meta(*fields), strict=True)]

    def is_done(self) -> bool:
        added, done = self.totals("added", "done")
        return added > 0 and added == done

    def claims_out(self) -> int:
        return sum(self._client.zcard(self._key(partition, "x")) for partition in range(self.partitions))

    def dead(self) -> dict[str, str]:
        """Dead letters: URL -> reason."""
        stored = [v for p in range(self.partitions) for v in self._client.hvals(self._key(p, "dead"))]
        letters = [json.loads(v.splitlines()[0]) for v in stored]  # their attempts are in a second line
        return {letter[0]: letter[4] for letter in letters}

    def log(self) -> dict[str, CommitEntry]:
        """Commits in the engine's log, by URL."""
        found = {}
        for partition in range(self.partitions):
            for value in self._client.hvals(self._key(partition, "l")):
                entry = msgspec.json.decode(value.split(b" ", 2)[2], type=CommitEntry)
                found[entry.url] = entry
        return found


# -- judges -------------------------------------------------------------------------------------------------------


def fetched(requests: Iterable[Request]) -> Counter[str]:
    """How often each page was asked for, by URL without the port; robots.txt and pages that fail on purpose apart."""
    return Counter(f"http://{r.host}{r.target}" for r in requests if not r.is_robots and r.status < 500)


def asked_twice(requests: Iterable[Request]) -> set[str]:
    return {url for url, n in fetched(requests).items() if n > 1}


def assert_exact(web: LittleWeb, entries: Iterable[CommitEntry], *, without: Collection[str] = ()) -> None:
    """Every page that must be there, with its status, committed once; one commit may stand on two lines."""
    commits: defaultdict[str, set[tuple[object, ...]]] = defaultdict(set)
    statuses = {}
    for e in entries:
        commits[e.url].add((e.session, e.epoch, e.fetched_at, e.digest, e.warc))
        statuses[e.url] = e.status
    assert statuses == {url: status for url, status in web.expected().items() if url not in without}
    assert {url: lines for url, lines in commits.items() if len(lines) > 1} == {}


def assert_exported_once(web: LittleWeb, folder: Path, *, without: Collection[str] = ()) -> None:
    """Of one crawl folder alone."""
    entries = entries_of(folder)
    assert_exact(web, entries, without=without)
    assert [url for url, n in Counter(e.url for e in entries).items() if n > 1] == []


def assert_polite(requests: Iterable[Request], delay_s: float) -> None:
    """The delay held between any two requests of a domain, the pages that fail and robots.txt included."""
    closest = closest_pairs(requests)
    assert min(closest.values()) >= delay_s, closest


def assert_attempts_bounded(requests: Iterable[Request], deaths: int) -> None:
    """The page that always fails was given up after its attempts; each death may have cost one more."""
    asked = Counter(r.host for r in requests if r.target == "/broken")
    assert max(asked.values()) <= ATTEMPTS + deaths, asked


def records_in(path: Path) -> int:
    """Response records of one WARC file, each with its digests checked; raises when its end is torn."""
    with gzip.open(path) as whole:
        while whole.read(1 << 20):
            pass
    with path.open("rb") as file:
        return sum(1 for record in ArchiveIterator(file, check_digests="raise") if record.rec_type == "response")


def assert_archive_whole(folder: Path) -> None:
    """All WARC files read whole, none is left open, and each index line leads to the record it names."""
    opened = open_existing(folder)
    assert list(opened.warc.glob("*.open")) == []
    entries = entries_of(folder)
    assert sum(map(records_in, opened.warc.iterdir())) >= len(entries)
    for entry in entries:
        assert entry.warc is not None
        assert read_record(opened, entry.warc).uri == entry.url


def without_port(urls: Iterable[str], web: Site) -> set[str]:
    return {url.replace(f":{web.port}", "") for url in urls}


def by_agent(requests: Iterable[Request]) -> Mapping[str, list[Request]]:
    found: defaultdict[str, list[Request]] = defaultdict(list)
    for request in requests:
        found[request.agent].append(request)
    return found

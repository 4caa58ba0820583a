"""What a crawl of a given size needs: instances, engine, memory, disk, bandwidth, time and money.

Calculated from constants that a benchmark has measured (plan.json, `scripts/bench constants`), by the formulas that
docs/operate/planning.md states. Nothing here is a promise: other pages and other machines cost otherwise.
"""

import math
from importlib.resources import files

import msgspec

from crawler.terminal.tables import table
from crawler.terminal.words import counted, duration, number, rate, size

BUSY = 0.7  # of a core that an instance may use: what comes unevenly needs room
ENGINE_BUSY = 0.5  # of an engine's core: it answers quickly, and rewrites its file
CLUSTER = 1.4  # CPU of an engine that is a cluster, to that of one server
REPLICA = 0.22  # CPU of a replica, to that of its primary
IDLE_BYTES = 10 << 20  # of an engine's process without a crawl
MEMORY_ROOM = 1.5  # for a fork, fragments, and buffers
IN_MEMORY = 256  # URLs of a queue that stay in memory
SHORT = 3  # URLs of a domain, with which a domain that has some was measured
SHARD_BYTES_MAX = 24 << 30  # of used memory on one primary
HEADERS_BYTES = 900  # of a request and its answer, with what TCP and TLS add
ROBOTS_SHARE = 1.2  # requests for a page: robots.txt, redirects, what fails
SPILL_BYTES = 20  # of a URL on disk, beside its path
SECONDS_A_MONTH = 30 * 86_400


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A part for each page, and one for each KB of its HTML."""

    page: float
    kb: float

    def of(self, page_kb: float) -> float:
        return self.page + self.kb * page_kb


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """As measured: CPU seconds and bytes for a page, bytes of the engine's memory for URLs and domains."""

    date: str
    commit: str
    cpu: str
    crawler_cpu_s: Line
    engine_cpu_s: float
    wire_bytes: Line
    archive_bytes: Line
    index_bytes: float
    instance_mib: float
    seen_bytes: float
    path_bytes: float
    pending_bytes: float
    spilled_bytes: float
    domain_bytes: float
    short_pending_bytes: float


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The crawl. `urls` that become known, of which `pages` are fetched, on `domains`; `rate`: pages a second."""

    urls: float
    pages: float
    domains: float
    rate: float
    page_kb: float
    delay_s: float
    replicas: int
    vcpu_price: float  # dollars an hour


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What it needs. Bytes, seconds, dollars. `rate`: pages a second that it reaches; `rate_max`: what the delay allows
    on so many domains.
    """

    days: float
    rate: float
    rate_max: float
    instances: int
    instance_bytes: float
    crawler_cores: float
    shards: int
    engine_cores: float  # of all primaries and replicas
    seen_bytes: float
    domains_bytes: float
    pending_bytes: float
    memory_bytes: float  # of all primaries and replicas, with room
    archive_bytes: float
    index_bytes: float
    spill_bytes: float
    bits_per_s: float
    dollars_per_million: float


def constants() -> Constants:
    """Those of this release."""
    return msgspec.json.decode((files("crawler.views") / "plan.json").read_bytes(), type=Constants)


def plan_of(w: Wanted, c: Constants) -> Plan:
    """Calculate."""
    cpu_s, engine_s = c.crawler_cpu_s.of(w.page_kb), c.engine_cpu_s
    waiting = max(w.urls - w.pages, w.urls / 2)  # at worst
    in_memory = min(waiting, IN_MEMORY * w.domains)
    domain_bytes = max(c.domain_bytes, SHORT * (c.short_pending_bytes - c.pending_bytes))
    seen, domains = w.urls * c.seen_bytes, w.domains * domain_bytes
    pending = in_memory * (c.path_bytes + c.pending_bytes) + (waiting - in_memory) * c.spilled_bytes
    used = seen + domains + pending
    rate_max = w.domains / w.delay_s if w.delay_s else math.inf
    pace = min(w.rate, rate_max)
    one_engine_s = pace * engine_s / ENGINE_BUSY
    shards = 1
    if one_engine_s > 1 or used > SHARD_BYTES_MAX:
        shards = max(3, math.ceil(one_engine_s * CLUSTER), math.ceil(used / SHARD_BYTES_MAX))
    factor = CLUSTER if shards > 1 else 1.0
    primaries = pace * engine_s * factor
    engine_cores = max(primaries * (1 + REPLICA * w.replicas) / ENGINE_BUSY, shards * (1 + w.replicas) * 0.1)
    crawler_cores = pace * cpu_s / BUSY
    return Plan(
        days=w.pages / pace / 86_400,
        rate=pace,
        rate_max=rate_max,
        instances=math.ceil(crawler_cores),
        instance_bytes=c.instance_mib * (1 << 20),
        crawler_cores=crawler_cores,
        shards=shards,
        engine_cores=engine_cores,
        seen_bytes=seen,
        domains_bytes=domains,
        pending_bytes=pending,
        memory_bytes=(used * MEMORY_ROOM + shards * IDLE_BYTES) * (1 + w.replicas),
        archive_bytes=w.pages * c.archive_bytes.of(w.page_kb),
        index_bytes=w.pages * c.index_bytes,
        spill_bytes=(waiting - in_memory) * (c.path_bytes + SPILL_BYTES),
        bits_per_s=8 * pace * (c.wire_bytes.of(w.page_kb) + HEADERS_BYTES * ROBOTS_SHARE),
        dollars_per_million=(crawler_cores + engine_cores) / pace * 1e6 / 3600 * w.vcpu_price,
    )


def plan_text(w: Wanted, p: Plan, c: Constants) -> str:
    """For people: each figure with how it came about."""
    engine = "one server" if p.shards == 1 else f"a cluster of {p.shards} primaries"
    copies = f", with {counted(w.replicas, 'replica')} of each" if w.replicas else ", without replicas"
    parts = [f"seen URLs {size(p.seen_bytes)}", f"domains {size(p.domains_bytes)}", f"waiting {size(p.pending_bytes)}"]
    twice = f"; {1 + w.replicas} copies" if w.replicas else ""
    idle = f"{size(IDLE_BYTES)} without a crawl"
    each = max(w.pages, 1)
    rows = [
        ("time", duration(p.days * 86_400), f"{number(w.pages)} pages at {rate(p.rate)}/s"),
        ("instances", f"{p.instances:,}", f"a core each, {BUSY:.0%} busy; {size(p.instance_bytes)} of memory each"),
        ("engine", engine, f"{p.engine_cores:.1f} cores in all{copies}"),
        ("engine memory", size(p.memory_bytes), f"{', '.join(parts)}; half of it again is room, {idle}{twice}"),
        ("archive", size(p.archive_bytes), f"{size(p.archive_bytes / each)} a page"),
        ("index", size(p.index_bytes), f"{size(p.index_bytes / each)} a page"),
        ("URLs on disk", size(p.spill_bytes), f"what queues hold beyond {IN_MEMORY} URLs, with frontier.memory"),
        ("bandwidth", f"{rate(p.bits_per_s / 1e6)} Mbit/s", "received, at that rate"),
        (
            "CPU",
            f"${p.dollars_per_million:.3f}",
            f"a million pages, CPU alone, at ${w.vcpu_price:g} an hour of a vCPU",
        ),
    ]
    lines = [table(("", "needed", "by"), rows, left=3)]
    if w.rate > p.rate_max:
        lines.append(
            f"\nNote: a delay of {w.delay_s:g} s allows at most {rate(p.rate_max)} pages/s on {number(w.domains)} "
            f"domain{'s' * (w.domains != 1)}, while all of them have URLs: {rate(w.rate)}/s is not reached."
        )
    if p.shards > 1:
        lines.append("\nBegin with the 4,096 partitions that are the default on a cluster (docs/operate/cluster.md).")
    lines.append(
        f"\nFrom constants measured on {c.date} ({c.cpu}, commit {c.commit}); the formulas are in "
        "docs/operate/planning.md."
    )
    return "\n".join(lines)

"""The figures of one round and of a whole run, and what in them is a violation."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import redis

from crawler.rules.places import partition_of
from tests.chaos import judging
from tests.chaos.fleet import Incident
from tests.chaos.judging import Takeover
from tests.chaos.lease_watch import LeaseWatch
from tests.chaos.rounds import RoundLog
from tests.support.serving import GeneratedSite, Request

REFUSALS = ("partition.fenced", "ack.refused", "heartbeat.lease_loss")
SHOWN = 5


@dataclass
class Verdict:
    """Figures of a round; those of several rounds can be added up."""

    faults: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    pages: int = 0
    items: int = 0
    requests: int = 0
    lost: int = 0
    surplus: int = 0
    twice: int = 0
    duplicates: int = 0
    late: int = 0  # requests that a pause held up between the check and the write
    near: int = 0
    closest_share: float = float("inf")  # closest pair by the delay in force
    closest_s: float = float("inf")
    delay_s: float = 0.0  # of the closest pair
    takeovers: list[Takeover] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def add(self, other: "Verdict") -> None:
        for name in ("pages", "items", "requests", "lost", "surplus", "twice", "duplicates", "late", "near"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        self.refusals += other.refusals
        self.takeovers += other.takeovers
        self.violations += other.violations
        if other.closest_share < self.closest_share:
            self.closest_share, self.closest_s = other.closest_share, other.closest_s
            self.delay_s = other.delay_s

    def charge(self, what: str, found: Sequence[object]) -> None:
        """Note a violation, with some of its examples."""
        if found:
            shown = "".join(f"\n      {one}" for one in found[:SHOWN])
            self.violations.append(f"{len(found)} {what}:{shown}")


def judge(
    log: RoundLog,
    site: GeneratedSite,
    folders: Sequence[Path],
    watch: LeaseWatch,
    *,
    delay_s: float,
    partitions: int,
    starts: dict[str, list[float]],
    has_app: bool,
) -> Verdict:
    requests, lines = site.requests(), judging.index_lines(folders)
    incidents = [*log.incidents, *(Incident("unreadable", "", start, end) for start, end in watch.gaps)]
    verdict = Verdict(requests=len(requests), delay_s=delay_s)
    verdict.faults.update(incident.kind for incident in log.incidents)
    verdict.refusals = judging.events(folders, REFUSALS)
    verdict.charge("problems", log.problems)
    _judge_results(verdict, site, lines, folders, incidents)
    if has_app:
        verdict.items = len({line["url"] for _, line in lines if line.get("items")})
        verdict.charge("pages without their one item", judging.wrong_items(lines, folders))
    _judge_requests(verdict, requests, incidents, watch, delay_s, partitions)
    verdict.takeovers = judging.takeovers(watch.history, incidents, starts, log.ended)
    slow = [t for t in verdict.takeovers if t.fair_s > judging.TAKEOVER_S]
    verdict.charge(f"partitions without an owner for more than {judging.TAKEOVER_S:.0f} s", slow)
    return verdict


def _judge_results(
    verdict: Verdict,
    site: GeneratedSite,
    lines: list[tuple[Path, judging.Line]],
    folders: Sequence[Path],
    incidents: Sequence[Incident],
) -> None:
    expected = site.web.expected().committed
    found = {line["url"]: int(line["status"]) for _, line in lines}
    lost = sorted(set(expected) - set(found))
    surplus = sorted(set(found) - set(expected))
    twice = judging.committed_twice(lines)
    verdict.pages, verdict.lost, verdict.surplus, verdict.twice = len(found), len(lost), len(surplus), len(twice)
    verdict.charge("URLs lost", lost)
    verdict.charge("URLs that should not have been committed", surplus)
    wall_s = time.time() - time.monotonic()
    why = " (the engine had acknowledged the first and not yet written it when it was killed)"
    lost_first = {u: why for u, at in twice.items() if judging.was_lost_by_the_engine(at[0] - wall_s, incidents)}
    verdict.charge("URLs committed twice", [f"{url}{lost_first.get(url, '')}" for url in twice])
    wrong = [
        f"{url}: {found[url]}, not {expected[url]}"
        for url in expected
        if found.get(url, expected[url]) != expected[url]
    ]
    verdict.charge("URLs with a wrong status", wrong)
    verdict.charge("index lines without their WARC record", judging.unreadable(lines, folders))


def _judge_requests(
    verdict: Verdict,
    requests: list[Request],
    incidents: Sequence[Incident],
    watch: LeaseWatch,
    delay_s: float,
    partitions: int,
) -> None:
    closest, near = judging.near_pairs(requests, delay_s)
    late = [pair for pair in near if judging.was_on_its_way(pair.second, incidents)]
    too_near = [pair for pair in near if pair not in late]
    verdict.closest_s, verdict.closest_share = closest, closest / delay_s
    verdict.late, verdict.near = len(late), len(too_near)
    verdict.charge(f"pairs of requests nearer than {delay_s:.3f} s", [f"{p.apart_s:.3f} s: {p}" for p in too_near])
    twice = judging.duplicates(requests, incidents)
    verdict.duplicates = twice.count
    verdict.charge("pages fetched twice without a fault to explain it", twice.unexplained)
    strange = judging.strangers(requests, watch.history, lambda d: partition_of(d, partitions), incidents)
    verdict.charge("requests under another node's lease", strange)


def left_in_engine(client: "redis.Redis[bytes]", crawl: str, partitions: int) -> list[str]:
    """What a finished crawl must not leave: pending URLs, claims, undrained commits."""
    left = []
    for p in range(partitions):
        prefix = f"{{{crawl}:{p}}}:"
        meta = {key.decode(): value.decode() for key, value in client.hgetall(f"{prefix}m").items()}
        sizes = {name: client.hlen(prefix + name) for name in ("u", "c", "l")}
        sizes |= {name: client.zcard(prefix + name) for name in ("x", "r", "ready")}
        sizes["pending"] = int(meta.get("added", 0)) - int(meta.get("done", 0))
        left += [f"partition {p}: {name} {size}" for name, size in sizes.items() if size]
    return left


def as_text(total: Verdict, rounds: int) -> str:
    faults = ", ".join(f"{kind} {n}" for kind, n in sorted(total.faults.items()))
    refusals = ", ".join(f"{name} {n}" for name, n in sorted(total.refusals.items())) or "none"
    rate = 100 * total.duplicates / max(1, total.requests)
    calm = [t for t in total.takeovers if t.was_undisturbed]
    rows = [
        ("faults", f"{total.faults.total()}: {faults}"),
        ("crawls", f"{rounds}, {total.pages} pages, {total.items} items of handlers, {total.requests} requests"),
        ("lost", str(total.lost)),
        ("committed twice", str(total.twice)),
        ("not expected", str(total.surplus)),
        ("too near", f"{total.near}; closest pair {total.closest_s:.3f} s at a delay of {total.delay_s:.3f} s"),
        ("held up by a pause", f"{total.late} requests"),
        ("takeovers", f"{_counted(total.takeovers)}: longest {_longest(total.takeovers)}"),
        ("  undisturbed", f"{_counted(calm)}: longest {_longest(calm)}"),
        ("  from the death", f"longest {_longest(total.takeovers, fair=False)}, other faults meanwhile included"),
        ("fetched twice", f"{total.duplicates} ({rate:.2f} % of the requests), each explained by a fault"),
        ("refused or lapsed", refusals),
    ]
    return "\n".join(f"{name:20} {text}" for name, text in rows)


def _counted(found: Sequence[Takeover]) -> str:
    return f"{len({(t.node, t.record_crash) for t in found})} of {len(found)} partitions"


def _longest(found: Sequence[Takeover], *, fair: bool = True) -> str:
    times = [(t.fair_s if fair else t.seconds, t.kind) for t in found]
    return "none" if not times else "{:.1f} s ({})".format(*max(times))

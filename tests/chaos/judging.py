"""What must hold after a round, judged from outside: the web server's log, the files, the leases as they were seen.

Nothing of the crawler is used: index lines and WARC members are read here, leases come from lease_watch.py.
"""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.chaos.fleet import Incident
from tests.chaos.lease_watch import Seen
from tests.crawl.lab import domain_of
from tests.support.serving import Request

CLOCK_S = 0.001  # the partition clock counts milliseconds
TAKEOVER_S = 10.0
DEADLY = ("kill", "pause", "cut", "blackhole requests", "blackhole both", "stall requests", "stall both")
SURELY_DEAD_S = 11.0  # a silence so long must have been noticed
UNACKED_S = 3.0  # what was answered so shortly before a fault may have been in flight to the engine
UNWRITTEN_S = 3.0  # so long after it was archived a commit may be in the engine's memory only
SEEN_S = 0.6  # a change of a lease is seen so late at most
LATE_S = 1.0  # a request that was on its way when its sender was stopped arrives so soon after it wakes

Line = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """Two requests to one queue, nearer to each other than its delay."""

    first: Request
    second: Request

    @property
    def apart_s(self) -> float:
        return self.second.start - self.first.start


def node_of(request: Request) -> str:
    """The contact in its user agent ends in it."""
    return request.agent.rstrip(")").rpartition("/")[2]


def near_pairs(requests: Iterable[Request], delay_s: float) -> tuple[float, list[Pair]]:
    """The smallest distance in seconds, and all pairs below the delay."""
    by_domain: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        by_domain[domain_of(request)].append(request)
    pairs = [Pair(a, b) for mine in by_domain.values() for a, b in pairwise(mine)]
    closest = min((pair.apart_s for pair in pairs), default=float("inf"))
    return closest, [pair for pair in pairs if pair.apart_s < delay_s - CLOCK_S]


def was_on_its_way(request: Request, incidents: Iterable[Incident]) -> bool:
    """Was the sender stopped between its last look at the deadline and the write? The engine can't prevent that."""
    paused = (i for i in incidents if i.kind in ("pause", "hiccup") and i.node == node_of(request))
    return any(i.end <= request.start + CLOCK_S and request.start <= i.end + LATE_S for i in paused)


@dataclass
class Duplicates:
    """Pages that were answered more than once: how many further answers, and those that no fault explains."""

    count: int = 0
    unexplained: list[tuple[Request, Request]] = field(default_factory=list)


def duplicates(requests: Iterable[Request], incidents: Sequence[Incident]) -> Duplicates:
    """A page may be fetched again when its first fetch was in flight or not yet acked as a fault hit its fetcher."""
    answers: dict[tuple[str, str], list[Request]] = defaultdict(list)
    for request in requests:
        if request.status < 500 and not request.is_robots:
            answers[request.host, request.target].append(request)
    found = Duplicates()
    for several in answers.values():
        found.count += len(several) - 1
        found.unexplained += [(a, b) for a, b in pairwise(several) if not _may_be_lost(a, incidents)]
    return found


def _may_be_lost(request: Request, incidents: Iterable[Incident]) -> bool:
    mine = (i for i in incidents if i.node in ("", node_of(request)) and i.kind not in ("join", "leave"))
    return any(i.covers(request.end, before_s=UNACKED_S, after_s=UNACKED_S) for i in mine)


# --- files ---


def index_lines(folders: Iterable[Path]) -> list[tuple[Path, Line]]:
    """Every whole line of every segment, with its folder, but not the footer of a closed one."""
    return [
        (folder, json.loads(line.split(b" ", 2)[2]))
        for folder in folders
        for segment in sorted((folder / "index").iterdir())
        for line in segment.read_bytes().split(b"\n")
        if line.endswith(b"}") and not line.startswith(b"~ ")
    ]


def committed_twice(lines: Iterable[tuple[Path, Line]]) -> dict[str, list[float]]:
    """URLs with two commits, and when they were archived (wall time, the last thing before the ack).

    One commit may stand on two lines: in the folder of who made it and of who took over.
    """
    commits: dict[tuple[str, int], dict[tuple[Any, ...], float]] = defaultdict(dict)
    for _, line in lines:
        key = line["url"], line.get("visit", 0)
        commit = tuple(line.get(name) for name in ("session", "epoch", "at", "digest", "filename", "offset"))
        commits[key][commit] = (line.get("times") or {}).get("archived", line.get("at", 0.0))
    return {url: sorted(found.values()) for (url, _), found in commits.items() if len(found) > 1}


def was_lost_by_the_engine(archived: float, incidents: Iterable[Incident]) -> bool:
    """Was the engine killed so soon after a commit that it may not have written it yet? `archived` is monotonic.

    While an fsync is under way, the engine answers and keeps the write in its own memory for up to two seconds: a
    kill -9 loses what was acknowledged then, `appendfsync everysec` or not.
    """
    return any(i.kind == "engine kill" and archived <= i.start <= archived + UNWRITTEN_S for i in incidents)


def unreadable(lines: Iterable[tuple[Path, Line]], folders: Sequence[Path]) -> list[str]:
    """URLs of lines whose WARC record is not where they say, in any folder."""
    lost = []
    for _, line in lines:
        target = f"WARC-Target-URI: {line['url']}\r\n".encode()
        files = [file for folder in folders for file in (folder / "warc").glob(f"{line['filename']}*")]
        if not any(target in _member(file, int(line["offset"]), int(line["length"])) for file in files):
            lost.append(line["url"])
    return lost


def wrong_items(lines: Iterable[tuple[Path, Line]], folders: Sequence[Path]) -> list[str]:
    """URLs of the lines of fine pages that don't lead to the one item that tests/chaos/app.py yields of each."""
    wrong = []
    for _, line in lines:
        if int(line["status"]) != 200:
            continue
        name, offset, length, count = line.get("items") or ("none", 0, 0, 0)
        files = [file for folder in folders for file in (folder / "items").glob(f"{name}*")]
        frames = [_member(file, offset, length).split(b"\n")[:count] for file in files]
        if [b'{"url":"%b"}' % line["url"].encode()] not in frames:
            wrong.append(line["url"])
    return wrong


def _member(file: Path, offset: int, length: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(offset)
        try:
            return gzip.decompress(opened.read(length))
        except (OSError, EOFError):
            return b""


def events(folders: Iterable[Path], names: Sequence[str]) -> Counter[str]:
    """How often the instances logged each of these."""
    counted: Counter[str] = Counter()
    for folder in folders:
        for file in (folder / "log").glob("*.log"):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                counted.update(name for name in names if f'"event": "{name}"' in line)
    return counted


# --- leases ---


@dataclass(frozen=True)
class Takeover:
    """One partition of one session that died: how long it had no living owner."""

    node: str
    kind: str
    partition: int
    record_crash: float
    seconds: float  # from the death
    fair_s: float  # from the last thing that delayed it: another fault that hit the engine, the taker or a candidate
    to: str

    @property
    def was_undisturbed(self) -> bool:
        return self.seconds == self.fair_s


History = Mapping[int, Sequence[Seen]]


def takeovers(
    history: History, incidents: Sequence[Incident], starts: Mapping[str, Sequence[float]], until: float
) -> list[Takeover]:
    """For each death, each partition that was the dead session's. Those not taken while it was dead do not count."""
    found = []
    for incident in incidents:
        kills = incident.kind == "kill"
        if incident.kind not in DEADLY or not incident.session:
            continue
        if not kills and min(incident.end, until) - incident.start < SURELY_DEAD_S:
            continue
        for partition, changes in history.items():
            taken = _taken(changes, incident)
            if taken is not None:
                found.append(_timed(incident, partition, taken, incidents, starts, until))
    return found


def _taken(changes: Sequence[Seen], incident: Incident) -> Seen | None:
    """What followed the dead session's lease; an endless one stands for nothing. None: it did not hold this one."""
    held = [n for n, seen in enumerate(changes) if seen.session == incident.session and seen.at <= incident.start]
    if not held:
        return None
    following = changes[held[-1] + 1 :]
    if following and following[0].before < incident.start:
        return None
    after = next((seen for seen in following if seen.session), None)
    return after or Seen(incident.start, float("inf"), "", "", 0)


def _timed(
    incident: Incident,
    partition: int,
    taken: Seen,
    incidents: Sequence[Incident],
    starts: Mapping[str, Sequence[float]],
    until: float,
) -> Takeover:
    at = min(taken.at, until)
    others = [i for i in incidents if i is not incident]
    moments = [i.start for i in others]
    moments += [i.end for i in others if i.node in ("", taken.node)]
    moments += starts.get(taken.node, ())
    moments += [incident.end] if taken.node == incident.node else []
    last = max((m for m in moments if incident.start < m <= at), default=incident.start)
    blind = [at for i in others if i.node in ("", taken.node) and i.start <= at <= i.end]
    last = max([last, *blind])
    seconds, fair_s = at - incident.start, at - last
    return Takeover(incident.node, incident.kind, partition, incident.start, seconds, fair_s, taken.node)


def strangers(
    requests: Iterable[Request], history: History, partition_of: Callable[[str], int], incidents: Sequence[Incident]
) -> list[tuple[Request, str]]:
    """Requests to a domain whose lease another node held all the time around: (request, that node)."""
    found = []
    for request in requests:
        changes = history.get(partition_of(domain_of(request)), ())
        around = {
            seen.node if seen.session else ""
            for seen, after in zip(changes, [*changes[1:], None], strict=True)
            if seen.before <= request.start + SEEN_S and (after is None or after.at >= request.start - SEEN_S)
        }
        if around and not around & {"", node_of(request)} and not was_on_its_way(request, incidents):
            found.append((request, "/".join(sorted(around))))
    return found

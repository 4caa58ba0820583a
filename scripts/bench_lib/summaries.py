"""The cost of runs as medians and ratios.

Rounds are interleaved. A ratio is that of two runs of one round, and a summary has the median of these ratios: what
slows the machine for a minute slows both runs.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one client."""

    pages: frozenset[str]
    duplicates: int
    requests: int
    wall_s: float
    client_cpu_s: float
    engine_cpu_s: float
    client_mib: float
    engine_mib: float
    servers_cpu_s: float  # of the web and name servers, which share a core with the engine
    busy: float = 0.0  # CPU of crawler and engine by wall time, from the first request to the last ack; 0: not known
    handshakes: tuple[int, int] = (0, 0)  # whole ones and resumed ones

    @property
    def pages_per_s(self) -> float:
        return len(self.pages) / self.wall_s

    @property
    def cpu_per_thousand(self) -> float:
        """CPU seconds of the client for 1,000 pages."""
        return 1000 * self.client_cpu_s / max(1, len(self.pages))

    @property
    def engine_per_thousand(self) -> float:
        return 1000 * self.engine_cpu_s / max(1, len(self.pages))

    @property
    def all_per_thousand(self) -> float:
        return self.cpu_per_thousand + self.engine_per_thousand


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median and range of the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median=statistics.median(values), low=min(values), high=max(values))

    @classmethod
    def of_middle(cls, values: Sequence[float]) -> "Spread":
        """Without a quarter of the rounds at either end, in which other programs may have run."""
        left_out = len(values) // 4
        return cls.of(sorted(values)[left_out : len(values) - left_out])

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


# Above this share of their core, servers and engine limit the client: its pages/s are not its own.
BUSY = 0.8

Figure = Callable[[Run], float]

FIGURES: Mapping[str, Figure] = {
    "pages": lambda run: len(run.pages),
    "requests": lambda run: run.requests,
    "pages_per_s": lambda run: run.pages_per_s,
    "cpu_s_per_1000": lambda run: run.cpu_per_thousand,
    "engine_cpu_s_per_1000": lambda run: run.engine_per_thousand,
    "all_cpu_s_per_1000": lambda run: run.all_per_thousand,
    "peak_mib": lambda run: run.client_mib,
    "engine_peak_mib": lambda run: run.engine_mib,
    "busy": lambda run: run.busy,
    "handshakes": lambda run: run.handshakes[0],
    "handshakes_resumed": lambda run: run.handshakes[1],
    "servers_share": lambda run: (run.servers_cpu_s + run.engine_cpu_s) / run.wall_s,
}


def ratios(
    runs: Sequence[Run],
    base: Sequence[Run],
    figure: Figure,
    spread: Callable[[Sequence[float]], Spread] = Spread.of,
) -> Spread:
    """Of each round's run to the base's run of the same round."""
    return spread([figure(run) / figure(other) for run, other in zip(runs, base, strict=True)])


def summary(runs: Sequence[Run], bases: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """A client's figures. `cpu_to` and `all_cpu_to` are its ratios of CPU to each base, without and with engines."""
    found: dict[str, Any] = {name: asdict(Spread.of([figure(r) for r in runs])) for name, figure in FIGURES.items()}
    for key, figure in (("cpu_to", "cpu_s_per_1000"), ("all_cpu_to", "all_cpu_s_per_1000")):
        found[key] = {name: asdict(ratios(runs, base, FIGURES[figure])) for name, base in bases.items()}
    found["pages_per_s_to"] = {name: asdict(ratios(runs, base, FIGURES["pages_per_s"])) for name, base in bases.items()}
    return found


COLUMNS = (
    "client",
    "pages/s",
    "CPU-s/1k",
    "with engine",
    "peak MiB",
    "engine MiB",
    "CPU / ours",
    "with engines",
    "CPU / bare",
    "requests a page",
    "busy",
    "handshakes, new + resumed",
)


def table(summaries: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """In Markdown; CPU with its range. Columns that no client has a figure for are left out."""
    rows = [_row(found, titles[name]) for name, found in summaries.items()]
    used = [name for name in COLUMNS if any(row[name] for row in rows)]
    lines = ["| " + " | ".join(used) + " |", "|---" * len(used) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row[name] for name in used) + " |" for row in rows)])


def _row(found: Mapping[str, Any], title: str) -> dict[str, str]:
    middle = {key: value["median"] for key, value in found.items() if "median" in value}
    cpu = found["cpu_s_per_1000"]
    has_engine = middle["engine_peak_mib"] > 0
    cells = (
        title,
        f"{middle['pages_per_s']:,.0f}",
        f"{middle['cpu_s_per_1000']:.2f} ({cpu['low']:.2f} to {cpu['high']:.2f})",
        f"{middle['all_cpu_s_per_1000']:.2f}" if has_engine else "",
        f"{middle['peak_mib']:.0f}",
        f"{middle['engine_peak_mib']:.0f}" if has_engine else "",
        _times(found["cpu_to"], "crawler"),
        _times(found["all_cpu_to"], "crawler"),
        _times(found["cpu_to"], "bare"),
        f"{middle['requests'] / max(1, middle['pages']):.2f}",
        f"{middle['busy']:.2f}" if middle["busy"] else "",
        f"{middle['handshakes']:.0f} + {middle['handshakes_resumed']:.0f}" if middle["handshakes"] else "",
    )
    return dict(zip(COLUMNS, cells, strict=True))


def too_busy(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each client whose servers had too little time left on their core."""
    shares = {name: found["servers_share"]["median"] for name, found in summaries.items()}
    return [
        f"{name}: servers and engine used {100 * share:.0f} % of their core: its pages/s mean little."
        for name, share in shares.items()
        if share > BUSY
    ]


def _times(found: Mapping[str, Mapping[str, float]], base: str) -> str:
    return f"{found[base]['median']:.2f}" if base in found else ""


def differences(results: Mapping[str, Sequence[Run]], *, pages_min: int, pages_max: int) -> list[str]:
    """What is wrong with the fetched pages, a line each: too few, some twice, other ones than the first client's.

    With a `pages_max` above 0 each client fetched other pages of an endless web, and only their number is compared.
    """
    wrong = []
    first, runs = next(iter(results.items()))
    reference = runs[0].pages
    for name, run in ((name, run) for name, runs in results.items() for run in runs):
        if run.duplicates:
            wrong.append(f"{name} fetched {run.duplicates} pages twice")
        if len(run.pages) < pages_min:
            wrong.append(f"{name} fetched only {len(run.pages)} pages of at least {pages_min}")
        if pages_max:
            continue
        for sign, pages in (("lacks", reference - run.pages), ("also fetched", run.pages - reference)):
            if pages:
                some = ", ".join(sorted(pages)[:5])
                wrong.append(f"{name} {sign} {len(pages)} pages compared with {first}, such as {some}")
    return wrong

"""The records in docs/internals/benchmarks.ndjson, and when a record is slower than the one before.

A record is one line: commit, date, machine, name of the workload, numbers of rounds and pages, `ratios` to calibration
loops (median, lowest and highest of the middle rounds; the engine has its own loop), and `cpu_s_per_1000`, medians in
CPU seconds for 1,000 pages. Only records of one workload are compared, by their ratios: these hold on faster and slower
machines.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from scripts.bench_lib.summaries import FIGURES, Run, Spread, ratios

RATIOS = ("crawler", "engine")
_FIELDS = frozenset(("commit", "date", "machine", "workload", "rounds", "pages", "ratios", "cpu_s_per_1000"))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`is_worse` when a median rose by more than the `noise`: half the range of the middle rounds of both, added up."""

    what: str
    before: float
    now: float
    noise: float

    @property
    def is_worse(self) -> bool:
        return self.now - self.before > self.noise

    def __str__(self) -> str:
        word = "WORSE" if self.is_worse else "better" if self.before - self.now > self.noise else "the same"
        change = f"{100 * (self.now / self.before - 1):+.1f} %" if self.before else "new"
        return (
            f"{self.what}: {word}: {self.now:.3f} of its calibration loop, before {self.before:.3f} ({change}; "
            f"noise {self.noise:.3f})"
        )


@dataclass(frozen=True, kw_only=True)
class Paired:
    """CPU seconds of this code divided by those of earlier code, in rounds in which both ran.

    `is_worse` when the ratio is above 1 in all of the middle rounds.
    """

    what: str
    ratio: Spread

    @property
    def is_worse(self) -> bool:
        return self.ratio.low > 1

    def __str__(self) -> str:
        word = "WORSE" if self.is_worse else "better" if self.ratio.high < 1 else "the same"
        spread = f"{self.ratio.low:.3f} to {self.ratio.high:.3f}"
        return f"{self.what}: {word}: {self.ratio.median:.3f} of the earlier code ({spread} in the middle rounds)"


def record_of(
    header: Mapping[str, Any],
    workload: str,
    crawler: Sequence[Run],
    calibration: Sequence[Run],
    engine_calibration: Sequence[float],
) -> dict[str, Any]:
    """The record of one measurement, whose sequences are in the order of the rounds.

    `engine_calibration`: CPU seconds of the engine's loop for 1,000 of its pages.
    """
    engines = zip(crawler, engine_calibration, strict=True)
    spreads = {
        "crawler": ratios(crawler, calibration, FIGURES["cpu_s_per_1000"], Spread.of_middle),
        "engine": Spread.of_middle([run.engine_per_thousand / loop for run, loop in engines]),
    }
    medians = {
        "crawler": median(run.cpu_per_thousand for run in crawler),
        "engine": median(run.engine_per_thousand for run in crawler),
        "calibration": median(base.cpu_per_thousand for base in calibration),
        "engine_calibration": median(engine_calibration),
    }
    return dict(header) | {
        "workload": workload,
        "rounds": len(crawler),
        "pages": len(crawler[0].pages),
        "ratios": {name: _rounded(asdict(spread)) for name, spread in spreads.items()},
        "cpu_s_per_1000": _rounded(medians),
    }


def line_of(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(", ", ": ")) + "\n"


def read(text: str) -> list[dict[str, Any]]:
    """All records of the file. Raises ValueError that names a wrong line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is not JSON: {error}") from None
        if not isinstance(record, dict) or (missing := _FIELDS - set(record)):
            raise ValueError(f"line {number} is not a record: it lacks {', '.join(sorted(missing))}")
        found.append(record)
    return found


def last(records: Sequence[Mapping[str, Any]], workload: str) -> Mapping[str, Any] | None:
    """The record to compare with."""
    return next((record for record in reversed(records) if record["workload"] == workload), None)


def verdicts(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[Verdict]:
    """One for the crawler's processes and one for its engine."""
    found = []
    for what in RATIOS:
        mine, theirs = Spread(**now["ratios"][what]), Spread(**before["ratios"][what])
        found.append(Verdict(what=what, before=theirs.median, now=mine.median, noise=mine.half + theirs.half))
    return found


def paired(now: Sequence[Run], before: Sequence[Run]) -> list[Paired]:
    """One for each of RATIOS, of runs in turn."""
    figures = {"crawler": FIGURES["cpu_s_per_1000"], "engine": FIGURES["engine_cpu_s_per_1000"]}
    return [Paired(what=what, ratio=ratios(now, before, figures[what], Spread.of_middle)) for what in RATIOS]


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}

"""What people see of simulated runs: the failures, and the table of all that was provoked and came of it."""

from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.run import Outcome

SHOWN = 12  # violations of a seed, and lines of its trace before the first


@dataclass(slots=True)
class Total:
    """Sums over runs."""

    runs: int = 0
    failed: list[int] = field(default_factory=list)
    stats: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    takeover_max_s: float = 0.0
    virtual_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.stats.update(outcome.stats)
        self.faults.update(outcome.faults)
        self.takeover_max_s = max(self.takeover_max_s, outcome.takeover_max_s)
        self.virtual_s += outcome.virtual_s
        if outcome.violations:
            self.failed.append(outcome.seed)

    def table(self) -> str:
        lines = [f"{'seeds run':<36}{self.runs:>10}", f"{'seeds failed':<36}{len(self.failed):>10}"]
        lines += [f"{'virtual hours':<36}{self.virtual_s / 3600:>10.2f}"]
        lines += [f"{name:<36}{count:>10}" for name, count in sorted(self.stats.items())]
        lines += [f"{'longest takeover after a crash, s':<36}{self.takeover_max_s:>10.1f}"]
        lines += [f"{'faults':<36}{sum(self.faults.values()):>10}"]
        lines += [f"{'  ' + name:<36}{count:>10}" for name, count in sorted(self.faults.items())]
        if self.failed:
            lines.append(f"failed seeds: {' '.join(map(str, sorted(self.failed)))}")
        return "\n".join(lines)


def failure(outcome: Outcome, *, with_jobs: bool = False) -> str:
    """What was broken by a seed, what happened just before, and how to see it again."""
    first = next((i for i, line in enumerate(outcome.tail) if "!!!" in line), len(outcome.tail))
    return "\n".join([
        f"seed {outcome.seed}: {len(outcome.violations)} broken",
        *(f"  {violation}" for violation in outcome.violations[:SHOWN]),
        "  before that:",
        *(f"    {line}" for line in outcome.tail[max(0, first - SHOWN) : first + 1]),
        f"  again: scripts/simulate --seed {outcome.seed}{' --with-jobs' if with_jobs else ''} --verbose",
    ])  # fmt: skip

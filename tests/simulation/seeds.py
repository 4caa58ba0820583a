"""What the tests of seeds share."""

from collections.abc import Iterable

from tests.simulation.report import failure
from tests.simulation.run import simulate
from tests.simulation.wire import RealEngine


def nothing_is_broken_by(seeds: Iterable[int], real: RealEngine) -> None:
    """Run them; fail with what was broken, the end of the trace, and the command that shows it again."""
    failed = [failure(outcome) for seed in seeds if (outcome := simulate(seed, real)).violations]
    assert not failed, "\n".join(failed)

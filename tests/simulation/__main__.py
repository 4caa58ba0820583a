"""`scripts/simulate`: runs seeds, shows what was broken and what was provoked. Exit code 1 when anything was broken."""

import argparse
import multiprocessing
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.plan import MIXES, plan_of
from tests.simulation.report import Total, failure
from tests.simulation.run import Outcome, simulate
from tests.simulation.wire import real_engine

BLOCK = 10  # seeds that share an engine


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for."""
    options = _options(arguments)
    if options.mutants:
        return _mutants(range(options.first, options.first + options.mutants))
    if options.seed is not None:
        return _one(options.seed, mix=options.mix, with_jobs=options.with_jobs, verbose=options.verbose)
    if options.digest:
        return _digests(range(options.first, options.first + options.seeds), options)
    total = Total()
    for outcome in _outcomes(range(options.first, options.first + options.seeds), options):
        total.add(outcome)
        if outcome.violations:
            print(failure(outcome, with_jobs=options.with_jobs), flush=True)
        elif total.runs % 50 == 0:
            print(f"{total.runs} of {options.seeds} seeds, {len(total.failed)} failed", flush=True)
    print(total.table())
    return 1 if total.failed else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run them (default 2)")
    parser.add_argument("--seed", type=int, help="run this one only and show the end of its trace")
    parser.add_argument("--verbose", action="store_true", help="with --seed: show the whole trace")
    parser.add_argument(
        "--digest",
        action="store_true",
        help="print only two hashes by seed: of all that happened, and of what others see of it",
    )
    parser.add_argument("--with-jobs", action="store_true", help="all of them with jobs")
    parser.add_argument("--mix", default="", choices=["", *MIXES], help="only faults of this kind")
    parser.add_argument("--mutants", type=int, help="leave out one rule after the other, for this many seeds each")
    return parser.parse_args(arguments)


def _one(seed: int, *, mix: str, with_jobs: bool, verbose: bool) -> int:
    plan = plan_of(seed, mix=mix, has_jobs=with_jobs or None)
    with real_engine() as real:
        outcome = simulate(seed, real, say=print if verbose else lambda _: None, plan=plan)
    total = Total()
    total.add(outcome)
    if not verbose:
        print("\n".join(outcome.tail))
    print(total.table())
    print(f"trace {outcome.digest[:16]}, {outcome.steps} steps")
    for violation in outcome.violations:
        print(violation)
    return 1 if outcome.violations else 0


def _digests(seeds: Sequence[int], options: argparse.Namespace) -> int:
    """A change that moves code leaves both as they are, a change of how the engine is asked leaves the second."""
    for outcome in sorted(_outcomes(seeds, options), key=lambda outcome: outcome.seed):
        print(f"{outcome.seed:>4} {outcome.digest[:16]} {outcome.outside[:16]}")
    return 0


def _mutants(seeds: Sequence[int]) -> int:
    """In how many seeds the absence of each rule is noticed, and by what."""
    with real_engine() as real:
        for name in MUTANTS:
            seen = [outcome.violations for seed in seeds if (outcome := mutated(name, seed, real)).violations]
            by = sorted({violation.split()[0] for violations in seen for violation in violations})
            print(f"{name:<24}{len(seen):>4} of {len(seeds)}  {' '.join(by)}", flush=True)
    return 0


def _outcomes(seeds: Sequence[int], options: argparse.Namespace) -> Iterator[Outcome]:
    blocks = [tuple(seeds[i : i + BLOCK]) for i in range(0, len(seeds), BLOCK)]
    run_block = partial(_block, mix=options.mix, with_jobs=options.with_jobs)
    if options.jobs <= 1:
        for block in blocks:
            yield from run_block(block)
        return
    with multiprocessing.get_context("fork").Pool(options.jobs, initializer=_end_in_order) as pool:
        for outcomes in pool.imap_unordered(run_block, blocks):
            yield from outcomes
        pool.close()  # what `with` does ends workers that may hold the pool's lock, and then waits for the others
        pool.join()


def _end_in_order() -> None:
    """A worker that is told to end stops its engine first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def _block(seeds: Sequence[int], *, mix: str, with_jobs: bool) -> list[Outcome]:
    with real_engine() as real:
        return [simulate(seed, real, plan=plan_of(seed, mix=mix, has_jobs=with_jobs or None)) for seed in seeds]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

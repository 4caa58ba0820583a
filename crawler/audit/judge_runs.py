"""Judges runs by what partitions have of them: where an active one has URLs it must be noted, and one that has ended
must be forgotten.
"""

from collections.abc import Collection, Mapping

from crawler.audit.findings import Report
from crawler.frontier.runs import Runs


async def still_active(runs: Runs, asked: Collection[str]) -> frozenset[str]:
    """Those of the runs that have not ended. Raises EngineError."""
    return frozenset(run for run, active in (await runs.look(asked)).items() if active is not None)


async def judge_runs(runs: Runs, seen: Mapping[str, Collection[int]], report: Report) -> None:
    """`seen`: partitions that have seen URLs of runs. Runs may begin and end meanwhile. Raises EngineError."""
    active = await still_active(runs, seen)
    touched, closing = {run: await runs.touched(run) for run in sorted(active)}, await runs.all_closing()
    going_on, found = await still_active(runs, seen), report.findings.runs
    for run in sorted(going_on & active):
        if run in closing:
            found.add(run=run, reason="it goes on, and is noted as one to be removed")
        for partition in sorted({*seen[run]} - touched[run]):
            found.add(run=run, partition=partition, reason="it has URLs there, and the partition is not noted for it")
    for run in sorted({*seen} - going_on):
        if run in (await runs.closing_in([runs.home(run)]))[runs.home(run)]:
            continue
        for partition in sorted(await runs.seen_in(run, seen[run])):
            found.add(run=run, partition=partition, reason="it has ended, and the partition has not forgotten it")
    if left := closing - going_on:
        what = "ended run is" if len(left) == 1 else "ended runs are"
        report.notes.append(f"{len(left):,} {what} still to be removed from partitions: instances do so within seconds")

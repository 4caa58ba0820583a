"""The nominal times of jobs, second by second: a plain model beside crawler/rules/schedules.py."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from crawler.rules.cron import Schedule
from crawler.rules.jobs import Revision, Row, State

MINUTES = {"* * * * *": 1, "*/2 * * * *": 2}  # the cron expressions that simulations use


def is_nominal(schedule: Schedule, at: int) -> bool:
    """Does this second belong to the schedule?"""
    if schedule.every_s:
        return at > schedule.anchor_s and (at - schedule.anchor_s) % schedule.every_s == 0
    if schedule.cron:
        return at % (60 * MINUTES[schedule.cron]) == 0
    return at == schedule.at_s


def decided(revisions: Mapping[int, Revision], done_to: int) -> list[tuple[int, int]]:
    """(nominal time, number of its revision) of all that must have been decided."""
    ordered = [revisions[number] for number in sorted(revisions)]
    ends = [*(later.since for later in ordered[1:]), done_to]
    found = []
    for revision, end in zip(ordered, ends, strict=True):
        schedule = revision.spec.schedule
        for at in range(revision.since + 1, min(end, done_to) + 1):
            if is_nominal(schedule, at):
                found.append((at, revision.number))
    return found


def wrong_rows(
    revisions: Mapping[int, Revision],
    done_to: int,
    pauses: Sequence[tuple[int, int]],
    rows: Sequence[Row],
    *,
    is_cut: bool,
) -> Iterator[str]:
    """What is wrong with the history of a job. `is_cut`: its oldest rows are gone."""
    planned = [row for row in rows if not row.is_manual]
    oldest = min((row.nominal for row in planned), default=done_to + 1) if is_cut else 0
    wanted = [(at, number) for at, number in decided(revisions, done_to) if at >= oldest]
    covered: Counter[tuple[int, int]] = Counter()
    for row in planned:
        later = row.attempts > 1  # people repeat a run with the definition of then
        mine = [
            (at, number)
            for at, number in wanted
            if row.nominal <= at <= row.to and (number == row.revision or (later and number < row.revision))
        ]
        covered.update(mine)
        if not mine or (mine[0][0], mine[-1][0], len(mine)) != (row.nominal, row.to, row.count):
            yield f"row {row} stands for {len(mine)} times"
        for at, _ in mine:
            is_paused = any(begin < at <= end for begin, end in pauses)
            if is_paused != (row.state is State.PAUSED):
                yield f"{at} is {row.state}; pauses are {pauses}"
    for one in wanted:
        if covered[one] != 1:
            yield f"nominal time {one[0]} of revision {one[1]} has {covered[one]} rows"

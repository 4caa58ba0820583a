"""Was the engine set back while nothing ran? Then its partitions lack commits that the crawl folder's index has.

A commit has a number in its partition, and a line of the index is written when the engine has the commit. After one
stop a few may be missing (a power cut takes the last two seconds): their pages are fetched again. More are missing when
the engine was started with an older snapshot or volume: it looks like one that has more to do, and 753 pages were once
fetched and committed again, without a word. So the command ends then (exit code 4), before it adds or claims anything.
There is no option to go on all the same: `crawler rebuild` gives the engine what it lacks.

Segments are read in the order in which they were last written, until one has no line that the engine lacks: a start
reads one segment (0.1 s), whatever the size of the crawl. One that is sorted, pruned or rewritten keeps its time. After
a loss that was told, the numbers in the engine are raised to those in the index (`raise_sequence`), or the next start
would tell it again, and two commits would have one number. A rebuild stores the highest numbers that it has read.

Not covered: a machine whose folder is new knows nothing. If it goes on alone until it has passed the old numbers,
nobody notices.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from crawler.archive.last_commits import LastCommit, newest_first
from crawler.crawl.opening import OpenCrawl
from crawler.errors import ConflictError
from crawler.frontier.placement import Placement
from crawler.terminal.words import counted, program

LOST_MAX = 1_000  # commits that may be missing after a stop, or
LOST_S = 2.0  # all within this time: an engine syncs its file every second, and a busy disk delays that by another one
READ_MAX = 64  # groups of segments, of some 16,000 lines
CALM_MAX = 4  # of them that lack nothing, one after another, while no line of some shard of a cluster was found


class _Placed(NamedTuple):
    partition: int
    number: int
    at_s: float


async def check_set_back(crawl: OpenCrawl) -> list[str]:
    """What to tell, before anything is claimed, of commits that are missing in the engine; they are fetched again.

    Raises ConflictError when they are more than one stop can lose.
    """
    commits, known, last = newest_first(crawl.folder), dict[int, int](), dict[int, int]()
    missing, calm, settled = list[_Placed](), 0, set[str]()
    shards = {_shard_of(crawl, partition) for partition in range(crawl.record.partitions)}
    read = 0
    while read < READ_MAX and calm < CALM_MAX and not shards <= settled:
        found, read = await asyncio.to_thread(lambda: next(commits, None)), read + 1
        if found is None:
            break
        placed = await asyncio.to_thread(_placed, found, crawl.placement)
        # After the lines: those of instances that run elsewhere are not ahead of the engine.
        known |= await crawl.leases.sequences({one.partition for one in placed} - known.keys())
        ahead = [one for one in placed if one.number > known[one.partition]]
        for one in ahead:
            last[one.partition] = max(one.number, last.get(one.partition, 0))
        missing += ahead
        calm = 0 if ahead else calm + 1
        # What was written before lines that a shard has, it has as well.
        settled |= {_shard_of(crawl, one.partition) for one in placed}
        settled -= {_shard_of(crawl, one.partition) for one in ahead}
    if not missing:
        return []
    number = sum(top - known[partition] for partition, top in last.items())
    times = [one.at_s for one in missing]
    if number > LOST_MAX and max(times) - min(times) > LOST_S:
        raise ConflictError(_refusal(crawl, number, is_cut=read == READ_MAX))
    await crawl.leases.raise_sequences(last)
    return [f"the engine lost its last writes: {counted(number, 'page is', 'pages are')} fetched again"]


def _shard_of(crawl: OpenCrawl, partition: int) -> str:
    return crawl.engine.shard_of(crawl.keys.meta(partition))


def _placed(commits: Sequence[LastCommit], placement: Placement) -> list[_Placed]:
    return [_Placed(placement.of(one.url)[2], one.number, one.at_s) for one in commits]


def _refusal(crawl: OpenCrawl, number: int, *, is_cut: bool) -> str:
    pages = f"{'at least ' * is_cut}{counted(number, 'page')}"
    return (
        f"the engine lacks {pages} that {crawl.folder.root} has: it was started with older data. Start it with its "
        f"newest data, or run '{program()} rebuild', which adds what it lacks; otherwise they would be fetched again"
    )

"""Groups of rows that are duplicates: connected components, by equal values or by fingerprints a few bits apart. Pure.

Rows are numbers from 0. Memory is that of arrays, and of the part of the rows that is compared at a time; time is
linear in the rows, whatever values a site has chosen.

**Near pairs are found by their blocks** (pigeonhole): of `BLOCKS` blocks of bits at most `DISTANCE` differ, so two
fingerprints that are near have two blocks in common. The rows are sorted by one block, those with an equal one are
grouped by each later block, and only within such a group all are compared. Where more than `GROUP_MAX` different
fingerprints have two blocks in common, as nothing but a site's intention or one template in a million pages brings
about, they are grouped once more by each other block; and where that is not enough each is compared with its
`NEIGHBOURS` next in order alone. How many rows that were is counted: some of their pairs may be missed.
"""

import secrets
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, pairwise

from crawler.content.fingerprint import BITS, DISTANCE

BLOCKS = DISTANCE + 2
GROUP_MAX = 128
NEIGHBOURS = 16
FEW = 8  # are compared at once; of more it is looked first whether they are one group already
PART_ROWS = 1 << 19  # compared at a time, of those that have one block in common
_EDGES = [BITS * number // BLOCKS for number in range(BLOCKS + 1)]
_PLACES = [(low, (1 << (high - low)) - 1) for low, high in pairwise(_EDGES)]  # shift, mask
_ROW_BITS = 32
_ROW = (1 << _ROW_BITS) - 1
_ALL = (1 << 64) - 1

Pulse = Callable[[int], None]  # rows done, of `STEPS` times their number
STEPS = BLOCKS - 1


class Groups:
    """Which rows are of one component (a union-find forest)."""

    def __init__(self, rows: int) -> None:
        self._parents = array("I", range(rows))

    def __len__(self) -> int:
        return len(self._parents)

    def root(self, row: int) -> int:
        """The first row of its component: the same for all of one."""
        parents = self._parents
        while (parent := parents[row]) != row:
            parents[row] = row = parents[parent]
        return row

    def join(self, one: int, other: int) -> None:
        one, other = self.root(one), self.root(other)
        if one < other:
            self._parents[other] = one
        else:
            self._parents[one] = other

    def sizes(self) -> "array[int]":
        """How many rows are of a component, at its first row; 0 at all others."""
        found = array("I", bytes(4 * len(self)))
        for row in range(len(found)):
            found[self.root(row)] += 1
        return found

    def are_one(self, rows: Iterable[int]) -> bool:
        """Are all of one component?"""
        roots = map(self.root, rows)
        first = next(roots, None)
        return all(root == first for root in roots)

    def firsts(self, is_before: Callable[[int, int], bool]) -> "array[int]":
        """For each row the one of its component that is before all others (of these: itself)."""
        best = array("I", self._parents)  # of each root
        for row in range(len(best)):
            if (root := self.root(row)) != row and is_before(row, best[root]):
                best[root] = row
        for row in range(len(best) - 1, -1, -1):  # roots have the lowest numbers, so they are the last to change
            best[row] = best[self.root(row)]
        return best


def join_equal(groups: Groups, *values: Sequence[int]) -> "array[int]":
    """Join the rows that have the same values, whose first is 0 for none; the first row of each, in order."""
    count = len(groups)
    parts = min(255, count // PART_ROWS + 1)
    salt = secrets.randbits(64)  # nobody outside chooses what is looked at together; what is found is the same
    part_of = bytearray(
        (((one ^ salt) * 0x9E3779B97F4A7C15 & _ALL) >> 32) % parts + 1 if one else 0 for one in values[0]
    )
    is_first = bytearray(count)
    for part in range(1, parts + 1):
        seen: dict[int, int] = {}
        for row in compress(range(count), map(part.__eq__, part_of)):
            value = values[0][row]
            for more in values[1:]:
                value = value << 64 | more[row]
            first = seen.setdefault(value, row)
            if first == row:
                is_first[row] = 1
            else:
                groups.join(first, row)
    return array("I", compress(range(count), is_first))


def join_near(groups: Groups, prints: Sequence[int], rows: "array[int]", pulse: Pulse = lambda _: None) -> int:
    """Join those of these rows, of different fingerprints, that are near; how many were in groups that were too large
    to compare all with each other.
    """
    crowded, done = bytearray(len(groups)), 0
    for number in range(STEPS):
        for bucket in _by_block(prints, rows, number):
            for later, values in _parts(prints, bucket, range(number + 1, BLOCKS)):
                for alike in _alike(values, later):
                    if len(alike) <= GROUP_MAX:
                        _compare(groups, alike)
                    else:
                        _compare_crowd(groups, sorted(alike), {number, later}, crowded)
            done += len(bucket)
            pulse(done)
    return sum(crowded)


def _by_block(prints: Sequence[int], rows: "array[int]", number: int) -> Iterator["array[int]"]:
    """The rows by a block that they have in common (a counting sort)."""
    shift, mask = _PLACES[number]
    starts = array("Q", bytes(8 * (mask + 2)))
    for row in rows:
        starts[(prints[row] >> shift & mask) + 1] += 1
    for value in range(mask + 1):
        starts[value + 1] += starts[value]
    ends, ordered = starts[:-1], array("I", bytes(4 * len(rows)))
    for row in rows:
        value = prints[row] >> shift & mask
        ordered[ends[value]] = row
        ends[value] += 1
    for first, end in zip(starts, ends, strict=False):
        if end > first + 1:
            yield ordered[first:end]


def _parts(prints: Sequence[int], bucket: "array[int]", blocks: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """A bucket by each of these blocks, as numbers of fingerprint and row; of a large one a part at a time, which has
    all that have this block in common.
    """
    parts = len(bucket) // PART_ROWS + 1
    whole = [prints[row] << _ROW_BITS | row for row in bucket] if parts == 1 else []
    for number in blocks:
        if parts == 1:
            yield number, whole
            continue
        shift, mask = _PLACES[number]
        for part in range(parts):
            yield (
                number,
                [prints[row] << _ROW_BITS | row for row in bucket if (prints[row] >> shift & mask) % parts == part],
            )


def _alike(values: list[int], number: int) -> Iterator[list[int]]:
    """Those that have this block in common, too."""
    shift, mask = _PLACES[number]
    shift += _ROW_BITS
    found: defaultdict[int, list[int]] = defaultdict(list)
    for one in values:
        found[one >> shift & mask].append(one)
    return (alike for alike in found.values() if len(alike) > 1)


def _compare(groups: Groups, alike: Sequence[int]) -> None:
    """Join those that are near."""
    if len(alike) > FEW and groups.are_one(one & _ROW for one in alike):
        return
    for place, one in enumerate(alike, 1):
        for other in alike[place:]:
            if ((one ^ other) >> _ROW_BITS).bit_count() <= DISTANCE:
                groups.join(one & _ROW, other & _ROW)


def _compare_crowd(groups: Groups, alike: list[int], common: set[int], crowded: bytearray) -> None:
    """The same for many, in order."""
    if groups.are_one(one & _ROW for one in alike):
        return
    for number in set(range(BLOCKS)) - common:
        for part in _alike(alike, number):
            if len(part) <= GROUP_MAX:
                _compare(groups, part)
            else:
                _join_next(groups, part)
    for one in alike:
        crowded[one & _ROW] = 1


def _join_next(groups: Groups, alike: Sequence[int]) -> None:
    """Join each with the first one near it of its next ones."""
    for place, one in enumerate(alike, 1):
        for other in alike[place : place + NEIGHBOURS]:
            if ((one ^ other) >> _ROW_BITS).bit_count() <= DISTANCE:
                groups.join(one & _ROW, other & _ROW)
                break

"""Steps of the frontier's state machine that move blocks into files and back, in any order and under any fence."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from crawler.frontier.spilling import Block, Place, Spilling, Stub, is_row
from tests.frontier.machine import HOSTS, TRAP, FrontierSteps, moments, partitions, some
from tests.frontier.model_urls import DEFAULT_DELAY_MS, USERS, row_of

NAMES = [host for host, _ in HOSTS]
ROWS = [row_of(name, user) for name in NAMES for user in USERS]
ASIDE = [f"{name}|!http://{name}" for name in NAMES]
queues = st.sampled_from([*NAMES, *(f"{name}|{TRAP}" for name in NAMES), *ROWS, *ASIDE])


@dataclass(frozen=True)
class Written:
    """A block as it was read and written to a file, for ever: it may be told late, twice, or never."""

    block: Block
    place: Place

    @property
    def stub(self) -> Stub:
        name = " ".join(map(str, (self.block.id, *self.place, len(self.block.urls))))
        return Stub(name, self.place, len(self.block.urls))


class SpillingSteps(FrontierSteps):
    """What an owner's spiller does, one call at a time."""

    def _spilling(self) -> Spilling:
        return Spilling(self._engine, self._keys, default_delay_ms=DEFAULT_DELAY_MS)

    def _write(self, partition: int, queue: str, most: int) -> None:
        raw = self._raw_of(self._dump(), partition)
        ids = [name for name in raw.zset(f"t:{queue}") if " " not in name]
        for id_ in ids[-most:] if is_row(queue) else ids[:most]:  # a row's next ones: its release comes to them soon
            urls = [(member, int(score)) for member, score in raw.zset(f"b:{queue}:{id_}").items()]
            if not urls:
                continue
            block = Block(partition=partition, queue=queue, id=id_, urls=urls)
            file = f"f{len(self._disk)}"
            self._disk[file] = block.urls
            self._written.append(Written(block, (file, 0, 0)))

    @property
    def _written(self) -> list[Written]:
        return self.__dict__.setdefault("_all_written", [])

    def _tell(self, w: Written, off: int, old: int) -> None:
        partition, queue = w.block.partition, w.block.queue
        fence = self._owner(partition, off)
        fence = self._fence(fence.session, partition, fence.epoch - old, off)
        raw = self._raw_of(self._dump(), partition)
        block = raw.zset(f"b:{queue}:{w.block.id}")
        is_there = w.block.id in raw.zset(f"t:{queue}") and all(block.get(m) == score for m, score in w.block.urls)
        told = self._do(self._spilling().spill(fence, [(w.block, w.place)]))
        if not fence.session or not self._is_held(fence):
            self._untouched = True
            assert told == 0
            return
        assert told == (is_there or w.stub.name in raw.zset(f"t:{queue}"))
        if told:
            self._spilled.add((partition, queue))

    @rule(partition=partitions, queue=queues, most=st.integers(1, 3), off=moments)
    def spill(self, partition: int, queue: str, most: int, off: int) -> None:
        known = len(self._written)
        self._write(partition, queue, most)
        for written in self._written[known:]:
            self._tell(written, off, 0)

    @rule(partition=partitions, queue=queues, most=st.integers(1, 3))
    def write_a_file_and_tell_later_or_never(self, partition: int, queue: str, most: int) -> None:
        self._write(partition, queue, most)

    @precondition(lambda self: self._written)
    @rule(index=some, off=moments, old=st.sampled_from((0, 0, 0, 1)))
    def tell_of_what_was_written(self, index: int, off: int, old: int) -> None:
        self._tell(self._written[index % len(self._written)], off, old)

    @precondition(lambda self: self._written)
    @rule(index=some)
    def bring_back_what_was_written(self, index: int) -> None:
        """By anybody, at any time, and again."""
        w = self._written[index % len(self._written)]
        self._do(self._spilling().unspill([(w.block.partition, w.block.queue, w.stub, w.block.urls)]))
        raw = self._raw_of(self._dump(), w.block.partition)
        assert w.stub.name not in raw.zset(f"t:{w.block.queue}")

    @rule(partition=partitions)
    def bring_back_what_is_short(self, partition: int) -> None:
        """As the owner does when a claim tells."""
        queues = [(partition, name) for name in self._raw_of(self._dump(), partition).zset("short")]
        while queues:
            stubs = zip(queues, self._do(self._spilling().next_stubs(queues)), strict=True)
            back = [(p, queue, stub, self._disk[stub.place[0]]) for (p, queue), stub in stubs if stub]
            more = self._do(self._spilling().unspill(back))
            queues = [(p, queue) for (p, queue, *_), is_short in zip(back, more, strict=True) if is_short]
        raw = self._raw_of(self._dump(), partition)
        assert all(raw.zset(f"q:{name}") for name in raw.under("t:") if not is_row(name))

"""What befell whom and when: so that a slow takeover or a second fetch can be told from one that has a cause."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.simulation.loop import NS, Process, VirtualLoop

BEFORE_NS = 8 * NS  # a lost beat makes its session lose its leases at most this much later


@dataclass(slots=True)
class Disturbances:
    """Times of faults, of one process or of all."""

    loop: VirtualLoop
    counts: Counter[str] = field(default_factory=Counter)
    _of: defaultdict[Process, list[int]] = field(default_factory=lambda: defaultdict(list))
    _of_all: list[int] = field(default_factory=list)
    _open: dict[tuple[str, Process | None], int] = field(default_factory=dict)  # since when
    _spans: list[tuple[int, int]] = field(default_factory=list)
    _moves: list[int] = field(default_factory=list)

    def happened(self, kind: str, process: Process | None = None) -> None:
        """A fault at this moment."""
        self.counts[kind] += 1
        self._note(process)
        self._spans.append((self.loop.now_ns, self.loop.now_ns))

    def _note(self, process: Process | None) -> None:
        (self._of_all if process is None else self._of[process]).append(self.loop.now_ns)

    def began(self, kind: str, process: Process | None = None) -> None:
        """A fault that lasts until `ended`."""
        self.counts[kind] += 1
        self._note(process)
        self._open.setdefault((kind, process), self.loop.now_ns)

    def ended(self, kind: str, process: Process | None = None) -> None:
        since = self._open.pop((kind, process), None)
        if since is not None:
            self._note(process)
            self._spans.append((since, self.loop.now_ns))

    def moved(self) -> None:
        """A planned join or leave."""
        self._moves.append(self.loop.now_ns)

    def is_settled(self, from_ns: int, to_ns: int) -> bool:
        """Was there no join or leave in this time?"""
        return not any(from_ns <= at <= to_ns for at in self._moves)

    def is_calm(self, from_ns: int, to_ns: int) -> bool:
        """Did nothing happen to anybody in this time?"""
        if any(since <= to_ns for since in self._open.values()):
            return False
        return not any(since <= to_ns and until >= from_ns for since, until in self._spans)

    def befell(self, process: Process, since_ns: int) -> bool:
        """Did anything happen to this process, or to all, since that time or shortly before?"""
        if any(who in (None, process) for _, who in self._open):
            return True
        return any(at >= since_ns - BEFORE_NS for at in (*self._of[process][-50:], *self._of_all[-50:]))

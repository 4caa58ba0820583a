"""A meter that keeps what it is told, and complains of progress that goes backwards or beyond its total."""

from dataclasses import dataclass, field


@dataclass
class HeardPart:
    what: str
    noun: str
    total: int
    counts: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    @property
    def share(self) -> float:
        """How much of its total it came to."""
        return self.positions[-1] / self.total if self.positions else 0.0


class HeardMeter:
    def __init__(self) -> None:
        self.parts: list[HeardPart] = []

    def begin(self, what: str, noun: str = "", total: int = 0) -> None:
        self.parts.append(HeardPart(what, noun, total))

    def reached(self, count: int, position: int = 0) -> None:
        part = self.parts[-1]
        assert part.noun, f"{part.what} counts nothing"
        assert count >= max(part.counts, default=0)
        assert max(part.positions, default=0) <= position <= (part.total or position)
        part.counts.append(count)
        part.positions.append(position)

    def part(self, what: str) -> HeardPart:
        """The only one of this name."""
        (found,) = [part for part in self.parts if part.what == what]
        return found

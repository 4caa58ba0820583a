"""What loops over much data report to, so that they know nothing of terminals. Pure."""

from typing import Protocol


class Meter(Protocol):
    """Hears how far long work is, one part of it after the other. Cheap enough to be called for each record."""

    def begin(self, what: str, noun: str = "", total: int = 0) -> None:
        """The next part begins, like ("reading archive", "record", its bytes). `total` 0: nobody knows.

        Without a noun nothing is counted.
        """
        ...

    def reached(self, count: int, position: int = 0) -> None:
        """So many records of this part are done; `position`: so much of its total."""
        ...


class _Silent:
    def begin(self, what: str, noun: str = "", total: int = 0) -> None:
        pass

    def reached(self, count: int, position: int = 0) -> None:
        pass


SILENT: Meter = _Silent()

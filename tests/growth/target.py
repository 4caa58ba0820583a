"""One row of the table of functions that take a site's bytes."""

from collections.abc import Callable
from typing import Any

import msgspec

from tests.growth.reading import KIB


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """`around`: what stands before and after the repeated tokens. `reads_text`: it takes a str, else bytes."""

    name: str
    function: Callable[[Any], object]
    tokens: tuple[bytes, ...]
    around: tuple[tuple[bytes, bytes], ...] = ((b"", b""),)
    bytes_max: int = 16 * KIB
    reads_text: bool = False
    raises: tuple[type[Exception], ...] = ()
    is_timed: bool = True  # its time is one of its input's length

    def call(self, data: bytes) -> None:
        """Raises what is not in `raises`."""
        given = data.decode("utf-8", "replace") if self.reads_text else data
        try:
            self.function(given)
        except self.raises:
            return

"""What a web of the lab is to its servers and to the clients that crawl it, and the three that there are."""

from pathlib import Path
from typing import Protocol

from corpus import RealWeb
from synthetic import ColdWeb, SyntheticWeb

PAGES_DEFAULT = 10_000


class Web(Protocol):
    """Files and nginx servers that together are a web, and the crawl that all clients make of it."""

    @property
    def name(self) -> str: ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names for a hosts file; none where there are too many for one."""

    @property
    def pages_max(self) -> int:
        """A client stops after so many; 0: it gets all, and all clients must get the same."""

    @property
    def pages_min(self) -> int:
        """With fewer, something is wrong."""

    def missing(self) -> list[str]:
        """Packages that must be installed before it can be served."""

    def seeds(self, port: int) -> list[str]: ...

    def pattern(self, port: int, *, fragments: bool = False) -> str:
        """Which URLs belong to the crawl, as a regular expression. With `fragments` for clients that look at URLs
        before they cut the fragment off."""

    def write(self, home: Path, port: int) -> None:
        """Files that its servers need, below `home`."""

    def servers(self, home: Path) -> list[str]:
        """Blocks of nginx's `http` section; in each server {listen} stands for what to listen on."""


def web_of(name: str, pages: int) -> Web:
    """`pages` bounds the crawl of a web without end, and is the size of the one of cold hosts."""
    if name == "real":
        return RealWeb()
    return SyntheticWeb(pages_max=pages) if name == "synthetic" else ColdWeb(domains=pages)

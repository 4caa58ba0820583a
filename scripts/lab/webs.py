"""What a web of the lab is to its servers and to the clients that crawl it, and the four that there are."""

from pathlib import Path
from typing import Protocol

from corpus import RealWeb
from synthetic import ColdWeb, SyntheticWeb

DOMAINS = 10_000
PAGES = {"real": 0, "synthetic": 20_000, "endless": 10_000, "cold": 10_000}


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


def web_of(name: str, pages: int = 0) -> Web:
    """One of PAGES, which says how many pages it has, or a crawl of it, if it is not told (`pages`)."""
    pages = pages or PAGES[name]
    if name == "synthetic":
        domains = min(DOMAINS, pages)
        return SyntheticWeb(domains=domains, pages_each=max(1, pages // domains), own=2, away=48)
    if name == "endless":
        return SyntheticWeb(domains=DOMAINS, pages_max=pages, name=name)
    return ColdWeb(domains=pages) if name == "cold" else RealWeb()

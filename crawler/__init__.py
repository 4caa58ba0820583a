"""A distributed web crawler. What programs of its users import from here is loaded when it is asked for."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crawler.handlers.crawler import Crawler
    from crawler.handlers.page import Page

__all__ = ["Crawler", "Page"]


def __getattr__(name: str) -> Any:
    """The command line starts without the HTML parser that these bring along."""
    if name == "Crawler":
        from crawler.handlers.crawler import Crawler

        return Crawler
    if name == "Page":
        from crawler.handlers.page import Page

        return Page
    raise AttributeError(f"module 'crawler' has no attribute {name!r}")

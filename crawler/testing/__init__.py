"""For tests of what users program: pages made by hand, webs that are known, crawls of them, all without the internet.

Nothing of it is loaded before it is asked for: a pytest plugin lies beside it (plugin.py), and every pytest of whoever
has installed the crawler imports that.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crawler.testing.crawling import Crawled, crawl
    from crawler.testing.example import ExampleWeb
    from crawler.testing.pages import Called, call_handler, fake_page
    from crawler.testing.replaying import replay
    from crawler.testing.serving import Answer, ServedWeb, serve
    from crawler.testing.web import Expected, GeneratedWeb, Resource

__all__ = [
    "Answer",
    "Called",
    "Crawled",
    "ExampleWeb",
    "Expected",
    "GeneratedWeb",
    "Resource",
    "ServedWeb",
    "call_handler",
    "crawl",
    "fake_page",
    "replay",
    "serve",
]

_PLACES = {
    "crawling": ("Crawled", "crawl"),
    "example": ("ExampleWeb",),
    "pages": ("Called", "call_handler", "fake_page"),
    "replaying": ("replay",),
    "serving": ("Answer", "ServedWeb", "serve"),
    "web": ("Expected", "GeneratedWeb", "Resource"),
}


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"crawler.testing.{module}"), name)
    raise AttributeError(f"module 'crawler.testing' has no attribute {name!r}")

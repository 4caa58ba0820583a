"""For users' tests: constructed pages, known webs and crawls of them, all without the internet.

Nothing of it is loaded before it is asked for: a pytest plugin is next to it (plugin.py), and every pytest of whoever
has installed the crawler imports that.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crawler.testing.example_web import ExampleWeb
    from crawler.testing.fake_pages import Called, call_handler, fake_page
    from crawler.testing.generated_web import Expected, GeneratedWeb, Resource
    from crawler.testing.replaying import replay
    from crawler.testing.run_crawl import Crawled, crawl
    from crawler.testing.web_server import Answer, Asked, ServedWeb, serve

__all__ = [
    "Answer",
    "Asked",
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
    "run_crawl": ("Crawled", "crawl"),
    "example_web": ("ExampleWeb",),
    "fake_pages": ("Called", "call_handler", "fake_page"),
    "replaying": ("replay",),
    "web_server": ("Answer", "Asked", "ServedWeb", "serve"),
    "generated_web": ("Expected", "GeneratedWeb", "Resource"),
}


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"crawler.testing.{module}"), name)
    raise AttributeError(f"module 'crawler.testing' has no attribute {name!r}")

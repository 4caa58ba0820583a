"""The object that a user's module makes: which function is called with which page, and what else is listened to.

app = Crawler()

@app.page("*.example.com/product/*")
async def product(page):
yield {"title": page.css_first("h1").text()}
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from crawler.errors import UsageError
from crawler.handlers.calling import Streaming, streaming
from crawler.rules.patterns import UrlPattern

Function = TypeVar("Function", bound=Callable[..., Any])
Event = Literal["fetch", "skip", "error", "domain_done", "finish"]
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function of a page. `timeout_s`: how long one page may take it. `function` is as the user wrote it."""

    name: str
    function: Callable[..., Any]
    stream: Streaming
    patterns: tuple[UrlPattern, ...]
    label: str
    timeout_s: float

    @property
    def is_default(self) -> bool:
        """Called for all pages that no other handler is for."""
        return not self.patterns and not self.label


class Crawler:
    """Handlers of pages, and of what happens beside.

    A page goes to one handler: that of its label, if `page.follow` gave it one; else to the first whose pattern fits,
    by the order of their definition; else to the one without pattern and label.
    """

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self.listeners: dict[Event, list[Callable[..., Any]]] = {event: [] for event in get_args(Event)}

    def page(self, *patterns: str, label: str = "", timeout_s: float = TIMEOUT_S) -> Callable[[Function], Function]:
        """Decorator: call this function with pages whose URL fits a pattern (crawler/rules/patterns.py) or that have
        the label. Raises UsageError for patterns that are none, a label that has a handler, a second default.
        """
        if len(patterns) == 1 and not isinstance(patterns[0], str):
            raise UsageError('write @app.page() with its brackets, or @app.page("HOST/PATH")')
        parsed = tuple(UrlPattern.parse(text) for text in patterns)
        if not timeout_s > 0:
            raise UsageError(f"timeout_s={timeout_s}: expected seconds above 0")

        def register(function: Function) -> Function:
            self._add(
                Handler(
                    name=getattr(function, "__name__", repr(function)), function=function, stream=streaming(function),
                    patterns=parsed, label=label, timeout_s=timeout_s,
                )
            )  # fmt: skip
            return function

        return register

    def _add(self, handler: Handler) -> None:
        for other in self.handlers:
            if handler.label and handler.label == other.label:
                raise UsageError(f"handler {handler.name}: the label {handler.label!r} is that of {other.name}")
            if handler.is_default and other.is_default:
                raise UsageError(f"handler {handler.name}: {other.name} has no pattern and no label either")
        self.handlers.append(handler)

    def handler_for(self, url: str, label: str = "") -> Handler | None:
        """Who gets the page of a canonical URL; None when nobody does. Raises UsageError for an unknown label."""
        if label:
            for handler in self.handlers:
                if handler.label == label:
                    return handler
            raise UsageError(f"no handler has the label {label!r} (there are: {', '.join(self.labels) or 'none'})")
        for handler in self.handlers:
            if any(pattern.matches(url) for pattern in handler.patterns):
                return handler
        return next((handler for handler in self.handlers if handler.is_default), None)

    @property
    def labels(self) -> list[str]:
        return [handler.label for handler in self.handlers if handler.label]

    def on_fetch(self, function: Function) -> Function:
        """Decorator: called with each response, before its handler."""
        return self._listen("fetch", function)

    def on_skip(self, function: Function) -> Function:
        """Decorator: called with a URL that is not fetched, and the reason."""
        return self._listen("skip", function)

    def on_error(self, function: Function) -> Function:
        """Decorator: called with a URL whose attempt failed, and the failure."""
        return self._listen("error", function)

    def on_domain_done(self, function: Function) -> Function:
        """Decorator: called with a domain of which nothing is left."""
        return self._listen("domain_done", function)

    def on_finish(self, function: Function) -> Function:
        """Decorator: called once in each instance, when the crawl has ended."""
        return self._listen("finish", function)

    def _listen(self, event: Event, function: Function) -> Function:
        self.listeners[event].append(function)
        return function

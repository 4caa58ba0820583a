"""URLs of one shape: a hint that a site may have no end, where no trap rule can tell. It defers nothing. Pure.

A shape is a URL without what counts up or is drawn: segments and values with digits. `/s?sid=4f1c...` and
`/item/12345` have one, titles in paths don't.
"""

from collections import OrderedDict

import msgspec

from crawler.rules.urls import host_of

HINT_MS = 10 * 60 * 1000  # so long nothing else came
PAUSE_MS = 60 * 1000  # of a domain that is fetched from all the time
PAGES_MIN = 20
DOMAINS_MAX = 10_000  # that are remembered
SHOWN_MAX = 3  # domains in a hint
SHAPE_CHARS_MAX = 200  # that are compared
SHAPE_SHOWN_MAX = 60


def shape_of(url: str) -> str:
    """The shape of a canonical URL."""
    address, mark, query = url.partition("?")
    parts = [_drawn(part) for part in address.split("/")[3:]]
    names = [f"{name}={_drawn(value)}" for name, _, value in (one.partition("=") for one in query.split("&"))]
    return f"{host_of(url)}/{'/'.join(parts)}{mark}{'&'.join(names) if mark else ''}"[:SHAPE_CHARS_MAX]


def _drawn(part: str) -> str:
    return "*" if any(map(str.isdigit, part)) else part


class _Run(msgspec.Struct):
    """Pages of one domain whose shape was the same."""

    shape: str
    since_ms: int
    last_ms: int
    pages: int = 1


class ShapeWatch:
    """What one instance has fetched from each domain, for as long as it had one shape."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, _Run] = OrderedDict()  # the latest last

    def note(self, domain: str, url: str, now_ms: int) -> None:
        """A page was committed."""
        shape = shape_of(url)
        run = self._runs.get(domain)
        if run is not None and run.shape == shape and "*" in shape:
            run.last_ms, run.pages = now_ms, run.pages + 1
        else:
            self._runs[domain] = _Run(shape, now_ms, now_ms)
        self._runs.move_to_end(domain)
        if len(self._runs) > DOMAINS_MAX:
            self._runs.popitem(last=False)

    def hint(self, now_ms: int) -> str:
        """The shapes of the domains that had nothing else for ten minutes, and still have; "" for none."""
        shapes = []
        for run in reversed(self._runs.values()):
            if now_ms - run.last_ms > PAUSE_MS:
                break  # nor are the others fetched from
            if now_ms - run.since_ms >= HINT_MS and run.pages >= PAGES_MIN:
                shapes.append(run.shape[:SHAPE_SHOWN_MAX])
        more = f" and {len(shapes) - SHOWN_MAX} more" if len(shapes) > SHOWN_MAX else ""
        return ", ".join(shapes[:SHOWN_MAX]) + more

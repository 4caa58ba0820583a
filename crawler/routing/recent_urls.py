"""The URLs that this instance has routed lately: most links of a page were met on the one before."""

from collections.abc import Collection

URL_CHARS_MAX = 512  # longer ones are not remembered: 200,000 of 8 KiB would take 1.6 GB


class RecentUrls:
    """URLs whose add has succeeded lately, with their depth.

    Two generations: the older one is dropped when the younger is full, so memory is bounded without work per hit.
    Cleared when the engine restarted or fell back.
    """

    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}

    def knows(self, url: str, depth: int) -> bool:
        """Was this URL added lately at this depth or a smaller one?"""
        known = self._young.get(url)
        if known is None:
            known = self._old.get(url)
            if known is None:
                return False
            self._young[url] = known
        return known <= depth

    def unknown(self, urls: Collection[str], depth: int) -> list[str]:
        """Those that `knows` does not know, in their order; faster than a call for each."""
        young = map(self._young.get, urls)
        missing = [url for url, known in zip(urls, young, strict=True) if known is None or known > depth]
        return [url for url in missing if not self.knows(url, depth)] if self._old else missing

    def add(self, url: str, depth: int) -> None:
        if len(url) > URL_CHARS_MAX:
            return
        self._young[url] = depth
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}

    def clear(self) -> None:
        self._young, self._old = {}, {}

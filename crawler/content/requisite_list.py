"""Gathers what a document loads: unique canonical URLs in the document's order, within bounds. Pure.

Readers of HTML and CSS hand over each reference that they find. What is beyond a bound is counted, not looked at: a
reference costs at most a look into a dictionary then.
"""

from crawler.content.charset import with_query_in
from crawler.model import Requisite
from crawler.rules.urls import BYTES_MAX, JoinCache, join_all

URLS_BYTES_MAX = 1024 * 1024  # of all together: they are in memory and on the way to the engine at once
STEPS_MAX = 200_000  # elements, references and marks of CSS that are looked at: some 0.3 s
JOIN_MS_MAX = 200.0  # of joining, by the estimate below

_TRIED_FOR_EACH = 4  # distinct references for each URL that may be returned: others lead nowhere
_JOIN_MS = 0.005  # of a short reference
_JOIN_MS_PER_CHAR = 6e-6  # as in html.py, and the next one
_JOIN_MS_PER_ODD_BYTE = 2e-3  # characters beyond ASCII
_JOIN_MS_PER_OCTET = 4e-4
_BLANKS = "".join(map(chr, range(0x21)))  # that URLs begin and end with in vain
_NEVER = ("data:", "about:", "javascript:", "blob:", "#")  # no request; `#` is a part of the document itself
_NEVER_CHARS = max(map(len, _NEVER))


class RequisiteList:
    """What was found so far. `cut` counts references that were left out, at least; those that lead to a URL that was
    returned may be among them, in another spelling.
    """

    def __init__(
        self, base: str, limit: int, *, own_url: str = "", query_charset: str = "", joins: JoinCache | None = None
    ) -> None:
        """`base`: what references are relative to, canonical. `limit`: how many URLs are returned. `own_url` is not
        among them. `query_charset`: the codec of queries, "" is UTF-8.
        """
        self.cut = 0
        self.names_icon = False  # is there an icon, also one without a request
        self.steps_left = STEPS_MAX
        self._base = base
        self._limit = limit
        self._own_url = own_url
        self._query_charset = query_charset
        self._joins = JoinCache() if joins is None else joins
        self._kinds: dict[str, str] = {}
        self._tried: set[str] = set()
        self._tries_left = _TRIED_FOR_EACH * limit
        self._bytes_left = URLS_BYTES_MAX
        self._join_ms_left = JOIN_MS_MAX

    def add(self, href: str, kind: str, *, in_utf_8: bool = False) -> None:
        """Take one reference, as the document has it. `in_utf_8`: its query is, whatever the document is in."""
        if href in self._tried:
            return
        text = href.strip(_BLANKS)
        if not text or len(text) > BYTES_MAX or text[:_NEVER_CHARS].lower().startswith(_NEVER):
            return
        if len(self._kinds) >= self._limit or self._tries_left <= 0 or self._join_ms_left <= 0:
            self.cut += 1
            return
        self._tried.add(href)
        self._tries_left -= 1
        self._join_ms_left -= _join_ms(self._base, text)
        if self._query_charset and not in_utf_8:
            text = with_query_in(self._query_charset, text)
        joined, _ = join_all(self._base, (text,), cache=self._joins)
        if joined and joined[0] != self._own_url and joined[0] not in self._kinds:
            self._take(joined[0], kind)

    def _take(self, url: str, kind: str) -> None:
        if len(url) > self._bytes_left:
            self.cut += 1
            return
        self._bytes_left -= len(url)
        self._kinds[url] = kind

    def step(self) -> bool:
        """May one more thing be looked at?"""
        self.steps_left -= 1
        return self.steps_left >= 0

    def found(self) -> tuple[tuple[Requisite, ...], int]:
        """What was found, in the document's order, and how many references were left out."""
        return tuple([Requisite(url, kind) for url, kind in self._kinds.items()]), self.cut


def _join_ms(base: str, text: str) -> float:
    """How long it may take to join a reference, at worst."""
    spent_ms = _JOIN_MS + (len(base) + len(text)) * _JOIN_MS_PER_CHAR + text.count("%") * _JOIN_MS_PER_OCTET
    if not text.isascii():
        spent_ms += (len(text.encode("utf-8", "surrogatepass")) - len(text)) * _JOIN_MS_PER_ODD_BYTE
    return spent_ms

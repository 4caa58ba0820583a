"""Answers that are no pages: a firewall's test whether a person asks. Pure.

Nothing is done about such a test: it is not solved, and nothing is pretended. But its page is not the site's.

Headers tell by themselves. In a body, the marks of one of the known products must stand in its tags or scripts, and
there must be little text beside them. So an article that quotes such a page is a page, as its quote is text; and so is
one that has a captcha in a form, or says who protects it.
"""

from collections.abc import Iterable, Iterator

from crawler.rules.challenge_markers import BODIES, HEADERS

BODY_BYTES = 64 * 1024  # of a body, that are looked at; these pages have 1 to 40 KB
TEXT_BYTES_MAX = 3_000  # of a challenge, without blanks; explanations for people in two languages are some 1,500
LINKS_MAX = 10  # of a challenge: help, a privacy notice
BEGIN_BYTES = 256  # within which markup begins with "<"
SENTENCE = "this site answers with a challenge"
_NAMES = frozenset(marker.name for marker in HEADERS)
_LENGTHS = frozenset(map(len, _NAMES))
# One of these is in each marker: a page that has none is no challenge.
_HINTS = tuple({marker.texts[0] for marker in BODIES})
_OPAQUE = (b"script", b"style", b"textarea", b"title", b"noscript")  # elements whose content is no tags
_QUOTING = (b"<meta", b"<a ", b"<img", b"<option")  # tags with texts for people in their attributes
_ESCAPED = (b"&lt;", b"&quot;", b"&#34;")  # in a tag that has markup in an attribute, for a button that copies it
_DATA = (b"json", b"text/plain", b"template")  # in the type of a script that is none
# Begins of scripts that have a page's texts: __NEXT_DATA__, __next_f, __NUXT__, __INITIAL_STATE__, __remixContext ...
_STATES = tuple(begin + b"__" for begin in (b"", b"(", b"window.", b"self.", b"(self.", b"globalThis.", b"var "))
_STATE_BYTES = 64  # within which they begin


def challenge_of(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> str:
    """The product that challenges instead of answering; "" for most answers. Takes linear time."""
    return _in_headers(headers) or (_in_body(body[:BODY_BYTES]) if _may_be_one(body) else "")


def _in_headers(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if len(name) in _LENGTHS and (low := name.lower()) in _NAMES:
            for marker in HEADERS:
                if low == marker.name and value.strip().lower() in marker.values:
                    return marker.product
    return ""


def _may_be_one(body: bytes) -> bool:
    """Is it markup with few links? Most pages have some more, soon."""
    if body[:BEGIN_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"<":
        return False
    at = 0
    for _ in range(LINKS_MAX + 1):
        at = body.find(b"<a ", at, BODY_BYTES) + 1
        if not at:
            return True
    return False


def _in_body(begin: bytes) -> str:
    if not any(hint in begin for hint in _HINTS):
        return ""
    markup, text_bytes = bytearray(), 0
    for is_text, part in _parts(begin):
        if not is_text:
            markup += part
        else:
            text_bytes += len(b"".join(part.split()))
            if text_bytes > TEXT_BYTES_MAX:
                return ""
    return next((one.product for one in BODIES if all(text in markup for text in one.texts)), "")


def sentence_of(product: str) -> str:
    """What people are told."""
    return f"{SENTENCE} ({product})"


def _parts(page: bytes) -> Iterator[tuple[bool, bytes]]:
    """Texts for people (True), and tags, titles and scripts (False), in order."""
    at, low = 0, page.lower()
    while at < len(page):
        begin = page.find(b"<", at)
        if begin < 0:
            yield True, page[at:]
            return
        if begin > at:
            yield True, page[at:begin]
        if page.startswith(b"<!--", begin):  # nobody sees it, and it proves nothing
            end = page.find(b"-->", begin)
            at = len(page) if end < 0 else end + 3
            continue
        end = page.find(b">", begin)
        at = len(page) if end < 0 else end + 1
        tag = low[begin:at]
        is_quote = (tag.startswith(_QUOTING) and b"http-equiv" not in tag) or any(one in tag for one in _ESCAPED)
        if not is_quote:
            yield False, page[begin:at]
        element = next((one for one in _OPAQUE if low.startswith(one, begin + 1)), b"")
        if element:
            close = low.find(b"</" + element, at)
            close = len(page) if close < 0 else close
            is_state = page[at : at + _STATE_BYTES].lstrip().startswith(_STATES)
            if element != b"script" or not (is_state or any(kind in tag for kind in _DATA)):
                yield element in (b"textarea", b"noscript"), page[at:close]
            at = close

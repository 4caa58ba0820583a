"""Whether a body is HTML: by its media type, and by its first bytes where the type is silent or plainly wrong.

Follows the WHATWG MIME Sniffing Standard where it matters to a crawler; text/plain is never sniffed into HTML.
"""

import re

HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))

_XML_TYPES = frozenset(("application/xml", "text/xml"))
_SILENT_TYPES = frozenset(("", "*/*", "unknown/unknown", "application/unknown"))
_SNIFFED_BYTES = 512
_BINARY = (b"%PDF-", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b\x08", b"Rar!", b"RIFF", b"OggS")
_HTML_START = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r \x00]*(?:<\?xml[^>]*>\s*)?"
    rb"<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|link|meta|!--)[\s>/-]",
    re.IGNORECASE,
)
_XHTML_NAMESPACE = b"http://www.w3.org/1999/xhtml"


def media_type(content_type: str) -> str:
    """Type and subtype of a Content-Type header in lower case; "" when absent."""
    return content_type.partition(";")[0].strip().lower()


def is_html(content_type: str, body: bytes) -> bool:
    """True when `body` is to be parsed as HTML."""
    kind = media_type(content_type)
    if kind in HTML_TYPES:
        return not body.startswith(_BINARY)
    head = body[:_SNIFFED_BYTES]
    if kind in _SILENT_TYPES:
        return _HTML_START.match(_ascii_view(head)) is not None
    return kind in _XML_TYPES and _XHTML_NAMESPACE in head


def _ascii_view(head: bytes) -> bytes:
    """UTF-16 with its mark, read as if it were ASCII: enough to see a tag."""
    return head[2:].replace(b"\0", b"") if head[:2] in (b"\xff\xfe", b"\xfe\xff") else head

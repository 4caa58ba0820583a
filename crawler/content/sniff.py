"""Whether a body is HTML: by its media type, and by its first bytes where the type is silent or plainly wrong.

Follows the WHATWG MIME Sniffing Standard where it matters to a crawler; text/plain is never sniffed into HTML.
"""

HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))

_XML_TYPES = frozenset(("application/xml", "text/xml"))
_SILENT_TYPES = frozenset(("", "*/*", "unknown/unknown", "application/unknown"))
_SNIFFED_BYTES = 512
_BINARY = (b"%PDF-", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b\x08", b"Rar!", b"RIFF", b"OggS")
_BLANKS = b"\t\n\f\r \0"
_HTML_NAMES = b"!doctype html,html,head,script,iframe,h1,div,font,table,a,style,title,b,body,br,p,link,meta,!--"
_HTML_STARTS = tuple(b"<%b" % name for name in _HTML_NAMES.split(b","))
_AFTERS = frozenset((b"\t", b"\n", b"\v", b"\f", b"\r", b" ", b">", b"/", b"-"))
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
        return _begins_as_html(_ascii_view(head).lower())
    return kind in _XML_TYPES and _XHTML_NAMESPACE in head


def _begins_as_html(head: bytes) -> bool:
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip(_BLANKS)
    if head.startswith(b"<?xml"):
        head = head.partition(b">")[2].lstrip(_BLANKS)
    return any(head.startswith(start) and head[len(start) : len(start) + 1] in _AFTERS for start in _HTML_STARTS)


def _ascii_view(head: bytes) -> bytes:
    """UTF-16 with its mark, read as if it were ASCII: enough to see a tag."""
    return head[2:].replace(b"\0", b"") if head[:2] in (b"\xff\xfe", b"\xfe\xff") else head

"""Whether a body is HTML, and in which encoding. Pure.

HTML: by the media type, and by the first bytes where there is no type or it is obviously wrong. Follows the WHATWG
MIME Sniffing Standard where it matters to a crawler; text/plain is never taken for HTML.

Encoding: byte-order mark, then header, then what the page declares (charset.py), then the bytes themselves.
"""

import codecs

from crawler.content.charset import CODECS, SINGLE_BYTE, declared

HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))

_XML_TYPES = frozenset(("application/xml", "text/xml"))
_SILENT_TYPES = frozenset(("", "*/*", "unknown/unknown", "application/unknown"))
_SNIFFED_BYTES = 512
_BINARY = (b"%PDF-", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b\x08", b"Rar!", b"RIFF", b"OggS")
_HTML_BLANKS = b"\t\n\f\r \0"
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
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip(_HTML_BLANKS)
    if head.startswith(b"<?xml"):
        head = head.partition(b">")[2].lstrip(_HTML_BLANKS)
    return any(head.startswith(start) and head[len(start) : len(start) + 1] in _AFTERS for start in _HTML_STARTS)


def _ascii_view(head: bytes) -> bytes:
    """UTF-16 with a byte-order mark as ASCII: enough to see a tag."""
    return head[2:].replace(b"\0", b"") if head[:2] in (b"\xff\xfe", b"\xfe\xff") else head


_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))
_NULLS_BYTES = 1024  # of the beginning, that are looked at
_SAMPLE_BYTES = 4096  # detection costs about 0.3 ms per KiB
_HEADER_CHARS = 1024  # of Content-Type: nobody needs more, and the search below takes quadratic time
_BLANKS = " \t\n\r\f\v"
_AFTER_VALUE = frozenset(_BLANKS + "\"';,/>")
_FALLBACK = "cp1252"  # as browsers do for Western pages without a declaration


def detect_charset(body: bytes, content_type_header: str) -> str:
    """Name of the Python codec for `body`; always "utf-8" for UTF-8."""
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return codec
    codec_name = CODECS.get(_value_of("charset", content_type_header[:_HEADER_CHARS].lower()))
    return codec_name or declared(body) or _from_bytes(body)


def decode(body: bytes, charset: str) -> str:
    """Text of a body, without its byte-order mark; bytes that can't be decoded become U+FFFD."""
    table = SINGLE_BYTE.get(charset)
    if table is not None:
        return codecs.charmap_decode(body, "replace", table)[0]
    text = codecs.decode(body, charset, "replace")
    return text.removeprefix("\ufeff")


def _value_of(name: str, text: str) -> str:
    """The first non-empty value after `name=`, without quotes; "" when there is none."""
    for part in text.split(name)[1:]:
        rest = part.lstrip(_BLANKS)
        if rest.startswith("="):
            value = rest[1:].lstrip(_BLANKS)
            value = value[1:].lstrip(_BLANKS) if value[:1] in ("'", '"') else value
            end = next((at for at, character in enumerate(value) if character in _AFTER_VALUE), len(value))
            if end:
                return value[:end]
    return ""


def _from_bytes(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end >= len(body) - 3 and error.reason == "unexpected end of data":
            return "utf-8"  # cut in the middle of a character
        return _guess(body, error.start)
    nulls = body[:_NULLS_BYTES].count(0)
    if nulls * 3 > len(body[:_NULLS_BYTES]) > 1:  # UTF-16 of ASCII text is valid UTF-8 full of NULs
        return "utf-16-be" if body[0] == 0 else "utf-16-le"
    return "utf-8"


def _guess(body: bytes, first_odd: int) -> str:
    """Let charset-normalizer guess from a sample around the first byte that is not UTF-8."""
    from charset_normalizer import from_bytes

    start = max(0, first_odd - _SAMPLE_BYTES // 4)
    best = from_bytes(body[start : start + _SAMPLE_BYTES], steps=3, chunk_size=256, cp_exclusion=["utf_7"]).best()
    if best is None:
        return _FALLBACK
    name = best.encoding.replace("_", "-").lower()
    return CODECS.get(name) or CODECS.get(name.replace("cp", "windows-")) or _FALLBACK

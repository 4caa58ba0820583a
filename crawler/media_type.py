"""What a body is by its Content-Type, and by its first bytes where that tells nothing. Pure.

The header is read by the Fetch Standard ("extract a MIME type": the last valid one of a list) with the blanks that
browsers take: a type ends at the first one. What is no type counts as absent, and then the first bytes decide, by the
WHATWG MIME Sniffing Standard where it matters to a crawler, unless the site forbids that (`nosniff`). A type that is
valid is never overruled by them: text/plain is never taken for HTML.
"""

from functools import lru_cache
from typing import NamedTuple, Protocol

HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))
HEADER_CHARS = 1024  # of Content-Type: nobody needs more, and what was found is cached

_XML_TYPES = frozenset(("application/xml", "text/xml"))
_UNKNOWN_TYPES = frozenset(("unknown/unknown", "application/unknown"))
_BLANKS = " \t\r\n"
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SNIFFED_BYTES = 512
_BINARY = (b"%PDF-", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b\x08", b"Rar!", b"RIFF", b"OggS")
_CONTROLS = bytes({*range(0x20)} - {*b"\t\n\f\r\x1b"})
_HTML_BLANKS = b"\t\n\f\r \0"
# As in Chromium, the beginning of a name is enough ("<pre>", "<article>"). The standard wants its end, and loses links.
_HTML_NAMES = b"!doctype html,html,head,script,iframe,h1,div,font,table,a,style,title,b,p,link ,meta ,!--"
_HTML_STARTS = tuple(b"<%b" % name for name in _HTML_NAMES.split(b","))
_XHTML_STARTS = (b"<!doctype html", b"<html", b"<!--")  # other XML has names that begin as those of HTML
_XHTML_NAMESPACE = b"http://www.w3.org/1999/xhtml"


class ContentType(NamedTuple):
    """`essence` is type and subtype in lower case, "" when absent; `charset` is the label as it was given, or ""."""

    essence: str = ""
    charset: str = ""


class HasHeaders(Protocol):
    """A response, received or archived."""

    def header(self, name: str) -> str: ...
    def listed(self, name: str) -> str: ...


def media_type(content_type: str) -> str:
    """Type and subtype of a Content-Type header in lower case; "" when absent."""
    return content_type_of(content_type).essence


def declared_type(response: HasHeaders) -> str:
    """The value of Content-Type that the functions of this package take. One that is absent and must not be guessed
    (X-Content-Type-Options: nosniff) is that of plain text, as in browsers.
    """
    content_type = response.listed("content-type")
    if content_type and content_type_of(content_type).essence not in ("", *_UNKNOWN_TYPES):
        return content_type
    is_nosniff = response.listed("x-content-type-options").partition(",")[0].strip(_BLANKS).lower() == "nosniff"
    return "text/plain" if is_nosniff else content_type


def content_type_of(header: str) -> ContentType:
    """The media type of a Content-Type header, whose values are joined by commas."""
    return _content_type_of(header[:HEADER_CHARS])


@lru_cache(maxsize=1024)
def _content_type_of(header: str) -> ContentType:
    found, remembered = ContentType(), ""
    for value in _split(header, ","):
        one = _parsed(value)
        if one.essence in ("", "*/*"):
            continue
        if one.essence != found.essence:
            remembered = one.charset
        found = one if one.charset else one._replace(charset=remembered)
    return found


def _parsed(value: str) -> ContentType:
    """One value; its type ends at a blank, or at the parenthesis of a comment."""
    kind, *parameters = _split(value.strip(_BLANKS), ";")
    end = next((at for at, character in enumerate(kind) if character in _BLANKS or character == "("), len(kind))
    major, slash, minor = kind[:end].partition("/")
    if not slash or not major or not minor or not _TOKEN.issuperset(major) or not _TOKEN.issuperset(minor):
        return ContentType()
    for parameter in parameters:
        name, equals, text = parameter.partition("=")
        if name.strip(_BLANKS).lower() == "charset" and equals and (charset := _unquoted(text)):
            return ContentType(kind[:end].lower(), charset)
    return ContentType(kind[:end].lower())


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that are not in quotes; one that is not closed goes to the end."""
    if '"' not in text:
        return text.split(separator)
    parts, start, is_quoted, is_escaped = [], 0, False, False
    for at, character in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif character == "\\" and is_quoted:
            is_escaped = True
        elif character == '"':
            is_quoted = not is_quoted
        elif character == separator and not is_quoted:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _unquoted(text: str) -> str:
    """The value of a parameter, without quotes and the blanks around it. Single ones are characters to the standard,
    and no charset has them; what is meant is plain.
    """
    text = text.lstrip(_BLANKS)
    if not text.startswith('"'):
        return text.strip(_BLANKS + "'")
    out, is_escaped = [], False
    for character in text[1:]:
        if character == '"' and not is_escaped:
            break
        is_escaped = character == "\\" and not is_escaped
        if not is_escaped:
            out.append(character)
    return "".join(out).strip(_BLANKS)


def is_html(content_type: str, body: bytes) -> bool:
    """True when `body` is to be parsed as HTML. `content_type` is as `declared_type` has it."""
    kind = media_type(content_type)
    if kind in HTML_TYPES:
        return not body.startswith(_BINARY)
    head = body[:_SNIFFED_BYTES]
    if not kind or kind in _UNKNOWN_TYPES:
        return _begins_as_html(_ascii_view(head).lower())
    return kind in _XML_TYPES and _XHTML_NAMESPACE in head


def is_xml(content_type: str) -> bool:
    """Is it declared as XML of any kind?"""
    kind = media_type(content_type)
    return kind in _XML_TYPES or kind.endswith("+xml")


def is_text(body: bytes) -> bool:
    """Whether the first bytes have no character that text has not (WHATWG MIME Sniffing 3, "binary data byte")."""
    head = body[:_SNIFFED_BYTES]
    return len(head.translate(None, _CONTROLS)) == len(head)


def _begins_as_html(head: bytes) -> bool:
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip(_HTML_BLANKS)
    if head.startswith(b"<?xml"):
        return head.partition(b">")[2].lstrip(_HTML_BLANKS).startswith(_XHTML_STARTS)
    return head.startswith(_HTML_STARTS)


def _ascii_view(head: bytes) -> bytes:
    """UTF-16 with a byte-order mark as ASCII: enough to see a tag."""
    return head[2:].replace(b"\0", b"") if head[:2] in (b"\xff\xfe", b"\xfe\xff") else head

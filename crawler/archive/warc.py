"""WARC files: records (ISO 28500:2017) made, written and read, safely for exchanges with hostile sites."""

import enum
import hashlib
import itertools
import re
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import msgspec

from crawler.archive.folder import iso_ms
from crawler.model import Response, Rights, WarcLocation

GZIP = 31  # window bits that ask for a gzip member

# Builds WARC 1.1 records (ISO 28500:2017) as bytes, safely for exchanges with hostile sites. Pure.

# The names that Nutch, StormCrawler and Common Crawl give to headers which no longer describe the stored body.
_KEPT_AS = b"X-Crawler-"
_LINE_BREAKS = re.compile(rb"[\r\n\0]+")
_CREDENTIALS = re.compile(r"^(https?://)[^/?#]*@", re.IGNORECASE)
_IP_ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")
_TRUNCATIONS = frozenset({"length", "time", "disconnect", "unspecified"})
FINGERPRINT = "Crawler-Fingerprint"  # a field of our own (ISO 28500 5.1): requests of one URL may differ
FINGERPRINT_DIGITS_MAX = 19
WITHHELD_BY = "Crawler-Withheld"  # likewise: the record stands for a page without its body
HTTP_FIELD, RIGHTS_FIELD, LINK_FIELD = "http", "rights", "outlink"  # of such a record
KIND = "Crawler-Kind"  # likewise: the record is of no page, and no line of the index names it
_RESERVED = ";/?:@&=+$,#[]!'()*~%"
NOT_MODIFIED_PROFILE = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
SAME_PAYLOAD_PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_RECORD_ID = re.compile(r"<urn:uuid:[0-9a-f-]{36}>")
_DATE = re.compile(r"[0-9T:.Z-]{20,30}")


def record_ids() -> Iterator[str]:
    """Endless record ids: one random UUID whose last 48 bits count up (a new UUID for each costs ten times more)."""
    random = uuid.uuid4()
    first = str(random)[:24]
    for number in itertools.count(random.node):
        yield f"<urn:uuid:{first}{number & 0xFFFF_FFFF_FFFF:012x}>"


def warcinfo(identity: str, *, filename: str, at: float, software: str, fields: Mapping[str, str]) -> bytes:
    """The first record of every file (ISO 28500 6.3). A field without a value is left out."""
    described = {**fields, "software": software, "format": "WARC File Format 1.1"}
    described["conformsTo"] = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
    block = "".join(f"{k}: {_one_line(v)}\r\n" for k, v in described.items() if v).encode("utf-8", "replace")
    head = (
        "WARC/1.1\r\nWARC-Type: warcinfo\r\n"
        f"WARC-Record-ID: {identity}\r\nWARC-Date: {iso_ms(at)}\r\nWARC-Filename: {_one_line(filename)}\r\n"
        f"WARC-Block-Digest: {payload_digest(block)}\r\n"
        f"Content-Type: application/warc-fields\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return b"%b%b\r\n\r\n" % (head.encode(), block)


class Kind(enum.StrEnum):
    """What was exchanged besides pages."""

    ROBOTS = "robots"  # robots.txt or tdmrep.json of an origin
    COOKIE_WALL = "cookie-wall"  # a step on the way to a page
    FAILURE = "failure"  # an attempt that brought no page


def response_record(response: Response, identity: str, fingerprint: str = "", kind: str = "") -> tuple[bytes, str]:
    """The record of the response, and the digest of its payload ("sha1:BASE32", of the content-coded body).

    `fingerprint`: of a request that its URL alone does not tell. `kind`: of one that is for no page.
    """
    body = response.raw_body
    http = _http_head(response)
    payload = payload_digest(body)
    truncated = f"WARC-Truncated: {_truncation(response.truncated)}\r\n" if response.truncated else ""
    named = f"{FINGERPRINT}: {fingerprint}\r\n" if fingerprint else f"{KIND}: {kind}\r\n" if kind else ""
    head = (
        f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: {identity}\r\n{_common(response)}{_protocols(response)}"
        f"WARC-Block-Digest: {payload_digest(body, after=http)}\r\nWARC-Payload-Digest: {payload}\r\n{truncated}{named}"
        f"Content-Type: application/http;msgtype=response\r\nContent-Length: {len(http) + len(body)}\r\n\r\n"
    )
    return b"".join((head.encode("ascii"), http, body, b"\r\n\r\n")), payload


def revisit_record(response: Response, original: "Original", identity: str, fingerprint: str = "") -> bytes:
    """The record of an answer which said that the page is as it was archived before (ISO 28500 6.7.3): where that is.

    Its block is empty. With the head of the 304 in it, pywb sends that head to browsers, which show nothing then.
    """
    named = f"{FINGERPRINT}: {fingerprint}\r\n" if fingerprint else ""
    refers_to = f"WARC-Refers-To: {original.record_id}\r\n" if _RECORD_ID.fullmatch(original.record_id) else ""
    refers_to += f"WARC-Refers-To-Date: {original.date}\r\n" if _DATE.fullmatch(original.date) else ""
    head = (
        f"WARC/1.1\r\nWARC-Type: revisit\r\nWARC-Record-ID: {identity}\r\n{_common(response)}{_protocols(response)}"
        f"WARC-Profile: {NOT_MODIFIED_PROFILE}\r\n{refers_to}WARC-Refers-To-Target-URI: {safe_uri(response.url)}\r\n"
        f"WARC-Payload-Digest: {original.digest}\r\n{named}Content-Length: 0\r\n\r\n"
    )
    return head.encode("ascii") + b"\r\n\r\n"


def duplicate_record(response: Response, original: "Original", identity: str, fingerprint: str = "") -> bytes:
    """The record of an answer whose body is in another record (ISO 28500 6.7.2): its head, and where the body is."""
    http = _http_head(response)
    named = f"{FINGERPRINT}: {fingerprint}\r\n" if fingerprint else ""
    head = (
        f"WARC/1.1\r\nWARC-Type: revisit\r\nWARC-Record-ID: {identity}\r\n{_common(response)}{_protocols(response)}"
        f"WARC-Profile: {SAME_PAYLOAD_PROFILE}\r\n"
        f"WARC-Refers-To: {original.record_id}\r\nWARC-Refers-To-Date: {original.date}\r\n"
        f"WARC-Refers-To-Target-URI: {safe_uri(original.url)}\r\n"
        f"WARC-Block-Digest: {payload_digest(http)}\r\nWARC-Payload-Digest: {original.digest}\r\n{named}"
        f"Content-Type: application/http;msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
    )
    return b"%b%b\r\n\r\n" % (head.encode("ascii"), http)


def withheld_record(
    response: Response, identity: str, *, rights: Rights | None, links: Sequence[str], fingerprint: str = ""
) -> bytes:
    """The record of a page whose body is not kept, because of its rights: in its place, headers, rights and links.

    A `metadata` record (ISO 28500 6.6) with the fields of `application/warc-fields`.
    """
    lines = [f"{HTTP_FIELD}: ".encode() + line for line in _http_head(response).split(b"\r\n") if line]
    lines.append(f"{RIGHTS_FIELD}: ".encode() + msgspec.json.encode(rights))
    lines += [f"{LINK_FIELD}: {safe_uri(link)}".encode() for link in links]
    block = b"".join([line + b"\r\n" for line in lines])
    named = f"{FINGERPRINT}: {fingerprint}\r\n" if fingerprint else ""
    head = (
        f"WARC/1.1\r\nWARC-Type: metadata\r\nWARC-Record-ID: {identity}\r\n{_common(response)}{_protocols(response)}"
        f"WARC-Block-Digest: {payload_digest(block)}\r\n{WITHHELD_BY}: {RIGHTS_FIELD}\r\n{named}"
        f"Content-Type: application/warc-fields\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return b"%b%b\r\n\r\n" % (head.encode("ascii"), block)


def failure_record(url: str, identity: str, *, at: float, fields: Mapping[str, str]) -> bytes:
    """The record of a request, or of an attempt at one, that brought no page: a `metadata` record with these fields."""
    block = "".join([f"{name}: {_one_line(value)}\r\n" for name, value in fields.items()]).encode("utf-8", "replace")
    head = (
        f"WARC/1.1\r\nWARC-Type: metadata\r\nWARC-Record-ID: {identity}\r\nWARC-Date: {iso_ms(at)}\r\n"
        f"WARC-Target-URI: {safe_uri(url)}\r\nWARC-Block-Digest: {payload_digest(block)}\r\n"
        f"{KIND}: {Kind.FAILURE}\r\nContent-Type: application/warc-fields\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return b"%b%b\r\n\r\n" % (head.encode("ascii"), block)


def request_record(response: Response, identity: str, concurrent_to: str, kind: str = "") -> bytes:
    """The record of the request for that response."""
    block = response.request_head + response.request_body
    named = f"{KIND}: {kind}\r\n" if kind else ""
    head = (
        f"WARC/1.1\r\nWARC-Type: request\r\nWARC-Record-ID: {identity}\r\n{_common(response)}"
        f"WARC-Concurrent-To: {concurrent_to}\r\n"
        f"WARC-Block-Digest: {payload_digest(block)}\r\n{named}"
        f"Content-Type: application/http;msgtype=request\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return b"%b%b\r\n\r\n" % (head.encode("ascii"), block)


def _common(response: Response) -> str:
    address = response.remote_ip.partition("%")[0]  # an IPv6 zone means nothing outside this machine
    shown = f"WARC-IP-Address: {address}\r\n" if _IP_ADDRESS.fullmatch(address) else ""
    return f"WARC-Date: {iso_ms(response.started_at)}\r\nWARC-Target-URI: {safe_uri(response.url)}\r\n{shown}"


def _protocols(response: Response) -> str:
    """Of the connection, which is also that of the request: 50 bytes a record. Without TLS, the status line has all."""
    if not response.tls_version:
        return ""
    suite = f"WARC-Cipher-Suite: {response.cipher_suite}\r\n" if response.cipher_suite else ""
    return f"WARC-Protocol: http/{response.http_version}\r\nWARC-Protocol: {response.tls_version}\r\n{suite}"


def safe_uri(url: str) -> str:
    """The URL as one header value: no line breaks, blanks or credentials. Canonical URLs pass unchanged."""
    if "@" in url:
        url = _CREDENTIALS.sub(r"\1", url)
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return quote(url, safe=_RESERVED)


def _http_head(response: Response) -> bytes:
    """Status line and headers as received, except those that contradict the stored body.

    Transfer coding was removed, and a truncated body is shorter than announced: a replay that trusted the original
    headers would fail. So these get other names, and Content-Length is that of the stored body. Hosts also write blanks
    before the colon; readers of archives take the name without them.
    """
    names = [name.rstrip().lower() for name, _ in response.headers]
    status = f"HTTP/{response.http_version} {response.status} {response.reason}"
    lines = [status.encode("utf-8", "surrogateescape")]
    stale = _stale_headers(response, names)
    lines.extend(
        [
            b"%b%b: %b" % (_KEPT_AS if lower in stale else b"", name, value)
            for (name, value), lower in zip(response.headers, names, strict=True)
        ]
        if stale
        else [b"%b: %b" % header for header in response.headers]
    )
    if stale:
        lines.append(b"Content-Length: %d" % len(response.raw_body))
    head = b"\r\n".join(lines)
    if head.count(b"\n") + 1 != len(lines) or head.count(b"\r") + 1 != len(lines) or b"\0" in head:
        head = b"\r\n".join([_LINE_BREAKS.sub(b" ", line) for line in lines])
    return head + b"\r\n\r\n"


_OF_LENGTH = frozenset({b"transfer-encoding", b"content-length"})
_WITHOUT_BODY = frozenset({204, 304})  # whatever a length says, nobody expects a body (RFC 9112 6.3)


def _stale_headers(response: Response, names: Sequence[bytes]) -> frozenset[bytes]:
    """Lower-case names of the headers that define another body than the stored one; none, or both."""
    if response.truncated or b"transfer-encoding" in names:
        return _OF_LENGTH
    if b"content-length" in names and response.status not in _WITHOUT_BODY:
        length = b"%d" % len(response.raw_body)
        for name, (_, value) in zip(names, response.headers, strict=True):
            if name == b"content-length" and value.strip() != length:
                return _OF_LENGTH
    return frozenset()


def _truncation(reason: str) -> str:
    return reason if reason in _TRUNCATIONS else "unspecified"


def _one_line(text: str) -> str:
    return " ".join(text.split())


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [a + b for a, b in itertools.product(_LETTERS, repeat=2)]  # by ten bits
_FIVE_BYTES = struct.Struct(">BI").iter_unpack


def payload_digest(payload: bytes, *, after: bytes = b"") -> str:
    """SHA-1 in base 32 after "sha1:", the form that pywb and OutbackCDX compare (a name, not for security).

    `after`: bytes before the payload, passed separately to avoid a copy.
    """
    digest = hashlib.sha1(after, usedforsecurity=False)
    digest.update(payload)
    return "sha1:" + _base32(digest.digest())


def _base32(digest: bytes) -> str:
    """Base 32 of a multiple of five bytes; three times as fast as the standard library, for three digests a page."""
    return "".join(
        [
            _PAIRS[high << 2 | low >> 30] + _PAIRS[low >> 20 & 1023] + _PAIRS[low >> 10 & 1023] + _PAIRS[low & 1023]
            for high, low in _FIVE_BYTES(digest)
        ]
    )


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """A page in the archive that a later answer says is unchanged, or that has the body of a later one.

    `mime`: its media type, as the index has it. `url`: its own, where that may be another one.
    """

    place: WarcLocation
    record_id: str
    date: str
    digest: str
    mime: str
    url: str = ""

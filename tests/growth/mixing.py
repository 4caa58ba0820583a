"""Random inputs for the table's functions: mixes of tokens, and whole documents with damage. Seeded, so repeatable."""

import gzip
import random
import zlib

import brotli
import zstandard

from tests.growth.target import Target

PART_TOKENS_MAX = 6
PARTS_MAX = 5

DOCUMENTS = {
    "page": b"<!doctype html><html><head><meta charset=utf-8><title>A page</title><base href=/d/></head><body>"
    b"<a href='/x?y=1#z'>x</a><iframe src=//h.test/></iframe>"
    b"<meta http-equiv=refresh content='0;url=/n'></body></html>",
    "sitemap": b"<?xml version='1.0'?><urlset><url><loc>http://site.test/a</loc><lastmod>2026-01-02</lastmod>"
    b"<priority>0.5</priority></url><!-- c --><url><loc><![CDATA[http://site.test/b?x=1]]></loc></url></urlset>",
    "robots": b"User-agent: *\nDisallow: /a*b$\nAllow: /a/b # why\nCrawl-delay: 2\nSitemap: http://site.test/s.xml\n",
    "head": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\nSet-Cookie: a=b; Path=/\r\n\r\nabc",
    "warc": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "lines": b'test,site)/ 20260102030405 {"url":"http://site.test/","mime":"text/html","status":"200","fp":"1","visit":1,'
    b'"at":1.0}\n',
}
TEXT = b"".join(b"<p>paragraph %d of a page</p>\n" % n for n in range(400))
CODED = {
    "gzip": gzip.compress(TEXT, mtime=0),
    "deflate": zlib.compress(TEXT),
    "br": brotli.compress(TEXT, quality=4),
    "zstd": zstandard.ZstdCompressor().compress(TEXT),
}


def input_of(target: Target, random_: random.Random, size: int) -> bytes:
    """An input of about this size."""
    before, after = random_.choice(target.around)
    document = _document_of(target)
    if document and random_.random() < 0.3:
        return _damaged(document * max(1, min(size // len(document), 50)), target, random_)[:size]
    body = b"".join(_part(target, random_, size // random_.randint(1, PARTS_MAX)) for _ in range(PARTS_MAX))
    return before + body[: max(size - len(before) - len(after), 0)] + after


def _part(target: Target, random_: random.Random, size: int) -> bytes:
    """One unit of some tokens again and again, or tokens without any order."""
    tokens = random_.choices(target.tokens, k=random_.randint(1, PART_TOKENS_MAX))
    if random_.random() < 0.75:
        unit = b"".join(tokens)
        return unit * (size // len(unit))
    count = size // (sum(map(len, tokens)) // len(tokens) + 1)
    return b"".join(random_.choices([*tokens, random_.randbytes(3)], k=count))


def _document_of(target: Target) -> bytes:
    if target.name.startswith("coding."):
        return CODED[target.name.removeprefix("coding.").split(", ")[-1]]
    return DOCUMENTS.get(target.name.partition(".")[0], b"")


def _damaged(document: bytes, target: Target, random_: random.Random) -> bytes:
    """Some tokens put in, some bytes changed, some parts doubled or cut out."""
    data = bytearray(document)
    for _ in range(random_.randint(1, 12)):
        at = random_.randrange(len(data) + 1)
        kind = random_.randrange(4)
        if kind == 0:
            data[at:at] = random_.choice(target.tokens) * random_.choice((1, 1, 2, 300))
        elif kind == 1 and at < len(data):
            data[at] = random_.randrange(256)
        elif kind == 2:
            data[at:at] = data[at : at + random_.randint(1, 200)]
        else:
            del data[at : at + random_.randint(1, 40)]
    return bytes(data)

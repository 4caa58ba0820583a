"""What pages and redirects really hold, and what is made of it: tables with the answers of Chromium and of standards.

Each row has its input as Latin-1 text, the answer, and who gave it: `by` is Chromium, a standard, or "on purpose".
Where Chromium answers otherwise, the row has that answer, too, and why ours is another. The slow tests ask Chromium
again, and compare with it what is made of mutated rows (ODD_MUTATIONS of each table, by ODD_SEED).
"""

import json
import os
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.content import charset
from crawler.content.charset import CODECS, declared
from crawler.content.html import _UNSEEN, base_of, extract_text, parse_page, redirect_target
from crawler.content.sniff import detect_charset
from crawler.errors import InvalidUrl
from crawler.rules.urls import canonicalize, join
from tests.support.chromium import chromium, needs_chromium
from tests.support.hostile_server import HostileServer

MUTATIONS = int(os.environ.get("ODD_MUTATIONS", "2000"))  # of each table
SEED = int(os.environ.get("ODD_SEED", "41"))
HTML = "text/html; charset=utf-8"
UNDECLARED = "windows-1252"  # what Chromium takes where nothing is declared and all is ASCII
ENCODINGS = (
    *("ibm866", "koi8-r", "koi8-u", "macintosh", "x-mac-cyrillic", "iso-8859-2", "iso-8859-7", "iso-8859-15"),
    *(f"windows-{n}" for n in (874, *range(1250, 1259))),
    *("gbk", "gb18030", "big5", "euc-jp", "iso-2022-jp", "shift_jis", "euc-kr"),
)
HOST, AT_ONCE = "site.test", 6
MARKS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")

# Reads all documents in frames of one page: without scripts, and without what they do by themselves (Refresh).
_READ = """async ([count, atOnce, unseenOnes]) => {
  const unseen = new Set(unseenOnes);
  const seen = [];
  const nodes = (root, take) => {
    for (const node of root.childNodes) {
      take(node);
      if (node.shadowRoot) nodes(node.shadowRoot, take);
      nodes(node, take);
    }
  };
  const of = doc => {
    const links = [];
    let text = '';
    nodes(doc, node => {
      const name = node.localName, has = one => node.hasAttribute(one);
      if (node.namespaceURI !== 'http://www.w3.org/1999/xhtml') {
        if (name === 'a' && node.href?.baseVal !== undefined && (has('href') || has('xlink:href')))
          links.push(Object.assign(doc.createElement('a'), {href: node.href.baseVal}).href);
      } else if ((name === 'a' || name === 'area') && has('href')) links.push(node.href);
      else if ((name === 'iframe' || name === 'frame') && node.getAttribute('src')) links.push(node.src);
      else if (name === 'link' && has('href')) {
        const rels = (node.getAttribute('rel') || '').toLowerCase().split(/[\\t\\n\\f\\r ]+/);
        const of = (...words) => words.some(one => rels.includes(one));
        if (of('next', 'prev', 'alternate') && !of('stylesheet', 'canonical')) links.push(node.href);
      }
    });
    const roots = doc.body && doc.body.localName === 'body' ? [doc.body] : [];
    const texts = root => {
      if (root.shadowRoot) roots.push(root.shadowRoot);
      for (const node of root.childNodes) {
        if (node.nodeType === 3) text += node.data;
        else if (node.nodeType === 1 && !unseen.has(node.localName)) texts(node);
      }
    };
    for (const root of roots) texts(root);
    return {charset: doc.characterSet, title: doc.title, links, text: text.replace(/\\s+/g, '')};
  };
  const read = number => new Promise(done => {
    const frame = document.createElement('iframe');
    frame.sandbox = 'allow-same-origin';
    frame.onload = () => {
      seen[number] = of(frame.contentDocument);
      frame.remove();
      done();
    };
    frame.src = '/d' + number + '/page';
    document.body.append(frame);
  });
  let next = 0;
  const worker = async () => { while (next < count) await read(next++); };
  await Promise.all(Array.from({length: atOnce}, worker));
  return JSON.stringify(seen);  // quicker than what Playwright makes of objects
}"""
_GO = """number => fetch(`/d${number}/page`, {mode: 'no-cors', headers: {accept: 'odd/redirect'}})
  .then(response => response.text(), () => '')"""

Row = dict[str, Any]
T = TypeVar("T")


def url_of(number: int) -> str:
    return f"http://{HOST}/d{number}/page"


def response(body: bytes, content_type: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


class Browser:
    """A page of Chromium, and the server that all names lead to."""

    def __init__(self, server: HostileServer, steps: dict[str, list[bytes]], page: Any) -> None:
        self._server, self._steps, self._page = server, steps, page

    async def read(self, documents: Sequence[tuple[bytes, str]]) -> list[Row]:
        """Of each body and Content-Type: charset, title, links in order, and text without blanks."""
        self._serve([response(*one) for one in documents])
        return json.loads(await self._page.evaluate(_READ, [len(documents), AT_ONCE, [*_UNSEEN, "template"]]))

    async def targets(self, locations: Sequence[str]) -> list[str]:
        """Where Chromium goes by each Location header (latin-1): the URL of the next request; "" for nowhere."""
        head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "
        self._serve([f"{head}{location}\r\n\r\n".encode("latin-1") for location in locations])
        found = []
        for number in range(len(locations)):
            self._server.requests.clear()
            await self._page.evaluate(_GO, number)
            ours = [
                head for head in self._server.requests if b"odd/redirect" in head
            ]  # the browser has some of its own
            target = requested(ours[1]) if len(ours) > 1 else ""
            found.append(target.replace(f"/d{number}/", "/d0/"))
        return found

    def _serve(self, responses: Sequence[bytes]) -> None:
        self._steps.clear()
        self._steps |= {f"{HOST}/d{number}/page": [one] for number, one in enumerate(responses)}


def requested(head: bytes) -> str:
    host = head.partition(b"\r\nHost: ")[2].partition(b"\r\n")[0]
    return f"http://{host.decode()}{head.split(b' ', 2)[1].decode()}"


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (Path(__file__).parent / f"{name}.jsonl").read_text().splitlines()]


CHARSETS, LINKS, QUERIES, REDIRECTS = map(rows, ("odd_charsets", "odd_links", "odd_queries", "odd_redirects"))


def body_of(row: Row) -> bytes:
    return row["body"].encode("latin-1")


def read(body: bytes, content_type: str, number: int = 0) -> Row:
    """What we make of a page; text without blanks, as that of Chromium."""
    page = parse_page(
        url_of(number), content_type, "", body, links_max=20_000, obey_nofollow=False, bytes_max=8192, agent="x"
    )
    text = "".join(extract_text(body, page.charset).split())
    return {"title": page.title, "links": in_one_place(page.links, number), "text": text}


def in_one_place(links: Sequence[str], number: int) -> list[str]:
    return [link.replace(f"/d{number}/", "/d/") for link in links]


def canonical(links: Sequence[str | None]) -> Iterator[str]:
    for link in links:
        try:
            yield canonicalize(link or "")
        except InvalidUrl:
            continue


def as_ours(seen: Row, number: int) -> Row:
    """What Chromium makes of a page, in our form."""
    links = in_one_place(list(dict.fromkeys(canonical(seen["links"]))), number)
    return {"title": " ".join(seen["title"].split()), "links": links, "text": "".join(seen["text"].split())}


def declared_charset(body: bytes, content_type: str) -> str | None:
    """By a mark, a header or the page; None: by nothing, then the bytes are looked at."""
    is_known = content_type.partition("charset=")[2].lower() in CODECS
    if body.startswith(MARKS) or is_known or declared(body):
        return detect_charset(body, content_type)
    return None


@pytest.mark.parametrize("table", [CHARSETS, LINKS, QUERIES, REDIRECTS])
def test_each_table_says_whose_answers_it_has(table: list[Row]) -> None:
    assert len(table) >= 20
    assert all((row["by"] == "Chromium") is ("why" not in row) for row in table)


@pytest.mark.parametrize("row", CHARSETS, ids=lambda row: row["body"][:40])
def test_odd_charsets(row: Row) -> None:
    assert declared_charset(body_of(row), row.get("content_type", "text/html")) == row["answer"]


@pytest.mark.parametrize("row", LINKS, ids=lambda row: row["body"][:40])
def test_odd_links(row: Row) -> None:
    assert read(body_of(row), HTML) == {key: row[key] for key in ("title", "links", "text")}


BASES = [row for row in LINKS if "<base" in row["body"] and "shadowrootmode" not in row["body"]]


@pytest.mark.parametrize("row", BASES, ids=lambda row: row["body"][:40])
def test_handlers_have_the_base_of_the_crawl(row: Row) -> None:
    tree = LexborHTMLParser(body_of(row))
    base = base_of(tree, url_of(0))
    joined = [join(base, node.attributes["href"] or "") for node in tree.css("a[href]")]
    assert in_one_place([link for link in dict.fromkeys(joined) if link], 0) == row["links"]


@pytest.mark.parametrize("row", QUERIES, ids=lambda row: row["content_type"])
def test_odd_queries(row: Row) -> None:
    assert read(body_of(row), row["content_type"])["links"] == row["links"]


@pytest.mark.parametrize("row", REDIRECTS, ids=lambda row: row["location"])
def test_odd_redirects(row: Row) -> None:
    assert (redirect_target(url_of(0), row["location"]) or "") == row["target"]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    steps = dict[str, list[bytes]]()
    async with (
        HostileServer(response(b"", "text/html"), by_path=steps) as server,
        chromium(f"MAP * 127.0.0.1:{server.port}") as one,
    ):
        page = await one.new_page()
        await page.goto(f"http://{HOST}/")
        yield Browser(server, steps, page)


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_chromium
async def test_chromium_still_gives_the_answers_of_the_tables(browser: Browser) -> None:
    asked = [row for row in (*CHARSETS, *LINKS, *QUERIES) if row["by"] == "Chromium" or "chromium" in row]
    documents = [(body_of(row), row.get("content_type", "text/html" if "answer" in row else HTML)) for row in asked]
    for number, (row, seen) in enumerate(zip(asked, await browser.read(documents), strict=True)):
        if "answer" in row:
            found = seen["charset"].lower()
            given = row.get("chromium", UNDECLARED)
            wanted = row["answer"] if row["answer"] and "chromium" not in row else CODECS.get(given, given)
            assert CODECS.get(found, found) == wanted, row
        else:
            found, given = as_ours(seen, number), row.get("chromium", row)
            answer = {"links": given} if isinstance(given, list) else given
            assert all(answer[key] == found[key] for key in found if key in answer), (row, found)
    for row, found in zip(REDIRECTS, await browser.targets([row["location"] for row in REDIRECTS]), strict=True):
        assert next(canonical([found]), found) == row.get("chromium", row["target"]), row


def mutants(table: Sequence[str], count: int, seed: int, tokens: Sequence[str] = "<>\"'=/& \t\n!-#?;a") -> list[str]:
    """Parts of rows put together, with parts left out, doubled, exchanged and changed."""
    chance, found = random.Random(seed), list[str]()
    while len(found) < count:
        parts = [chance.choice(table) for _ in range(chance.randint(1, 3))]
        text = "".join(parts)
        for _ in range(chance.randint(1, 4)):
            at, end = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
            end = min(end, at + 12)
            match chance.randrange(4):
                case 0:
                    text = text[:at] + text[end:]
                case 1:
                    text = text[:end] + text[at:]
                case 2:
                    text = text[:at] + chance.choice(tokens) + text[at:]
                case _:
                    other = chance.choice(table)
                    begin = chance.randrange(len(other) + 1)
                    text = text[:at] + other[begin : begin + 20] + text[end:]
        found.append(text)
    return found


def differing(
    texts: Sequence[str], seen: Sequence[T], compare: Callable[[int, str, T], tuple[Any, Any]]
) -> list[tuple[str, Any, Any]]:
    """The texts of which we make something else than Chromium, with both answers."""
    pairs = [(text, *compare(number, text, one)) for number, (text, one) in enumerate(zip(texts, seen, strict=True))]
    return [(text, ours, theirs) for text, ours, theirs in pairs if ours != theirs]


def refuse(odd: Sequence[tuple[str, Any, Any]]) -> None:
    shown = [f"{text!r}\n  ours   {ours}\n  theirs {theirs}" for text, ours, theirs in sorted(odd, key=str)[:20]]
    assert not odd, "\n".join([f"{len(odd)} disagreements", *shown])


def pool_of(table: Sequence[Row]) -> list[str]:
    """Rows to be mutated. Long ones are of limits; a base that is no URL leaves Chromium without any link."""
    short = [row["body"] for row in table if row["by"] == "Chromium" and len(row["body"]) < 300]
    return [body for body in short if "<base" not in body or "//" not in body]


@pytest.mark.slow(seconds=30)
@pytest.mark.timeout(900)
@needs_chromium
async def test_mutated_pages_have_the_links_title_and_text_that_chromium_sees(browser: Browser) -> None:
    texts = mutants(pool_of(LINKS), MUTATIONS, SEED)
    seen = await browser.read([(text.encode("latin-1"), HTML) for text in texts])

    def compare(number: int, text: str, one: Row) -> tuple[Any, Any]:
        """But for NULs, and for the order: the shadow root of a body that begins twice comes first there."""
        pages = read(text.encode("latin-1"), HTML, number), as_ours(one, number)
        ours, theirs = (
            {**page, "links": sorted(page["links"]), "text": sorted(page["text"].replace("\ufffd", ""))}
            for page in pages
        )
        return ours, theirs

    refuse([one for one in differing(texts, seen, compare) if not (is_moved(*one) or is_frameset(*one))])


def is_frameset(text: str, ours: Row, theirs: Row) -> bool:
    """A body before a frameset: browsers take it out, and show nothing of it. There may be links in it."""
    return "<frameset" in text.lower() and theirs["text"] == [] and set(ours["links"]) >= set(theirs["links"])


def is_moved(text: str, ours: Row, theirs: Row) -> bool:
    """A link that is not closed before the host of a shadow root: the parser moves its template to another parent."""
    return "shadowrootmode" in text and set(ours["links"]) < set(theirs["links"])


@pytest.mark.slow(seconds=30)
@pytest.mark.timeout(900)
@needs_chromium
async def test_mutated_pages_declare_the_charset_that_chromium_takes(browser: Browser) -> None:
    texts = mutants(pool_of([row for row in CHARSETS if "content_type" not in row]), MUTATIONS, SEED)
    seen = await browser.read([(text.encode("latin-1"), "text/html") for text in texts])

    def compare(number: int, text: str, one: Row) -> tuple[Any, Any]:
        found = one["charset"].lower()
        if (len(text) < 8 and text[1:2] == "\0") or "--!>" in text:  # as in the table
            return None, None
        return declared_charset(text.encode("latin-1"), "text/html") or "cp1252", CODECS.get(found, found)

    refuse([one for one in differing(texts, seen, compare) if not repeats_an_attribute(one[0].encode("latin-1"))])


def repeats_an_attribute(data: bytes) -> bool:
    """Has a meta element two attributes with one name? The first counts by the standard, the last in Chromium."""
    for start in re.finditer(rb"<meta", data, re.IGNORECASE):
        names, at = list[bytes](), start.end()
        while one := charset._ATTRIBUTE.match(data, at):
            names.append(one[1].lower())
            at = one.end()
        if len(set(names)) < len(names):
            return True
    return False


@pytest.mark.slow(seconds=30)
@pytest.mark.timeout(900)
@needs_chromium
async def test_mutated_queries_are_sent_as_chromium_sends_them(browser: Browser) -> None:
    table, chance = [row for row in QUERIES if row["by"] == "Chromium"], random.Random(SEED)
    texts = mutants(pool_of(table), MUTATIONS, SEED)
    kinds = [chance.choice(table)["content_type"] for _ in texts]
    documents = [(text.encode("latin-1"), kind) for text, kind in zip(texts, kinds, strict=True)]
    seen = await browser.read(documents)

    def compare(number: int, text: str, one: Row) -> tuple[Any, Any]:
        body = text.encode("latin-1")
        if declared_charset(body, kinds[number]) is None:
            return None, None
        return read(body, kinds[number], number)["links"], as_ours(one, number)["links"]

    refuse(differing(texts, seen, compare))


LOCATIONS = (
    *"/\\?#:@.%&=;,[]|^ \t\"<>'`{}~+-*!$()ax0Z\xe9\x7f\x01", "//", "http:", "http://", "other.test", "%2F", "%2e",
    "%zz", "..", "/../", "xn--", "127.1", "0x7f", ":80", ":81", "\xc3\xa9", "\xe3\x80\x82", "\xc2\xad",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_chromium
async def test_mutated_redirects_lead_where_chromium_goes(browser: Browser) -> None:
    table = [row["location"] for row in REDIRECTS if row["by"] == "Chromium"]
    texts = [re.sub("[\r\n\0]", "", text) for text in mutants(table, MUTATIONS, SEED, LOCATIONS)]
    seen = await browser.targets(texts)

    def compare(number: int, text: str, one: str) -> tuple[Any, Any]:
        ours = redirect_target(url_of(0), text) or ""
        theirs = next(canonical([one]), one)
        if not theirs and re.match("http://[^/]*:[0-9]+/", ours):
            return None, None
        host = theirs.removeprefix("http://").partition("/")[0]
        if (
            "%20" in host or not host.strip(".") or (not ours and ("xn--" in host or host.endswith("..")))
        ):  # as in the table
            return ("", "") if not ours or "@" in text else (ours, theirs)
        if not theirs and re.match("http://[^/]*:[0-9]+/", ours):
            return None, None
        return ours.replace("|", "%7C"), theirs.replace("|", "%7C")  # as there

    refuse(differing(texts, seen, compare))


@pytest.mark.slow(seconds=30)
@pytest.mark.timeout(900)
@needs_chromium
async def test_every_character_is_sent_in_a_query_as_chromium_sends_it(browser: Browser) -> None:
    """Those of the basic plane, in each encoding. References to C1 controls mean other characters in HTML."""
    points = [n for n in range(0xA0, 0x10000) if not 0xD800 <= n < 0xE000]
    body = "".join(f"<a href='?x&#{n};'></a>" for n in points).encode()
    for label in ENCODINGS:
        (seen,) = await browser.read([(body, f"text/html; charset={label}")])
        theirs = [link.partition("?x")[2] for link in seen["links"]]
        ours = [charset.with_query_in(CODECS[label], f"?x{chr(n)}").partition("?x")[2] for n in points]
        odd = [one for one in zip(map(hex, points), ours, theirs, strict=True) if one[1] != one[2]]
        assert odd == [], label

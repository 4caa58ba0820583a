"""How the table's functions are called: several readers at once, and what they need besides the bytes."""

from collections.abc import Callable
from contextlib import suppress

from selectolax.lexbor import LexborHTMLParser

from crawler.archive import history, index
from crawler.archive.index import surt
from crawler.archive.repair import whole_member_after
from crawler.archive.warc import request_record, response_record, safe_uri
from crawler.archive.warc_reader import members
from crawler.content.coding import inflate
from crawler.content.forms import filled
from crawler.content.html import NO_EVENTS, extract_text, markup_of, parse_page, shadow_roots
from crawler.content.json_text import jsonld_of
from crawler.content.markdown import markdown
from crawler.content.parse_cost import Cost, cost_of
from crawler.content.requisites import requisites_of
from crawler.errors import InvalidUrl
from crawler.handlers.page import Headers
from crawler.model import Claim, CommitEntry, Response
from crawler.rules.order import Ordering
from crawler.rules.patterns import UrlPattern
from crawler.rules.places import is_ip, registrable_domain, without_session
from crawler.rules.robots import RobotsRules
from crawler.rules.scope import ScopeRules
from crawler.rules.trap_dates import date_of
from crawler.rules.trap_shapes import is_plain, suspicions_of_shape
from crawler.rules.trap_tokens import REPEATS_MIN, Chain, known_by_chain, tokens_of
from crawler.rules.trap_verdict import TrapRules
from crawler.rules.traps import TrapState
from crawler.rules.urls import canonicalize, host_of, join, join_all, split
from crawler.settings import OrderSettings, PriorityRule, ScopeSettings
from crawler.settings.schema import TrapSettings
from crawler.web.response import (
    HEADERS_MAX,
    BadHead,
    ResponseReader,
    check_begun,
    end_of,
    repaired,
    status_of,
    unfolded,
)
from crawler.worker.cookie_walls import CookieWalls

KIB = 1024
BASE = "http://site.test/folder/page?a=b"
MIB = 1024 * KIB
URL_BYTES = 8 * KIB


def response_with(headers: list[tuple[bytes, bytes]], body: bytes = b"", url: str = BASE) -> Response:
    return Response(
        url=url, status=200, reason="OK", http_version="1.1", headers=tuple(headers), raw_body=body, body=body,
        request_head=b"GET / HTTP/1.1\r\n\r\n", remote_ip="127.0.0.1", started_at=1.8e9, fetch_ms=1,
    )  # fmt: skip


CLAIM = Claim(
    url=BASE, fingerprint="1", visit=1, partition=0, epoch=1, token="t", domain="site.test", queue="site.test", depth=0,
    redirects=0, attempts=0, deliveries=0, seed=False,
)  # fmt: skip


def lines_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Header fields out of any bytes."""
    return [(name, value) for name, _, value in (line.partition(b":") for line in data.split(b"\n")[:HEADERS_MAX])]


def head(data: bytes) -> None:
    check_begun(data)
    end = end_of(data)
    whole = data[:end] if end > 0 else data + b"\r\n\r\n"
    for act in (status_of, unfolded, repaired):
        with suppress(BadHead):
            act(whole)


def fed_bytewise(data: bytes) -> None:
    reader = ResponseReader(headers_bytes_max=64 * KIB)
    reader.begin(body_bytes_max=MIB)
    try:
        for at in range(len(data)):
            reader.feed(data[at : at + 1])
    finally:
        reader.close()


def fed_in_two(data: bytes) -> None:
    reader = ResponseReader(headers_bytes_max=64 * KIB)
    reader.begin(body_bytes_max=MIB)
    try:
        reader.feed(data[: len(data) // 2])
        reader.feed(data[len(data) // 2 :])
    finally:
        reader.close()


def answered_once(data: bytes) -> None:
    """Whatever is behind the first response of one piece never answers a second request: no connection goes on."""
    whole, bytewise = (ResponseReader(headers_bytes_max=64 * KIB) for _ in range(2))
    try:
        for reader in (whole, bytewise):
            reader.begin(body_bytes_max=MIB)
        if whole.feed(data) == "" and whole.allows_another():
            end = next(at for at in range(len(data)) if bytewise.feed(data[at : at + 1]) is not None) + 1
            assert not data[end:].strip(b"\r\n"), data[end:]
    finally:
        whole.close()
        bytewise.close()


def undone(coding: str) -> Callable[[bytes], object]:
    return lambda data: inflate(data, coding, limit=10 * MIB, ratio_max=100)


def robots(data: bytes) -> None:
    """As it is read, stored, read back and asked."""
    rules = RobotsRules._parsed(data, "shardcrawl")  # `parse` remembers short ones
    stored = RobotsRules.stored(rules.our_group())
    assert stored == rules
    for url in (BASE, "http://site.test/" + "a" * 2000, "http://site.test/" + "ab/" * 700):
        rules.allows(url)
    rules.verdict(BASE)


def page(data: bytes) -> None:
    """What looks expensive is parsed in a process that can be killed, here as there."""
    markup = markup_of("text/html", data)
    if markup is not None and cost_of(markup.body) is Cost.CHEAP:
        parse_page(
            BASE, "text/html", "", data, links_max=5000, obey_nofollow=True, bytes_max=URL_BYTES, agent="shardcrawl"
        )


def jsonld(data: bytes) -> object:
    """Of the JSON-LD blocks of a page."""
    return jsonld_of(LexborHTMLParser(data, options=NO_EVENTS)) if cost_of(data) is Cost.CHEAP else None


def form(data: bytes) -> None:
    """What the only form of a page sends. Pages that are expensive to parse are not seen by who fills in a form."""
    if cost_of(data) is Cost.CHEAP:
        filled(LexborHTMLParser(data, options=NO_EVENTS), "form", {}, url=BASE, base=BASE, charset="utf-8")


def page_requisites(data: bytes) -> None:
    if cost_of(data) is Cost.CHEAP:
        tree = LexborHTMLParser(data, options=NO_EVENTS)
        requisites_of(tree, BASE, limit=100, shadow_roots=shadow_roots(tree), markup=data)


def page_text(data: bytes) -> None:
    if cost_of(data) is Cost.CHEAP:
        extract_text(data, "utf-8")


def page_markdown(data: bytes) -> None:
    if cost_of(data) is Cost.CHEAP:
        markdown(LexborHTMLParser(data, options=NO_EVENTS), BASE)


TRAPS = TrapRules(TrapSettings())
SCOPE = ScopeRules.of(
    ScopeSettings(
        mode="any",
        include=(r"/(a+)+b|.*.*=x$", r"^https?://[^/]*site"),
        exclude=(r"(a|a)*c$", r"(\w+\s?)*$$x", "(é|é)*z$"),
    )
)
PRIORITY = Ordering.of(OrderSettings(order="priority", rules=(PriorityRule(match=r"(x+x+)+y|(a|aa)+$", add=1.0),)), 0.0)
PATTERNS = tuple(map(UrlPattern.parse, ("*.*.test/*a*a*a*a*b", "*/*?*=*&*=*x", "s*t*.test/*%*%*/", "*/a*/b*/*.html")))


def canonical(text: str) -> str:
    return canonicalize(f"http://site.test/{text}")


def url_rules(text: str) -> None:
    """All that each link passes on its way into the frontier."""
    try:
        url = canonical(text)
    except InvalidUrl:
        return
    split(url)
    without_session(url)
    surt(url)
    safe_uri(url)
    state = TRAPS.learn(TrapState(), url, links=[url, BASE], digest="sha1:" + "A" * 32)
    TRAPS.learn(state, url, links=[url, BASE], digest="sha1:" + "A" * 32, body=b"x")
    TRAPS.judge(state, url, parent=url, parent_digest="sha1:" + "A" * 32)
    known_by_chain(url, (Chain(1, 1, REPEATS_MIN),), url)
    date_of(url)
    tokens_of(url)
    is_plain(url, TRAPS.limits)
    list(suspicions_of_shape(url, TRAPS.limits))
    SCOPE.verdict(url, 1)
    PRIORITY.score(url, depth=1, found_at=1.0)
    for pattern in PATTERNS:
        pattern.matches(url)


def hosts(text: str) -> None:
    for url in (f"http://{text}/", f"https://u@{text}:81/x", text):
        try:
            host = host_of(canonicalize(url))
        except InvalidUrl:
            continue
        registrable_domain(host)
        is_ip(host)
    join(BASE, f"//{text}")
    join(BASE, text)


def references(text: str) -> None:
    join_all(BASE, text.split("\n"))
    join(BASE, text)


def records(data: bytes) -> None:
    response = response_with(lines_of(data), data)
    response_record(response, "<urn:uuid:0>")
    request_record(response, "<urn:uuid:0>", "<urn:uuid:1>")


def stored_lines(data: bytes) -> None:
    index.to_entry(data)
    index.is_whole(data)
    history.to_attempt(data)
    text = data.decode("latin-1")
    entry = CommitEntry(
        url=canonical("x"), mime="unk", status_text="200", fingerprint="1", visit=1, fetched_at=1.8e9, title=text
    )
    line = index.to_line(entry)
    assert line.count(b"\n") == 1
    assert index.to_entry(line) == entry


def gzip_members(data: bytes) -> None:
    list(members(memoryview(data)))
    whole_member_after(memoryview(data), 0)


def headers(data: bytes) -> None:
    response = response_with(lines_of(data))
    response.header("content-type")
    Headers(response.headers)
    CookieWalls().starts(CLAIM, response, CLAIM.url, lambda url: True)


def cookies(data: bytes) -> None:
    CookieWalls().starts(CLAIM, response_with([(b"Set-Cookie", data)]), f"{BASE}&to={BASE}", lambda url: True)

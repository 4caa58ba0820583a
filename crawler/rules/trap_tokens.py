"""Session ids without a telling name, and pages under endless tokens. Pure.

Tokens look like ids of things (/item/9f86d081884c7d65), so they have to be learned. Two patterns count. In the first, a
page that was fetched before comes again under another token, and all its links have the same token, a third one. In the
second, one page leads to itself under tokens without end. Session ids with a well-known name need no learning: see
`crawler.rules.urls`.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from itertools import islice

import msgspec


class Tokens(msgspec.Struct, frozen=True, array_like=True):
    """Where URLs seem to have a token that changes on each page, and the pages known by their first token."""

    slot: str = ""
    repeats: int = 0  # pages fetched again under a second token, whose links have a third
    known: bytes = b""  # entries of session tokens, below


class Chain(msgspec.Struct, frozen=True, array_like=True):
    """URLs that differ in tokens alone, have the same body but for the tokens of its links, and lead to others of them.

    `page`: number of the URL without tokens; `body`: of the body without those; `pages`: how many in a row.
    """

    page: int
    body: int
    pages: int = 1


class Known(msgspec.Struct, frozen=True):
    """A URL that seems to be a page which is known already. `evidence`: how many pages showed it."""

    place: str
    why: str
    evidence: int


REPEATS_MIN = 10  # pages before a token, or a chain, counts
TOKEN_LINKS_MAX = 200  # of a page that are searched for tokens


def number_of(text: str | bytes) -> int:
    """32 bits of a digest, never 0."""
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(blake2b(data, digest_size=4).digest(), "big") or 1


# A page that was fetched before comes again under another token.

_TOKEN = re.compile(r"(?=(?:\D*\d){3})(?=(?:[^A-Za-z]*[A-Za-z]){3})[0-9A-Za-z]{16,128}")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

SLOT_CHARS_MAX = 40
KNOWN_MAX = 64  # pages known by their first token
SLOTS_MAX = 8  # of a URL: each costs a copy of the URL, or the page, without its token
_PAGE_BYTES, _TOKEN_BYTES = 4, 2
_ENTRY_BYTES = _PAGE_BYTES + _TOKEN_BYTES

Given = dict[str, dict[str, set[int]]]  # slot -> token -> hashes of the pages linked with it, the token left out


def tokens_of(url: str) -> dict[str, str]:
    """Parts that look random, by slot: "?name" for a parameter, "/2" for the third segment of the path."""
    address, _, query = url.partition("?")
    segments = ((f"/{n}", part) for n, part in enumerate(address.split("/")[3:]) if _is_token(part))
    found = dict(islice(segments, SLOTS_MAX))
    for parameter in query.split("&") if query else ():
        name, _, value = parameter.partition("=")
        if len(found) < SLOTS_MAX and _is_token(value):
            found[f"?{name}"[:SLOT_CHARS_MAX]] = value
    return found


def learn_tokens(tokens: Tokens, url: str, links: Iterable[str]) -> Tokens:
    """Take in a fetched page and its links."""
    own = tokens_of(url)
    if not own or (tokens.slot and tokens.slot not in own):
        return tokens
    given = _given(links)
    if tokens.slot and _names_things(tokens.slot, own, given):
        tokens = Tokens()
    fresh = [slot for slot in own if _is_fresh(slot, own, given)]
    if not tokens.slot and not fresh:
        return tokens
    slot = tokens.slot or fresh[0]
    entry = _entry(url, own[slot])
    first = _first(tokens.known, entry)
    if first:
        return Tokens(slot, tokens.repeats + (first != entry and slot in fresh), tokens.known)
    room = len(tokens.known) < KNOWN_MAX * _ENTRY_BYTES
    return Tokens(slot, tokens.repeats, tokens.known + entry if room else tokens.known)


def known_by_token(url: str, tokens: Tokens) -> Known | None:
    """Was this page fetched under another token? If there are too many pages to know, there is no evidence."""
    token = tokens_of(url).get(tokens.slot) if tokens.repeats >= REPEATS_MIN else None
    if token is None:
        return None
    entry = _entry(url, token)
    first = _first(tokens.known, entry)
    if first and first != entry:
        return Known(tokens.slot, f"known but for the token at {tokens.slot}", tokens.repeats)
    if not first and len(tokens.known) >= KNOWN_MAX * _ENTRY_BYTES:
        return Known(tokens.slot, f"maybe known but for the token at {tokens.slot}", 0)
    return None


# One page under endless tokens: /s?sid=TOKEN leads to /s?sid=ANOTHER. So do cursors of lists, and things that name the
# next one. There each page says something of its own: it is one page only where nothing but those tokens differs.
#
# Anybody may write such pages on a site of many users. So only links of a page of the chain are judged by it: what is
# found elsewhere is a page as any other, and when it is fetched, it ends the chain.

CHAINS_MAX = 4
CHAIN_LINKS_MAX = 8  # to others of the chain, on one page: more of them name things
CHAIN_BODY_MAX = 64 * 1024  # bytes; a longer page is taken for one of its own
_RUN = re.compile(r"[0-9A-Za-z_-]{16,512}")
_WORD = re.compile(r"[0-9A-Za-z]{16,512}")
_DIGIT = re.compile(r"[0-9]")
_DRAWN_MIN = 3  # digits, and letters; of tokens with - and _ letters of both cases, as titles in URLs have one


def _without_tokens(url: str) -> tuple[str, set[str]]:
    """The URL with its tokens left out, parameters in order, and the tokens: in whatever part of it."""
    tokens: set[str] = set()
    if len(_DIGIT.findall(url)) < _DRAWN_MIN:  # most URLs
        return url, tokens

    def left_out(found: re.Match[str]) -> str:
        run = found[0]
        if len(_DIGIT.findall(run)) < _DRAWN_MIN:
            return run
        is_title = "-" in run or "_" in run
        if _has_letters(run, of_both_cases=is_title) or _UUID.fullmatch(run):
            tokens.add(run)
            return "*"
        return _WORD.sub(left_out, run) if is_title else run

    address, mark, query = _RUN.sub(left_out, url).partition("?")
    return f"{address}{mark}{'&'.join(sorted(query.split('&')))}", tokens


def _has_letters(run: str, *, of_both_cases: bool) -> bool:
    upper, lower = sum(map(str.isupper, run)), sum(map(str.islower, run))
    return (min(upper, lower) if of_both_cases else upper + lower) >= _DRAWN_MIN


def learn_chain(chains: tuple[Chain, ...], url: str, links: Iterable[str], body: bytes) -> tuple[Chain, ...]:
    """Take in a fetched page of status 200. One that is not alike ends the suspicion."""
    page, own = _without_tokens(url)
    if not 0 < len(own) <= SLOTS_MAX or not body:
        return chains
    number = number_of(page)
    known = next((one for one in chains if one.page == number), None)
    found = _chain_of(page, own, links, body)
    if found is None:
        return chains if known is None else tuple(one for one in chains if one is not known)
    if known is not None and known.body == found.body:
        found = msgspec.structs.replace(found, pages=known.pages + 1)
    others = tuple(one for one in chains if one.page != number)
    return (*others[-(CHAINS_MAX - 1) :], found)


def _chain_of(page: str, own: set[str], links: Iterable[str], body: bytes) -> Chain | None:
    """The chain of a page that leads to its own URL with other tokens."""
    if len(body) > CHAIN_BODY_MAX:
        return None
    others: set[str] = set()
    count = 0
    for link in islice(links, TOKEN_LINKS_MAX):
        linked, tokens = _without_tokens(link)
        if linked == page and not tokens <= own:
            others, count = others | tokens, count + 1
    if not 0 < count <= CHAIN_LINKS_MAX:
        return None
    for token in others:
        body = body.replace(token.encode(), b"*")
    return Chain(number_of(page), number_of(body))


def known_by_chain(url: str, chains: tuple[Chain, ...], parent: str) -> Known | None:
    """Is the URL one of a chain of which several pages were fetched, as the page is where it was found?"""
    page, _ = _without_tokens(url)
    number = number_of(page)
    for one in chains:
        if one.page == number and one.pages >= REPEATS_MIN and _without_tokens(parent)[0] == page:
            return Known(page, f"{one.pages} pages alike but for their tokens", one.pages)
    return None


# Both.


def _is_token(part: str) -> bool:
    return len(part) >= 16 and bool(_TOKEN.fullmatch(part) or _UUID.fullmatch(part))


def _given(links: Iterable[str]) -> Given:
    """The tokens in a page's links."""
    given: Given = {}
    for link in islice(links, TOKEN_LINKS_MAX):
        for slot, token in tokens_of(link).items():
            given.setdefault(slot, {}).setdefault(token, set()).add(hash(link.replace(token, "*")))
    return given


def _is_fresh(slot: str, own: dict[str, str], given: Given) -> bool:
    """Do several links have one token, other than that of this page?"""
    by_token = given.get(slot, {})
    return len(by_token) == 1 and own[slot] not in by_token and len(next(iter(by_token.values()))) > 1


def _names_things(slot: str, own: dict[str, str], given: Given) -> bool:
    """Is the token an id? Several on one page are; the page's own token again is an id or a lasting session."""
    by_token = given.get(slot, {})
    return len(by_token) > 1 or own[slot] in by_token


def _entry(url: str, token: str) -> bytes:
    page = blake2b(url.replace(token, "*").encode(), digest_size=_PAGE_BYTES).digest()
    return page + blake2b(token.encode(), digest_size=_TOKEN_BYTES).digest()


def _first(known: bytes, entry: bytes) -> bytes:
    """The entry under which the page of `entry` is known, or b""."""
    for start in range(0, len(known), _ENTRY_BYTES):
        if known.startswith(entry[:_PAGE_BYTES], start):
            return known[start : start + _ENTRY_BYTES]
    return b""

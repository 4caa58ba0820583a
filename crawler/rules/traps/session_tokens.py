"""Session ids without a telling name: tokens that a site changes on every page.

They look like ids of things (/item/9f86d081884c7d65), so they have to be learned. Only this pattern counts: a page that
was fetched before comes again under another token, and all its links have the same token, a third one. Session ids with
a well-known name need no learning: see `crawler.rules.identity`.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from itertools import islice

from crawler.rules.traps.memory import Tokens
from crawler.rules.traps.url_shapes import Suspicion

_TOKEN = re.compile(r"(?=(?:\D*\d){3})(?=(?:[^A-Za-z]*[A-Za-z]){3})[0-9A-Za-z]{16,128}")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

SLOT_CHARS_MAX = 40
KNOWN_MAX = 64  # pages known by their first token
REPEATS_MIN = 10  # repeats before a slot counts as that of a session token
LINKS_MAX = 200  # of a page that are searched for tokens
SLOTS_MAX = 8  # of a URL: each costs a copy of the URL without its token
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


def suspicion_of_token(url: str, tokens: Tokens) -> Suspicion | None:
    """Was this page fetched under another token? It is only suspect if there are too many pages to know."""
    token = tokens_of(url).get(tokens.slot) if tokens.repeats >= REPEATS_MIN else None
    if token is None:
        return None
    entry = _entry(url, token)
    first = _first(tokens.known, entry)
    if first and first != entry:
        return Suspicion("session", tokens.slot, f"known but for the token at {tokens.slot}", evidence=tokens.repeats)
    if not first and len(tokens.known) >= KNOWN_MAX * _ENTRY_BYTES:
        return Suspicion("session", tokens.slot, f"maybe known but for the token at {tokens.slot}", evidence=0)
    return None


def _is_token(part: str) -> bool:
    return len(part) >= 16 and bool(_TOKEN.fullmatch(part) or _UUID.fullmatch(part))


def _given(links: Iterable[str]) -> Given:
    """The tokens in a page's links."""
    given: Given = {}
    for link in islice(links, LINKS_MAX):
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

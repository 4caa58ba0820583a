"""Session ids by their names, and tokens that turn out to be some."""

import tracemalloc
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import get_args
from uuid import UUID

import pytest

from crawler.rules.places import without_session
from crawler.rules.trap_tokens import SLOTS_MAX, tokens_of
from crawler.rules.trap_verdict import PASSED, Action, TrapRules
from crawler.rules.traps import NOTHING_LEARNED
from crawler.settings import TrapSettings
from crawler.settings.schema import TrapRule
from tests.rules.traps_lab import HOME, RULES, TOKEN, learned, shop, visits
from tests.support.growth import LINEAR_MAX, growth


@pytest.mark.parametrize(
    ("url", "identity"),
    [
        (f"/a;jsessionid={TOKEN}.node1?x=1", "/a?x=1"),
        (f"/a;JSESSIONID={TOKEN}", "/a"),
        (f"/a?PHPSESSID={TOKEN}", "/a"),
        (f"/a?x=1&PHPSESSID={TOKEN}", "/a?x=1"),
        (f"/a?PHPSESSID={TOKEN}&x=1", "/a?x=1"),
        ("/a?ASPSESSIONIDQQABCDEF=ABCDEFGHIJKLMNOPQRSTUVWX&x=1", "/a?x=1"),
        ("/(S(lit3py55t21z5v55vlm25s55))/orders/form.aspx", "/orders/form.aspx"),
        ("/a?id=5&CFID=1234&CFTOKEN=5678", "/a?id=5"),
        (f"/shop?osCsid={TOKEN}", "/shop"),
        (f"/shop?zenid={TOKEN}&x=1", "/shop?x=1"),
        (f"/a?jsessionid={TOKEN}&x=1", "/a?x=1"),
        (f"/a?x=1&ASP.NET_SessionId={TOKEN}", "/a?x=1"),
        ("/(A(lit3py55)F(t21z5v55))/a?x=1", "/a?x=1"),
        (f"/a?sid={TOKEN}", f"/a?sid={TOKEN}"),
        ("/a?session=keynote-2026", "/a?session=keynote-2026"),
        ("/a?cfid=7", "/a?cfid=7"),
        ("/a?myphpsessid=7", "/a?myphpsessid=7"),
        ("/wiki/Foo_(S)/x", "/wiki/Foo_(S)/x"),
        ("/a;v=1/b?x=1&", "/a;v=1/b?x=1&"),
        ("/a?", "/a?"),
    ],
)
def test_only_session_ids_are_left_out_of_an_identity(url: str, identity: str) -> None:
    assert without_session(f"http://site.test{url}") == f"http://site.test{identity}"


@pytest.mark.parametrize(
    ("target", "slots"),
    [
        (f"/a/{TOKEN}/b", ["/1"]),
        (f"/a?x={TOKEN}&y=1&z={TOKEN}", ["?x", "?z"]),
        (f"/{TOKEN}?x={TOKEN}", ["/0", "?x"]),
        ("/4f1c2b7e-0d4b-4a3e-8e43-5d3c0b9f6a11", ["/0"]),
        ("/0a1b2c3d4e5f6g7", []),  # 15 characters
        ("/0a1b2c3d4e5f6g7h", ["/0"]),
        ("/" + "0a1b2c3d" * 16, ["/0"]),
        ("/" + "0a1b2c3d" * 16 + "x", []),
        ("/aaaaaaaaaaaaaaa12", []),  # two digits
        ("/111111111111111ab", []),
        ("/a?" + "x" * 50 + f"={TOKEN}", ["?" + "x" * 39]),
        (f"/{TOKEN}" * (SLOTS_MAX + 1), [f"/{n}" for n in range(8)]),
        ("/a?" + "&".join(f"p{n}={TOKEN}" for n in range(9)), [f"?p{n}" for n in range(8)]),
    ],
)
def test_what_looks_random_is_found_where_it_is(target: str, slots: list[str]) -> None:
    assert list(tokens_of(f"http://site.test{target}")) == slots


def test_a_page_known_under_another_token_is_suspect_and_a_new_one_never() -> None:
    state = learned(visits(20, 2))
    assert RULES.judge(state, shop(3, 77)).rule == "session"
    assert RULES.judge(state, shop(3, 3)) == PASSED, "it is known by this very URL"
    assert RULES.judge(state, shop(20, 77)) == PASSED


def test_unknown_pages_of_a_very_large_site_are_suspect_and_not_deferred() -> None:
    state = learned(visits(90, 2))
    actions = [RULES.judge(state, shop(n, 77)).action for n in range(90)]
    assert actions == [Action.DEFER] * 64 + [Action.DEMOTE] * 26


def test_ids_of_things_are_never_taken_for_session_ids() -> None:
    def thing(number: int) -> str:
        return f"{HOME}thing/{UUID(int=number + (1 << 120))}"

    pages = [(thing(n), [thing(n + k) for k in (1, 2, 5)]) for n in range(500)]
    categories = [(f"{thing(n)}/{k}", [f"{thing(n)}/{m}" for m in range(9)]) for n in range(60) for k in range(9)]
    state = learned([*pages, *categories])
    assert all(RULES.judge(state, url) == PASSED for url, _ in [*pages, *categories])


def test_a_token_that_names_things_after_all_is_taken_for_none() -> None:
    state = learned(visits(20, 2))
    state = RULES.learn(state, shop(3, 77), links=[shop(1, 8), shop(1, 9)])
    assert RULES.judge(state, shop(3, 78)) == PASSED


@pytest.mark.slow(ci=True)
def test_links_full_of_tokens_cost_little_time_and_memory() -> None:
    """200 links with 480 tokens each once took 800 MB."""

    def links(tokens: int) -> list[str]:
        return ["http://site.test/" + "/".join(f"{n:03}abcdef{m:06}x" for m in range(tokens)) for n in range(200)]

    def learn(links: list[str]) -> None:
        RULES.learn(NOTHING_LEARNED, links[0], links=links[1:])

    assert len(links(470)[0]) > 7500
    tracemalloc.start()
    learn(links(470))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 8 * 1024 * 1024
    assert growth(learn, links(47), links(470)) < LINEAR_MAX


def page_of(text: str, *links: str) -> tuple[bytes, list[str]]:
    body = f"<title>a page</title><p>{text}</p>" + "".join(f'<a href="{link}">x</a>' for link in links)
    return body.encode(), [HOME + link for link in links]


def token_of(number: int, size: int = 32) -> str:
    return sha256(str(number).encode()).hexdigest()[:size]


def base64_of(number: int) -> str:
    return urlsafe_b64encode(sha256(str(number).encode()).digest()).decode().rstrip("=")


def in_turns(number: int) -> str:
    return f"a={token_of(number // 2)}&b={token_of(-1 - (number + 1) // 2)}"


GUILTY = {
    "one link under a token of a parameter": lambda n: (
        f"s?sid={token_of(n)}", *page_of("hi", f"s?sid={token_of(n + 1)}")
    ),
    "a token in the path": lambda n: (f"s/{token_of(n)}/x", *page_of("hi", f"s/{token_of(n + 1)}/x")),
    "a UUID": lambda n: (f"s?v={UUID(int=n + (9 << 120))}", *page_of("hi", f"s?v={UUID(int=n + 1 + (9 << 120))}")),
    "next to other parameters": lambda n: (
        f"s?a=1&sid={token_of(n)}&b=2", *page_of("hi", f"s?a=1&sid={token_of(n + 1)}&b=2")
    ),
    "with a menu": lambda n: (f"s?sid={token_of(n)}", *page_of("hi", "a", "b", f"s?sid={token_of(n + 1)}")),
    "two new ones a page": lambda n: (
        f"s?sid={token_of(n)}", *page_of("hi", f"s?sid={token_of(2 * n + 1)}", f"s?sid={token_of(2 * n + 2)}")
    ),
    "two tokens, both new": lambda n: (
        f"{token_of(-n)}/s?sid={token_of(n)}", *page_of("hi", f"{token_of(-n - 1)}/s?sid={token_of(n + 1)}")
    ),
    "two tokens that take turns": lambda n: (
        f"s?{in_turns(n)}", *page_of("hi", f"s?{in_turns(n + 1)}")
    ),
    "in capitals": lambda n: (f"s?sid={token_of(n).upper()}", *page_of("hi", f"s?sid={token_of(n + 1).upper()}")),
    "a token in a file's name": lambda n: (f"s/a_{token_of(n)}.htm", *page_of("hi", f"s/a_{token_of(n + 1)}.htm")),
    "base 64 for URLs": lambda n: (f"s/{base64_of(n)}", *page_of("hi", f"s/{base64_of(n + 1)}")),
    "the new one in the text, too": lambda n: (
        f"s?sid={token_of(n)}", *page_of(f"next: {token_of(n + 1)}", f"s?sid={token_of(n + 1)}")
    ),
}  # fmt: skip
INNOCENT = {
    "pages by number": lambda n: (f"list?page={n}", *page_of("items", f"list?page={n + 1}")),
    "pages by a long number": lambda n: (f"list?page={10**20 + n}", *page_of("items", f"list?page={10**20 + n + 1}")),
    "cursors of a list": lambda n: (
        f"list?cursor={token_of(n)}", *page_of(f"item {n}", f"list?cursor={token_of(n + 1)}")
    ),
    "cursors, with items of few words": lambda n: (
        f"list?cursor={token_of(n)}", *page_of("items", f"item/{n}", f"list?cursor={token_of(n + 1)}")
    ),
    "things that name the next one": lambda n: (
        f"thing/{token_of(n)}", *page_of(f"thing {n}", f"thing/{token_of(n + 1)}")
    ),
    "pictures by their own ids": lambda n: (
        f"photo/{token_of(n)}", *page_of(f"<img src=/i/{token_of(n)}.jpg>", f"photo/{token_of(n + 1)}")
    ),
    "pictures with links to others' ids": lambda n: (
        f"photo/{token_of(n)}", *page_of("", f"original/{token_of(-n)}", f"photo/{token_of(n + 1)}")
    ),
    "answers of an API": lambda n: (
        f"api?cursor={token_of(n)}", f'{{"items": [{n}], "next": "{token_of(n + 1)}"}}'.encode(),
        [f"{HOME}api?cursor={token_of(n + 1)}"],
    ),
    "a calendar": lambda n: (
        f"on/{2026 + n // 12}/{n % 12 + 1:02}", *page_of("", f"on/{2026 + (n + 1) // 12}/{(n + 1) % 12 + 1:02}")
    ),
    "a lasting session": lambda n: (f"{n}?sid={token_of(0)}", *page_of("", f"{n + 1}?sid={token_of(0)}")),
    "the same with pages in between": lambda n: (
        f"s?sid={token_of(n)}", *page_of("hi" if n % 9 else f"{n}", f"s?sid={token_of(n + 1)}")
    ),
    "a page that leads back to itself": lambda n: (
        f"s?sid={token_of(n)}", *page_of("hi", f"s?sid={token_of(n)}", *([f"s?sid={token_of(n + 1)}"] if n % 9 else []))
    ),
    "a blog by hashes, each post with the next and the one before": lambda n: (
        f"post/{token_of(n)}", *page_of(f"post {n}", f"post/{token_of(n - 1)}", f"post/{token_of(n + 1)}")
    ),
    "things in things, by two ids": lambda n: (
        f"{token_of(n // 9)}/{token_of(n)}", *page_of(f"{n}", f"{token_of((n + 1) // 9)}/{token_of(n + 1)}")
    ),
    "titles with numbers, without a text": lambda n: (
        f"post/the-{n}-best-things-of-2026", *page_of("", f"post/the-{n + 1}-best-things-of-2026")
    ),
    "lists of many things": lambda n: (
        f"list/{token_of(n)}", *page_of("", *(f"list/{token_of(100 * n + k)}" for k in range(9)))
    ),
}  # fmt: skip


def chain_of(make: Callable[[int], tuple[str, bytes, list[str]]], count: int) -> list[Action]:
    """What becomes of each page's next one."""
    state, actions = NOTHING_LEARNED, list[Action]()
    for n in range(1, count + 1):
        url, body, links = make(n)
        state = RULES.learn(state, HOME + url, links=links, digest=f"digest-{n}", body=body)
        actions.append(RULES.judge(state, links[-1], parent=HOME + url).action)
    return actions


@pytest.mark.parametrize("kind", GUILTY)
def test_one_page_under_endless_tokens_is_deferred(kind: str) -> None:
    actions = chain_of(GUILTY[kind], 30)
    assert actions == [Action.PASS] * 9 + [Action.DEMOTE] * 14 + [Action.DEFER] * 7


@pytest.mark.parametrize("kind", INNOCENT)
def test_what_only_looks_like_that_is_never_suspect_for_it(kind: str) -> None:
    off = ("calendar",) if kind == "a calendar" else ()
    assert set(chain_of(INNOCENT[kind], 200)) <= ({Action.PASS} if not off else set(Action))
    rules = TrapRules(TrapSettings(off=tuple(rule for rule in get_args(TrapRule) if rule != "session")))
    state = NOTHING_LEARNED
    for n in range(1, 200):
        url, body, links = INNOCENT[kind](n)
        state = rules.learn(state, HOME + url, links=links, digest=f"digest-{n}", body=body)
        assert all(rules.judge(state, link, parent=HOME + url) == PASSED for link in links)


def test_a_chain_of_hosts_is_deferred() -> None:
    state, actions = NOTHING_LEARNED, list[Action]()
    for n in range(30):
        link = f"http://{token_of(n + 1)}.site.test/"
        url, body = f"http://{token_of(n)}.site.test/", f"<a href='{link}'>x</a>".encode()
        state = RULES.learn(state, url, links=[link], digest=f"digest-{n}", body=body)
        actions.append(RULES.judge(state, link, parent=url).action)
    assert actions == [Action.PASS] * 9 + [Action.DEMOTE] * 14 + [Action.DEFER] * 7


def test_a_chain_is_not_taken_for_another_and_few_are_remembered() -> None:
    state = NOTHING_LEARNED
    for n in range(400):
        body, links = page_of("hi", f"{n % 9}?sid={token_of(n + 1)}")
        state = RULES.learn(state, f"{HOME}{n % 9}?sid={token_of(n)}", links=links, digest="d", body=body)
    assert len(state.chains) == 4
    assert RULES.judge(state, f"{HOME}3?sid={token_of(9999)}", parent=f"{HOME}3?sid={token_of(1)}") == PASSED


def test_who_writes_a_chain_on_a_site_of_many_defers_no_page_of_others() -> None:
    """Their pages have URLs of the same shape. Whatever is not found on a page of the chain is a page as any other."""
    state = NOTHING_LEARNED
    for n in range(100):
        body, links = page_of("", f"paste/{token_of(n + 1)}")
        state = RULES.learn(state, f"{HOME}paste/{token_of(n)}", links=links, digest="d", body=body)
    own, other = (f"{HOME}paste/{token_of(n)}" for n in (100, -1))
    assert RULES.judge(state, own, parent=f"{HOME}paste/{token_of(99)}").action is Action.DEFER
    assert RULES.judge(state, other, parent=HOME) == PASSED
    assert RULES.judge(state, other) == PASSED, "when it is claimed"
    body, links = page_of("what I wrote", f"paste/{token_of(-3)}")
    state = RULES.learn(state, other, links=links, digest="e", body=body)
    assert all(RULES.judge(state, link, parent=other) == PASSED for link in links)


def test_long_pages_and_many_tokens_cost_no_more_than_their_bound() -> None:
    def learn(size: int) -> None:
        links = [f"{HOME}s?sid={token_of(k)}" for k in range(size // 100)]
        RULES.learn(NOTHING_LEARNED, f"{HOME}s?sid={token_of(-1)}", links=links, digest="d", body=b"x" * size)

    assert growth(learn, 30_000, 300_000) < LINEAR_MAX

    def learn_many(count: int) -> None:
        """Of URLs with many tokens in each."""
        links = [f"{HOME}{'/'.join(token_of(k + m * 1000, 16) for m in range(count))}" for k in range(9)]
        RULES.learn(NOTHING_LEARNED, links[0], links=links[1:], digest="d", body=b"x" * 60_000)

    assert growth(learn_many, 40, 400) < LINEAR_MAX

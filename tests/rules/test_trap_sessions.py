"""Session ids by their names, and tokens that turn out to be some."""

import tracemalloc
from uuid import UUID

import pytest

from crawler.rules.traps import NOTHING_LEARNED, PASSED, SLOTS_MAX, Action, tokens_of
from crawler.rules.urls import without_session
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

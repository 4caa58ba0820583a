"""The trap rules URL by URL: what looks like a trap, what never does, and what it takes to be deferred."""

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.trap_verdict import DATELESS_MAX, LINKS_MAX, PASSED, Action, TrapRules
from crawler.rules.traps import NOTHING_LEARNED, PLACES_MAX, REST, Count, with_digest, with_suspect
from crawler.rules.urls import canonicalize
from crawler.settings import TrapSettings, load
from crawler.settings.schema import TrapRule
from tests.rules.traps_lab import HOME, RULES, STEPPING, learned, steps

GOOD = [
    "/",
    "/2026/11/21/a-title-of-some-words.html",
    "/a/b/c/d/e/f/g/h.html",
    "/docs/latest/reference/api/module/class/method.html",
    "/javase/8/docs/api/java/util/concurrent/locks/Lock.html",
    "/en/about/en.html",
    "/tiles/1/1/1/1.png",
    "/11/11/11",
    "/src/test/java/test/Main.java",
    "/list?page=10000",
    "/list?start=200010",
    "/viewtopic.php?f=1&t=20260101&start=15",
    "/search?q=a&brand=1&brand=2&page=3",
    "/map?x=1234&y=2012",
    "/product/7312/4",
    "/questions/20450117/how-do-i",
    "/item/9f86d081884c7d659a2feaa0c55ad015",
    "/item?id=4f1c2b7e-0d4b-4a3e-8e43-5d3c0b9f6a11",
]


@pytest.mark.parametrize("target", GOOD)
def test_an_ordinary_url_passes_whatever_its_site_was_learned_to_be(target: str) -> None:
    url = canonicalize(f"http://www.site.test{target}")
    everything = learned(page for name in STEPPING for page in [(HOME, [f"{HOME}2026/11/"]), *steps(name, 60)])
    assert RULES.judge(NOTHING_LEARNED, url) == PASSED
    assert RULES.judge(everything, url) == PASSED


BAD = [
    ("http://site.test/a/b/a/b/a/b", "repeats", "segment a 3 times"),
    ("http://site.test/shop/x/shop/y/shop/z", "repeats", "segment shop 3 times"),
    ("http://site.test/?f=1&f=1&f=1", "repeats", "parameter f=1 3 times"),
    ("http://site.test/1/2/3/4/5/6/7/8/9/10/11", "path", "11 segments > 10"),
    ("http://site.test/?a=1&b=2&c=3&d=4&e=5", "query", "5 parameters > 4"),
    ("http://e.d.c.b.a.site.test/", "hosts", "5 labels before site.test > 4"),
    ("http://www.www.www.site.test/", "hosts", "label www 3 times"),
    (f"http://site.test/{'x' * 500}", "long", "517 bytes > 512"),
]


@pytest.mark.parametrize(("url", "rule", "why"), BAD)
def test_a_url_that_looks_like_a_trap_is_demoted_and_the_rule_named(url: str, rule: str, why: str) -> None:
    verdict = RULES.judge(NOTHING_LEARNED, url)
    assert (verdict.action, verdict.rule, verdict.why) == (Action.DEMOTE, rule, why)
    assert verdict.penalty > 255, "a suspect must come after the deepest page"


@pytest.mark.parametrize("name", STEPPING)
def test_suspects_are_deferred_after_the_limit_of_steps_not_earlier(name: str) -> None:
    pages = [(HOME, [f"{HOME}on/2026-11"]), *steps(name, 120)]
    state, led_on = NOTHING_LEARNED, 0
    for url, links in pages:
        verdict = RULES.judge(state, url)
        if verdict.action is Action.DEFER:
            break
        state = RULES.learn(state, url, links=links)
        led_on += RULES.judge(state, url).rule == name
    assert (verdict.action, verdict.rule) == (Action.DEFER, name)
    assert led_on >= RULES.limits.steps_max
    assert RULES.judge(state, HOME) == PASSED, "only what looks like it is deferred"


@pytest.mark.parametrize("name", STEPPING)
def test_the_further_in_a_suspect_is_the_sooner_it_is_fetched_although_it_is_deeper(name: str) -> None:
    state = learned([(HOME, [f"{HOME}on/2026-11"])])
    penalties = [RULES.judge(state, url).penalty for url, _ in steps(name, 60)]
    suspect = [penalty for penalty in penalties if penalty]
    assert len(suspect) > 10
    assert all(later <= sooner - 1 for sooner, later in pairwise(suspect))


def test_a_trap_in_one_part_of_a_site_does_not_affect_another() -> None:
    facets = [(f"{HOME}facets?" + "&".join(f"p{k}=1" for k in range(n)), n) for n in range(1, 60)]
    state = learned((url, [f"{url}&p{n}=1"]) for url, n in facets)
    assert RULES.judge(state, facets[10][0]).action is Action.DEFER
    assert RULES.judge(state, f"{HOME}search?a=&b=&c=&d=&e=&page=9000").action is Action.DEMOTE


@pytest.mark.slow(ci=True)
def test_a_long_list_of_suspects_that_end_is_not_deferred() -> None:
    urls = [f"{HOME}search?a=&b=&c=&d=&e=&page={n}" for n in range(10_001)]
    state = learned((url, [after]) for url, after in pairwise(urls))
    assert RULES.judge(state, urls[-1]).action is Action.DEMOTE


def test_cursors_that_vary_in_length_lead_on_to_nothing() -> None:
    urls = [f"{HOME}list?cursor={'x' * (500 + n * 15)}" for n in range(200)]
    state = learned((url, [after]) for url, after in pairwise(urls))
    assert RULES.judge(state, urls[-1]).action is Action.DEMOTE


def test_suspects_of_many_sizes_that_lead_nowhere_prove_nothing() -> None:
    forms = [f"{HOME}?" + "&".join(f"p{k}=" for k in range(n)) for n in range(5, 60)]
    state = learned((form, [HOME, forms[0]]) for form in forms)
    assert RULES.judge(state, forms[-1]).action is Action.DEMOTE


def test_suspects_that_lead_nowhere_are_deferred_when_there_are_too_many() -> None:
    rules = TrapRules(TrapSettings(suspects_max=30))
    pages = [(f"{HOME}again/again/again/{n}", []) for n in range(31)]
    assert rules.judge(learned(pages[:29], rules), pages[30][0]).action is Action.DEMOTE
    assert rules.judge(learned(pages[:30], rules), pages[30][0]).action is Action.DEFER


def test_a_trap_that_never_comes_back_to_one_place_is_counted_over_all_places() -> None:
    rules = TrapRules(TrapSettings(suspects_max=30))
    pages = [(f"{HOME}{n}/again/again/again/", []) for n in range(100)]
    assert rules.judge(learned(pages, rules), f"{HOME}new/again/again/again/").action is Action.DEFER


def test_places_beyond_the_bound_are_counted_together_by_rule() -> None:
    state = NOTHING_LEARNED
    for n in range(PLACES_MAX + 3):
        state = with_suspect(state, "path", f"/{n}", level=n)
    assert sum(count.place != REST for count in state.counts) == PLACES_MAX
    assert state.count("path", "/new") == Count("path", REST, 3, 0b111 << PLACES_MAX)
    assert state.count("query", "/new") == Count("query")


@pytest.mark.parametrize("name", get_args(TrapRule))
def test_a_rule_that_is_off_names_nothing(name: TrapRule) -> None:
    rules = TrapRules(TrapSettings(off=(name,)))
    for url, rule, _ in BAD:
        assert (rules.judge(NOTHING_LEARNED, url).rule == rule) == (name != rule), url


def test_links_of_a_body_of_many_urls_are_suspect_and_then_deferred() -> None:
    state, digest, actions = NOTHING_LEARNED, "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ", []
    for n in range(80):
        state = RULES.learn(state, f"{HOME}{n}/", digest=digest)
        verdict = RULES.judge(state, f"{HOME}{n}/more/", parent_digest=digest)
        actions.append(verdict.action)
    assert actions == [Action.PASS] * 49 + [Action.DEMOTE] * 24 + [Action.DEFER] * 7
    assert verdict.rule == "soft_404"
    assert RULES.judge(state, HOME, parent_digest="sha1:OTHEROTHEROTHEROTHEROTHEROTHEROT") == PASSED


def test_each_body_beyond_the_bound_takes_one_off_the_counts_of_all() -> None:
    state = NOTHING_LEARNED
    for digest in [*"aaabb", *"cdefgh", "new"]:
        state = with_digest(state, digest)
    assert state.digests == (("a", 2), ("b", 1))
    assert with_digest(state, "b").digests == (("a", 2), ("b", 2))


def test_ten_thousand_different_bodies_make_no_body_frequent() -> None:
    state = NOTHING_LEARNED
    for n in range(10_000):
        state = RULES.learn(state, f"{HOME}{n}", digest=f"sha1:{n:032}")
    assert all(times <= 2 for _, times in state.digests)


def test_rules_are_switched_off_by_name_and_limits_from_the_environment() -> None:
    environment = {"CRAWLER_TRAPS_OFF": "calendar, path", "CRAWLER_TRAPS_STEPS_MAX": "9"}
    settings = load(environment=environment).traps
    assert settings.off == ("calendar", "path")
    assert settings.steps_max == 9


@pytest.mark.slow(ci=True)
@given(st.lists(st.lists(st.sampled_from(["about", "2024/01/02/a", "p?date=1999-05-01", "x", "2031/12/"])), max_size=8))
def test_rules_that_remember_links_without_a_date_learn_the_same(pages: list[list[str]]) -> None:
    lasting, state, same = TrapRules(TrapSettings()), NOTHING_LEARNED, NOTHING_LEARNED
    for number, paths in enumerate(pages):
        links = [*(HOME + path for path in paths), "http://other.test/2019/01/01/"]
        state = lasting.learn(state, f"{HOME}{number}", links=links)
        same = TrapRules(TrapSettings()).learn(same, f"{HOME}{number}", links=links)
    assert state == same


def test_only_so_many_links_without_a_date_are_remembered() -> None:
    rules = TrapRules(TrapSettings())
    for page in range(2 * DATELESS_MAX // LINKS_MAX):
        rules.learn(NOTHING_LEARNED, HOME, links=[f"{HOME}{page}/{n}" for n in range(LINKS_MAX)])
        assert len(rules._dateless) <= DATELESS_MAX

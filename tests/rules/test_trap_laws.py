"""What holds for the trap rules whatever the site: little is remembered, and nothing is deferred without proof."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.rules.places import without_session
from crawler.rules.trap_shapes import is_plain, suspicions_of_shape
from crawler.rules.trap_verdict import Action
from crawler.rules.traps import NOTHING_LEARNED, TrapState
from crawler.rules.urls import canonicalize
from crawler.settings import TrapSettings
from tests.rules.traps_lab import HOME, RULES, STEPPING, TOKEN, learned, steps, visits

STATE_BYTES_MAX = 1024

WORDS = st.sampled_from(["a", "again", "b", "2026", "05", "1999-12", "1", TOKEN, "x" * 200])
HOSTS = st.sampled_from(["site.test", "www.site.test", "a.a.a.site.test", "f.e.d.c.b.site.test"])
PARAMETERS = st.sampled_from(["f=1", "g=2", "year=2099", "date=1999-01-01", f"sid={TOKEN}", "page=3", "x=" + "y" * 90])
URLS = st.builds(
    lambda host, path, query: canonicalize(f"http://{host}/{'/'.join(path)}?{'&'.join(query)}"),
    HOSTS,
    st.lists(WORDS, max_size=12),
    st.lists(PARAMETERS, max_size=8),
)
PAGES = st.tuples(URLS, st.lists(URLS, max_size=6), st.text("ab", max_size=2))


@pytest.mark.slow(ci=True)
@settings(max_examples=50)
@given(st.lists(PAGES, max_size=40))
def test_what_is_remembered_is_small_and_survives_storage(pages: list[tuple[str, list[str], str]]) -> None:
    state = NOTHING_LEARNED
    for url, links, digest in pages:
        state = RULES.learn(state, url, links=links, digest=digest)
    stored = msgspec.msgpack.encode(state)
    assert len(stored) <= STATE_BYTES_MAX
    assert msgspec.msgpack.decode(stored, type=TrapState) == state


def test_a_site_with_every_trap_is_remembered_in_a_kilobyte() -> None:
    pages = [page for name in STEPPING for page in steps(name, 120)]
    pages += [(f"{HOME}{n}/again/again/again/", [f"{HOME}{n}/again/again/again/again/"]) for n in range(300)]
    pages += [(HOME, [f"{HOME}{year}/05" for year in range(1400, 2200, 2)]), *visits(200, 2)]
    state = learned(pages)
    for n in range(8):
        state = RULES.learn(state, f"{HOME}page", digest=f"sha1:{n:032}")
    assert len(state.digests) == 8
    state = msgspec.structs.replace(state, digests=tuple((digest, 1 << 32) for digest, _ in state.digests))
    assert 500 < len(msgspec.msgpack.encode(state)) <= STATE_BYTES_MAX


@pytest.mark.slow(ci=True)
@settings(max_examples=50)
@given(st.lists(PAGES, max_size=RULES.limits.steps_max - 1), URLS)
def test_nothing_is_deferred_before_enough_pages_were_fetched(
    pages: list[tuple[str, list[str], str]], url: str
) -> None:
    state = NOTHING_LEARNED
    for fetched, links, digest in pages:
        state = RULES.learn(state, fetched, links=links, digest=digest)
    for link in (url, *(link for _, links, _ in pages for link in links)):
        assert RULES.judge(state, link, parent_digest="ab").action is not Action.DEFER


@pytest.mark.slow(ci=True)
@given(URLS, st.lists(URLS, max_size=6), st.lists(URLS, max_size=6))
def test_links_to_other_domains_teach_nothing(url: str, links: list[str], others: list[str]) -> None:
    elsewhere = [other.replace("site.test", "other.test") for other in others]
    before = learned(steps("path", 20))
    assert RULES.learn(before, url, links=links) == RULES.learn(before, url, links=[*elsewhere, *links])


@pytest.mark.slow(ci=True)
@given(st.lists(PAGES, max_size=40), URLS, st.text("ab", max_size=2))
def test_the_digest_of_a_page_counts_only_when_it_is_repeated(
    pages: list[tuple[str, list[str], str]], url: str, digest: str
) -> None:
    state = NOTHING_LEARNED
    for fetched, links, other in pages:
        state = RULES.learn(state, fetched, links=links, digest=other)
    repeated = RULES.repeated(state, digest)
    assert repeated in ("", digest)
    assert RULES.judge(state, url, parent_digest=repeated) == RULES.judge(state, url, parent_digest=digest)


@pytest.mark.slow(ci=True)
@given(st.lists(PAGES, max_size=10), URLS)
def test_to_judge_changes_nothing_and_gives_the_same_again(pages: list[tuple[str, list[str], str]], url: str) -> None:
    state = learned((page, links) for page, links, _ in pages)
    before = msgspec.msgpack.encode(state)
    assert RULES.judge(state, url) == RULES.judge(state, url)
    assert msgspec.msgpack.encode(state) == before


@given(URLS)
def test_an_identity_has_no_session_id_left(url: str) -> None:
    assert without_session(without_session(url)) == without_session(url)
    assert without_session(url) == url, "none of these has one"
    assert without_session(f"{url.partition('?')[0]};jsessionid={TOKEN}") == url.partition("?")[0]


@given(URLS, st.integers(2, 5), st.integers(1, 12), st.integers(1, 6), st.integers(20, 600), st.integers(1, 5))
def test_a_url_that_passes_the_quick_check_has_no_suspect_form(
    url: str, repeats: int, segments: int, parameters: int, long_bytes: int, labels: int
) -> None:
    limits = TrapSettings(
        repeats=repeats, path_segments=segments, parameters=parameters, long_bytes=long_bytes, host_labels=labels
    )
    assert not (is_plain(url, limits) and list(suspicions_of_shape(url, limits)))

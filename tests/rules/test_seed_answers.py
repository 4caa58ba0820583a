"""What the answers of seeds add to the scope: by policy, mode, and where a redirect leads."""

from collections.abc import Sequence

import pytest

from crawler.rules.scope import ScopeRules
from crawler.settings import ScopeSettings

FOLDER, FILE, SLASHLESS = "http://x.test/docs/", "http://x.test/docs/a.html", "http://x.test/docs"


def after(policy: str, mode: str, hops: Sequence[str], **more) -> tuple[list[str], list[bool]]:
    """The roots that a seed and the redirects behind it add, one after the other ("" for none), and what leads away."""
    rules = ScopeRules.of(ScopeSettings(mode=mode, redirected_seeds=policy, **more))
    rules = rules.with_roots([rules.seed_root(hops[0])])
    answers = []
    for url, target in zip(hops, [*hops[1:], ""], strict=True):
        answers.append(rules.answered(url, target))
        rules = rules.with_roots({answers[-1].root} - {""})
    return [answer.root for answer in answers], [answer.leads_away for answer in answers]


ROWS = [
    # policy, mode, the seed and where it leads, roots that are added after its own
    ("site", "domain", ["http://x.test/", "https://www.x.test/"], ["", ""]),
    ("site", "domain", ["http://x.test/", "http://y.test/"], ["page:http://y.test/ http://x.test/", ""]),
    (
        "site",
        "domain",
        ["http://a.github.io/", "http://b.github.io/"],
        ["page:http://b.github.io/ http://a.github.io/", ""],
    ),
    ("site", "domain", ["http://127.0.0.1/", "http://127.0.0.2/"], ["page:http://127.0.0.2/ http://127.0.0.1/", ""]),
    ("site", "domain", ["http://x.test/", "http://x.test:81/"], ["", ""]),
    ("site", "host", ["http://x.test/", "https://x.test/"], ["", ""]),
    ("site", "host", ["http://x.test/", "https://www.x.test/a"], ["host:www.x.test", ""]),
    ("site", "host", ["http://x.test/", "http://x.test:81/"], ["host:x.test:81", ""]),
    ("site", "host", ["http://x.test/", "http://y.test/"], ["page:http://y.test/ http://x.test/", ""]),
    ("site", "prefix", [FOLDER, "https://x.test/docs/"], ["prefix:https://x.test/docs/", ""]),
    ("site", "prefix", [FOLDER, "https://www.x.test/docs/en/"], ["prefix:https://www.x.test/docs/", ""]),
    ("site", "prefix", [FOLDER, "http://x.test/docs/en/"], ["", ""]),
    ("site", "prefix", [FOLDER, "http://x.test/"], [f"page:http://x.test/ {FOLDER}", ""]),
    ("site", "prefix", [FOLDER, "https://y.test/docs/"], [f"page:https://y.test/docs/ {FOLDER}", ""]),
    ("site", "prefix", [FILE, "https://x.test/docs/b.html"], ["prefix:https://x.test/docs/", ""]),
    ("site", "prefix", ["http://x.test/", "https://www.x.test/en/"], ["prefix:https://www.x.test/", ""]),
    ("site", "prefix", ["http://docs.x.test/", "https://x.test/docs/"], ["prefix:https://x.test/docs/", ""]),
    ("site", "prefix", [SLASHLESS], ["prefix:http://x.test/"]),
    ("site", "prefix", [SLASHLESS, "http://x.test/docs/"], ["prefix:http://x.test/docs/", ""]),
    ("site", "prefix", [f"{SLASHLESS}?v=1", "http://x.test/docs/?v=1"], ["prefix:http://x.test/docs/", ""]),
    ("site", "prefix", [SLASHLESS, "http://x.test/docs/en/1"], ["prefix:http://x.test/docs/", ""]),
    ("site", "prefix", [SLASHLESS, "http://x.test/docs2/"], ["prefix:http://x.test/", ""]),
    ("site", "prefix", [SLASHLESS, "https://www.x.test/docs/"], ["prefix:https://www.x.test/docs/", ""]),
    (
        "site",
        "prefix",
        [SLASHLESS, "https://x.test/docs", "https://x.test/docs/"],
        [f"page:https://x.test/docs {SLASHLESS}", "prefix:https://x.test/docs/", ""],
    ),
    (
        "site",
        "prefix",
        [SLASHLESS, "https://x.test/docs"],
        [f"page:https://x.test/docs {SLASHLESS}", "prefix:https://x.test/"],
    ),
    ("page", "prefix", [SLASHLESS, "http://x.test/docs/"], ["prefix:http://x.test/docs/", ""]),
    ("page", "prefix", [SLASHLESS], ["prefix:http://x.test/"]),
    ("page", "prefix", [FOLDER, "https://x.test/docs/"], [f"page:https://x.test/docs/ {FOLDER}", ""]),
    ("page", "host", ["http://x.test/", "http://www.x.test/"], ["page:http://www.x.test/ http://x.test/", ""]),
    ("page", "domain", ["http://x.test/", "http://www.x.test/"], ["", ""]),
    ("page", "domain", ["http://x.test/", "http://y.test/"], ["page:http://y.test/ http://x.test/", ""]),
    ("follow", "domain", ["http://x.test/", "http://y.test/"], ["domain:y.test", ""]),
    ("follow", "host", ["http://x.test/", "http://y.test/"], ["host:y.test", ""]),
    ("follow", "prefix", [FOLDER, "http://y.test/a"], ["prefix:http://y.test/", ""]),
    ("follow", "prefix", [SLASHLESS], [""]),
    ("site", "any", ["http://x.test/", "http://y.test/"], ["", ""]),
    # Chains: the seed at the beginning speaks, and a page on another site for nothing.
    (
        "site",
        "domain",
        ["http://x.test/", "http://y.test/", "http://www.y.test/in"],
        ["page:http://y.test/ http://x.test/", "page:http://www.y.test/in http://y.test/", ""],
    ),
    (
        "site",
        "host",
        ["http://x.test/", "http://y.test/wall", "http://www.x.test/"],
        ["page:http://y.test/wall http://x.test/", "host:www.x.test", ""],
    ),
    (
        "site",
        "prefix",
        [FOLDER, "http://y.test/wall", "https://www.x.test/docs/"],
        [f"page:http://y.test/wall {FOLDER}", "prefix:https://www.x.test/docs/", ""],
    ),
    (
        "site",
        "domain",
        ["http://x.test/", "http://y.test/", "http://x.test/"],
        ["page:http://y.test/ http://x.test/", "", ""],
    ),
]


@pytest.mark.parametrize(
    ("policy", "mode", "hops", "roots"), ROWS, ids=[f"{r[0]}-{r[1]}-{n}" for n, r in enumerate(ROWS)]
)
def test_an_answer_of_a_seed_adds_what_the_policy_says(
    policy: str, mode: str, hops: list[str], roots: list[str]
) -> None:
    found, away = after(policy, mode, hops)
    assert found == roots
    pages = [root.startswith("page:") and " " in root for root in roots]
    first = next((n for n, is_page in enumerate(pages) if is_page and not _is_same_folder(hops, n)), None)
    assert away == [n == first for n in range(len(hops))]


def _is_same_folder(hops: list[str], n: int) -> bool:
    return hops[n + 1].partition("://")[2].endswith("/docs")


@pytest.mark.parametrize(("policy", "leads_away"), [("site", False), ("page", True)])
def test_a_page_on_another_host_leads_away_if_only_pages_are_added(policy: str, leads_away: bool) -> None:
    there = "https://www.x.test/docs"
    rules = ScopeRules.of(ScopeSettings(mode="prefix", redirected_seeds=policy), [f"page:{SLASHLESS}"])
    assert rules.answered(SLASHLESS, there) == (f"page:{there} {SLASHLESS}", leads_away)


@pytest.mark.parametrize("there", ["https://x.test/docs", "https://www.x.test/docs"])
def test_only_the_page_is_added_where_the_seed_has_no_folder_yet(there: str) -> None:
    assert after("page", "prefix", [SLASHLESS, there])[0] == [f"page:{there} {SLASHLESS}", ""]
    assert after("site", "prefix", [SLASHLESS, there])[0] == [f"page:{there} {SLASHLESS}", f"prefix:{there}"[:-4]]


def test_a_page_is_alone_in_its_scope_and_is_explained() -> None:
    rules = ScopeRules.of(ScopeSettings(), ["domain:x.test", "page:http://y.test/a http://x.test/"])
    assert [rules.allows(url) for url in ("http://y.test/a", "http://y.test/a?b", "http://y.test/")] == [
        True,
        False,
        False,
    ]
    rule = rules.verdict("http://y.test/a", 0).rule
    assert rule == "only this page: the seed http://x.test/ redirects to it (scope.redirected_seeds)"
    assert rules.led_away() == [("http://x.test/", "http://y.test/a")]


def test_what_was_seeded_since_does_not_lead_away() -> None:
    page = "page:http://y.test/ http://x.test/"
    rules = ScopeRules.of(ScopeSettings(), ["domain:x.test", page, "domain:y.test"])
    assert rules.led_away() == []
    assert rules.was_led_to("http://y.test/")


def test_only_the_last_page_of_a_chain_is_named() -> None:
    chain = ["http://y.test/ http://x.test/", "http://z.test/ http://y.test/"]
    rules = ScopeRules.of(ScopeSettings(), ["domain:x.test", *(f"page:{one}" for one in chain)])
    assert rules.led_away() == [("http://x.test/", "http://z.test/")]


def test_pages_that_lead_to_each_other_end() -> None:
    rules = ScopeRules.of(ScopeSettings(), ["page:http://y.test/ http://z.test/", "page:http://z.test/ http://y.test/"])
    assert rules.answered("http://y.test/", "http://q.test/").root == "page:http://q.test/ http://y.test/"
    assert rules.verdict("http://y.test/", 0).allowed


def test_a_second_seed_that_leads_to_the_same_page_counts_and_adds_nothing() -> None:
    rules = ScopeRules.of(ScopeSettings(), ["domain:x.test", "domain:w.test", "page:http://y.test/ http://x.test/"])
    assert rules.answered("http://w.test/", "http://y.test/") == ("", True)


def test_a_target_that_people_excluded_or_gave_is_nothing_to_say() -> None:
    assert after("site", "domain", ["http://x.test/", "http://y.test/"], exclude=("y[.]test",)) == (
        ["", ""],
        [False] * 2,
    )
    rules = ScopeRules.of(ScopeSettings(mode="prefix"), ["page:http://x.test/a", "page:http://y.test/b"])
    assert rules.answered("http://x.test/a", "http://y.test/b") == ("", False)


def test_a_given_page_stays_given_when_others_lead_to_it() -> None:
    given, led = "page:http://y.test/b", "page:http://y.test/b http://x.test/a"
    for roots in ([given, led], [led, given]):
        rules = ScopeRules.of(ScopeSettings(mode="prefix"))
        for root in roots:
            rules = rules.with_roots([root])
        assert not rules.was_led_to("http://y.test/b")
        assert not ScopeRules.of(ScopeSettings(mode="prefix"), roots).was_led_to("http://y.test/b")

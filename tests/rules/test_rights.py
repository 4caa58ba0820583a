"""What sites say about the use of their pages: each form from the texts that define it, sloppy and hostile ones."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.content.html import parse_page
from crawler.content.said import licenses_in, said_by_headers, says_something
from crawler.model import Rights, Statement
from crawler.rules.rights import (
    PURPOSES,
    STATEMENTS_MAX,
    VALUE_CHARS_MAX,
    VOCABULARY,
    answer,
    meaning_of,
    rights_of,
    short_text,
    statement,
    statement_text,
)
from crawler.rules.robots import RobotsRules
from crawler.rules.site_rights import LINES_MAX, WILDCARD_BYTES_MAX, SiteRights, read_tdmrep

URL = "https://site.test/a/page.html"
TRAIN_NO = {"ai_train": "n"}
TDM_NO = {"tdm": "n", "ai_train": "n", "ai_input": "n"}
NOAI = {"ai_train": "n", "ai_input": "n"}

MEANINGS = [
    # draft-romm-aipref-contentsignals-00, contentsignals.org
    ("content-signal", "search=yes, ai-train=no", {"search": "y", "ai_train": "n"}),
    ("content-signal", "ai-train=no, search=yes, ai-input=no", {"search": "y", "ai_train": "n", "ai_input": "n"}),
    ("content-signal", "search=yes,ai-train=no", {"search": "y", "ai_train": "n"}),
    ("content-signal", "search=yes, ai-train=no, use=reference", {"search": "y", "ai_train": "n"}),
    # draft-ietf-aipref-vocab-07 and attach-05
    ("content-usage", "train-ai=n", TRAIN_NO),
    ("content-usage", "train-ai=y, search=n", {"ai_train": "y", "search": "n"}),
    ("content-usage", "train-ai=y;exceptions=1, search=n", {"ai_train": "y", "search": "n"}),
    ("content-usage", "train-ai", {}),  # a boolean is not a token
    ("content-usage", "train-ai=maybe", {}),
    ("content-usage", "fancy=n", {}),
    # earlier versions: broad labels are for what the same statement does not name
    ("content-usage", "bots=n, search=y", {"search": "y", "ai_train": "n", "ai_input": "n", "tdm": "n"}),
    ("content-usage", "all=n", dict.fromkeys(PURPOSES, "n")),
    ("content-usage", "train-genai=n", TRAIN_NO),
    ("content-usage", "ai-use=n", {"ai_input": "n"}),
    ("content-usage", "tdm=y", {"tdm": "y"}),
    ("content-usage", "ai=n", NOAI),
    # stricter than vocab-07: a "no" counts wherever it is, a "yes" only in a value that is nothing but pairs
    ("content-usage", "train-ai=y, train-ai=n", TRAIN_NO),
    ("content-usage", "Train-AI=N", TRAIN_NO),
    ("content-usage", "Train-AI=Y", {}),
    ("content-usage", "train-ai=y, ???", {}),
    ("content-usage", "train-ai = n", TRAIN_NO),
    ("content-usage", 'train-ai="n"', TRAIN_NO),
    ("content-signal", "search=yes ai-train=no", TRAIN_NO),
    ("content-signal", "ai-train=no;search=no", {"ai_train": "n", "search": "n"}),
    ("content-usage", "", {}),
    ("content-usage", "=n", {}),
    ("content-usage", "trаin-ai=n", {}),  # with a Cyrillic letter: it is another word
    # TDMRep, 10 May 2024
    ("tdm-reservation", "1", TDM_NO),
    ("tdm-reservation", "0", {"tdm": "y"}),
    ("tdm-reservation", " 1 ", TDM_NO),
    ("tdm-reservation", "true", TDM_NO),
    ("tdm-reservation", "2", {}),
    ("tdm-policy", "https://provider.com/policies/policy.json", {}),
    # robots directives
    ("x-robots-tag", "noindex", {"search": "n"}),
    ("x-robots-tag", "none", {"search": "n"}),
    ("x-robots-tag", "noai, noimageai", NOAI),
    ("x-robots-tag", "noimageai", {}),
    ("license", "https://example.com/license.xml", {}),
    ("rsl", "<rsl>", {}),
]


@pytest.mark.parametrize(("key", "value", "meaning"), MEANINGS, ids=[f"{k}: {v}"[:40] for k, v, _ in MEANINGS])
def test_each_statement_means_what_its_text_says(key: str, value: str, meaning: Mapping[str, str]) -> None:
    assert meaning_of(key, value) == meaning
    one, is_cut = statement("header", key, value)
    assert (meaning_of(one.key, one.value), is_cut) == (meaning, False), "and so it does as it is kept"


def test_noimageai_is_about_images() -> None:
    assert meaning_of("x-robots-tag", "noimageai", is_image=True) == NOAI


def test_the_vocabulary_knows_only_purposes() -> None:
    for label, meaning in VOCABULARY.items():
        assert {*meaning.no, *meaning.yes} <= set(PURPOSES), label
        assert meaning.no, label


ROBOTS = """\
Content-Usage: search=y
Content-Signal: ai-input=yes
License: https://example.com/license.xml
User-Agent: *
Allow: /
Disallow: /never/
Content-Usage: train-ai=n
Content-Usage: /ai-ok/ train-ai=y

User-Agent: ExampleBot
Allow: /
Content-Usage: train-ai=y
License: https://example.com/other.xml
"""


def said(text: str, path: str = "/", agent: str = "shardcrawl") -> list[str]:
    rules = RobotsRules.parse(text.encode(), agent)
    assert RobotsRules.stored(rules.our_group()) == rules
    return [statement_text(one) for one in rules.said.of_robots(f"https://site.test{path}")] if rules.said else []


LICENSES = [
    "robots.txt line 3: license: https://example.com/license.xml",
    "robots.txt line 13: license: https://example.com/other.xml",
]
SIGNAL = "robots.txt line 2: content-signal: ai-input=yes"


@pytest.mark.parametrize(
    ("agent", "path", "found"),
    [
        # The example of attach-05, with lines outside of groups: ours has no Content-Signal, so that one applies.
        ("shardcrawl", "/test", "robots.txt line 7: content-usage: train-ai=n"),
        ("shardcrawl", "/ai-ok/x", "robots.txt line 8: content-usage: train-ai=y"),
        ("examplebot", "/ai-ok/x", "robots.txt line 12: content-usage: train-ai=y"),
    ],
)
def test_our_group_its_longest_path_and_lines_outside_of_groups(agent: str, path: str, found: str) -> None:
    assert said(ROBOTS, path, agent) == [*LICENSES, SIGNAL, found]


GROUPS = [
    ("User-agent: a\nContent-Signal: search=no\nUser-agent: shardcrawl\nDisallow: /x", ["2"], "one group by RFC 9309"),
    ("User-agent: a\nContent-Usage: search=n\nUser-agent: shardcrawl\nDisallow: /x", [], "a rule ends the names"),
    ("User-agent: a\nAllow: /\nContent-Signal: search=no\nUser-agent: shardcrawl\nAllow: /", [], "of another group"),
    ("User-agent: shardcrawl\nAllow: /\nUser-agent: *\nContent-Signal: search=no", [], "we have a group"),
    ("User-agent: a\nAllow: /\nUser-agent: *\nContent-Signal: search=no", ["4"], "we have none"),
    ("Content-Signal: search=no", ["1"], "of no group"),
    ("Content-Signal: search=no\nUser-agent: *\nContent-Signal: ai-train=no", ["3"], "ours has the key"),
    ("Content-Signal: search=no\nUser-agent: *\nContent-Usage: train-ai=n", ["1", "3"], "ours has another key"),
    ("User-agent: *\nContent-Usage: /b train-ai=n\nUser-agent: *\nContent-Usage: search=n", ["4"], "groups are joined"),
    ("User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: search=n", ["2", "3"], "equal paths apply all"),
    ("User-agent: *\nContent-Usage: /a*l$ search=n\nContent-Usage: / search=y", ["2"], "patterns as of robots.txt"),
    ("User-agent: *\ncontent-usage : train-ai=n # no", ["2"], "blanks, case and remarks"),
    ("User-agent: a\nLicense: https://x.test/l.xml", ["2"], "a license is for all"),
    ("User-agent: a\nContent-Signal: search=no", [], "nothing is for us"),
]


@pytest.mark.parametrize(("text", "lines", "why"), GROUPS, ids=[why for *_, why in GROUPS])
def test_whose_lines_apply(text: str, lines: list[str], why: str) -> None:
    assert [one.split()[2].rstrip(":") for one in said(text, "/a/page.html")] == lines, why


def test_content_usage_changes_no_rule_of_its_group() -> None:
    rules = RobotsRules.parse(b"User-agent: *\nContent-Usage: / train-ai=n\nDisallow: /x", "shardcrawl")
    assert not rules.allows("https://site.test/x")
    assert rules.allows("https://site.test/y")


HEADERS: list[tuple[list[tuple[str, str]], list[tuple[str, str]]]] = [
    ([("Content-Usage", "train-ai=n")], [("content-usage", "train-ai=n")]),
    ([("content-usage", "train-ai=y"), ("Content-Usage", "search=n")], [("content-usage", "train-ai=y, search=n")]),
    ([("TDM-Reservation", "1"), ("tdm-policy", "https://p.test/p.json")],
     [("tdm-reservation", "1"), ("tdm-policy", "https://p.test/p.json")]),
    ([("Link", '<https://x.test/l.xml>; rel="license"; type="application/rsl+xml"')],
     [("license", "https://x.test/l.xml")]),
    ([("Link", '</a>; rel=next, </by>; rel="next license"')], [("license", "https://site.test/by")]),
    ([("Link", "</style.css>; rel=preload")], []),
    ([("X-Robots-Tag", "noai, noimageai")], [("x-robots-tag", "noai, noimageai")]),
    ([("X-Robots-Tag", "otherbot: noai"), ("X-Robots-Tag", "shardcrawl: noindex")], [("x-robots-tag", "noindex")]),
    ([("X-Robots-Tag", "nofollow, max-snippet: 3")], []),
    ([("Content-Type", "text/html"), ("Server", "x")], []),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "found"), HEADERS)
def test_headers(headers: list[tuple[str, str]], found: list[tuple[str, str]]) -> None:
    sent = tuple((name.encode(), value.encode()) for name, value in headers)
    assert list(said_by_headers(sent, URL, "ShardCrawl")) == found
    assert says_something(sent) or not found


@pytest.mark.parametrize(
    "value", ["<", "<>", "<x", "<x>;", "<x>; rel", '<x>; rel="', "rel=license", ">;rel=license", "<x>; title=license"]
)
def test_links_that_are_none(value: str) -> None:
    assert licenses_in(value, URL) == []


METAS = [
    ('<meta name="tdm-reservation" content="1">', [("meta", "tdm-reservation", "1")]),
    ('<meta name="TDM-policy" content="https://p.test/p">', [("meta", "tdm-policy", "https://p.test/p")]),
    ('<meta name="robots" content="noai, noimageai">', [("meta", "x-robots-tag", "noai, noimageai")]),
    ('<meta name="shardcrawl" content="noindex,follow">', [("meta", "x-robots-tag", "noindex")]),
    ('<meta name="otherbot" content="noai">', []),
    ('<meta name="content-usage" content="train-ai=n">', [("meta", "content-usage", "train-ai=n")]),
    ('<link rel="license" type="application/rsl+xml" href="/l.xml">', [("link", "license", "https://site.test/l.xml")]),
    ('<base href="/b/"><link rel="License" href="l.xml">', [("link", "license", "https://site.test/b/l.xml")]),
    ('<script type="application/rsl+xml"><rsl> x\n</rsl></script>', [("script", "rsl", "<rsl> x </rsl>")]),
    ('<p><template shadowrootmode=open><meta name="robots" content="noai"></template></p>', []),
    ('<meta name="robots" content="index, follow">', []),
]


@pytest.mark.parametrize(("markup", "found"), METAS, ids=[markup[:40] for markup, _ in METAS])
def test_markup(markup: str, found: list[tuple[str, str, str]]) -> None:
    page = parse_page(
        URL, "text/html", "", f"<title>x</title>{markup}".encode(), links_max=10, obey_nofollow=True, bytes_max=8192,
        agent="ShardCrawl",
    )  # fmt: skip
    assert [(one.place, one.key, one.value) for one in page.said] == found


TDMREP = b"""[
 {"location": "/directory-a/", "tdm-reservation": 1},
 {"location": "/directory-b/html/", "tdm-reservation": 1, "tdm-policy": "https://provider.com/policies/policy.json"},
 {"location": "/directory-b/images/*.jpg", "tdm-reservation": 0},
 {"location": "/directory-b/", "tdm-reservation": 1}
]"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/directory-a/x.pdf", ["tdmrep.json rule 1: tdm-reservation: 1"]),
        ("/directory-b/html/x", ["tdmrep.json rule 2: tdm-reservation: 1",
                                 "tdmrep.json rule 2: tdm-policy: https://provider.com/policies/policy.json"]),
        ("/directory-b/images/1.jpg", ["tdmrep.json rule 3: tdm-reservation: 0"]),  # the first, though 4 matches too
        ("/directory-b/images/1.png", ["tdmrep.json rule 4: tdm-reservation: 1"]),
        ("/elsewhere", []),
    ],
)  # fmt: skip
def test_the_first_rule_of_tdmrep_json_that_matches_applies(path: str, found: list[str]) -> None:
    rules, cut = read_tdmrep(TDMREP)
    assert cut == 0
    site = SiteRights(tdm=rules)
    assert [statement_text(one) for one in site.of_tdmrep(f"https://site.test{path}")] == found
    kept = RobotsRules.stored(RobotsRules().with_rights(site).our_group()).said
    assert kept == site


@pytest.mark.parametrize(
    ("body", "rules", "cut"),
    [
        (b"", 0, 0), (b"{}", 0, 0), (b"[", 0, 0), (b"\xff", 0, 0), (b"[" * 100_000, 0, 0), (b"[1, null, []]", 0, 3),
        (b'[{"location": 1, "tdm-reservation": 1}]', 0, 1), (b'[{"location": "/"}]', 0, 1),
        (b'[{"location": "/", "tdm-reservation": {}}]', 0, 1), (b'[{"location": "/", "tdm-reservation": "1"}]', 1, 0),
        (b'[{"location": "/", "tdm-reservation": ' + b"9" * 5000 + b"}]", 0, 0),
        (b"\xef\xbb\xbf" + b'[{"location": "a", "tdm-reservation": true, "tdm-policy": 7}]', 1, 0),
        (b'[{"location": "/*' + b"a" * 1000 + b'", "tdm-reservation": 1}' + b',{"location": "/*' + b"a" * 1000
         + b'", "tdm-reservation": 1}' * 9 + b"]", 4, 6),
        (b"[" + b",".join([b'{"location": "/", "tdm-reservation": 1}'] * 12_000) + b"]", LINES_MAX, 12_000 - LINES_MAX),
    ],
)  # fmt: skip
def test_odd_tdmrep_json(body: bytes, rules: int, cut: int) -> None:
    found = read_tdmrep(body)
    if body.count(b"/*a") > 1:
        assert sum(len(one.pattern) for one in found[0]) <= WILDCARD_BYTES_MAX
    else:
        assert (len(found[0]), found[1]) == (rules, cut)


def test_no_wins_over_yes_and_all_statements_are_kept_with_their_places() -> None:
    rights = rights_of(
        [
            Statement("robots.txt:2", "content-signal", "search=yes, ai-train=yes"),
            Statement("header", "content-usage", "train-ai=n"),
            Statement("meta", "x-robots-tag", "noindex"),
            Statement("meta", "tdm-policy", "https://p.test/p.json"),
        ]
    )
    assert rights is not None
    assert {one: answer(rights, one) for one in PURPOSES} == {
        "search": "n", "ai_input": "unknown", "ai_train": "n", "tdm": "unknown",
    }  # fmt: skip
    assert [one.place for one in rights.sources] == ["robots.txt:2", "header", "meta", "meta"]
    assert short_text(rights) == "search n, ai-train n, license https://p.test/p.json"
    assert short_text(None) == "unknown"
    assert rights_of([]) is None
    assert msgspec.json.decode(msgspec.json.encode(rights), type=Rights) == rights


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ("robots.txt:3", "/license.xml", "http://a.test:8080/license.xml"),
        ("robots.txt:3", "license.xml", "http://a.test:8080/license.xml"),
        ("robots.txt:3", "//b.test/l", "http://b.test/l"),
        ("robots.txt:3", "https://b.test/l#part", "https://b.test/l#part"),
        ("header", "terms", "http://a.test:8080/x/terms"),
        ("robots.txt:3", "urn:isbn:1", "urn:isbn:1"),
        ("header", "y" * 500, "y" * 500),
    ],
)
def test_a_license_is_a_url_also_where_a_site_names_its_path(place: str, value: str, expected: str) -> None:
    rights = rights_of([Statement(place, "license", value)], "http://a.test:8080/x/y")
    assert rights is not None
    assert rights.license == expected
    assert rights.sources[0].value == value


def test_rights_are_bounded_and_a_no_beyond_the_bound_counts() -> None:
    many = [Statement("header", "content-usage", f"x{n}=y") for n in range(1000)]
    rights = rights_of([*many, Statement("header", "content-usage", "train-ai=n")], cut=2)
    assert rights is not None
    assert (len(rights.sources), rights.cut, rights.ai_train) == (STATEMENTS_MAX + 1, 1000 - STATEMENTS_MAX + 2, "n")


@pytest.mark.parametrize("key", ["content-usage", "content-signal", "tdm-reservation", "tdm-policy", "license", "rsl"])
def test_a_value_of_a_megabyte_is_cut_and_means_the_same(key: str) -> None:
    value = "search=y, " + "x=y, " * 200_000 + "train-ai=n"
    one, is_cut = statement("header", key, value)
    assert is_cut
    assert len(one.value) <= VALUE_CHARS_MAX
    assert meaning_of(key, one.value) == meaning_of(key, value)


@given(st.text(max_size=600), st.sampled_from(["content-usage", "tdm-policy", "license", "x-robots-tag"]))
def test_what_is_kept_is_short_printable_ascii_and_means_the_same(value: str, key: str) -> None:
    one, is_cut = statement("meta", key, value)
    assert one.value.isascii()
    assert one.value.isprintable() or not one.value
    assert len(one.value) <= VALUE_CHARS_MAX
    if not is_cut:
        assert meaning_of(key, one.value) == meaning_of(key, value)


def test_controls_and_lookalikes_are_escaped() -> None:
    one, _ = statement("header", "tdm-policy", "\x1b[31mhttps://p\u0430y.test/\r\n\u202ex")
    assert one.value == "\\x1b[31mhttps://p\\u0430y.test/\\x0d\\x0a\\u202ex"


LINES = {
    "paths": b"Content-Usage: /%d train-ai=n\n", "labels": b"Content-Usage: x%d=n\n", "long": b"Content-Usage: /*%d/" +
    b"a" * 2000 + b" ai-use=n\n", "signals": b"Content-Signal: ai-train=no, x=%d\n",
    "licenses": b"License: https://%d.test/\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", LINES)
def test_a_robots_txt_with_a_hundred_thousand_lines_stays_small_and_forbids_no_less(kind: str) -> None:
    lines, at = [], 0
    while at < 100_000 and sum(map(len, lines[-1:])) * len(lines) < 500_000:
        lines.append(LINES[kind] % at)
        at += 1
    rules = RobotsRules.parse(b"User-agent: *\n" + b"".join(lines), "shardcrawl")
    assert rules.said is not None
    assert len(rules.our_group()) < 300_000
    assert len(rules.said.paths) + len(rules.said.everywhere) <= 2 * LINES_MAX + 1
    found = rights_of(rules.said.of_robots("https://site.test/99999/x"), cut=rules.said.cut)
    assert found is not None
    assert found.cut > 0
    forbidden = {"paths": "ai_train", "long": "ai_input", "signals": "ai_train"}.get(kind)
    assert forbidden is None or answer(found, forbidden) == "n"

"""The rights of a page, put together from all places; what is withheld; and no password that a site echoes."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from crawler.model import SITEMAP, ParsedPage, Response, Statement
from crawler.redaction import forget, learn_login
from crawler.rules.robots import RobotsRules, SharedRobots
from crawler.rules.site_rights import SiteRights, read_tdmrep
from crawler.settings import Settings
from crawler.settings.schema import RightsSettings
from crawler.worker.page_rights import RightsRules, withheld
from crawler.worker.revisits import renewed
from tests.worker.policy_lab import claim_at
from tests.worker.test_bounded_memory import response

CLAIM = claim_at("https://site.test")
NOTHING = ParsedPage()
META = ParsedPage(title="t", links=("https://site.test/b",), said=(Statement("meta", "tdm-reservation", "1"),))
NO = RobotsRules.parse(b"User-agent: *\nContent-Signal: ai-train=no", "shardcrawl").said
TDMREP = SiteRights(tdm=read_tdmrep(b'[{"location": "/", "tdm-reservation": 1}]')[0])


@pytest.fixture(autouse=True)
def no_logins() -> Iterator[None]:
    yield
    forget()


def rules(purpose: str = "ai-train", policy: str = "skip") -> RightsRules:
    return RightsRules(Settings(rights=RightsSettings(purpose=purpose, policy=policy)))  # type: ignore[arg-type]


def answer(*headers: tuple[bytes, bytes], body: bytes = b"") -> Response:
    return replace(response(CLAIM.url, body), headers=headers)


PLACES = [
    (None, (), NOTHING, "", False),
    (NO, (), NOTHING, "n", False),  # refused before it is requested; if it was released, it is kept
    (None, ((b"Content-Usage", b"train-ai=n"),), NOTHING, "n", True),
    (None, (), META, "n", True),
    (TDMREP, (), NOTHING, "n", True),
    (NO, ((b"Content-Usage", b"train-ai=y"),), NOTHING, "n", False),
    (None, ((b"Content-Usage", b"train-ai=y"),), META, "n", True),
    (None, ((b"Content-Usage", b"train-ai=y"),), NOTHING, "y", False),
    (None, ((b"X-Robots-Tag", b"otherbot: noai"),), NOTHING, "", False),
    (None, ((b"Link", b"</a>; rel=next"),), NOTHING, "", False),
]


@pytest.mark.parametrize(("said", "headers", "page", "word", "is_withheld"), PLACES)
def test_each_place_counts_and_only_the_answers_own_words_withhold(
    said: SiteRights | None, headers: tuple[tuple[bytes, bytes], ...], page: ParsedPage, word: str, is_withheld: bool
) -> None:
    rights, found = rules().of(CLAIM.url, said, answer(*headers), page)
    assert ((rights.ai_train if rights else ""), found) == (word, is_withheld)
    assert rules(policy="record").of(CLAIM.url, said, answer(*headers), page) == (rights, False)
    assert rules(purpose="search").of(CLAIM.url, said, answer(*headers), page) == (rights, False)


def test_robots_txt_forbids_by_purpose_and_sitemaps_are_no_pages() -> None:
    assert NO is not None
    assert rules().forbidden(CLAIM, NO) == Statement("robots.txt:2", "content-signal", "ai-train=no")
    assert rules(purpose="search").forbidden(CLAIM, NO) is None
    assert rules(policy="record").forbidden(CLAIM, NO) is None
    assert rules().forbidden(replace(CLAIM, label=SITEMAP), NO) is None
    assert rules().forbidden(CLAIM, TDMREP) is None, "that is the page's own word"


def test_whoever_takes_over_has_what_robots_txt_and_tdmrep_json_said() -> None:
    kept = RobotsRules(said=NO).with_rights(replace(NO, tdm=TDMREP.tdm))  # type: ignore[type-var]
    found = SharedRobots.unpack(SharedRobots(7, kept).pack())
    assert found is not None
    assert found.rules == kept


def test_nothing_of_a_withheld_page_is_kept_but_its_links() -> None:
    sent = replace(answer((b"Content-Type", b"text/html"), body=b"canary"), truncated="length", decode_error="x")
    empty, page, left_out = withheld(sent, META, follows=True)
    assert (empty.body, empty.raw_body, empty.truncated, empty.decode_error) == (b"", b"", "", "")
    assert (page.title, page.said, page.links) == ("", (), META.links)
    assert (left_out.body_bytes, left_out.mime, left_out.links) == (6, "text/html", META.links)
    assert withheld(sent, replace(META, nofollow=True), follows=True)[1].links == ()
    assert withheld(sent, META, follows=False)[2].links == (), "where only handlers say what is followed"


def test_a_statement_with_the_password_of_a_login_is_left_out_and_counted() -> None:
    learn_login("ann", "correct-horse-battery")
    rights, _ = rules().of(CLAIM.url, None, answer((b"tdm-policy", b"https://x.test/?p=correct-horse-battery")), META)
    assert rights is not None
    assert [one.place for one in rights.sources] == ["meta"]
    assert (rights.license, rights.cut) == ("", 1)


def test_what_a_304_says_takes_the_place_of_what_was_said_before() -> None:
    stored = ((b"Content-Usage", b"train-ai=y"), (b"Server", b"x"), (b"X-Robots-Tag", b"noindex"))
    assert renewed(stored, ((b"content-usage", b"train-ai=n"), (b"Date", b"now"))) == (
        (b"Server", b"x"), (b"X-Robots-Tag", b"noindex"), (b"content-usage", b"train-ai=n"),
    )  # fmt: skip
    assert renewed(stored, ()) == stored

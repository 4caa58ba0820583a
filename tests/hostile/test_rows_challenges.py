"""Answers that are a firewall's test instead of a page (K), in one small crawl beside pages that only look like one."""

from pathlib import Path

import pytest

from crawler.crawl.opening import open_crawl
from crawler.model import FailureKind
from crawler.views.losses import losses_of
from tests.crawl.harness import settings_of
from tests.hostile.crawled import Outcome, Site, check, crawl_all, host_of, links, ok

TEST = "<html><script>sucuri_cloudproxy_js='';w=String.fromCharCode</script></html>"
SHELL = ok("<html><div id=app></div><script src=/app.js></script></html>")
QUOTE = ok(f"<p>It sends:<pre>{TEST.replace('<', '&lt;')}</pre>")
NO_RULES = {"/robots.txt": b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"}


def refused(answer: bytes) -> Site:
    """Its front page is fetched, and leads to the answer and to another page."""
    return Site({**NO_RULES, "/": links("/test", "/good"), "/test": answer, "/good": ok("")}, ("/", "/good"))


SITES = {
    "K01-a-page": refused(ok(TEST)),
    "K01-202-by-header": refused(ok("", more="x-amzn-waf-action: challenge\r\n", status="202 Accepted")),
    "K01-403": refused(ok(TEST, status="403 Forbidden")),
    "K01-405-by-header": refused(ok("<p>captcha", more="x-amzn-waf-action: captcha\r\n", status="405 No")),
    "K01-429": refused(ok(TEST, status="429 Too Many Requests")),
    "K01-503": refused(ok("<p>wait", more="cf-mitigated: challenge\r\n", status="503 Wait")),
    "K01-404": refused(ok(TEST, status="404 Not Found")),
    "K01-all-pages": Site({**NO_RULES, "/": ok(TEST)}, (), ()),
    "K02-the-same-body": Site({**NO_RULES, "/": links("/1", "/2", "/3"), **{f"/{n}": SHELL for n in (1, 2, 3)}},
                              ("/", "/1", "/2", "/3")),
    "K02-a-quote": Site({**NO_RULES, "/": QUOTE}, ("/",)),
    "K02-a-denial": Site({**NO_RULES, "/": ok("<h1>Access Denied</h1>", status="403 Forbidden")}, ("/",)),
    "K02-202": Site({**NO_RULES, "/": ok("<p>accepted", status="202 Accepted")}, ("/",)),
    "K02-a-widget": Site(
        {**NO_RULES, "/": ok('<form><div class="cf-turnstile"></div></form>'
                             '<script src="https://challenges.cloudflare.com/turnstile/v0/api.js"></script>')}, ("/",),
    ),
}  # fmt: skip
TESTED = [row for row in SITES if row.startswith("K01")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("challenges")) / "c"


@pytest.fixture(scope="module")
def outcome(folder: Path) -> Outcome:
    return crawl_all(SITES, folder, retry__attempts=2, retry__challenged__backoff_s=0.05)


@pytest.mark.parametrize("row", SITES)
def test_row(row: str, outcome: Outcome) -> None:
    check(row, SITES[row], outcome)


@pytest.mark.parametrize("row", TESTED)
def test_a_test_is_tried_again_and_never_a_page(row: str, outcome: Outcome) -> None:
    where = f"{host_of(row)}/test" if "/test" in SITES[row].pages else f"{host_of(row)}/"
    assert where not in outcome.entries
    assert outcome.requests.count(where) == 2


async def test_each_is_a_loss_that_says_so(folder: Path, outcome: Outcome) -> None:
    async with open_crawl(settings_of(folder), create=False) as opened:
        totals, examples = await opened.stats.totals_and_examples()
        letters = await opened.inspect.dead_letters(100)
    assert dict(totals.dead_by) == {FailureKind.CHALLENGED: len(TESTED)}
    assert {one.reason for one in letters} == {"challenged"}
    assert all(one.detail.startswith("this site answers with a challenge (") for one in letters)
    [loss] = [one for one in losses_of(totals, examples) if one.reason == "challenged"]
    assert loss.advice.startswith("this site answers with a challenge, which is not solved")

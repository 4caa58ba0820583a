"""`crawler fetch`: one page as the crawler sees it, without a crawl."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.cli.main import main
from tests.cli.cli_lab import small
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.chdir(tmp_path)
    with small() as web:
        yield web
    assert not list(tmp_path.iterdir()), "nothing is kept"


def fetched(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["fetch", *words, "--allow-private"])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_page_is_shown_with_its_headers_links_and_the_word_of_robots_txt(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = fetched(capsys, site.url("127.0.0.1"))
    assert code == 0
    assert "status   200 " in out
    assert "robots   allowed\n" in out
    assert "title    A page\n" in out
    assert f"16 links:\n  {site.url('127.0.0.1', '/p0')}\n" in out
    assert "... and 6 more: --links" in out
    assert "content-type: text/html" in out.lower()


def test_what_robots_txt_forbids_is_not_asked_for_unless_told_so(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    url = site.url("127.0.0.1", "/private/x")
    code, out, err = fetched(capsys, url)
    assert (code, out) == (6, "")
    assert err == (
        "crawler: not fetched: robots.txt forbids it (line 2: Disallow: /private/); --ignore-robots fetches it anyway\n"
    )
    assert [r.target for r in site.requests()] == ["/robots.txt"]
    assert fetched(capsys, url, "--ignore-robots")[0] == 0
    assert [r.target for r in site.requests()] == ["/robots.txt", "/private/x"]


def test_a_redirect_is_shown_and_followed_when_asked(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    moved, there = site.url("127.0.0.1", "/moved"), site.url("127.0.0.1", "/p0")
    code, out, _ = fetched(capsys, moved)
    assert code == 0
    assert f"redirect  to {there} (--follow goes there)" in out
    found = json.loads(fetched(capsys, moved, "--follow", "--json")[1])
    assert (found["url"], found["redirected_from"], found["status"]) == (there, [moved], 200)


def test_a_challenge_is_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    test = "<script>sucuri_cloudproxy_js='';w=String.fromCharCode</script>"
    with serve_resources({("127.0.0.1", "/"): Resource(body=test)}) as web:
        assert "challenge  this site answers with a challenge (Sucuri)\n" in fetched(capsys, web.url("127.0.0.1"))[1]
        assert json.loads(fetched(capsys, web.url("127.0.0.1"), "--json")[1])["challenge"] == "Sucuri"
    assert json.loads(fetched(capsys, site.url("127.0.0.1"), "--json")[1])["challenge"] == ""


def test_links_and_text_come_alone_for_other_programs(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    links = fetched(capsys, site.url("127.0.0.1"), "--links")[1].splitlines()
    assert len(links) == 16
    assert links[-1] == "http://elsewhere.test/"
    assert fetched(capsys, site.url("127.0.0.1", "/p0"), "--text")[1] == "x\n"


def test_json_has_all_of_it(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(fetched(capsys, site.url("127.0.0.1", "/gone"), "--json")[1])
    assert found["status"] == 404
    assert found["robots"] == {"allowed": True, "line": "", "line_number": 0, "note": ""}
    assert found["refusal"] == ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nowhere",), 2, "invalid URL 'nowhere'"),
        (("http://127.0.0.1:1/",), 6, "port 1 is not for web servers"),
        (("http://127.0.0.1:47/x", "--ignore-robots"), 6, "no response from http://127.0.0.1:47/x: connect"),
        (("http://a.test/", "--links", "--text"), 2, "not allowed with argument --links"),
    ],
)
def test_what_can_not_be_fetched_is_told_in_one_line(
    words: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        got, out, err = fetched(capsys, *words)
    except SystemExit as exit_:
        got, (out, err) = int(str(exit_.code)), capsys.readouterr()
    assert (got, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1


def test_what_is_said_about_the_use_of_a_page_is_shown_as_by_explain(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    robots = Resource(body="User-agent: *\nContent-Signal: search=yes\n", content_type="text/plain")
    said = Resource(body='<meta name="tdm-reservation" content="1">', headers={"Content-Usage": "train-ai=y"})
    with serve_resources({("127.0.0.1", "/robots.txt"): robots, ("127.0.0.1", "/"): said}) as web:
        out = fetched(capsys, web.url("127.0.0.1"))[1]
        found = json.loads(fetched(capsys, web.url("127.0.0.1"), "--json")[1])["rights"]
        ignored = json.loads(fetched(capsys, web.url("127.0.0.1"), "--json", "--ignore-robots")[1])["rights"]
    lines = [line.partition(" ")[2].strip() for line in out.splitlines() if line.startswith("rights ")]
    assert lines == [
        "search y, ai-input n, ai-train n, tdm n", "robots.txt line 2: content-signal: search=yes",
        "meta: tdm-reservation: 1", "header: content-usage: train-ai=y",
    ]  # fmt: skip
    assert (found["search"], found["ai_train"], found["tdm"], len(found["sources"])) == ("y", "n", "n", 3)
    assert ("search" in ignored, ignored["tdm"]) == (False, "n")
    assert json.loads(fetched(capsys, site.url("127.0.0.1"), "--json")[1])["rights"] is None

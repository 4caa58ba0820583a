"""What pages hold against whoever reads them: charsets (C), markup (M), URLs (U); in one small crawl.

A row's page is to cost no more than itself: its site's good page, and those of other rows, are crawled all the same.
"""

# ruff: noqa: E501 - a table reads best with one row to a line
from pathlib import Path

import pytest

from crawler.parsing import parse
from tests.hostile.crawled import Outcome, Site, check, crawl_all, host_of, links, ok

BODY_MAX = 600_000
LINK = '<a href="/found">x</a>'


def page(body: bytes | str, kind: str = "text/html", *, found: bool = True, kept: bool = True, more: str = "") -> Site:
    """A front page that leads to /bad, which has the body, and to /good. `found`: its link is to be followed; without
    `kept`, the page itself may be given up.
    """
    pages = {"/": links("/bad", "/good"), "/bad": ok(body, kind, more=more), "/good": ok(""), "/found": ok("")}
    wanted = ["/good", *(["/bad"] if kept else []), *(["/found"] if found else [])]
    return Site(pages, wanted, () if found or not kept else ("/found",), 40)


def leads(*hrefs: str, wanted: tuple[str, ...] = (), unwanted: tuple[str, ...] = ()) -> Site:
    """A front page with links as they are written; any path is answered."""
    return Site({"/": links(*hrefs, "/good"), "/good": ok("")}, ("/good", *wanted), unwanted)


SITES = {
    "C01-a-charset-that-lies": page(f"<title>caf\xe9</title>{LINK}".encode("cp1252"), "text/html; charset=utf-8"),
    "C01-utf-7": page("+ADw-a href=+ACI-/found+ACI-+AD4-x+ADw-/a+AD4-", "text/html; charset=utf-7", found=False),
    "C01-utf-16-without-a-mark": page(LINK.encode("utf-16-le"), "text/html; charset=utf-16"),
    "C01-an-unknown-charset": page(LINK, "text/html; charset=x-no-such-thing"),
    "C01-several-metas": page(f"<meta charset=utf-8><meta charset=koi8-r>{LINK}", "text/html; charset=iso-8859-1"),
    "C02-a-mark-and-another-header": page(b"\xef\xbb\xbf" + LINK.encode(), "text/html; charset=utf-16"),
    "C02-what-is-no-text": page(b"<title>\xed\xa0\x80\xc0\xaf\0</title>" + LINK.encode(), "text/html; charset=utf-8"),
    "M01-deep": page("<div>" * 100_000 + LINK, found=False, kept=False),
    "M02-attributes": page(f"<a {' '.join(f'a{n}=1' for n in range(50_000))}>x</a>{LINK}", found=False, kept=False),
    "M02-quotes": page("<a " + "".join(f"a{n}='>'" for n in range(50_000)) + f">x</a>{LINK}", found=False, kept=False),
    "M03-comments": page(LINK + "<!--" * 100_000),
    "M04-one-line": page(LINK + "a" * 3_000_000),
    "M05-links": page(LINK + "".join(f"<a href=/n{n}>" for n in range(45_000))),
    "M06-base": page(f"<base href=javascript:x><base href=/sub/><base href=/other/><a href=there>x</a>{LINK}"),
    "M07-schemes": leads("javascript:alert(1)", "data:text/html,x", "mailto:a@b.test", "tel:1", "about:blank", "blob:x",
                         " /blank ", "/t\tab", "/n\nl", "/a&amp;b", "&#x2f;entity", "\x01/c",
                         wanted=("/blank", "/tab", "/nl", "/a&b", "/entity", "/c")),
    "M08-odd-hrefs": leads("http:///x.test/", "http:rel", "///y.test/", "\\\\z.test\\", "?", "#", "", "http://",
                           "http://[", "http://a b/", wanted=("/rel",)),
    "M09-where-links-are": page('<link rel=canonical href=/canonical><form action=/get></form><form method=post '
                                f'action=/post></form><template><a href=/t></a></template>{LINK}'),
    "M10-entities": page(f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><html>&a;{LINK}</html>',
                         "application/xhtml+xml"),
    "M10-a-PDF-as-HTML": page(b"%PDF-1.7\n" + bytes(range(256)) * 100, found=False),
    "M11-nofollow": page(f"<meta name=robots content=nofollow>{LINK}", found=False),
    "M11-none-as-a-header": page(LINK, more="X-Robots-Tag: none\r\n", found=False),
    "M12-NULs": page(b"\0\0<html>" + LINK.encode()),
    "M13-open-formatting": page(f"{LINK}<p>" + "".join(f"<b x{n}>" for n in range(7000)) + "<p>//" * 12_000, found=False,
                                kept=False),
    "U01-names": leads("http://fa\u00df.u01x.test:PORT0/", "http://xn--a.u01x.test:PORT0/", "http://a\u200db.u01x.test/"),
    "U02-userinfo": leads("http://good.test@u02-userinfo.test:PORT0/x", "http://u:p@u02-userinfo.test:PORT0/y",
                          wanted=("/x", "/y"), unwanted=("good.test/",)),
    "U03-ports": leads("http://u03-ports.test:0/", "http://u03-ports.test:65536/", "http://u03-ports.test:22/",
                       "http://u03-ports.test:/x"),
    "U04-IPv6": leads("http://[::1%25lo]/", "http://[v1.x]/", "http://[::ffff:7f00:1]:9/", "http://[::1"),
    "U05-IPv4": leads("http://0177.0.0.1:9/", "http://0x7f.1:9/", "http://2130706433:9/", "http://127.1:9/",
                      "http://256.1.1.1/", "http://1.2.3.4.5/"),
    "U06-long": leads("/" + "a" * 8100, "/" + "b" * 9000, "/" + "c" * 70_000, wanted=("/" + "a" * 8100,),
                      unwanted=("/bbb", "/ccc")),
    "U07-characters": leads("/a b", "/a<b>", "/{x}", "/a|b", "/^", "/`", "http://a<b.test/", "http://a b.test/", "/nul\0x",
                            wanted=("/a%20b", "/a%3Cb%3E")),
    "U08-dots": leads("/a/../../up", "/%2e%2e/dots", "/./one", "//", "/a//b", "/..%2fx",
                      wanted=("/up", "/dots", "/one", "/a//b", "/..%2Fx")),
    "U09-escapes": leads("/%41", "/%e9", "/%E9", "/%25", "/%2541", "/%zz", "/%", wanted=("/%E9", "/%2541", "/%zz", "/%")),
    "U10-spellings": leads("HTTP://U10-Spellings.TEST.:PORT0/A", "/A#x", "/A?", wanted=("/A",)),
    "U11-hosts": leads("http://single/", "http://a.no-such-tld/", "http://co.uk/", "http://127.0.0.1:9/"),
    "U12-suffixes": leads("http://a.github.io/", "http://www.ck/", "http://x.ck/"),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder: Path = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parse, "CPU_S", 1)
        return crawl_all(
            SITES, folder / "c", fetch__body_bytes_max=BODY_MAX, fetch__links_max=30, scope__mode="domain",
            retry__attempts=1, fetch__idle_timeout_s=5.0, fetch__total_timeout_s=20.0,
        )  # fmt: skip


@pytest.mark.parametrize("row", SITES)
def test_row(row: str, outcome: Outcome) -> None:
    check(row, SITES[row], outcome)
    assert host_of(row)

"""Where redirects and Refresh lead (R), in one small crawl."""

from pathlib import Path

import pytest

from crawler.model import FailureKind
from tests.hostile.crawled import Outcome, Site, check, crawl_all, links, moved, ok
from tests.support.hostile_server import HostileServer
from tests.web.fetching import HELLO, fetching, kind_of

PRIVATE = (
    "127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "[::1]",
    "[::ffff:127.0.0.1]", "[fc00::1]", "[fe80::1]", "[64:ff9b::7f00:1]", "0x7f.1", "2130706433", "0177.0.0.1", "127.1",
)  # fmt: skip
SCHEMES = (
    "file:///etc/passwd", "ftp://r03-schemes.test/", "gopher://r03-schemes.test/", "javascript:alert(1)",
    "data:text/html,<a href=/bad>", "view-source:http://r03-schemes.test/bad", "mailto:a@b.test", "blob:x",
    "about:blank",
)  # fmt: skip
LOCATIONS: dict[str, bytes] = {
    "empty": b"", "blank": b"  ", "relative": b"there", "other": b"//r05-other.test:PORT0/there",
    "back": b"\\\\r05-other.test:PORT0/back",
    "one-slash": b"http:/there-2", "latin": b"/caf\xe9", "utf8": b"/\xc3\xa9", "fragment": b"/there-3#x", "bad": b"http://[/",
    "port": b"http://r05-locations.test:99999/", "long": b"/" + b"a" * 9000, "user": b"http://a:b@r05-other.test:PORT0/user",
}  # fmt: skip

SITES = {
    "R01-loop": Site({"/": links("/a", "/self", "/good"), "/a": moved("/b"), "/b": moved("/a"), "/self": moved("/self"),
                      "/good": ok("")}, wanted=("/a", "/b", "/good"), requests_max=8),
    "R01-chain": Site({"/": moved("/1"), **{f"/{n}": moved(f"/{n + 1}") for n in range(1, 100)}},
                      wanted=("/", "/9"), unwanted=("/15", "/99"), requests_max=14),
    "R03-schemes": Site({"/": links(*(f"/{n}" for n in range(len(SCHEMES))), "/good"), "/good": ok(""),
                         **{f"/{n}": moved(location) for n, location in enumerate(SCHEMES)}},
                        wanted=("/0", "/good"), unwanted=("/bad", "/etc"), requests_max=len(SCHEMES) + 3),
    "R04-other-domain": Site({"/": moved("//r04-there.test:PORT0/x"), "/good": ok(""),
                              "r04-there.test/robots.txt": ok("User-agent: *\nDisallow: /x", "text/plain")},
                             wanted=("/",), unwanted=("r04-there.test/x",)),
    "R05-locations": Site({"/": links(*(f"/{name}" for name in LOCATIONS), "/good"), "/good": ok(""),
                           **{f"/{name}": moved(location) for name, location in LOCATIONS.items()}},
                          wanted=("/good", "/there", "/there-3", "/caf%E9", "/%C3%A9",
                                  "r05-other.test/there", "r05-other.test/back", *(f"/{name}" for name in LOCATIONS)),
                          unwanted=("/aaaa",)),
    "R06-flip-flop": Site({"/": moved("/s"), "/s": moved("/"), "/good": ok("")}, wanted=("/", "/s"), requests_max=3),
    "R06-cookie-to-self": Site({"/": [moved("/", more="Set-Cookie: a=1; Path=/\r\n")]}, wanted=("/",), requests_max=4),
    "R07-refresh": Site({"/": ok("<a href=/good>x</a><meta http-equiv=refresh content='0; url=\"/refreshed\"'>"),
                         "/good": ok(""), "/meta": ok("<meta http-equiv=refresh content='0'>"),
                         "/refreshed": ok("<meta http-equiv=refresh content='0;url=/meta'><meta http-equiv=refresh "
                                          "content=\";;;=\">")},
                        wanted=("/good", "/refreshed", "/meta"), requests_max=6),
    "R07-refresh-headers": Site({"/": ok("<a href=/good>x</a>", more='Refresh: 0; url="/refreshed"\r\n'),
                                 "/good": ok(""),
                                 "/refreshed": ok("x", "text/plain", more="Refresh: 5;URL=/text\r\n"),
                                 "/text": ok("", more="Refresh: ;;,=\r\nRefresh: 1\r\n")},
                                wanted=("/good", "/refreshed", "/text"), requests_max=6),
}  # fmt: skip
HELD_BY_FETCHER = ("R02-private-addresses", "R02-metadata-names")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder: Path = tmp_path_factory.mktemp("redirects")
    return crawl_all(SITES, folder / "c")


@pytest.mark.parametrize("row", SITES)
def test_row(row: str, outcome: Outcome) -> None:
    check(row, SITES[row], outcome)


@pytest.mark.parametrize("row", HELD_BY_FETCHER)
async def test_row_at_connect_time(row: str) -> None:
    """Where a redirect leads is a URL like any other: whoever asks for it, its address is judged when connecting."""
    table = {name: [address.strip("[]")] for name, address in zip(NAMES, PRIVATE, strict=False)}
    async with HostileServer(HELLO) as server, fetching(table=table, allow_private=False) as fetcher:
        for host in PRIVATE if row == "R02-private-addresses" else (*NAMES, "localhost"):
            if row == "R02-private-addresses" and not host[0].isdigit() and host[0] != "[":
                continue
            canonical = CANONICAL.get(host, host)
            assert kind_of(await fetcher.fetch(f"http://{canonical}:{server.port}/")) is FailureKind.ADDRESS_REFUSED
        assert server.connections == 0


NAMES = ("metadata.google.internal", "metadata.test", "a.test", "b.test", "c.test", "d.test")
CANONICAL = {
    "0x7f.1": "127.0.0.1", "2130706433": "127.0.0.1", "0177.0.0.1": "127.0.0.1", "127.1": "127.0.0.1",
    "[::ffff:127.0.0.1]": "[::ffff:7f00:1]",
}  # fmt: skip

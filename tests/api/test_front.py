"""How requests reach the server, as tables: proxies that are trusted or not, Host, Origin, prefixes, sockets."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest
from multidict import CIMultiDict

from crawler.api.front import Front, Source, listen_place, listening_at, reachable, shown, source_of
from crawler.api.host_names import host_name, is_ours
from crawler.api.proxies import path_prefix, proxy_header, trusted_proxies
from crawler.errors import ConflictError, UsageError

# Client addresses: (peer, trusted, X-Forwarded-For lines, client)

NET = ("10.0.0.0/8", "::1", "fd00::/8")
CLIENTS = [
    ("127.0.0.1", (), ["203.0.113.9"], "127.0.0.1"),
    ("192.0.2.7", NET, ["203.0.113.9"], "192.0.2.7"),
    ("10.0.0.1", NET, [], "10.0.0.1"),
    ("10.0.0.1", NET, [""], "10.0.0.1"),
    ("10.0.0.1", NET, ["203.0.113.9"], "203.0.113.9"),
    ("10.0.0.1", NET, [" 203.0.113.9 "], "203.0.113.9"),
    ("10.0.0.1", NET, ["198.51.100.1, 203.0.113.9"], "203.0.113.9"),  # the first one is made up by the client
    ("10.0.0.1", NET, ["203.0.113.9, 10.1.1.1"], "203.0.113.9"),  # two of our proxies
    ("10.0.0.1", NET, ["198.51.100.1", "203.0.113.9, 10.1.1.1"], "203.0.113.9"),
    ("10.0.0.1", NET, ["10.2.2.2, 10.1.1.1"], "10.2.2.2"),  # a client in the same network
    ("10.0.0.1", NET, ["203.0.113.9, unknown"], "10.0.0.1"),
    ("10.0.0.1", NET, ["203.0.113.9, _hidden, 10.1.1.1"], "10.1.1.1"),
    ("10.0.0.1", NET, ["203.0.113.9:4711"], "203.0.113.9"),
    ("10.0.0.1", NET, ["[2001:db8::1]:4711"], "2001:db8::1"),
    ("10.0.0.1", NET, ["2001:DB8::1"], "2001:db8::1"),
    ("10.0.0.1", NET, ["::ffff:203.0.113.9"], "203.0.113.9"),
    ("10.0.0.1", NET, ["203.0.113.9\tx"], "10.0.0.1"),
    ("10.0.0.1", NET, ["1" * 5000], "10.0.0.1"),
    ("10.0.0.1", NET, ["203.0.113.9, "], "10.0.0.1"),
    ("::1", NET, ["203.0.113.9"], "203.0.113.9"),
    ("fd00::9", NET, ["203.0.113.9"], "203.0.113.9"),
    ("", NET, ["203.0.113.9"], ""),
    ("", ("unix",), ["203.0.113.9"], "203.0.113.9"),
    ("", ("unix",), ["203.0.113.9, 10.1.1.1"], "10.1.1.1"),
    ("", ("unix", *NET), ["203.0.113.9, 10.1.1.1"], "203.0.113.9"),
    ("127.0.0.1", ("unix",), ["203.0.113.9"], "127.0.0.1"),
]


@pytest.mark.parametrize(("peer", "trusted", "lines", "client"), CLIENTS)
def test_the_client_is_the_last_that_is_no_trusted_proxy(
    peer: str, trusted: tuple[str, ...], lines: list[str], client: str
) -> None:
    headers = CIMultiDict([("Host", "a.example"), *(("X-Forwarded-For", line) for line in lines)])
    assert source_of(headers, peer, trusted_proxies(trusted, may_be_unix=True)).client == client


@pytest.mark.parametrize(
    ("sent", "believed", "ignored"),
    [
        ([], ("a.example", ""), ("a.example", "")),
        ([("X-Forwarded-Proto", "https")], ("a.example", "https"), ("a.example", "")),
        ([("X-Forwarded-Proto", "HTTPS, http")], ("a.example", "https"), ("a.example", "")),
        ([("X-Forwarded-Proto", "http")], ("a.example", "http"), ("a.example", "")),
        ([("X-Forwarded-Proto", "ftp")], ("a.example", ""), ("a.example", "")),
        ([("X-Forwarded-Host", "b.example")], ("b.example", ""), ("a.example", "")),
        ([("X-Forwarded-Host", "b.example:81, c.example")], ("b.example:81", ""), ("a.example", "")),
        ([("X-Forwarded-Host", "")], ("a.example", ""), ("a.example", "")),
        ([("Forwarded", "host=b.example;proto=https")], ("a.example", ""), ("a.example", "")),
    ],
)
def test_only_a_trusted_proxy_tells_scheme_and_host(
    sent: list[tuple[str, str]], believed: tuple[str, str], ignored: tuple[str, str]
) -> None:
    headers = CIMultiDict([("Host", "a.example"), *sent])
    for trusted, expected in (("10.0.0.1", believed), ("10.0.0.2", ignored)):
        found = source_of(headers, "10.0.0.1", trusted_proxies([trusted], may_be_unix=False))
        assert (found.host, found.scheme) == expected


@pytest.mark.parametrize("text", ["", "x", "10.0.0.0/99", "crawl.example", "10.0.0.1:80", "unix:/x", "-"])
def test_what_is_not_a_proxy_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="expected an address, a network like"):
        trusted_proxies([text], may_be_unix=True)


def test_nobody_comes_through_a_socket_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="--listen unix:PATH"):
        trusted_proxies(["unix"], may_be_unix=False)


# (Host as it is known, scheme as it is known, Origin, is it ours)
ORIGINS = [
    ("127.0.0.1:8800", "", "http://127.0.0.1:8800", True),
    ("127.0.0.1:8800", "", "http://localhost:8800", False),
    ("127.0.0.1:8800", "", "http://127.0.0.1:8801", False),
    ("127.0.0.1:8800", "", "http://127.0.0.1", False),
    ("127.0.0.1", "", "http://127.0.0.1:80", True),
    ("[::1]:8800", "", "http://[::1]:8800", True),
    ("crawl.example", "", "https://crawl.example", True),
    ("crawl.example", "", "http://crawl.example", True),
    ("crawl.example", "https", "https://crawl.example", True),
    ("crawl.example", "https", "http://crawl.example", False),
    ("crawl.example", "http", "https://crawl.example", False),
    ("crawl.example:443", "", "https://crawl.example", True),
    ("crawl.example:443", "", "http://crawl.example", False),
    ("crawl.example", "", "https://crawl.example:8443", True),  # $host of nginx has no port
    ("crawl.example:8443", "", "https://crawl.example:8443", True),
    ("crawl.example:8443", "", "https://crawl.example:8444", False),
    ("crawl.example:8443", "", "https://crawl.example", False),
    ("CRAWL.example", "", "https://crawl.EXAMPLE", True),
    ("other.example", "", "https://other.example:8443", False),  # not one of --host: the port counts
    ("crawl.example", "", "https://crawl.example.evil", False),
    ("crawl.example", "", "https://evil.example", False),
    ("crawl.example", "", "https://crawl.example@evil.example", False),
    ("crawl.example", "", "null", False),
    ("crawl.example", "", "", False),
    ("crawl.example", "", "crawl.example", False),
    ("crawl.example", "", "//crawl.example", False),
    ("crawl.example", "", "file://crawl.example", False),
]


@pytest.mark.parametrize(("host", "scheme", "origin", "is_one"), ORIGINS)
def test_an_origin_is_ours_by_scheme_host_and_port(host: str, scheme: str, origin: str, *, is_one: bool) -> None:
    assert Source(client="", host=host, scheme=scheme).is_same_origin(origin, ("crawl.example",)) is is_one


@pytest.mark.parametrize(
    ("header", "is_one"),
    [("10.0.0.5:80", True), ("10.0.0.5", True), ("10.0.0.6", False), ("10.0.0.5:81", False), ("a.example", True),
     ("a.example:9", True), ("a.example.", False), ("b.a.example", False), ("localhost", True), ("10.0.0.5:x", True),
     ("10.0.0.5:99999", True), ("[::1]", True), ("::1", False), ("a.example@evil", False)],
)  # fmt: skip
def test_a_host_is_the_address_or_a_given_name(header: str, *, is_one: bool) -> None:
    assert is_ours(header, address="10.0.0.5", port=80, names={"a.example"}) is is_one


@pytest.mark.parametrize(
    ("header", "is_one"),
    [("localhost", True), ("localhost:81", True), ("127.0.0.1", True), ("a.example", True), ("", False),
     ("evil.example", False), ("crawler.sock", False)],
)  # fmt: skip
def test_through_a_socket_a_host_is_a_given_name_or_one_of_loopback(header: str, *, is_one: bool) -> None:
    assert is_ours(header, address="", port=0, names={"a.example"}) is is_one


@pytest.mark.parametrize(
    ("text", "name"),
    [("crawl.example", "crawl.example"), ("Crawl.EXAMPLE", "crawl.example"), ("crawl.example:8443", "crawl.example"),
     ("10.0.0.5", "10.0.0.5"), ("[fd00::1]:80", "fd00::1"), ("serve", "serve"), ("xn--bcher-kva.example",) * 2],
)  # fmt: skip
def test_a_name_is_told_without_its_port(text: str, name: str) -> None:
    assert host_name(text) == name


@pytest.mark.parametrize(
    "text",
    ["", "https://crawl.example", "crawl.example/", "crawl.example/crawler", "a b", "a@b", "*", "*.example", "a,b",
     "bücher.example", "a" * 254, "a:b", "a:", "a:123456", "::1", "[x]", "a.example\n"],
)  # fmt: skip
def test_what_is_not_a_name_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="expected a name like"):
        host_name(text)


PROXY = [
    "Forwarded", "forwarded", "Via", "X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Host", "X-Forwarded-Prefix",
    "X-Forwarded-Server", "X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Access-Token", "X-Forwarded",
    "X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "CF-Ray", "X-Envoy-External-Address",
    "X-Amzn-Trace-Id", "X-Original-URI", "X-Original-Forwarded-For", "X-Auth-Request-User", "Remote-User", "X-Scheme",
    "Tailscale-User-Login", "X-ARR-SSL", "CDN-Loop", "X-WebAuth-User",
]  # fmt: skip
CLIENT = [
    "Host", "User-Agent", "Accept", "Accept-Encoding", "Cookie", "Connection", "Origin", "Referer", "Sec-Fetch-Site",
    "Idempotency-Key", "Last-Event-ID", "X-CSRF-Token", "If-None-Match", "X-Requested-With", "Cache-Control", "Pragma",
    "DNT", "X-Prometheus-Scrape-Timeout-Seconds", "X-Grafana-Id", "Content-Type", "Viable", "X-Forward",
]  # fmt: skip


def test_headers_of_proxies_are_told_from_those_of_clients() -> None:
    assert [name for name in PROXY if not proxy_header([name])] == []
    assert [name for name in CLIENT if proxy_header([name])] == []
    assert proxy_header(["Host", "VIA", "Forwarded"]) == "VIA"


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("/crawler/", "/crawler"), ("/crawler", "/crawler"), ("/", ""), ("/a/b-c_d.e~1/", "/a/b-c_d.e~1"), ("/v1/", "/v1"),
     ("/.well-known/c", "/.well-known/c"), ("/crawler//", "/crawler")],
)  # fmt: skip
def test_a_prefix_has_no_slash_at_its_end(text: str, prefix: str) -> None:
    assert path_prefix(text) == prefix


@pytest.mark.parametrize(
    "text",
    ["", "crawler", "crawler/", "https://a.example/crawler/", "/a//b", "/a/../b", "/..", "/a/./b", "/a b", "/a?b",
     "/a#b", "/{name}", "/ä", "/%41", "/a\n", "//evil.example", "/a;b", "/a\\b", "/" + "a" * 101, "/ab" * 40],
)  # fmt: skip
def test_what_is_not_a_path_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="expected a path like /crawler/"):
        path_prefix(text)


@pytest.mark.parametrize(
    ("front", "is_plain"),
    [(Front(), True), (Front(names=("a.example",)), False), (Front(prefix="/a"), False), (Front(prefix=""), False),
     (Front(proxies=trusted_proxies(["10.0.0.1"], may_be_unix=False)), False),
     (Front(proxies=trusted_proxies(["unix"], may_be_unix=True)), False)],
)  # fmt: skip
def test_whatever_is_told_of_others_means_that_they_come(front: Front, *, is_plain: bool) -> None:
    assert front.is_plain is is_plain


def test_addresses_to_listen_on_are_ip_addresses_with_a_port() -> None:
    assert listen_place("127.0.0.1:8800") == ("127.0.0.1", 8800)
    assert listen_place("localhost:0") == ("127.0.0.1", 0)
    assert listen_place("[::1]:8800") == ("::1", 8800)
    wrong = ("8800", ":8800", "127.0.0.1", "127.0.0.1:", "example.com:80", "127.0.0.1:70000", "::1", "[::1]", "unix")
    for text in wrong:
        with pytest.raises(UsageError, match="expected an address and a port"):
            listen_place(text)


def test_the_printed_address_is_one_that_answers() -> None:
    found = [shown(reachable(address), 80) for address in ("0.0.0.0", "::", "::1", "10.0.0.5")]
    assert found == ["127.0.0.1:80", "[::1]:80", "[::1]:80", "10.0.0.5:80"]


# Sockets


def test_a_socket_is_named_by_its_path() -> None:
    assert listen_place("unix:/run/c.sock") == Path("/run/c.sock")
    assert str(listen_place("unix:///run/c.sock")) == "/run/c.sock"
    assert listen_place("unix:c.sock") == Path.cwd() / "c.sock"
    for text in ("unix:", "unix:/", "unix://"):
        with pytest.raises(UsageError, match="expected the path of a socket"):
            listen_place(text)
    assert listen_place(f"unix:/{'a' * 99}") == Path(f"/{'a' * 99}")
    for path in ("a" * 100, "ä" * 50):
        with pytest.raises(UsageError, match="has at most 100 bytes; use a shorter one"):
            listen_place(f"unix:/{path}")


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True


def test_a_socket_is_for_its_user_alone_and_goes_with_its_server(tmp_path: Path) -> None:
    path, before = tmp_path / "s", os.umask(0)
    try:
        with listening_at(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert connects(path)
            assert os.umask(0) == 0, "that of the process is as it was"
        assert not path.exists()
    finally:
        os.umask(before)


def test_a_stale_socket_is_replaced_and_a_live_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
    assert path.exists()
    with listening_at(path):
        with pytest.raises(ConflictError, match="is in use by another program"), listening_at(path):
            pass
        assert connects(path), "the live one was not touched"
    assert not path.exists()


def test_a_full_queue_is_a_live_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as busy:
        busy.bind(str(path))
        busy.listen(0)
        clients = []
        while True:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            clients.append(client)
            if client.connect_ex(str(path)):
                break
        with pytest.raises(ConflictError), listening_at(path):
            pass
        for client in clients:
            client.close()


def test_what_is_not_a_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    for name in ("file", "link", "folder"):
        with pytest.raises(UsageError, match="not a socket"), listening_at(tmp_path / name):
            pass
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(UsageError, match="No such file or directory"), listening_at(tmp_path / "none" / "s"):
        pass
    with pytest.raises(UsageError, match="Not a directory"), listening_at(tmp_path / "file" / "s"):
        pass


def test_a_socket_that_somebody_else_made_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        with listening_at(path):
            path.unlink()
            other.bind(str(path))
        assert path.exists()


def test_of_many_that_begin_at_once_one_has_the_socket(tmp_path: Path) -> None:
    path, results = tmp_path / "s", list[str]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
    begin, done = threading.Barrier(8), threading.Event()

    def start() -> None:
        begin.wait()
        try:
            with listening_at(path):
                results.append("listens")
                done.wait()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is seen below
            results.append(type(error).__name__)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(results) < 8:
        done.wait(0.005)
    is_reached = connects(path)
    done.set()
    for thread in threads:
        thread.join()
    assert (sorted(results), is_reached) == ([*["ConflictError"] * 7, "listens"], True)


def test_a_folder_with_the_setgid_bit_adds_its_group(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    if not tmp_path.stat().st_mode & stat.S_ISGID:
        pytest.skip("not on this file system")
    with listening_at(tmp_path / "s"):
        made = (tmp_path / "s").stat()
        assert (stat.S_IMODE(made.st_mode), made.st_gid) == (0o660, tmp_path.stat().st_gid)

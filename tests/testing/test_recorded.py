"""Archives of any make, read by URL: what was recorded comes back, what is damaged is said in one line."""

import gzip
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from crawler.archive.warc_web import RecordedWeb
from crawler.errors import ArchiveError, UsageError
from crawler.testing.replaying import Replayed, replay
from crawler.testing.web_server import ServedWeb, WebServer
from tests.support.serving import serve_resources
from tests.support.web import Resource
from tests.testing.recorded_lab import Writer, written

PAGE = "http://a.test/"
# warcio's writer leaves its temporary files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def body_of(recorded: RecordedWeb, url: str = PAGE) -> bytes:
    found = recorded.read(url)
    assert found is not None
    return found.body


@pytest.mark.parametrize("packed", [True, False])
def test_a_response_comes_back_as_it_was_recorded_wherever_it_lies(tmp_path: Path, packed: bool) -> None:
    writer = Writer(tmp_path / ("a.warc.gz" if packed else "a.warc"), packed=packed)
    writer.other("http://a.test/", "request", b"GET / HTTP/1.1\r\n\r\n")
    for number in range(50):
        writer.response(f"http://a.test/{number}", b"%d" % number * 999, ("Content-Type", "text/plain"), ("X-Is", "ä"))
    writer.response("https://A.test:443/gone?b=1&a=2", b"", ("Location", "/x"), status="301 Moved")
    recorded = RecordedWeb([writer.close()])
    assert (len(recorded), recorded.hosts, recorded.flaws) == (51, {"a.test"}, [])
    for number in (49, 0, 23):
        found = recorded.read(f"http://a.test/{number}")
        assert found is not None
        assert found.body == b"%d" % number * 999
        assert (b"Content-Type", b"text/plain") in found.headers
    gone = recorded.read("https://a.test/gone?b=1&a=2")
    assert gone is not None
    assert (gone.status, gone.reason, gone.headers) == (301, "Moved", ((b"Location", b"/x"),))
    assert recorded.read("http://a.test/51") is None


HEADS = {
    b"Content-Length : 3": [],
    b"content-length\t: 3": [],
    b"Transfer-Encoding : gzip": [],
    b"Connection :close": [],
    b"A: b\r\n Content-Length: 3": [(b"A", b"b Content-Length: 3")],
    b" Content-Length: 3": [],
    b"A : b": [(b"A", b"b")],
    b"A\0: b\r\nB C: d\r\n: x\r\nno colon\r\n\r: y\r\nD: e\0": [(b"D", b"e")],
}


@pytest.mark.parametrize("head", HEADS)
def test_no_header_of_a_record_speaks_for_the_connection(head: bytes, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.warc.gz")
    writer.raw(PAGE, b"HTTP/1.1 200 OK\r\n%b\r\n\r\nabcdef" % head)
    found = RecordedWeb([writer.close()]).read(PAGE)
    assert found is not None
    assert (list(found.headers), found.body) == (HEADS[head], b"abcdef")


def test_records_of_no_final_response_are_said_and_the_others_served(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.warc.gz")
    blocks = (b"", b"\r\n\r\n", b"HTTP/1.1 103 Early\r\n\r\n", b"HTTP/1.1 \xb2\xb3\xb9 x\r\n\r\n")
    for number, block in enumerate(blocks):
        writer.raw(f"{PAGE}{number}", block)
    writer.response(PAGE, b"fine")
    with replay(writer.close()) as web:
        for number in range(len(blocks)):
            answer = asked(web, f"{PAGE}{number}")
            assert answer.startswith(b"HTTP/1.1 502 "), answer
        assert asked(web, PAGE).endswith(b"\r\n\r\nfine")
        assert web.asked == [*(f"{PAGE}{number}" for number in range(len(blocks))), PAGE]


def test_what_was_asked_for_is_kept_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = WebServer(Replayed(RecordedWeb([written(tmp_path / "a.warc.gz", [(PAGE, b"x")])])), asked_max=3)
    for number in range(10):
        server._answer("GET", f"{PAGE}{number}{'x' * 5000}", {}, b"")
    assert [url[:15] for url in server.asked] == [f"{PAGE}{number}" for number in (7, 8, 9)]
    assert max(map(len, server.asked)) == 2000


def asked(web: ServedWeb, url: str) -> bytes:
    host, _, port = web.settings["fetch.gateway"].partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"GET {url} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        with connection.makefile("rb") as file:
            return file.read()


def test_headers_of_the_connection_are_left_out_and_chunks_put_together(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.warc.gz")
    coded = gzip.compress(b"hello")
    body = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (5, coded[:5], len(coded) - 5, coded[5:])
    writer.response(
        PAGE, body, ("Transfer-Encoding", "chunked"), ("Content-Encoding", "gzip"), ("Connection", "close"),
        ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"),
    )  # fmt: skip
    found = RecordedWeb([writer.close()]).read(PAGE)
    assert found is not None
    assert gzip.decompress(found.body) == b"hello"
    assert [name for name, _ in found.headers] == [b"Content-Encoding", b"Set-Cookie", b"Set-Cookie"]


def test_the_newest_response_of_a_url_counts_in_whatever_file(tmp_path: Path) -> None:
    files = []
    for name, day in (("a", "02"), ("b", "03"), ("c", "01")):
        writer = Writer(tmp_path / f"{name}.warc.gz")
        writer.response(PAGE, name.encode(), date=f"2026-01-{day}T00:00:00Z")
        files.append(writer.close())
    assert body_of(RecordedWeb(files)) == b"b"
    assert body_of(RecordedWeb([tmp_path])) == b"b"


def test_a_revisit_has_the_body_that_it_refers_to_and_headers_of_its_own(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.warc.gz")
    writer.response(PAGE, b"unchanged", ("X-Visit", "1"))
    writer.revisit(PAGE, PAGE, ("X-Visit", "2"), date="2026-02-01T00:00:00Z")
    writer.revisit("http://a.test/copy", PAGE, date="2026-02-01T00:00:00Z")
    writer.revisit("http://a.test/lost", "http://a.test/absent", date="2026-02-01T00:00:00Z")
    recorded = RecordedWeb([writer.close()])
    for url, visit in ((PAGE, b"2"), ("http://a.test/copy", b"1")):
        found = recorded.read(url)
        assert found is not None
        assert (found.body, found.headers) == (b"unchanged", ((b"X-Visit", visit),))
    with pytest.raises(ArchiveError, match="refers to is not in these files"):
        recorded.read("http://a.test/lost")


@pytest.mark.skipif(shutil.which("wget") is None, reason="wget is not installed")
def test_what_wget_records_can_be_read(tmp_path: Path) -> None:
    """wget keeps chunks, puts URLs into angle brackets in some releases, and records robots.txt."""
    web = {
        ("127.0.0.1", "/"): Resource(body="<a href='/next'>x</a><a href='/no'>x</a>"),
        ("127.0.0.1", "/next"): Resource(body="<h1>next</h1>"),
        ("127.0.0.1", "/robots.txt"): Resource(body="User-agent: *\nDisallow: /no\n", content_type="text/plain"),
    }
    with serve_resources(web) as site:
        begin = site.url("127.0.0.1")
        command = ["wget", "-q", "-r", "--warc-file", "recorded", begin]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=30)
    recorded = RecordedWeb([tmp_path / "recorded.warc.gz"])
    assert body_of(recorded, f"{begin}next") == b"<h1>next</h1>"
    assert b"Disallow" in body_of(recorded, f"{begin}robots.txt")
    assert recorded.read(f"{begin}no") is None


def test_of_a_file_that_is_cut_off_what_is_whole_is_read_and_the_rest_said(tmp_path: Path) -> None:
    for packed in (True, False):
        whole = written(tmp_path / "whole", [(PAGE, b"first"), ("http://a.test/2", b"x" * 5000)], packed=packed)
        cut = tmp_path / ("cut.warc.gz" if packed else "cut.warc")
        cut.write_bytes(whole.read_bytes()[: -40 if packed else -400])
        recorded = RecordedWeb([cut])
        assert body_of(recorded) == b"first"
        assert len(recorded) == 1
        (flaw,) = recorded.flaws
        assert "cut off at byte" in flaw
        assert "\n" not in flaw


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"hello\nworld\n", "not a WARC record"),
        ("a.warc", b"", "there is no response"),
        ("a.warc.gz", b"\x1f\x8b\x08\x00garbage-and-more-of-it", "a.warc.gz"),
        ("a.bin", bytes(range(256)) * 9, "a.bin"),
    ],
)
def test_what_is_no_archive_is_one_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        RecordedWeb([file])
    assert "\n" not in str(caught.value)


def test_a_file_packed_as_a_whole_is_said_with_what_to_do(tmp_path: Path) -> None:
    plain = written(tmp_path / "a.warc", [(PAGE, b"1"), ("http://a.test/2", b"2")], packed=False)
    packed = tmp_path / "b.warc.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(UsageError, match="warcio recompress"):
        RecordedWeb([packed])


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        RecordedWeb([tmp_path / "absent.warc.gz"])
    with pytest.raises(UsageError, match="no WARC file in it"):
        RecordedWeb([tmp_path])

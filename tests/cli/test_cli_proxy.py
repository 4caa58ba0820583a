"""`--proxy` of real commands, through real proxies: exact results whatever they do, and no password anywhere."""

import asyncio
import gzip
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.support.hostile_server import HostileServer
from tests.support.patience import PATIENCE_S, until
from tests.support.processes import Nursery, Program, nursery
from tests.support.tls import Authority
from tests.support.web_proxy import Fault, WebProxy

Kind = Literal["http", "socks5"]
KINDS: tuple[Kind, ...] = ("http", "socks5")
SECRET = "hunter2-of-the-proxy"
LOGIN = ("me", SECRET)
PAGES = 4
HOSTS = ("a.test", "b.test", "c.test")
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def answer(body: bytes) -> tuple[bytes]:
    return (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body),)


def site() -> dict[str, tuple[bytes]]:
    """A home page of each host, and those that it leads to."""
    links = b"".join(b"<a href=/p%d>x</a>" % n for n in range(PAGES))
    return {"/": answer(links)} | {f"/p{n}": answer(b"<p>%d" % n) for n in range(PAGES)}


@dataclass(frozen=True)
class Web:
    """Two servers for all hosts, one of them with TLS."""

    plain: HostileServer
    tls: HostileServer
    programs: Nursery
    folder: Path
    by_path: dict[str, tuple[bytes]]

    @property
    def seeds(self) -> list[str]:
        return [
            *(f"http://{host}:{self.plain.port}/" for host in HOSTS[:2]),
            *(f"https://{host}:{self.tls.port}/" for host in HOSTS[1:]),
        ]

    def pages(self, seeds: Sequence[str]) -> list[str]:
        return sorted(f"{seed}{name}" for seed in seeds for name in ("", *(f"p{n}" for n in range(PAGES))))

    def crawl(self, proxy: str, seeds: Sequence[str], *more: str, **environment: str) -> Program:
        quick = ("--delay", "0", "--set", "crawl.partitions=16", "--set", "fetch.connect_timeout_s=1",
                 "--set", "fetch.idle_timeout_s=1", "--set", "retry.backoff_s=0.05", "-v")  # fmt: skip
        own = (
            "--dir",
            str(self.folder / "c"),
            "-o",
            str(self.folder / "pages.jsonl"),
            *(("--proxy", proxy) if proxy else ()),
        )
        return self.programs.crawler("crawl", *seeds, *own, *quick, *more, **environment)

    def fetched(self) -> list[str]:
        lines = (self.folder / "pages.jsonl").read_text("utf-8").splitlines()
        return sorted(json.loads(line)["url"] for line in lines)

    def stored(self) -> bytes:
        """All bytes in all files: archive, index, logs, and what the engine has written."""
        found = b""
        for file in self.folder.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                found += gzip.decompress(content) if file.name.endswith(".warc.gz") else content
        return found


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    (tmp_path / "ca").mkdir()
    authority = Authority(tmp_path / "ca")
    tls = authority.server(san=",".join(f"DNS:{host}" for host in HOSTS))
    by_path: dict[str, tuple[bytes]] = site()
    with nursery({"SSL_CERT_FILE": str(authority.file)}) as programs:
        async with (
            HostileServer(NOT_FOUND, by_path=by_path) as plain,
            HostileServer(NOT_FOUND, by_path=by_path, tls=tls) as secure,
            asyncio.timeout(2 * PATIENCE_S),
        ):
            folder = tmp_path / "own"
            folder.mkdir()
            yield Web(plain, secure, programs, folder, by_path)


async def ended(program: Program) -> str:
    """Its words, once it has ended well."""
    code = await asyncio.to_thread(program.wait)
    assert code == 0, program.err
    return program.out + program.err


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_crawl_through_a_proxy_is_exact_and_leaks_no_password(web: Web, kind: Kind) -> None:
    async with WebProxy(kind, login=LOGIN) as proxy:
        said = await ended(web.crawl(proxy.url, web.seeds, "-vv"))
        assert web.fetched() == web.pages(web.seeds)
        coded = b64encode(f"me:{SECRET}".encode())
        for secret in (SECRET.encode(), coded):
            assert secret not in web.stored()
            assert secret not in said.encode()
        for request in (*web.plain.requests, *web.tls.requests):
            assert b"proxy" not in request.lower()
        hosts = {(host, port) for host, port in proxy.asked}
        assert hosts == {(s.split("/")[2].partition(":")[0], int(s.rpartition(":")[2][:-1])) for s in web.seeds}


MORE_FAULTS: list[tuple[Kind, Fault, str]] = [
    ("http", 407, "https"), ("http", 502, "https"), ("http", "drop", "https"), ("http", "hang", "https"),
    ("http", "garbage", "https"), ("http", "endless", "https"), ("http", "liar", "https"), ("http", 407, "http"),
    ("http", "drop", "http"), ("http", "hang", "http"), ("http", "garbage", "http"), ("http", "endless", "http"),
    ("socks5", 1, ""), ("socks5", 2, ""), ("socks5", "garbage", ""), ("socks5", "liar", ""),
]  # fmt: skip


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("kind", "fault", "scheme"),
    [
        ("http", 403, "https"),
        ("socks5", "drop", ""),
        *(pytest.param(*row, marks=pytest.mark.slow(seconds=10)) for row in MORE_FAULTS),
    ],
)
async def test_urls_wait_for_a_proxy_that_fails_and_go_on(web: Web, kind: Kind, fault: Fault, scheme: str) -> None:
    """No attempt counts, no site is set aside, and the progress says what is wrong."""
    seeds = web.seeds if kind == "socks5" else web.seeds[:2] if scheme == "http" else web.seeds[2:]
    async with WebProxy(kind, login=LOGIN) as proxy:
        proxy.fault = fault
        program = web.crawl(proxy.url, seeds)
        await until(lambda: "waits for the proxy" in program.err and proxy.connections >= 5)
        proxy.fault = ""
        said = await ended(program)
    assert web.fetched() == web.pages(seeds)
    assert f"last error: proxy: {kind}://127.0.0.1:{proxy.port}: " in said
    assert "failed" not in said
    log = b"".join(file.read_bytes() for file in (web.folder / "c" / "log").iterdir())
    assert b"origin.set_aside" not in log
    assert b"proxy.failed" in log


@pytest.mark.slow(seconds=10)
async def test_a_proxy_that_is_not_there_yet_is_waited_for(web: Web) -> None:
    async with WebProxy("socks5") as gone:
        port = gone.port
    program = web.crawl(f"socks5://127.0.0.1:{port}", web.seeds)
    await until(lambda: "waits for the proxy" in program.err)
    for command, said in (
        (("explain", web.seeds[0]), "Will be crawled once the proxy (fetch.proxy) works"),
        (("stats",), "for the proxy (fetch.proxy), which does not work"),
        (("stats", "a.test"), "wait for the proxy (fetch.proxy), which does not work"),
        (("doctor", "--proxy", f"socks5://127.0.0.1:{port}"), f"socks5://127.0.0.1:{port} takes no connections"),
    ):
        asked = web.programs.crawler(*command, "--dir", str(web.folder / "c"))
        await asyncio.to_thread(asked.wait)
        assert said in asked.out + asked.err, command
    async with WebProxy("socks5", port=port):
        await ended(program)
    assert web.fetched() == web.pages(web.seeds)


@pytest.mark.slow(ci=True)
async def test_a_dead_site_behind_a_proxy_ends_as_one_without(web: Web) -> None:
    """Others are served meanwhile, so it is not the proxy; its URLs become dead letters, and the crawl ends."""
    async with WebProxy("http") as proxy:
        proxy.faults["c.test"] = 503
        said = await ended(web.crawl(proxy.url, web.seeds, "--set", "retry.connect.backoff_s=0.05"))
    assert web.fetched() == web.pages(web.seeds[:3])
    assert f"answered 503 to CONNECT c.test:{web.tls.port}" in said
    assert "waits for the proxy" not in said


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize(("kind", "fault"), [("http", 302), ("http", 407), ("socks5", 2), ("socks5", "hang")])
async def test_the_last_links_of_a_crawl_that_a_proxy_refuses_end(web: Web, kind: Kind, fault: Fault) -> None:
    """The pages of the site are fetched before, so that nobody is left to be a witness."""
    refused = [f"no{n}.test" for n in range(4)]
    links = "".join(f"<a href='https://{host}/'>x</a>" for host in refused)
    web.by_path["/"] = answer(web.by_path["/"][0].partition(b"\r\n\r\n")[2] + links.encode())
    async with WebProxy(kind) as proxy:
        proxy.faults = dict.fromkeys(refused, fault)
        scope = ("--set", "scope.mode=any", "--set", "retry.connect.backoff_s=0.05")
        said = await ended(web.crawl(proxy.url, web.seeds[:1], *scope))
    assert web.fetched() == web.pages(web.seeds[:1])
    assert said.count("given up after 3 attempts") == len(refused)
    assert {host for host, _ in proxy.asked} == {"a.test", *refused}


@pytest.mark.slow(seconds=33)
async def test_a_lone_site_that_does_not_exist_ends_the_crawl(web: Web) -> None:
    """Nobody can tell it from a broken proxy. After some attempts it counts as the site."""
    async with WebProxy("socks5") as proxy:
        proxy.fault = 4
        program = web.crawl(proxy.url, ["http://nowhere.test/"], "--set", "retry.connect.backoff_s=0.05")
        code = await asyncio.to_thread(program.wait, 2 * PATIENCE_S)
    assert code == 6, program.err
    assert "host unreachable" in program.err


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("kind", KINDS)
async def test_other_commands_that_fetch_go_through_it_too(web: Web, kind: Kind) -> None:
    sitemap = f"<urlset><url><loc>https://c.test:{web.tls.port}/p1</loc></url></urlset>".encode()
    web.by_path["/sitemap.xml"] = answer(sitemap)
    seed = web.seeds[-1]
    async with WebProxy(kind, login=LOGIN) as proxy:
        for command in (
            ("fetch", seed), ("shell", seed, "-c", "print(page.status)"), ("seed", "--sitemap", f"{seed}sitemap.xml"),
        ):  # fmt: skip
            before = len(proxy.asked)
            program = web.programs.crawler(*command, "--proxy", "env", all_proxy=proxy.url, no_proxy="", cwd=web.folder)
            said = await ended(program)
            assert len(proxy.asked) > before, command
            assert SECRET not in said


@pytest.mark.slow(ci=True)
async def test_instances_of_a_supervisor_use_it(web: Web) -> None:
    async with WebProxy("socks5", login=LOGIN) as proxy:
        config = web.folder / "crawler.toml"
        config.write_text('[fetch]\nproxy = { env = "MY_PROXY" }\n[[sites]]\nmatch = "c.test"\nproxy = ""\n', "utf-8")
        program = web.crawl("", web.seeds[:3], "-n", "2", "--config", str(config), MY_PROXY=proxy.url)
        await ended(program)
        assert web.fetched() == web.pages(web.seeds[:3])
        assert {host for host, _ in proxy.asked} == {"a.test", "b.test"}
        assert SECRET.encode() not in web.stored()


@pytest.mark.slow(ci=True)
async def test_a_wrong_password_is_said_without_it(web: Web) -> None:
    async with WebProxy("http", login=("me", "another")) as proxy:
        program = web.crawl(f"http://me:{SECRET}@127.0.0.1:{proxy.port}", web.seeds)
        await until(lambda: "it refuses the user and password of fetch.proxy" in program.err)
        program.interrupt()
        await asyncio.to_thread(program.wait)
    assert SECRET.encode() not in web.stored()
    assert SECRET not in program.out + program.err
    assert b64encode(f"me:{SECRET}".encode()) not in web.stored()

"""A key is in nothing that a signed crawl leaves and says, and each request is signed, also after a kill -9."""

import asyncio
import gzip
import json
import shlex
import time
import zlib
from base64 import b64decode, b64encode
from pathlib import Path
from typing import NamedTuple

import pytest

from crawler.api.routes import ROUTES
from crawler.crawl.opening import open_crawl
from crawler.settings import load
from crawler.testing import serve
from crawler.views.identity import make_key_file, renew_key_file
from crawler.web.signing_keys import read_keys
from tests.api.api_lab import served
from tests.cli.cli_lab import QUICK, forget_apps, in_process
from tests.crawl.harness import entries_of
from tests.crawl.lab import name_server
from tests.crawl.test_crash import lab, wait_for_requests
from tests.support.processes import nursery
from tests.support.serving import serve_web
from tests.support.signing_site import verified

AGENT = "https://bot.example"
APP = """\
from crawler import Crawler

app = Crawler()


@app.page()
def page(page):
    page.log.info("seen", extra={"request": str(page.request)})
    if "b" in page.url[20:]:
        raise ValueError(page.request)
    yield {"url": page.url, "request": str(page.request)}
"""
PAGES = {
    "http://one.test/": "<a href=/a>a</a><a href=/b>b</a><a href=http://two.test/>two</a>",
    "http://two.test/": "2",
}
COMMANDS = (
    "stats", "stats --json", "stats --losses", "seeds --json", "oplog --json", "dead list --json", "dead show",
    "ring --json", "check", "settings --all", "settings --json", "doctor --json", "doctor -vv", "audit",
    "explain http://one.test/a", "explain http://one.test/b --json", "history http://one.test/a", "export -o -",
    "export --items -o -", "backup FOLDER/b.backup", "identity show", "identity show --json", "jobs list", "init x",
    "fetch http://one.test/a -vv", "fetch http://one.test/a --json", "identity show --to FOLDER/out",
)  # fmt: skip


class Canary(NamedTuple):
    """Words that a secret is written in."""

    words: tuple[bytes, ...]

    @classmethod
    def of(cls, path: str) -> "Canary":
        words = list[bytes]()
        for key in read_keys(path).keys:
            raw = b64decode(key.d + "=", altchars=b"-_")
            words += [key.d.encode(), raw, raw.hex().encode(), b64encode(raw).rstrip(b"="), repr(raw)[2:-1].encode()]
        return cls(tuple(words))

    def is_in(self, *data: bytes) -> bool:
        return any(word in one for word in self.words for one in (*data, *map(_plain, data)))


def _plain(data: bytes) -> bytes:
    """What is in a file of gzip members."""
    try:
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else b""
    except (OSError, EOFError, zlib.error):
        return b""


def test_the_canary_is_seen_where_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "bot.key")
    make_key_file(path, 1.0)
    content = Path(path).read_bytes()
    assert Canary.of(path).is_in(content)
    assert Canary.of(path).is_in(gzip.compress(content))


@pytest.mark.slow(seconds=20)
def test_a_key_is_in_nothing_that_a_crawl_leaves_and_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key_file, folder = str(tmp_path / "bot.key"), tmp_path / "c"
    make_key_file(key_file, time.time())
    renew_key_file(key_file, time.time(), after_s=3600)
    canary = Canary.of(key_file)
    (tmp_path / "shop.py").write_text(APP)
    settings = {"identity.sign": "always", "identity.key_file": key_file, "identity.agent": AGENT}
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    where = ["--dir", str(folder)]
    with serve(PAGES) as site, nursery(site.environment | {"CRAWLER_LOG_LEVEL": "debug"}) as programs:
        forget_apps(monkeypatch)
        monkeypatch.chdir(tmp_path)
        words = [
            "http://one.test/",
            *where,
            *given,
            *QUICK,
            "--scope",
            "any",
            "-vv",
            "--app",
            "shop.py",
            "-o",
            "o.jsonl",
        ]
        said = in_process(programs, "crawl", *words, cwd=tmp_path)
        assert (said.code, "one.test" in said.err) == (0, True), said
        assert not canary.is_in(said.out.encode(), said.err.encode())
        for command in COMMANDS:
            more = given if command.split()[0] in ("doctor", "fetch", "identity", "check") else []
            ran = in_process(
                programs, *shlex.split(command.replace("FOLDER", str(tmp_path))), *where * (command != "init x"), *more,
                cwd=tmp_path,
            )  # fmt: skip
            assert not canary.is_in(ran.out.encode(), ran.err.encode()), command
            assert ran.code != 1, (command, ran)
        answers = asyncio.run(_api(folder, site.environment))
        assert len(answers) > 10
        assert [path for path, raw in answers.items() if canary.is_in(raw)] == []
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "bot.key"]
    assert len(left) > 10
    assert [path for path in left if canary.is_in(path.read_bytes())] == []


async def _api(folder: Path, environment: dict[str, str]) -> dict[str, bytes]:
    """What each route answers to a GET."""
    settings = load(environment=environment, options={"archive.dir": str(folder)})
    paths = [route.path for route in ROUTES if route.method == "GET" and "{" not in route.path]
    paths += [f"/v1/{name}?url=http://one.test/a" for name in ("explain", "history", "ring/place")]
    answers = {}
    async with open_crawl(settings, create=False) as crawl, served(crawl) as api:
        for path in paths:
            async with api.http.get(api.url(path)) as answer:
                answers[path] = await (answer.content.readany() if path == "/v1/events" else answer.read())
    return answers


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = str(tmp_path / "bot.key")
    make_key_file(path, 1_700_000_000)
    return path


@pytest.mark.processes
@pytest.mark.slow(ci=True)
def test_a_killed_crawl_that_goes_on_signs_each_request(tmp_path: Path, key_file: str) -> None:
    """By the same command, without its key's name from the second time on; meanwhile the key is renewed."""
    folder = tmp_path / "c"
    given = ["--set", "identity.sign=always", "--set", f"identity.key_file={key_file}", "--set", "identity.nonce=yes"]
    with name_server() as dns, serve_web(seed=4, domains=4, pages=5) as site, lab(dns) as programs:
        words = ["--dir", str(folder), "--scope", "any", "--delay", "0.02", "--quiet", "--set", "membership.dead_s=600"]
        for n in (20, 60):
            program = programs.crawler("crawl", *site.web.seeds, *words, *given)
            wait_for_requests(site, n, program)
            program.kill()
            given = []
        renew_key_file(key_file, time.time(), after_s=0)
        last = programs.crawler("crawl", *site.web.seeds, *words)
        assert last.wait(90) == 0, last.err
        requests = site.requests()
    assert {e.url: e.status for e in entries_of(folder)} == site.web.expected(site.web.seeds, "any").committed
    keys, used = {key.kid: key.x for key in read_keys(key_file).keys}, list[str]()
    for one in requests:
        sent = {"host": f"{one.host.partition(':')[0]}:{site.port}"} | one.headers
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        used.append(verified(f"GET {one.target} HTTP/1.1\r\n{lines}".encode(), keys, time.time()))
    assert set(used) == set(keys)
    assert len({one.headers["signature"] for one in requests}) == len(requests), "each has a nonce"
    needs = json.loads((folder / "permissions.json").read_text())
    assert needs["key_file"] == key_file

"""Crawls of sites that refuse what is not signed: with signatures always, and for those that ask."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.history import attempts
from crawler.crawl.instance import Instance
from crawler.crawl.opening import open_crawl
from crawler.crawl.sitemap_reader import SitemapReader
from crawler.settings import Settings
from crawler.views.command_fetch import polite_fetcher
from crawler.views.identity import make_key_file, renew_key_file
from crawler.views.losses import losses_of
from crawler.views.page_fetch import PageClient
from crawler.web import signing
from crawler.web.signing_keys import read_keys
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.crawl.rebuild_lab import audit
from tests.support.engine import Engine
from tests.support.signing_site import ASKED, SigningSite, headers_of, verified_by_library
from tests.support.tls import Authority

HOSTS = ("one.test", "two.test")
PAGES = 12


class Web:
    """Two hosts, whose pages link to the next one, and redirect to each other; a sitemap names one page more."""

    port = 0

    def __call__(self, host: str, path: str) -> tuple[str, str]:
        other = HOSTS[1 - HOSTS.index(host)]
        if path == "/robots.txt":
            return "", f"User-agent: *\nDisallow: /no\nSitemap: http://{host}:{self.port}/map.xml\n"
        if path == "/map.xml":
            where = f"http://{host}:{self.port}/mapped"
            return (
                "",
                f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>{where}</loc></url></urlset>',
            )
        if path == "/away":
            return f"http://{other}:{self.port}/landed", ""
        number = 0 if path == "/" else int(path.removeprefix("/p")) if path.startswith("/p") else PAGES
        links = f"<a href='/p{number + 1}'>next</a>" if number + 1 < PAGES else "<a href='/away'>away</a>"
        return "", f"<title>{host}{path}</title>{links}"

    @property
    def expected(self) -> set[str]:
        paths = ["/", "/away", "/landed", "/mapped", *(f"/p{number}" for number in range(1, PAGES))]
        return {f"http://{host}:{self.port}{path}" for host in HOSTS for path in paths}


def known(path: str) -> dict[str, str]:
    return {key.kid: key.x for key in read_keys(path).keys}


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = str(tmp_path / "bot.key")
    make_key_file(path, 1_700_000_000)
    return path


def signed_settings(folder: Path, dns: str, engine: Engine, key_file: str, **more: object) -> Settings:
    return settings_of(
        folder,
        **{
            "dns__nameservers": [dns], "frontier__redis": engine.url, "robots__sitemaps": "yes",
            "identity__sign": "always", "identity__key_file": key_file, "identity__agent": "https://bot.example",
        } | more,
    )  # fmt: skip


@pytest.mark.parametrize("sign", ["always", "asked"])
async def test_a_site_that_refuses_unsigned_requests_is_crawled_to_its_end(
    tmp_path: Path, engine: Engine, key_file: str, sign: str
) -> None:
    web = Web()
    async with SigningSite(web, known(key_file)) as site, lab_names() as dns:
        web.port = site.port
        settings = signed_settings(tmp_path / "c", dns, engine, key_file, identity__sign=sign)
        done = await crawl(settings, [site.url(host) for host in HOSTS])
        assert not done.errors
        assert done.statuses.keys() >= web.expected
        assert {status for url, status in done.statuses.items() if "/away" not in url} == {200}
        assert not site.faults
        assert dict(site.refused) == ({} if sign == "always" else dict.fromkeys(HOSTS, 1))
        assert max(Counter(site.served).values()) == 1
        assert all(verified_by_library(head, site.keys) for head in site.heads if b"\r\nSignature:" in head)
        assert await audit(settings) == 0
        if sign == "asked":
            await _page_is_asked_for(tmp_path, dns, engine, key_file, site)
    secret = read_keys(key_file).keys[0].d.encode()
    kept = [path for path in open_existing(tmp_path / "c").root.rglob("*") if path.is_file()]
    assert not [path for path in kept if secret in path.read_bytes()]
    with engine.client() as client:
        for key in client.scan_iter("*"):
            assert secret not in (client.dump(key) or b"")


async def _page_is_asked_for(tmp_path: Path, dns: str, engine: Engine, key_file: str, site: SigningSite) -> None:
    """Without robots.txt, a page is the first that is refused: that is no attempt, and the history says so."""
    more: dict[str, object] = {"crawl__name": "again", "robots__obey": False, "identity__sign": "asked"}
    settings = signed_settings(tmp_path / "again", dns, engine, key_file, **more)
    site.refused.clear()
    done = await crawl(settings, [site.url("one.test")])
    assert done.statuses[site.url("one.test")] == 200
    assert site.refused["one.test"] == 1
    tried = list(attempts([open_existing(tmp_path / "again")], url=site.url("one.test")))
    assert sorted((one.became.value, one.http_status, one.attempt) for one in tried) == [
        ("committed", 200, 1), ("lost", 401, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("sign", ["always", "asked"])
async def test_each_hop_of_a_redirect_has_a_signature_of_its_own(
    tmp_path: Path, engine: Engine, key_file: str, sign: str
) -> None:
    """From http to https of the same host, which is another authority, and on to another host."""
    tls = Authority(tmp_path).server(san="DNS:one.test,DNS:two.test")
    ports = dict[str, int]()

    def plain(host: str, path: str) -> tuple[str, str]:
        return (f"https://{host}:{ports['tls']}{path}", "") if path != "/robots.txt" else ("", "")

    def secure(host: str, path: str) -> tuple[str, str]:
        return (f"https://two.test:{ports['tls']}/landed", "") if path == "/" and host == "one.test" else ("", "here")

    async with (
        SigningSite(plain, known(key_file)) as http, SigningSite(secure, known(key_file), tls=tls) as https,
        lab_names() as dns,
    ):  # fmt: skip
        ports["tls"] = https.port
        settings = signed_settings(
            tmp_path / "c", dns, engine, key_file, identity__sign=sign, fetch__insecure_tls=True, scope__mode="any",
            robots__sitemaps="no",
        )  # fmt: skip
        done = await crawl(settings, [http.url("one.test")])
        assert not done.errors
        assert done.statuses == {
            http.url("one.test"): 302, https.url("one.test"): 302, https.url("two.test", "/landed"): 200
        }  # fmt: skip
        assert http.faults == https.faults == []
        is_asked = sign == "asked"
        assert (dict(http.refused), dict(https.refused)) == (
            {"one.test": 1} if is_asked else {}, dict.fromkeys(HOSTS, 1) if is_asked else {}
        )  # fmt: skip
        inputs = {headers_of(head).get("signature") for one in (http, https) for head in one.heads} - {None}
        assert len(inputs) == 3, "one for each authority"


async def test_a_key_that_is_renewed_in_mid_crawl_signs_the_rest(
    tmp_path: Path, engine: Engine, key_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "LOOK_S", 0.0)
    web, (old,) = Web(), known(key_file)
    async with SigningSite(web, known(key_file)) as site, lab_names() as dns:
        web.port = site.port

        async def renew(instances: list[Instance]) -> None:
            while sum(one.counters.committed for one in instances) < 6:
                await asyncio.sleep(0.01)
            renew_key_file(key_file, time.time(), after_s=0)
            site.keys.update(known(key_file))

        settings = signed_settings(tmp_path / "c", dns, engine, key_file, politeness__delay_s=0.05)
        done = await crawl(settings, [site.url(host) for host in HOSTS], meanwhile=renew)
        assert not done.errors
        assert done.statuses.keys() >= web.expected
        assert not site.faults
        assert not site.refused
        used = [keyid for _, _, keyid in site.served]
        assert set(used) == known(key_file).keys()
        assert used == sorted(used, key=lambda keyid: keyid != old), "the new key signs from one moment on"


async def test_who_takes_over_signs_too(tmp_path: Path, engine: Engine, key_file: str) -> None:
    web = Web()
    async with SigningSite(web, known(key_file)) as site, lab_names() as dns:
        web.port = site.port
        settings = signed_settings(
            tmp_path / "c", dns, engine, key_file, identity__sign="asked", politeness__delay_s=0.05
        )  # fmt: skip
        some = await crawl(signed_settings(
            tmp_path / "c", dns, engine, key_file, identity__sign="asked", crawl__pages_max=8),
            [site.url(host) for host in HOSTS],
        )  # fmt: skip
        assert not some.errors
        assert 8 <= len(some.entries) < len(web.expected)
        done = await crawl(settings, [], instances=2)
        assert not done.errors
        assert done.statuses.keys() >= web.expected
        assert not done.twice
        assert not site.faults
        assert sum(site.refused.values()) <= 2 * len(HOSTS) + len(HOSTS), "each owner is asked once"
        assert await audit(settings) == 0


async def test_commands_are_asked_once_too(tmp_path: Path, engine: Engine, key_file: str) -> None:
    """A single page, with its robots.txt; a sitemap, on the clock of its host."""
    web = Web()
    async with SigningSite(web, known(key_file)) as site, lab_names() as dns:
        web.port = site.port
        settings = signed_settings(tmp_path / "c", dns, engine, key_file, identity__sign="asked")
        visit = await PageClient(settings).visit(site.url("one.test", "/away"), follow=True)
        assert visit.result is not None
        assert visit.result.response is not None
        assert (visit.result.response.status, visit.url) == (200, site.url("two.test", "/landed"))
        assert site.refused == {"one.test": 1, "two.test": 1}
        async with open_crawl(settings, create=True) as crawl, polite_fetcher(crawl) as (fetcher, borrower):
            read = SitemapReader(fetcher, borrower).read(site.url("one.test", "/map.xml"))
            found = [entry.loc async for urls in read for entry in urls.urls]
        assert found == [site.url("one.test", "/mapped")]
        assert site.refused == {"one.test": 2, "two.test": 1}
        assert not site.faults


async def test_a_login_goes_on_where_the_site_asks_for_signatures(
    tmp_path: Path, engine: Engine, key_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "word")
    form = "<form method=post action=/in><input name=user><input type=password name=pass><button>in</button></form>"

    def page(host: str, path: str) -> tuple[str, str]:
        pages = {"/robots.txt": "User-agent: *\n", "/login": form, "/in": "you are in", "/": "<a href=/x>x</a>"}
        return "", pages.get(path, "a page of a member")

    login = {"url": "", "user": "me", "password_env": "PW"}
    async with SigningSite(page, known(key_file), open_paths=frozenset(("/robots.txt",))) as site, lab_names() as dns:
        login["url"] = site.url("one.test", "/login")
        sites = [{"match": "one.test", "login": login}]
        settings = signed_settings(tmp_path / "c", dns, engine, key_file, identity__sign="asked", sites=sites)
        done = await crawl(settings, [site.url("one.test")])
        assert not done.errors
        assert done.statuses == {site.url("one.test"): 200, site.url("one.test", "/x"): 200}
        assert site.refused == {"one.test": 1}
        assert not site.faults
        assert [path for _, path, _ in site.served if path != "/robots.txt"] == ["/login", "/in", "/", "/x"]


async def test_what_is_refused_for_want_of_a_signature_is_a_loss(tmp_path: Path, engine: Engine, key_file: str) -> None:
    """In crawls that sign nothing, where it is declined, and where a signature is not taken; with its advice."""

    def page(host: str, path: str) -> tuple[str, str]:
        return "", "User-agent: *\n"

    usual = f"sig1={ASKED}"
    async with SigningSite(page, {}, open_paths=frozenset(("/robots.txt",))) as site, lab_names() as dns:
        for number, (sign, asked, requests) in enumerate(
            (("off", usual, 1), ("asked", 'a=("@path")', 1), ("asked", usual, 2), ("always", usual, 1))
        ):
            more: dict[str, object] = {"crawl__name": f"c{number}", "identity__sign": sign}
            settings = signed_settings(tmp_path / f"c{number}", dns, engine, key_file, **more)
            site.asked = asked
            site.refused.clear()
            done = await crawl(settings, [site.url("one.test")])
            assert done.statuses == {site.url("one.test"): 401}
            assert site.refused["one.test"] == requests
            async with open_crawl(settings, create=False) as opened:
                totals, examples = await opened.stats.totals_and_examples()
            (loss,) = [one for one in losses_of(totals, examples) if one.reason == "signature"]
            assert (loss.count, loss.example, "identity.sign" in loss.advice) == (1, site.url("one.test"), True)


async def test_reservations_of_a_site_are_read_where_it_asks_for_signatures(
    tmp_path: Path, engine: Engine, key_file: str
) -> None:
    """With an open robots.txt, its tdmrep.json is the first that asks: without it, a no of the site would be missed."""
    reserved = '[{"location": "/", "tdm-reservation": 1}]'

    def page(host: str, path: str) -> tuple[str, str]:
        return "", {"/robots.txt": "User-agent: *\n", "/.well-known/tdmrep.json": reserved}.get(path, "page")

    async with SigningSite(page, known(key_file), open_paths=frozenset(("/robots.txt",))) as site, lab_names() as dns:
        more: dict[str, object] = {"rights__tdmrep": True, "rights__purpose": "tdm", "rights__policy": "skip"}
        settings = signed_settings(tmp_path / "c", dns, engine, key_file, identity__sign="asked", **more)
        done = await crawl(settings, [site.url("one.test")])
        assert not done.errors
        assert site.refused == {"one.test": 1}
        assert [path for _, path, _ in site.served] == ["/robots.txt", "/.well-known/tdmrep.json", "/"]
        async with open_crawl(settings, create=False) as opened:
            totals, examples = await opened.stats.totals_and_examples()
        assert "rights" in [one.reason for one in losses_of(totals, examples)], "what it says was obeyed"

"""Crawls of sites that refuse what is not signed: with signatures always, and for those that ask."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.crawl.instance import Instance
from crawler.settings import Settings
from crawler.views.identity import make_key_file, renew_key_file
from crawler.web import signing
from crawler.web.signing_keys import read_keys
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.crawl.rebuild_lab import audit
from tests.support.engine import Engine
from tests.support.signing_site import SigningSite, verified_by_library

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
    secret = read_keys(key_file).keys[0].d.encode()
    kept = [path for path in open_existing(tmp_path / "c").root.rglob("*") if path.is_file()]
    assert not [path for path in kept if secret in path.read_bytes()]
    with engine.client() as client:
        for key in client.scan_iter("*"):
            assert secret not in (client.dump(key) or b"")


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

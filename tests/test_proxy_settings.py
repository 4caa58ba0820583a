"""What a setting says about a proxy: which URLs are ones, and that no message shows a login."""

from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from crawler.errors import UsageError
from crawler.rules.sites import complaints
from crawler.settings import FromEnvironment, SiteSettings, load
from crawler.settings.kept import kept_of
from crawler.settings.proxies import Proxy, ProxyVariables, is_direct, proxies_of, proxy_of, shown_proxy
from crawler.views.site_settings import sources_of

SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://h:8080", Proxy(scheme="http", host="h", port=8080)),
        ("HTTP://H/", Proxy(scheme="http", host="h", port=80)),
        ("socks5://10.0.0.1", Proxy(scheme="socks5", host="10.0.0.1", port=1080)),
        ("socks5h://[::1]:9050", Proxy(scheme="socks5", host="::1", port=9050)),
        ("http://u:p@h:1", Proxy(scheme="http", host="h", port=1, user="u", password="p")),
        ("http://u:a%2Fb%40c%3Ad@h:1", Proxy(scheme="http", host="h", port=1, user="u", password="a/b@c:d")),
        ("http://u:a:b@h:1", Proxy(scheme="http", host="h", port=1, user="u", password="a:b")),
        ("http://u:a@b@h:1", Proxy(scheme="http", host="h", port=1, user="u", password="a@b")),
        ("http://key@h:1", Proxy(scheme="http", host="h", port=1, user="key")),
        ("http://u:%C3%BC@h:1", Proxy(scheme="http", host="h", port=1, user="u", password="ü")),
    ],
)
def test_urls_of_proxies(text: str, expected: Proxy) -> None:
    assert proxy_of(text) == expected
    assert proxy_of(str(expected)) == Proxy(scheme=expected.scheme, host=expected.host, port=expected.port)


@pytest.mark.parametrize(
    "text",
    [
        f"me:{SECRET}@h:1", f"https://me:{SECRET}@h:1", f"socks4://me:{SECRET}@h:1", f"{SECRET}://h:1",
        f"http://me:{SECRET}@", f"http://me:{SECRET}@h:0", f"http://me:{SECRET}@h:65536", f"http://me:{SECRET}@h:1/x",
        f"http://me:{SECRET}@h:1?x", f"http://me:a/{SECRET}@h h:1", f"http://me:{SECRET}%00@h:1",
        f"http://m%3Ae:{SECRET}@h:1", f"http://me:{SECRET}\n@h:1", f"http://me:{SECRET}\0@h:1",
        f"http://me:{SECRET}@bücher:1", f"http://me:{20 * SECRET}@h:1", f"http://me:{SECRET}@h:{'9' * 5000}",
        f"http://me:{SECRET}@h:²",
    ],
)  # fmt: skip
def test_what_is_no_proxy_is_refused_in_one_line_without_its_login(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        proxy_of(text)
    for given in ({"fetch.proxy": text}, {"sites": [{"match": "h.test", "proxy": text}]}):
        with pytest.raises(UsageError) as raised:
            load(options=given)
        assert SECRET not in str(raised.value)
    assert main(["fetch", "http://h.test/", "--proxy", text]) == 2
    if "\0" not in text:
        monkeypatch.setenv("MY_PROXY", text)
        settings = load(options={"fetch.proxy": {"env": "MY_PROXY"}})
        assert proxies_of(settings) == []
        monkeypatch.setenv("CRAWLER_FETCH_PROXY", text)
        assert main(["fetch", "http://h.test/"]) == 2
    said = capsys.readouterr()
    assert "fetch.proxy" in said.err or "\0" in text
    assert SECRET not in said.out + said.err
    assert all(line.startswith("crawler: ") for line in said.err.splitlines())


@pytest.mark.parametrize("value", [{"password": SECRET}, {"env": f"{SECRET}!"}, [SECRET]])
def test_a_value_of_the_wrong_kind_is_not_shown(value: Any) -> None:
    with pytest.raises(UsageError) as raised:
        load(options={"fetch.proxy": value})
    assert "fetch.proxy" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_variable_that_is_not_set_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "crawler.toml"
    for text in ('[fetch]\nproxy = { env = "NO_SUCH" }', '[[sites]]\nmatch = "h.test"\nproxy = { env = "NO_SUCH" }'):
        config.write_text(text, "utf-8")
        for command in (("fetch", "http://h.test/"), ("crawl", "http://h.test/", "--dir", str(tmp_path / "c"))):
            assert main([*command, "--config", str(config)]) == 2
            assert "the environment has no variable NO_SUCH" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTP_PROXY", "upper:1")
    monkeypatch.setenv("http_proxy", "lower:1")
    monkeypatch.setenv("ALL_PROXY", "socks5://all:2")
    monkeypatch.setenv("no_proxy", "direct.test, .below.test,10.0.0.1,port.test:8080")
    found = ProxyVariables()

    def proxy_for(scheme: str, host: str) -> str:
        return str(found.proxy_for(scheme, host) or "")

    assert proxy_for("http", "h.test") == "http://lower:1"
    assert proxy_for("https", "h.test") == "socks5://all:2"
    for host in ("direct.test", "www.direct.test", "www.below.test", "10.0.0.1"):
        assert proxy_for("https", host) == ""
    assert proxy_for("http", "port.test") == "http://lower:1"
    assert proxy_for("http", "indirect.test") == "http://lower:1"
    monkeypatch.setenv("no_proxy", "*")
    assert ProxyVariables().proxy_for("http", "h.test") is None


@pytest.mark.parametrize(
    ("no_proxy", "direct", "through"),
    [
        ("", [], ["h.test", "10.0.0.1"]),
        ("h.test", ["h.test", "www.h.test", "H.TEST", "h.test."], ["xh.test", "h.test.org", "test"]),
        (".h.test", ["h.test", "www.h.test"], ["xh.test"]),
        ("h.test.", ["h.test", "www.h.test", "h.test."], ["xh.test"]),
        ("H.Test", ["h.test"], []),
        ("a.test b.test", ["a.test", "b.test"], ["c.test"]),
        ("a.test,b.test , c.test\td.test", ["a.test", "b.test", "c.test", "d.test"], ["e.test"]),
        ("a.test,,", ["a.test"], ["b.test"]),
        (".,..", [], ["a.test"]),
        ("a.test:8080", [], ["a.test"]),
        ("*", ["h.test", "10.0.0.1", "::1"], []),
        (" * ", ["h.test"], []),
        ("*,h.test", ["h.test"], ["i.test"]),
        ("*.h.test", [], ["h.test", "www.h.test"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.10", "110.0.0.1"]),
        ("10.0.0.1:80", [], ["10.0.0.1"]),
        ("10.0.0.0/8", ["10.0.0.1", "10.255.255.255"], ["11.0.0.1", "h.test"]),
        ("10.1.2.3/8", ["10.0.0.1"], ["11.0.0.1"]),
        ("192.168.0.0/16 172.16.0.0/12", ["192.168.7.7", "172.31.0.1"], ["172.32.0.1"]),
        ("10.0.0.0/33,0.0.0.0/x", [], ["10.0.0.1"]),
        ("0.0.0.1", [], ["10.0.0.1"]),
        ("::1", ["::1", "[::1]"], ["::2"]),
        ("[::1]", ["::1"], ["::2"]),
        ("fd00::/8", ["fd00::1"], ["fe80::1", "10.0.0.1"]),
        ("[fd00::]/8", ["fd00::1"], ["fe80::1"]),
        ("1", [], ["10.0.0.1", "h.1x"]),
    ],
)
def test_who_is_reached_directly_is_as_in_curl(no_proxy: str, direct: list[str], through: list[str]) -> None:
    assert [host for host in (*direct, *through) if is_direct(host, no_proxy)] == direct


def test_a_proxy_is_not_a_setting_of_the_crawl() -> None:
    assert "fetch.proxy" not in kept_of(load(options={"fetch.proxy": f"http://me:{SECRET}@h:1"}))


def test_tables_decide_for_their_hosts_and_say_so() -> None:
    sites = [
        {"match": "own.test", "proxy": f"socks5://me:{SECRET}@h:2"}, {"match": "direct.test", "proxy": ""},
        {"match": "env.test", "proxy": {"env": "MY_PROXY"}},
    ]  # fmt: skip
    settings = load(options={"fetch.proxy": f"http://me:{SECRET}@h:1", "sites": sites})
    said = {
        name: next((s.value, s.where) for s in sources_of(f"http://{name}.test/", settings, None) if s.key == "proxy")
        for name in ("own", "direct", "env", "other")
    }
    assert said == {
        "own": ("socks5://h:2", "sites[0] own.test"), "direct": ("none", "sites[1] direct.test"),
        "env": ("the variable MY_PROXY", "sites[2] env.test"), "other": ("http://h:1", "fetch.proxy"),
    }  # fmt: skip
    assert shown_proxy(FromEnvironment(env="X")) == "the variable X"


def test_a_table_with_a_path_can_not_set_it() -> None:
    sites = (SiteSettings(match="h.test/shop/*", proxy="http://h:1"),)
    (complaint,) = complaints(load(options={"sites": [{"match": one.match, "proxy": one.proxy} for one in sites]}))
    assert "sites[0].proxy applies to connections" in complaint

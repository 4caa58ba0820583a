"""Each part of an engine's URL is used, or refused in one line that names it and shows no password."""

from pathlib import Path
from typing import Any

import pytest

from crawler.engine.address import EngineUrl, Kind, Login, Place, read_url
from crawler.engine.client import Engine
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import UsageError
from crawler.frontier.scripts import library
from crawler.views.doctor import check_password_files

SECRET = "hunter2hunter2"
LETTERS = "hunterhunter"  # it looks like a name

USED: list[tuple[str, dict[str, Any]]] = [
    ("redis://h", {"places": (Place("h", 6379),)}),
    ("redis://h:", {"places": (Place("h", 6379),)}),
    ("redis://h:1/", {"places": (Place("h", 1),)}),
    ("redis://h:65535//", {"places": (Place("h", 65535),)}),
    ("REDIS://H.Example:1", {"places": (Place("h.example", 1),)}),
    (" redis://h\n", {"places": (Place("h", 6379),)}),
    ("redis://10.0.0.1:7/3", {"places": (Place("10.0.0.1", 7),), "db": 3}),
    ("redis://h/3/", {"db": 3}),
    ("redis://h/?db=3", {"db": 3}),
    ("redis://h?db=3", {"db": 3}),
    ("redis://[::1]", {"places": (Place("::1", 6379),)}),
    ("redis://[2001:DB8::1]:7/", {"places": (Place("2001:db8::1", 7),)}),
    ("redis://[fe80::1%25eth0]:7/", {"places": (Place("fe80::1%eth0", 7),)}),
    ("redis://:p@h", {"login": Login(password="p")}),
    ("redis://ann:p@h", {"login": Login(user="ann", password="p")}),
    ("redis://ann:@h", {"login": Login(user="ann")}),
    ("redis://:a%40b%2Fc%3Ad%25@h", {"login": Login(password="a@b/c:d%")}),
    ("redis://:a@b@h", {"login": Login(password="a@b")}),
    ("redis://:a:b@h", {"login": Login(password="a:b")}),
    ("redis://a%6En:p@h", {"login": Login(user="ann", password="p")}),
    ("redis://h?password=a+b%2B@c", {"login": Login(password="a+b+@c")}),
    ("redis://h?username=ann&password=p", {"login": Login(user="ann", password="p")}),
    ("redis://ann:@h?password=p", {"login": Login(user="ann", password="p")}),
    ("redis://ann@h?password_file=/run/p", {"login": Login(user="ann", file="/run/p")}),
    ("redis://h?password_file=p%20q", {"login": Login(file="p q")}),
    ("rediss://h:1/2", {"is_tls": True, "db": 2}),
    ("rediss://h?ssl_ca_certs=/ca.pem&ssl_check_hostname=No",
     {"tls": {"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}}),
    ("unix:///run/valkey.sock", {"path": "/run/valkey.sock"}),
    ("UNIX:///run/a%20b%3Fc", {"path": "/run/a b?c"}),
    ("unix:///run/a@b:c,d", {"path": "/run/a@b:c,d"}),
    ("unix://ann:p@/run/v", {"path": "/run/v", "login": Login(user="ann", password="p")}),
    ("unix:///run/v?db=3&password=p", {"path": "/run/v", "db": 3, "login": Login(password="p")}),
    ("redis+sentinel://h", {"places": (Place("h", 26379),), "service": "mymaster"}),
    ("redis+sentinel://h:1,[::1]:2,i/", {"places": (Place("h", 1), Place("::1", 2), Place("i", 26379))}),
    ("redis+sentinel://[::1]:26379,[::2]/m", {"places": (Place("::1", 26379), Place("::2", 26379)), "service": "m"}),
    ("redis+sentinel://h,H:26379,h/m", {"places": (Place("h", 26379),), "service": "m"}),
    ("redis+sentinel://h/m/3", {"service": "m", "db": 3}),
    ("redis+sentinel://h/m?db=3", {"service": "m", "db": 3}),
    ("redis+sentinel://h/m%201/", {"service": "m 1"}),
    ("redis+sentinel://:p@h,i", {"login": Login(password="p"), "places": (Place("h", 26379), Place("i", 26379))}),
    ("redis+sentinel://ann:p@h/?sentinel_username=s&sentinel_password=q",
     {"login": Login(user="ann", password="p"), "sentinel": Login(user="s", password="q")}),
    ("redis+sentinel://h?password_file=a&sentinel_password_file=b",
     {"login": Login(file="a"), "sentinel": Login(file="b")}),
    ("redis+cluster://a,b:7", {"places": (Place("a", 6379), Place("b", 7))}),
    ("redis+cluster://ann:p@a,a:6379/", {"places": (Place("a", 6379),), "login": Login(user="ann", password="p")}),
    ("redis+cluster://[::1]:7,[::1]:7,[::1]:8", {"places": (Place("::1", 7), Place("::1", 8))}),
    ("redis+cluster://a/0", {"db": 0}),
    ("Rediss+Cluster://a?ssl_ca_path=/d", {"is_tls": True, "tls": {"ssl_ca_path": "/d"}}),
]  # fmt: skip

KINDS = {"redis": Kind.SERVER, "unix": Kind.SOCKET, "+sentinel": Kind.SENTINEL, "+cluster": Kind.CLUSTER}


def kind_of(url: str) -> Kind:
    scheme = url.strip().lower().partition("://")[0]
    return next(kind for mark, kind in reversed(KINDS.items()) if mark in scheme)


@pytest.mark.parametrize(("url", "parts"), USED, ids=[url.strip() for url, _ in USED])
def test_each_part_of_an_engines_url_is_used(url: str, parts: dict[str, Any]) -> None:
    found = read_url(url)
    unnamed = {"places": found.places, "is_tls": found.is_tls, "tls": found.tls, "path": found.path}
    unnamed |= {"service": "mymaster"} if found.kind is Kind.SENTINEL else {}
    assert found == EngineUrl(kind=kind_of(url), **(unnamed | parts))
    assert found.is_tls == url.strip().lower().startswith("rediss")


REFUSED = [
    ("", "use redis://"),
    ("h:6379", "use redis://"),
    ("http://h", "use redis://"),
    ("valkey://h", "use redis://"),
    ("rediss+sentinel://h", "use redis://"),
    ("redis:/", "use redis://"),
    ("redis:///0", "it names no host"),
    ("redis://", "it names no host"),
    ("redis+sentinel:///mymaster", "it names no host"),
    ("redis+cluster://", "it names no host"),
    ("redis://:6379", "one of its hosts is empty"),
    ("redis+cluster://a,,b", "one of its hosts is empty"),
    ("redis+cluster://a,", "one of its hosts is empty"),
    ("redis+sentinel://,a/m", "one of its hosts is empty"),
    ("redis://a,b", "it names several hosts"),
    ("redis://a b", "a blank or a control character"),
    ("redis://a\tb", "a blank or a control character"),
    ("redis://a\x00", "a blank or a control character"),
    ("redis://a!", "one of its hosts is empty or has an invalid character"),
    ("redis://::1", "write an IPv6 address in brackets"),
    ("redis://fe80::1:6379", "write an IPv6 address in brackets"),
    ("redis://[::1", "in its brackets is not an IPv6 address"),
    ("redis://[::g]", "in its brackets is not an IPv6 address"),
    ("redis://[::1]x", "in its brackets is not an IPv6 address"),
    ("redis://[h]:1", "in its brackets is not an IPv6 address"),
    ("redis://h:0", "its port is not a number from 1 to 65535"),
    ("redis://h:65536", "its port is not a number"),
    ("redis://h:-1", "its port is not a number"),
    ("redis://h:1e3", "its port is not a number"),
    ("redis://h:\u0661", "its port is not a number"),
    ("redis+cluster://a:1,b:99999", "its port is not a number"),
    ("redis+sentinel://[::1]:x/m", "its port is not a number"),
    ("redis://h/x", "its database is not a number"),
    ("redis://h/-1", "its database is not a number"),
    ("redis://h/99999999999", "its database is not a number"),
    ("redis://h/1/2", "its path has too many parts"),
    ("redis://h/1?db=1", "its database is given twice"),
    ("redis://h?db=x", "its database is not a number"),
    ("redis://h?db=", "db has no value"),
    ("redis://h?db", "db has no value"),
    ("redis://h?db=1&db=2", "db is given twice"),
    ("redis://h?&db=1", "an option behind its ? has no valid name"),
    ("redis://h?socket_timeout=1", "socket_timeout is not an option"),
    ("redis://h?PASSWORD=x", "an option behind its ? has no valid name"),
    ("redis://h?ssl_ca_certs=/ca", "ssl_ca_certs is for TLS: use rediss://"),
    ("rediss://h?ssl_cert_reqs=never", "ssl_cert_reqs is one of required, optional, none"),
    ("rediss://h?ssl_check_hostname=maybe", "ssl_check_hostname is yes or no"),
    ("redis://h?sentinel_password=x", "sentinel_password is for redis+sentinel://"),
    ("redis://h#0", "# has no meaning"),
    ("redis://@h", "its login before the @ is empty"),
    ("redis://ann@h", "its login has no colon"),
    ("redis://:p@h?password=q", "its login is given twice"),
    ("redis://:p@h?password_file=q", "its login is given twice"),
    ("redis://ann:p@h?username=bob", "its login is given twice"),
    ("redis://h?password=p&password_file=q", "password and password_file are both given"),
    ("redis+sentinel://h?sentinel_password=p&sentinel_password_file=q",
     "sentinel_password and sentinel_password_file are both given"),
    ("redis+sentinel://h/3", "the name of a service goes before the database"),
    ("redis+sentinel://h/m/x", "its database is not a number"),
    ("redis+sentinel://h/m/1/2", "its path has too many parts"),
    ("redis+cluster://h/3", "a cluster has one database"),
    ("redis+cluster://h?db=3", "a cluster has one database"),
    ("redis+cluster://h/mymaster", "a cluster has one database"),
    ("unix://run/v.sock", "begins with /, behind a third slash"),
    ("unix:/run/v.sock", "use redis://"),
    ("unix:///", "it names no socket"),
    ("unix://", "it names no socket"),
    ("unix:///run/v?ssl_ca_certs=x", "ssl_ca_certs is for TLS"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "why"), REFUSED, ids=[repr(url)[1:-1] for url, _ in REFUSED])
def test_each_part_that_has_no_use_is_refused_by_its_name(url: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_url(url)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("secret", [SECRET, LETTERS])
@pytest.mark.parametrize("scheme", ["redis", "rediss", "unix", "redis+cluster", "redis+sentinel", "ftp"])
@pytest.mark.parametrize(
    "rest",
    [
        "{}@h:x", ":{}@h:x", ":a/{}@h:1", ":a?{}@h:1", ":a#{}@h:1", ":a?b={}@h:1", ":a@{}/@h!", ":{}/b@h:1", ":{}",
        "{}@h", "{}@h/0", ":{}@", "ann:{}@h:99999", ":{}@a,b:x/m", ":{}@h/1/2/3", ":{}@h?nonsense=1",
        "h?password={}&x=1",
        "h?password={}&password={}", "h?sentinel_password={}&x=1", "h?ssl_password={}&x=1", ":{}@[::1", ":{} b@h",
        "h:x?password={}", ":a@b?password={}", ":a:{}@h!", ":%41{}@h!",
    ],
)  # fmt: skip
def test_no_refusal_shows_a_password(scheme: str, rest: str, secret: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_url(f"{scheme}://{rest.replace('{}', secret)}")
    assert secret not in str(refused.value)
    assert secret not in repr(refused.value.__dict__)


def test_a_folder_with_any_name_has_its_embedded_engine(tmp_path: Path) -> None:
    for name in ("a?b", "a#b", "a%41", "a b", "a@b:c", "ü"):
        engine = EmbeddedEngine(tmp_path / name)
        assert read_url(engine.url).path == str(engine.socket)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "can't read the password file"), (b"", "must have one line"), (b"\n", "must have one line"),
     (b"a\nb\n", "must have one line"), (b"\xff", "is not text in UTF-8"), (b"x" * 5000, "must have one line")],
)  # fmt: skip
def test_a_password_file_without_a_password_is_refused(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    for url in (f"redis://h?password_file={file}", f"redis+sentinel://h?sentinel_password_file={file}"):
        with pytest.raises(UsageError, match=why) as refused:
            Engine(url, library())
        assert str(file) in str(refused.value)


def test_a_password_file_that_others_can_read_is_told_by_doctor(tmp_path: Path) -> None:
    file = tmp_path / "password"
    for mode, found in ((0o600, 0), (0o640, 1), (0o604, 1)):
        file.touch()
        file.chmod(mode)
        checks = check_password_files(f"redis+sentinel://h?sentinel_password_file={file}")
        assert [check.mend for check in checks] == [f"chmod 600 {file}"] * found
    assert check_password_files(f"redis://:{SECRET}@h") == []


def test_a_missing_file_of_tls_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ssl_ca_certs: can't read .*ca\.pem"):
        Engine(f"rediss://h?ssl_ca_certs={tmp_path}/ca.pem", library())

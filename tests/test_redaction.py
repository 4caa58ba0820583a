"""No secret in text that people read or keep."""

import json
import logging
from base64 import b64encode
from html import escape
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from crawler.redaction import (
    bears_login,
    forget,
    learn,
    learn_all,
    learn_login,
    learned,
    redact,
    secrets_of_site,
    secrets_of_url,
    shown,
    shown_server,
    shown_words,
)
from crawler.runtime.log_files import start_logging
from tests.support.growth import LINEAR_MAX, growth


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://user:secret@host:99999", "redis://user:***@host:99999"),
        ("rediss://:se/cr@et:x@host/0", "rediss://:***@host/0"),
        ("redis+cluster://:secret@a:1,b:2", "redis+cluster://:***@a:1,b:2"),
        ("redis+sentinel://a:1,b:2/main?password=secret&x=1", "redis+sentinel://a:1,b:2/main?password=***&x=1"),
        ("redis+sentinel://a/m?sentinel_password=secret", "redis+sentinel://a/m?sentinel_password=***"),
        ("rediss://a/?ssl_password=secret&ssl_keyfile=k", "rediss://a/?ssl_password=***&ssl_keyfile=k"),
        ("redis://a/?password_file=/run/secret", "redis://a/?password_file=/run/secret"),
        ("redis://secret@host/0", "redis://***@host/0"),
        ("postgresql://me:s%2Fcret@db.example/web?table=t", "postgresql://me:***@db.example/web?table=t"),
        ("postgres://db/web?user=me&PASSWORD=secret", "postgres://db/web?user=me&PASSWORD=***"),
        ("host=db dbname=web password=secret", "host=db dbname=web password=***"),
        ("--redis=rediss://:secret@queue.example:6380/0", "--redis=rediss://:***@queue.example:6380/0"),
        ("bad 'redis://:secret@host' and \"redis://:other@host\"", "bad 'redis://:***@host' and \"redis://:***@host\""),
        ("http://me:secret@a.example/?q=1&token=abc", "http://me:***@a.example/?q=1&token=***"),
        ("http://a.example:8080/at@home", "http://a.example:8080/at@home"),
        ("mailto:me@a.example", "mailto:me@a.example"),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        (
            "write redis://USER:PASSWORD@HOST/ or redis://USER@HOST/",
            "write redis://USER:PASSWORD@HOST/ or redis://USER@HOST/",
        ),
    ],
)
def test_what_looks_like_a_password_is_not_shown(given: str, wanted: str) -> None:
    assert shown(given) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("redis://host/0", "redis://host/0"),
        ("redis://:a@b:c/d@host:99999/0", "redis://:***@host:99999/0"),
        (":secret@host", ":***@host"),
        ("ftp://me:secret@host", "ftp://me:***@host"),
        ("redis://me@host?password=secret", "redis://***@host?password=***"),
        ("redis://:secret", "redis://:***"),
        ("redis://:secret/0", "redis://:***/0"),
        ("redis://a:1,b:secret,[::1]:2/0", "redis://a:1,b:***,[::1]:2/0"),
    ],
)
def test_the_url_of_a_server_is_shown_without_its_password(given: str, wanted: str) -> None:
    assert shown_server(given) == wanted


def test_a_command_line_is_shown_without_what_it_sends_however_short() -> None:
    given = ["crawl", "--header", "X-A: z", "--cookie=a=z", "--cookie", "--header", "--header=z", "--data", "@z", "u=1"]
    wanted = [
        "crawl",
        "--header",
        "X-A: ***",
        "--cookie=***",
        "--cookie",
        "***",
        "--header=***",
        "--data",
        "***",
        "u=1",
    ]
    assert shown_words(given) == wanted
    assert shown_words(["--cookie"]) == ["--cookie"]
    assert shown_words(["--redis", "redis://:secret@host/0"]) == ["--redis", "redis://:***@host/0"]


def test_secrets_of_the_settings_are_not_shown_in_any_spelling() -> None:
    learn(secrets_of_url("redis://:p%40ss%2Fword@host/0"))
    learn(secrets_of_url("postgres://db/web?password=quite%20long"))
    learn(secrets_of_site("user:geheim", {"id": "c00kie-value"}, {"X-Api-Key": "k3y-of-mine", "Accept": "text/html"}))
    for text in ("p%40ss%2Fword", "p@ss/word", "quite long", "quite%20long", "user:geheim", "geheim",
                 "dXNlcjpnZWhlaW0=", "c00kie-value", "k3y-of-mine"):  # fmt: skip
        assert redact(f"({text})") == "(***)"
    assert redact("Accept: text/html") == "Accept: text/html"


def test_a_secret_of_a_few_characters_is_hidden_where_it_stands_in_a_url_only() -> None:
    learn(secrets_of_url("redis://:no@host"))
    assert redact("no answer from redis://:no@host") == "no answer from redis://:***@host"


def test_a_bearer_token_is_hidden_with_and_without_its_scheme() -> None:
    learn(secrets_of_site("", {}, {"Authorization": "Bearer abc.def"}))
    assert redact("sent Bearer abc.def, abc.def") == "sent ***, ***"


def test_log_files_have_no_secret(tmp_path: Path) -> None:
    secret = "s3cr et\"'"
    learn([secret])
    file = tmp_path / "x.log"
    start_logging("info", file=file)
    try:
        log = logging.getLogger("crawler.test")
        log.info("some.event", extra={"url": "redis://:other@host", "more": [secret]})
        try:
            raise ValueError(secret)
        except ValueError:
            log.exception("some.failure")
    finally:
        start_logging("warning")
    text = file.read_text()
    assert text.count("***") >= 3
    assert "s3cr" not in text
    assert "other" not in text


@pytest.mark.parametrize(
    "part",
    ["redis://:", "://a:", "://", ":", "@", "a", "?password=", "&token=", "password=", "redis://:a@", "postgres+a"],
)
def test_the_time_is_linear_in_the_text(part: str) -> None:
    assert growth(shown, part * (10_000 // len(part)), part * (100_000 // len(part))) < LINEAR_MAX


WORD = "h&nter 2/ü+x7abc"


@pytest.mark.parametrize(
    ("password", "url", "wanted"),
    [
        (WORD, "p={}", True),
        (WORD, f"p={quote(WORD, safe='')}", True),
        (WORD, f"p={quote_plus(WORD)}", True),
        (WORD, f"{quote(WORD)}/x", True),
        (WORD, f"p={quote(WORD, safe='').replace('%C3%BC', '%c3%bc')}", True),
        (WORD, f"p={quote(WORD.encode('latin-1'), safe='')}", True),
        (WORD, f"p={quote(quote(WORD, safe=''))}", True),
        (WORD, f"p={quote(escape(WORD))}", True),
        (WORD, f"p={quote(json.dumps(WORD))}", True),
        (WORD, f"p={b64encode(WORD.encode()).decode()}", True),
        (WORD, f"p={b64encode(f'me:{WORD}'.encode()).decode()}", True),
        (WORD, f"p={quote(WORD)}#f", True),
        (WORD, "p=x7abc&q=h%26nter", False),
        ("ab12", "p=ab12", True),
        ("ab12", "p=xab12", False),
        ("ab12", "ab12/?q=1", False),
        ("%/+ &%/+ &", f"p={quote('%/+ &%/+ &')}", True),
        ("", "p=", False),
    ],
)
def test_a_url_with_the_password_of_a_login_is_known(password: str, url: str, wanted: bool) -> None:
    learn_login("me", password)
    assert bears_login(f"http://a.example/{'' if '/' in url else '?'}{url.format(WORD)}") is wanted


def test_another_process_learns_what_this_one_knows() -> None:
    learn(["a-secret"])
    learn_login("me", WORD)
    known = learned()
    forget()
    assert (redact(WORD), bears_login(f"http://a.example/?{quote(WORD)}")) == (WORD, False)
    learn_all(known)
    assert (redact(f"{WORD} a-secret"), bears_login(f"http://a.example/?{quote(WORD)}")) == ("*** ***", True)
    assert learned() == known


@pytest.mark.parametrize("part", ["%", "+", "%25", "x7abc", "%C3%BC"])
def test_the_time_to_look_for_a_password_is_linear_in_the_url(part: str) -> None:
    learn_login("me", WORD)
    urls = [f"http://a.example/?{part * (size // len(part))}" for size in (10_000, 100_000)]
    assert growth(bears_login, *urls) < LINEAR_MAX

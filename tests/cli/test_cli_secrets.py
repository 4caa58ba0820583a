"""Passwords and logins of the settings are in no message, no log, no crash report, no --json."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from crawler.cli import main as main_module
from crawler.cli.main import main

Capture = pytest.CaptureFixture[str]
SECRET = "hunter2hunter2"


def said(capsys: Capture) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@127.0.0.1:99999",
        f"redis://:{SECRET}@127.0.0.1:port",
        f"redis://:a/{SECRET}@127.0.0.1:1",
        f"redis://:{SECRET}/b@127.0.0.1:1",
        f"redis://me:{SECRET}@127.0.0.1:1/0",
        f"redis+cluster://:{SECRET}@127.0.0.1:1",
        f"redis+sentinel://127.0.0.1:1/main?password={SECRET}",
        f"redis://127.0.0.1:1/0?password={SECRET}",
        f"redis://127.0.0.1:1/0?password={SECRET}&socket_timeout=x",
        f"ftp://:{SECRET}@127.0.0.1:1",
        f"redis+sentinel://:{SECRET}@127.0.0.1:1,127.0.0.1:x/main",
        f":{SECRET}@127.0.0.1:1",
        f"redis://{SECRET}@127.0.0.1:1",
        f"redis://:{SECRET}",
        f"redis+sentinel://[::1]:1/main?sentinel_password={SECRET}",
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("stats",), ("stats", "--json"), ("doctor",), ("seed", "http://a.test/"), ("ring",), ("dead", "list"),
        ("crawl", "http://a.test/", "-v"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_password_of_an_engine_is_said(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], url: str
) -> None:
    arguments = [*command, "--redis", url, "--dir", str(tmp_path / "c"), "--set", "frontier.call_timeout_s=0.5"]
    monkeypatch.setattr(sys, "argv", ["crawler", *arguments])
    assert main(arguments) not in (0, 1)
    text = said(capsys)
    assert text
    assert SECRET not in text
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    "arguments",
    [
        ("--redis", f"redis://:{SECRET}@127.0.0.1:1", "--no-such-option"),
        (f"--redsi=redis://:{SECRET}@127.0.0.1:1",),
        ("--set", f"frontier.redsi=redis://:{SECRET}@127.0.0.1:1"),
        ("--set", f"frontier.concurrency=redis://:{SECRET}@127.0.0.1:1"),
        ("-o", f"postgresql://me:{SECRET}@127.0.0.1:x/web"),
        ("-o", f"postgresql://me:{SECRET}@127.0.0.1:1/web?table=a b"),
        ("-o", f"postgresql://me:a/{SECRET}@127.0.0.1:1/web"),
        ("-o", f"postgresql://me:{SECRET}@127.0.0.1:1"),
        ("-o", f"postgresql://127.0.0.1:1/web?password={SECRET}"),
        ("-o", f"postgresq://me:{SECRET}@127.0.0.1:1/web"),
    ],
)
def test_no_password_is_said_of_arguments_that_are_wrong(
    tmp_path: Path, capsys: Capture, arguments: tuple[str, ...]
) -> None:
    try:
        code = main(["crawl", "http://a.test/", "--dir", str(tmp_path / "c"), *arguments])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code not in (0, 1)
    text = said(capsys)
    assert text
    assert SECRET not in text


def test_a_crash_report_has_no_secret_of_the_settings(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "crawler.toml"
    config.write_text(
        '[[sites]]\nmatch = "https://shop.test/"\nauth = { env = "SHOP_LOGIN" }\ncookies = { id = "of-the-session" }\n'
        'headers = { "X-Key" = "key-in-the-file", "X-Other" = { env = "OTHER" } }\n'
    )
    monkeypatch.setenv("SHOP_LOGIN", f"user:{SECRET}")
    monkeypatch.setenv("OTHER", "from-outside")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    redis = "redis://:password-of-engine@127.0.0.1:1/0"

    def fail(work: Any, *_: Any) -> None:
        work.close()
        raise RuntimeError(f"of-the-session user:{SECRET} key-in-the-file from-outside {redis} password-of-engine")

    monkeypatch.setattr("crawler.cli.stats.run_async", fail)
    arguments = ["stats", "--redis", redis, "--config", str(config), "--dir", str(tmp_path / "c"), "-v"]
    monkeypatch.setattr(sys, "argv", ["crawler", *arguments])
    assert main(arguments) == 1
    (report,) = tmp_path.glob("crawler-bug-*.txt")
    for text in (said(capsys), report.read_text()):
        assert "RuntimeError" in text
        for secret in ("of-the-session", SECRET, "key-in-the-file", "from-outside", "password-of-engine"):
            assert secret not in text


def test_how_to_go_on_names_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    from crawler.cli.session import CrawlSession

    monkeypatch.setattr(sys, "argv", ["crawler", "crawl", "http://a.test/", "--redis", f"redis://:{SECRET}@h/0"])
    session: Any = CrawlSession.__new__(CrawlSession)
    assert session._how_to_resume().endswith("crawler crawl http://a.test/ --redis 'redis://:***@h/0'")


def test_a_json_answer_has_no_hash_key_and_no_password(tmp_path: Path, capsys: Capture, engine: Any) -> None:
    where = ["--redis", engine.url, "--dir", str(tmp_path / "c")]
    assert main(["seed", "http://a.test/", *where]) == 0
    with engine.client() as client:
        record = json.loads(client.hget("{main}:crawl", "record"))
    for command in (("stats", "--json"), ("ring", "--json"), ("explain", "http://a.test/"), ("seeds", "--json")):
        main([*command, *where])
    text = said(capsys)
    assert len(record["hash_key"]) == 24
    assert record["hash_key"] not in text
    assert "hash_key" not in text


def test_the_tests_ask_the_program_itself() -> None:
    assert main_module.main is main


@pytest.mark.parametrize("password", [None, "", SECRET])
@pytest.mark.parametrize(
    ("command", "reads_links"),
    [
        (("audit",), True),
        (("rebuild",), True),
        (("export", "--columns", "links"), True),
        (("export",), False),
        (("stats",), False),
    ],
)
def test_who_reads_links_wants_the_passwords_that_are_left_out_of_them(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], reads_links: bool,
    password: str | None,
) -> None:  # fmt: skip
    """Without them a link with the password in it would be named as lost, exported, or stored."""
    config = tmp_path / "crawler.toml"
    config.write_text(
        '[[sites]]\nmatch = "club.test"\n'
        'login = {url = "https://club.test/in", user = "me", password_env = "CLUB_PASSWORD"}\n'
    )
    monkeypatch.delenv("CLUB_PASSWORD", raising=False)
    if password is not None:
        monkeypatch.setenv("CLUB_PASSWORD", password)
    code = main([*command, "--config", str(config), "--dir", str(tmp_path / "none")])
    wanted = "crawler: sites[0].login: the environment has no variable CLUB_PASSWORD\n"
    assert (said(capsys) == wanted) == (reads_links and not password)
    assert code == 2

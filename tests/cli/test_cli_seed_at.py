"""`crawler seed --at`: what it prints, and what other commands tell of such URLs."""

from pathlib import Path

import pytest

from crawler.cli.main import main
from tests.support.engine import Engine

A, B = "https://a.example/", "https://b.example/"


def test_urls_for_a_later_time_are_told_by_all_commands(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(*words: str) -> tuple[str, str]:
        capsys.readouterr()
        assert main([*words, "--dir", str(tmp_path / "c"), "--redis", engine.url]) == 0
        return capsys.readouterr()

    out, err = say("seed", "--at", "2127-01-31T13:00+01:00", A)
    assert (out, err) == (
        "1 new, 0 already seen, 0 out of scope, 0 invalid\nto be fetched at 2127-01-31 12:00:00 UTC or later\n",
        "",
    )
    out, _ = say("seed", A)
    assert out == "0 new, 1 already seen, 0 out of scope, 0 invalid\n"
    out, err = say("seed", "--at", "2020-01-01", B)
    assert err == "crawler: --at 2020-01-01 00:00:00 UTC is in the past: the URLs may be fetched now\n"
    assert out == "1 new, 0 already seen, 0 out of scope, 0 invalid\n"
    assert "2 (0 in flight, 1 scheduled, the first for 2127-01-31 12:00:00 UTC)" in say("stats")[0]
    assert "1 URL, for 2127-01-31 12:00:00 UTC" in say("oplog")[0]
    assert say("explain", A)[0].startswith("Will be crawled: it waits until 2127-01-31 12:00:00 UTC (seed --at).")
    assert "scheduled     1\n" in say("stats", "a.example")[0]
    say("block", "a.example")
    assert "(seed --at), and its queue is stopped: blocked by an operator" in say("explain", A)[0]
    assert say("purge", "a.example")[0] == "a.example: 1 URL dropped\n"
    assert "scheduled" not in say("stats")[0]


def test_a_wrong_time_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seed", "--at", "tomorrow", A]) == 2
    assert "argument --at: 'tomorrow': expected a time like 2027-01-31T12:00" in capsys.readouterr().err

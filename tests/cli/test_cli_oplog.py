"""`crawler oplog`: what it has of commands on a crawl, as a table and as JSON."""

import getpass
import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.cli.options import actor
from tests.cli.cli_lab import HOST
from tests.cli.operate_lab import Lab, one_page
from tests.support.engine import Engine

BAD_INPUT = 2


@pytest.fixture
def lab(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[Lab]:
    with one_page(tmp_path, engine, capsys) as one:
        yield one


def entries(lab: Lab, *words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in lab.say("oplog", "--json", *words).splitlines()]


def test_a_crawl_that_nobody_changed_has_no_entries(lab: Lab) -> None:
    assert lab.say("oplog") == "No command has changed this crawl."
    assert entries(lab) == []


def test_each_command_that_changes_something_is_listed_with_its_user(lab: Lab) -> None:
    lab.say("pause")
    lab.say("boost", HOST, "5")
    lab.say("boost")
    lab.say("stats")
    lab.say("ring", "pin", HOST, "web-1")
    lab.say("dead", "purge", "--all")
    lab.say("seed", lab.site.url(HOST, "/b"), lab.site.url(HOST, "/c"))
    found = entries(lab)
    assert [(one["id"], one["action"], one["target"], one["detail"]) for one in found] == [
        (1, "pause", "", ""),
        (2, "boost", HOST, "5"),
        (3, "ring pin", HOST, "to web-1"),
        (4, "dead purge", "", ""),
        (5, "seed", "", "2 URLs"),
    ]
    assert {(one["who"], one["via"]) for one in found} == {(pwd.getpwuid(os.getuid()).pw_name, "cli")}
    assert [one["at"] for one in found] == sorted(one["at"] for one in found)  # type: ignore[type-var]
    assert entries(lab, "--limit", "2") == found[-2:]
    table = lab.say("oplog", "--limit", "2").splitlines()
    assert [line.split()[-2:] for line in table[1:3]] == [["-", "-"], ["2", "URLs"]]
    assert table[-1] == "shown: the last 2 of 5 (--limit N for more)"


def test_a_command_with_a_bad_value_is_not_listed(lab: Lab) -> None:
    for words in (("delay", HOST, "-1"), ("boost", HOST, "10"), ("seed", "--depth", "300", "http://a.test/")):
        assert lab.run(*words)[0] == BAD_INPUT
    assert entries(lab) == []


def test_a_user_is_not_who_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    assert getpass.getuser() == "somebody"
    assert actor().who == pwd.getpwuid(os.getuid()).pw_name


def test_a_user_without_a_name_is_listed_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    assert actor().who == "uid 54321"

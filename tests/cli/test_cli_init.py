"""`crawler init`: what it writes is valid, has today's defaults, works, and replaces nothing."""

import json
import tomllib
from pathlib import Path

import msgspec
import pytest

from crawler.cli.init import USUAL, settings_text
from crawler.settings import Settings
from tests.cli.cli_lab import HOST, QUICK, crawler, in_process, page
from tests.support.processes import Nursery
from tests.support.serving import serve_resources


@pytest.mark.slow(ci=True)
def test_what_is_written_passes_the_check_and_crawls(programs: Nursery, tmp_path: Path) -> None:
    made = crawler(programs, "init", "my shop", cwd=tmp_path)
    assert (made.code, made.err) == (0, "")
    assert made.out.splitlines()[1:3] == ["  cd 'my shop'", "  crawler check crawler.toml app.py"]
    folder = tmp_path / "my shop"
    assert sorted(path.name for path in folder.iterdir()) == ["app.py", "crawler.toml"]
    checked = in_process(programs, "check", "crawler.toml", "app.py", cwd=folder)
    assert (checked.code, checked.err) == (0, "")
    assert "crawler.toml: nothing is wrong" in checked.out
    assert "app.py: nothing is wrong, 1 handler" in checked.out
    with serve_resources({(HOST, "/"): page("/a"), (HOST, "/a"): page("/")}) as site:
        crawled = crawler(
            programs, "crawl", site.url(HOST), "--config", "crawler.toml", "-o", "items.jsonl", *QUICK, cwd=folder
        )
    assert crawled.code == 0, crawled.err
    items = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    assert sorted(item["url"].rpartition("/")[2] for item in items) == ["", "a"]
    assert {item["title"] for item in items} == {"A page"}


@pytest.mark.parametrize("name", ["crawler.toml", "app.py"])
def test_nothing_is_written_where_one_of_the_files_is(name: str, programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    refused = crawler(programs, "init", cwd=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == f"crawler: {name} exists: nothing was written; name another folder, or move the file away\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_a_folder_that_can_not_be_made_is_one_line(programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = crawler(programs, "init", "file/x", cwd=tmp_path)
    assert (refused.code, refused.out, refused.err) == (2, "", "crawler: file/x: Not a directory\n")


def test_each_usual_setting_is_in_the_file_with_the_default_that_holds() -> None:
    active = tomllib.loads(settings_text())
    assert active == {section: {} for section in USUAL} | {"handlers": {"app": "app.py"}}
    head, _, rest = settings_text().partition("[crawl]")
    assert all(line.startswith("# ") or not line for line in head.splitlines())
    everything = tomllib.loads("[crawl]" + rest.replace("\n# ", "\n"))
    assert {section: tuple(keys) for section, keys in everything.items()} == USUAL
    everything["handlers"].pop("app")
    assert msgspec.convert(everything, Settings) == Settings()

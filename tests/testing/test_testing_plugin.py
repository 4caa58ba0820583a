"""The pytest plugin in a project of a user's: its fixtures are there, and it costs nothing where they are not used."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import os
from crawler.testing import crawl

def test_a_crawl_of_the_web_on_the_engine(crawler_web, crawler_engine):
    done = crawl(
        None, crawler_web.web.seeds, web=crawler_web,
        settings={"scope.mode": "any", "frontier.redis": crawler_engine},
    )
    assert done.pages == crawler_web.web.expected().committed
    global url
    url = crawler_engine

def test_the_next_one_has_an_engine_of_its_own(crawler_engine):
    assert crawler_engine != url
    assert not os.path.exists(url.removeprefix("unix://"))
"""
LOADED = "import sys; print([m for m in ('redis', 'httptools', 'selectolax', 'asyncio') if m in sys.modules])"


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_plugin_is_where_pytest_looks_for_plugins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"crawler": "crawler.testing.plugin"}


@pytest.mark.slow
def test_the_fixtures_work_in_a_project_that_has_only_the_crawler(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    plugins = ("-p", "no:cacheprovider", "-p", "no:crawler", "-p", "crawler.testing.plugin")
    done = run("-m", "pytest", "-q", *plugins, cwd=tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_loads_nothing_that_takes_time(tmp_path: Path) -> None:
    done = run("-c", f"import crawler.testing.plugin, crawler.testing; {LOADED}", cwd=tmp_path)
    assert done.stdout in ("[]\n", "['asyncio']\n"), done.stderr  # the second: pytest's own doing, in some releases

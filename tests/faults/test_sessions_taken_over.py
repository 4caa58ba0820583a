"""A site with a login, crawled by two instances, one of which is killed: its session goes on, or begins again."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.runtime.crash_points import VARIABLE
from crawler.testing import serve
from tests.crawl.members_site import PASSWORD, MembersSite
from tests.frontier.raw import dump
from tests.support.engine import Engine
from tests.support.processes import Nursery, nursery

pytestmark = pytest.mark.processes

START = "http://club.test/"
KILLED = -9
APP = """
import os

from crawler import Crawler

app = Crawler()

@app.login("http://club.test/login")
def login(page):
    page.submit("#in", {"user": "me", "pass": os.environ["CLUB_PASSWORD"]}, button="go")

@app.logged_in
def logged_in(page):
    return b"member" in page.body

@app.page()
async def every(page):
    yield {"path": page.url.removeprefix("http://club.test")}
"""


@pytest.fixture
def site() -> MembersSite:
    return MembersSite(pages=100, lasts=25)


@pytest.fixture
def programs(site: MembersSite) -> Iterator[Nursery]:
    with serve(site) as web:
        secrets = {"CLUB_PASSWORD": PASSWORD, "CLUB_KEY": "0123456789abcdef0123"}
        with nursery(web.environment | secrets | {"CRAWLER_MEMBERSHIP_DEAD_S": "4"}) as programs:
            yield programs


@pytest.mark.slow(seconds=25)
@pytest.mark.parametrize("key", ["CLUB_KEY", ""])
@pytest.mark.parametrize("point", ["login.done#2", "fetch.answered#40"])
def test_a_session_survives_its_owner(
    point: str, key: str, site: MembersSite, programs: Nursery, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    shared = ["--app", str(tmp_path / "app.py"), "--redis", engine.url, "--delay", "0.03", "--quiet"]
    shared += ["--set", f"cookies.key_env={key}"]
    first = programs.crawler("crawl", START, *shared, "--dir", str(tmp_path / "one"), **{VARIABLE: f"{point}=kill"})
    assert first.wait() == KILLED, first.err
    second = programs.crawler("crawl", START, *shared, "--dir", str(tmp_path / "two"))
    assert second.wait() == 0, second.err
    for kind in ("warc", "items", "index"):  # a commit of the first may be in the index of the second
        shutil.copytree(tmp_path / "two" / kind, tmp_path / "one" / kind, dirs_exist_ok=True)
    exported = programs.crawler("export", "--items", "--dir", str(tmp_path / "one"), "-o", "-")
    assert exported.wait() == 0, exported.err
    items = [json.loads(line)["path"] for line in exported.out.splitlines()]
    assert sorted(items) == sorted(["/", *(f"/p/{n}" for n in range(site.pages))])
    # One login for the beginning, one for each session that ended, and one for a session that died with its owner.
    is_kept = bool(key) and point.startswith("fetch")
    assert site.logins <= 1 + site.ended + (not is_kept)
    assert site.refused == 0
    with engine.client() as client:
        stored = repr(dump(client, "*"))
    assert PASSWORD not in stored
    assert "secret-sid" not in stored
    folders = [word for name in ("one", "two") for word in ("--dir", str(tmp_path / name))]
    audit = programs.crawler("audit", *folders, "--redis", engine.url)
    assert audit.wait() == 0, audit.err

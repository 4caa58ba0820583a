"""The ported examples, killed in the middle and taken over by another instance: exactly the items that there are."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.runtime.crash_points import VARIABLE
from crawler.testing import ExampleWeb, serve
from crawler.testing.example_sites import PASSWORD, TOKEN
from tests.support.engine import Engine
from tests.support.processes import Nursery, nursery

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[2] / "examples"
KILLED = -9
SECRETS = {"MEMBERS_PASSWORD": PASSWORD, "TEA_TOKEN": TOKEN, "EXAMPLE_KEY": "0123456789abcdef0123"}
WEB = ExampleWeb()
# By example: the URLs of its command, what of its items is compared, and what these are.
SEARCHED = [one["name"] for word in ("assam", "tin") for one in WEB.products if word in one["name"].lower()]
WANTED = {
    "members": ([], "text", [one["text"] for one in WEB.sites.quotes]),
    "search": ([], "tea", SEARCHED),
    "api": ([], "url", [one["url"] for one in WEB.products]),
    "ranks": (["http://shop.test/"], "name", [one["name"] for one in WEB.products]),
    "readers": ([], "title", WEB.sites.titles),
}
POINTS = {"members": 6, "search": 2, "api": 2, "ranks": 3, "readers": 3}  # pages that are handled before the kill


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with (
        serve(ExampleWeb()) as web,
        nursery(web.environment | SECRETS | {"CRAWLER_MEMBERSHIP_DEAD_S": "4"}) as programs,
    ):
        yield programs


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("name", WANTED)
def test_an_example_that_is_killed_and_taken_over_is_exact(
    name: str, programs: Nursery, engine: Engine, tmp_path: Path
) -> None:
    urls, field, wanted = WANTED[name]
    options = ["--app", f"{name}.py", "--redis", engine.url, "--delay", "0.05", "--quiet"]
    options += ["--set", "cookies.key_env=EXAMPLE_KEY"]
    options += ["--config", "readers.toml"] if name == "readers" else ["--set", "scope.follow=handlers"]
    killed = {VARIABLE: f"page.handled#{POINTS[name]}=kill"}
    first = programs.crawler("crawl", *urls, *options, "--dir", str(tmp_path / "one"), cwd=EXAMPLES, **killed)
    assert first.wait() == KILLED, first.err
    second = programs.crawler("crawl", *urls, *options, "--dir", str(tmp_path / "two"), cwd=EXAMPLES)
    assert second.wait() == 0, second.err
    found = []
    for folder in ("one", "two"):
        exported = programs.crawler("export", "--items", "--dir", str(tmp_path / folder), "-o", "-")
        assert exported.wait() == 0, exported.err
        found += [json.loads(line)[field] for line in exported.out.splitlines()]
    assert sorted(found) == sorted(wanted)

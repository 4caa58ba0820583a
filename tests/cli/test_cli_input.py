"""Bad input of every kind: one clear line, the documented exit code, no traceback, nothing made."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from crawler.cli.main import main
from tests.cli.cli_lab import HOST, QUICK, crawler, in_process, page, small
from tests.support.engine import Engine, running_engine
from tests.support.patience import PATIENCE_S
from tests.support.processes import Nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

DEEP = "[" * 5000 + "]" * 5000
SETTINGS = {
    f"[fetch]\nconcurrency = {10**20}": f"fetch.concurrency = {10**20}: expected an integer <= ",
    f"[fetch]\nconcurrency = {DEEP}": "is not valid TOML for settings: its values are nested too deeply",
    f"[fetch]\nconcurrency = {'9' * 5000}": "is not valid TOML: ",
    "[politeness]\ndelay_s = inf": "politeness.delay_s = inf: expected a number <= ",
    "[politeness]\ndelay_s = -inf": "politeness.delay_s = -inf: expected a number >= ",
    "[politeness]\ndelay_s = nan": "politeness.delay_s = nan: expected a number >= ",
}


@pytest.mark.parametrize("text", SETTINGS, ids=[said[:30] for said in SETTINGS.values()])
def test_settings_that_are_no_values_are_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    assert main(["check", "http://a.test/", "--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert SETTINGS[text] in said
    assert said.count("\n") == 1


def test_lists_of_tables_that_are_nested_too_deeply_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "http://a.test/", "--set", f"frontier.rules={DEEP}"]) == 2
    assert "not a valid list of tables" in capsys.readouterr().err


@pytest.mark.slow(ci=True)
def test_paths_that_are_no_text_are_one_line(programs: Nursery, tmp_path: Path) -> None:
    (strange := Path(os.fsdecode(bytes(tmp_path) + b"/bad\xff"))).mkdir()
    for arguments in (["stats"], ["crawl", "http://a.test/"], ["crawl", "http://a.test/", "-n", "2"]):
        given = programs.crawler(*arguments, "--dir", str(strange))
        assert (given.wait(), given.err) == (2, f"crawler: the argument {tmp_path}/bad\\udcff is not valid UTF-8")
    where = programs.crawler("crawl", "http://a.test/", CRAWLER_ARCHIVE_DIR=str(strange))
    assert where.wait() == 2
    assert "is not valid UTF-8: rename the folder" in where.err
    assert list(strange.iterdir()) == []


@pytest.mark.parametrize("command", ["crawl", "seed", "stats", "export", "rebuild", "audit"])
def test_a_path_that_is_too_long_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    urls = ["http://a.test/"] if command in ("crawl", "seed") else []
    assert main([command, *urls, "--dir", "d" * 5000]) == 2
    assert "is too long: use another folder" in capsys.readouterr().err


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("files", [10, 11, 12, 13, 14])
def test_too_few_open_files_are_one_line(files: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "crawler", "fetch", "http://127.0.0.1:9/"]
    shell = f"ulimit -n {files}; exec {shlex.join(command)}"
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    said = done.stderr.strip()
    assert "bug" not in said
    assert "Traceback" not in said
    assert said.count("\n") == 0, said
    assert done.returncode in (2, 6)  # no answer, where the files are enough to ask


COMMANDS = ("crawl", "run", "seed", "stats", "ring", "explain", "export", "doctor")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["crawl", "http://a.test/", "--dept", "3"], "unknown option --dept: did you mean --depth?"),
        (["crwl"], "unknown command 'crwl': did you mean crawl?"),
        (["--foo"], "unknown option --foo"),
        (["crawl"], "give at least one seed URL"),
        (["crawl", "not a url"], "no valid seed URL"),
        (["crawl", "-i", "/nonexistent/seeds.txt"], "can't read seed file /nonexistent/seeds.txt: No such file"),
        (["crawl", "http://a.test/", "--set", "fetch.nothing=1"], "--set fetch.nothing=1: unknown key fetch.nothing"),
        (
            ["crawl", "http://a.test/", "--set", "fetch.concurrency=x"],
            "--set fetch.concurrency=x: not a valid whole number",
        ),
        (
            ["crawl", "http://a.test/", "--set", "retry.tls.nothing=1"],
            "unknown key retry.tls.nothing (known: attempts,",
        ),
        (["crawl", "http://a.test/", "--set", "retry.tls.attempts=0"], "retry.tls.attempts = 0: expected"),
        (["crawl", "http://a.test/", "--set", "retry.tls=2"], "retry.tls is a table: set one of its keys"),
        (["crawl", "http://a.test/", "--set", "nothing.at=1"], "unknown section nothing"),
        (["crawl", "http://a.test/", "--set", "frontier.rules=/news/"], "not a valid list of tables in TOML"),
        (["crawl", "http://a.test/", "--set", "frontier.rules=[{match='a'}]"], "frontier.rules[0] = "),
        (["crawl", "http://a.test/", "--order", "depth"], "--order"),
        (["seed", "http://a.test/", "--priority", "nan"], "--priority nan: expected -100,000 to 100,000"),
        (["crawl", "http://a.test/", "--set", "depth"], "write SECTION.KEY=VALUE"),
        (["crawl", "http://a.test/", "--concurrency", "0"], "fetch.concurrency = 0: expected an integer >= 1"),
        (["crawl", "http://a.test/", "--config", "/nonexistent.toml"], "can't read settings file /nonexistent.toml"),
        (["crawl", "http://a.test/", "--time", "10x"], "'10x' is not a valid duration (use 90, 10m, 2h, 1d)"),
        (["crawl", "http://a.test/", "--include", "("], "scope.include[0] = '(': not a regular expression"),
        (["crawl", "http://a.test/", "-o", "pages.txt"], "can't tell the format of pages.txt"),
        (["crawl", "http://a.test/", "-o", "/nonexistent/pages.csv"], "folder does not exist: /nonexistent"),
        (["crawl", "http://a.test/", "-n", "0"], "-n 0: expected 1 to 256 instances"),
        (["crawl", "http://a.test/", "--redis", "http://x/"], "bad engine URL 'http://x/'"),
        (["seed"], "give URLs, -i FILE, - for standard input, or --sitemap URL"),
        (["explain", "ftp://a.test/"], "invalid URL 'ftp://a.test/': not http or https"),
        (["stats"], "crawl-data is not a crawl folder (crawl.json is missing)"),
        (["export"], "crawl-data is not a crawl folder (crawl.json is missing)"),
        (["stats", "--top", "-1"], "--top -1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    programs: Nursery, tmp_path: Path, arguments: list[str], said: str
) -> None:
    ran = in_process(programs, *arguments, cwd=tmp_path)
    assert ran.code == 2
    *before, last = ran.err.splitlines()
    assert said in last
    assert last.startswith("crawler: ")
    assert all(line.startswith("crawler: ") for line in before)
    assert ran.out == ""


def test_every_command_has_a_help_with_examples_and_exit_codes(programs: Nursery) -> None:
    for command in COMMANDS:
        ran = in_process(programs, command, "--help")
        assert ran.code == 0
        assert "example" in ran.out
        assert "exit codes" in ran.out
        assert "--dir" in ran.out


def test_help_imports_nothing_heavy(programs: Nursery) -> None:
    code = (
        "import sys; from crawler.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\nprint(sorted(sys.modules))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env=programs.environment, capture_output=True, text=True, check=True
    ).stdout
    loaded = out.splitlines()[-1]
    for heavy in ("httptools", "redis", "msgspec", "rich", "asyncio", "uvloop", "publicsuffixlist"):
        assert f"'{heavy}'" not in loaded


def test_an_engine_that_is_down_is_exit_code_3(programs: Nursery, tmp_path: Path) -> None:
    for arguments in (["crawl", "http://a.test/"], ["stats"], ["seed", "http://a.test/"]):
        ran = in_process(programs, *arguments, "--redis", "redis://127.0.0.1:1/", cwd=tmp_path)
        assert ran.code == 3
        assert ran.err.startswith("crawler: no answer from the engine")
        assert ran.err.count("\n") == 1


def test_a_folder_of_another_crawl_is_exit_code_4(programs: Nursery, tmp_path: Path) -> None:
    with small(2) as site:
        assert in_process(programs, "crawl", site.url(HOST), *QUICK, cwd=tmp_path).code == 0
        ran = in_process(programs, "crawl", site.url(HOST), *QUICK, "--name", "other", cwd=tmp_path)
        assert ran.code == 4
        assert "crawl-data holds the crawl 'main', not 'other'" in ran.err


def test_an_engine_that_was_wiped_is_said_and_not_crawled_on(programs: Nursery, tmp_path: Path, engine: Engine) -> None:
    with small(2) as site:
        command = ("crawl", site.url(HOST), *QUICK, "--redis", engine.url, "--dir", str(tmp_path / "c"))
        assert in_process(programs, *command).code == 0
        engine.flush()
        ran = in_process(programs, *command)
        assert ran.code == 4
        assert "the engine does not have the crawl 'main' whose results are in" in ran.err
        assert "'crawler rebuild'" in ran.err
        with contextlib.closing(engine.client()) as client:
            assert client.dbsize() == 0  # nothing is begun anew


def test_a_folder_with_other_things_in_it_is_left_alone(programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    ran = in_process(programs, "crawl", "http://a.test/", "--dir", str(tmp_path))
    assert ran.code == 2
    assert "is not a crawl folder, and not empty" in ran.err
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow(ci=True)
def test_a_disk_that_takes_no_more_is_exit_code_5_and_the_crawl_resumes(programs: Nursery, tmp_path: Path) -> None:
    """The limit on file sizes stands for a full disk: the archive's file can't grow beyond 64 KiB."""
    resources = {(HOST, f"/{n}"): Resource(body=os.urandom(6000).hex()) for n in range(30)}
    resources[HOST, "/"] = page(*(f"/{n}" for n in range(30)))
    with serve_resources(resources) as site, running_engine() as engine:
        command = ["crawl", site.url(HOST), *QUICK, "--redis", engine.url, "--dir", str(tmp_path / "c")]
        shell = 'ulimit -f 128; trap "" XFSZ; exec "$@"'
        full = programs.start("bash", "-c", shell, "-", sys.executable, "-m", "crawler", *command)
        assert full.wait() == 5
        last = full.err.splitlines()[-1]
        assert last.startswith("crawler: can't")
        assert "Traceback" not in full.err
        again = crawler(programs, *command)
        assert again.code == 0
        records = [json.loads(line) for line in in_process(programs, "export", *command[-4:]).out.splitlines()]
        assert len({r["url"] for r in records}) == len(records) == 31


def test_no_dns_is_exit_code_6_with_the_reason(programs: Nursery, tmp_path: Path) -> None:
    ran = in_process(
        programs, "crawl", "http://a.test/", *QUICK, "--dir", str(tmp_path / "c"), "--nameserver", "127.0.0.1:1",
        "--set", "dns.timeout_s=0.2", "--set", "dns.tries=1", "--set", "retry.dns_error.backoff_s=0.2",
    )  # fmt: skip
    assert ran.code == 6
    line = ran.err.splitlines()[-1]
    assert line.startswith("crawler: nothing was fetched: http://a.test/: dns_error")
    assert "no answer from the DNS servers 127.0.0.1:1" in line


def test_private_addresses_are_refused_unless_allowed(programs: Nursery, tmp_path: Path) -> None:
    with small(2) as site:
        ran = in_process(
            programs, "crawl", site.url(HOST), "--dir", str(tmp_path / "c"), "--set", "crawl.partitions=16"
        )
        assert ran.code == 6
        assert "127.0.0.1 is a private address; add --allow-private to crawl it" in ran.err
        assert site.requests() == []


@pytest.mark.slow(ci=True)
def test_seeds_are_counted_by_what_became_of_them(programs: Nursery, tmp_path: Path) -> None:
    file, folder = tmp_path / "seeds.txt", str(tmp_path / "c")
    file.write_bytes(
        b"\xef\xbb\xbfhttp://a.test/\r\n# comment\n\nhttp://A.test:80/#x\nhttp://b.test/\nfoo\nhttp://[::1/"
    )
    ran = in_process(programs, "seed", "-i", str(file), "--dir", folder)
    assert ran.code == 0
    assert ran.out == "2 new, 1 already seen, 0 out of scope, 2 invalid\n"
    assert f"crawler: {file} line 6: 'foo': not a URL" in ran.err
    assert f"crawler: {file} line 7: 'http://[::1/': " in ran.err
    again = json.loads(crawler(programs, "seed", "-", "--json", "--dir", folder, stdin="http://a.test/\n").out)
    assert again == {"new": 0, "retried": 0, "seen": 1, "out_of_scope": 0, "invalid": 0, "other_hosts": 0}
    pending = json.loads(in_process(programs, "stats", "--json", "--dir", folder).out)["totals"]["pending"]
    assert pending == 2


def test_comments_behind_seeds_are_cut_and_fields_behind_a_tab_are_refused(programs: Nursery, tmp_path: Path) -> None:
    file, folder = tmp_path / "seeds.txt", str(tmp_path / "c")
    file.write_text(
        "http://a.test/ # the shop\nhttp://b.test/x#y\t# y\nhttp://c.test/\tnutch.score=10\thl=en\n"
        "d.test # a host\nhttp://a.test/ b#c\n e.test\thl=en\n"
    )
    ran = in_process(programs, "seed", "-i", str(file), "http://a.test/ # again", "--dir", folder)
    assert ran.out == "4 new, 1 already seen, 0 out of scope, 2 invalid\n"
    why = "has fields behind a tab: give {} alone ('cut -f1' keeps the URLs of a file)"
    assert f"{file} line 3: 'http://c.test/\\tnutch.score=10\\thl=en': {why.format('http://c.test/')}" in ran.err
    assert f"{file} line 6: 'e.test\\thl=en': {why.format('e.test')}" in ran.err
    for url in "http://a.test/", "http://a.test/%20b", "http://b.test/x", "https://d.test/":
        explained = json.loads(in_process(programs, "explain", url, "--dir", folder, "--json").out)
        assert explained["seen"], url


@pytest.mark.slow(ci=True)
def test_a_stream_of_seeds_is_taken_in_while_it_flows(programs: Nursery, tmp_path: Path) -> None:
    folder = str(tmp_path / "c")
    command = [sys.executable, "-m", "crawler", "seed", "-", "--dir", folder]
    seeding = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=programs.environment
    )
    assert seeding.stdin is not None
    seeding.stdin.write("http://a.test/\n")
    seeding.stdin.flush()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = in_process(programs, "stats", "--json", "--dir", folder)
        if found.code == 0 and json.loads(found.out)["totals"]["pending"] == 1:
            break
        assert time.monotonic() < deadline
    members = json.loads(in_process(programs, "ring", "--json", "--dir", folder).out)["members"]
    assert [(m["state"], m["held"]) for m in members] == [("seeding", 0)]
    out, _ = seeding.communicate("http://b.test/\n")
    assert out == "2 new, 0 already seen, 0 out of scope, 0 invalid\n"


def test_a_sitemap_gives_the_urls_of_its_own_host(programs: Nursery, tmp_path: Path) -> None:
    def xml(root: str, *locs: str) -> Resource:
        inner = "url" if root == "urlset" else "sitemap"
        body = "".join(f"<{inner}><loc>{loc}</loc></{inner}>" for loc in locs)
        return Resource(content_type="application/xml", body=f"<?xml version='1.0'?><{root}>{body}</{root}>")

    resources: dict[tuple[str, str], Resource] = {}
    resources[HOST, "/index.xml"] = xml("sitemapindex", "/a.xml", "/gone.xml")
    resources[HOST, "/a.xml"] = xml("urlset", "/1", "/2", "http://elsewhere.test/")
    with serve_resources(resources) as site:
        ran = in_process(
            programs, "seed", "--sitemap", site.url(HOST, "/index.xml"), "--dir", str(tmp_path / "c"),
            "--allow-private", "--delay", "0.1",
        )  # fmt: skip
        assert ran.code == 0, ran.err
        assert ran.out == "2 new, 0 already seen, 0 out of scope, 0 invalid, 1 of other domains left out\n"
        assert "/gone.xml: not read: status 404" in ran.err
        times = [r.start for r in site.requests()]
        assert len(times) == 3
        assert min(b - a for a, b in pairwise(times)) >= 0.1
        missing = in_process(
            programs, "seed", "--sitemap", site.url(HOST, "/no.xml"), "--dir", str(tmp_path / "c"), "--allow-private"
        )
        assert missing.code == 6
        assert "status 404" in missing.err


def test_the_doctor_finds_an_engine_that_would_lose_urls(programs: Nursery, tmp_path: Path) -> None:
    with running_engine("--maxmemory-policy", "allkeys-lru", "--set-max-intset-entries", "64") as sick:
        ran = in_process(programs, "doctor", "--redis", sick.url, "--nameserver", "127.0.0.1:1", cwd=tmp_path)
        assert ran.code == 7
        assert ran.err == "crawler: to be fixed: dns, eviction, persistence, seen-set\n"
        assert "fix: CONFIG SET maxmemory-policy noeviction" in ran.out
    found = json.loads(in_process(programs, "doctor", "--json", "--nameserver", "127.0.0.1:1", cwd=tmp_path).out)
    levels = {check["name"]: check["level"] for check in found}
    assert levels["dns"] == "FAIL"
    assert {levels[name] for name in ("python", "engine", "eviction", "persistence", "seen-set", "replicas")} == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_settings_come_from_file_environment_and_options_in_this_order(programs: Nursery, tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text('[archive]\ndir = "from-file"\n[crawl]\nname = "news"\n')
    base = {"CRAWLER_CONFIG": str(config)}
    in_process(programs, "seed", "http://a.test/", cwd=tmp_path, **base)
    assert (tmp_path / "from-file").is_dir()
    assert in_process(programs, "stats", "--name", "other", cwd=tmp_path, **base).code == 2
    in_process(programs, "seed", "http://a.test/", cwd=tmp_path, **base, CRAWLER_ARCHIVE_DIR="from-environment")
    assert (tmp_path / "from-environment").is_dir()
    in_process(
        programs, "seed", "http://a.test/", "--dir", "from-option", cwd=tmp_path, **base, CRAWLER_ARCHIVE_DIR="x"
    )
    assert (tmp_path / "from-option").is_dir()
    assert not (tmp_path / "x").exists()


@pytest.mark.slow(ci=True)
def test_a_bug_is_one_line_and_its_details_are_in_a_file(programs: Nursery, tmp_path: Path) -> None:
    code = (
        "import sys; from crawler.cli import main, export\n"
        "def broken(arguments): raise ZeroDivisionError('two\\nlines')\n"
        "export.run_export = broken\nsys.exit(main.main(['export']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=programs.environment | {"TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("crawler: this is a bug: ZeroDivisionError: two; the details are in ")
    assert "ZeroDivisionError" in Path(done.stderr.strip().rpartition(" ")[2]).read_text()


def test_what_is_mended_in_a_list_is_said_once(programs: Nursery, tmp_path: Path) -> None:
    file, folder = tmp_path / "seeds.txt", str(tmp_path / "c")
    file.write_bytes(b"http://a.test/\t2026-01-02\rhttp://b.test/ 0.8\rhttp://c.test/ http://d.test/\r")
    ran = in_process(programs, "seed", "-i", str(file), "--dir", folder)
    assert ran.out == "2 new, 0 already seen, 0 out of scope, 1 invalid\n"
    said = f"crawler: {file} line 1: taking http://a.test/ without the date or priority behind it"
    assert said in ran.err
    assert ran.err.count("without the date or priority") == 1
    assert f"{file} line 3: 'http://c.test/ http://d.test/': has more than one URL" in ran.err

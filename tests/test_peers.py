"""How runs become medians, ratios and complaints, and that the comparison with peers works."""

import json
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from scripts.bench_lib import corpus, summaries, webs

ROOT = Path(__file__).parent.parent
BENCH = [sys.executable, "-m", "scripts.bench_lib", "peers", "--web", "cold", "--share"]


def run_of(pages: Collection[str] = "abcd", **figures_of_run: Any) -> Any:
    usual = {
        "wall_s": 2.0,
        "client_cpu_s": 1.0,
        "engine_cpu_s": 0.0,
        "client_mib": 50.0,
        "engine_mib": 0.0,
        "servers_cpu_s": 0.5,
    }
    usual |= {"duplicates": 0, "requests": len(pages) + 1}
    return summaries.Run(pages=frozenset(pages), **usual | figures_of_run)


def test_cpu_is_counted_for_a_thousand_pages_with_and_without_the_engine() -> None:
    run = run_of(client_cpu_s=1.0, engine_cpu_s=0.2)
    assert (run.cpu_per_thousand, run.engine_per_thousand, run.all_per_thousand) == (250, 50, 300)
    assert run.pages_per_s == 2


def test_a_ratio_is_taken_within_each_round() -> None:
    """The machine was half as fast in the second round: ratios of medians would be 2 of 1.5."""
    ours = [run_of(client_cpu_s=1.0), run_of(client_cpu_s=2.0), run_of(client_cpu_s=1.5)]
    peer = [run_of(client_cpu_s=2.0), run_of(client_cpu_s=4.0), run_of(client_cpu_s=1.5)]
    found = summaries.ratios(peer, ours, lambda run: run.client_cpu_s)
    assert (found.median, found.low, found.high, found.half) == (2, 1, 2, 0.5)


def test_the_table_has_a_row_for_each_client_and_engines_only_where_there_are_some() -> None:
    runs = {
        "crawler": [run_of(client_cpu_s=1.0, engine_cpu_s=0.2, engine_mib=9.0)],
        "bare": [run_of(client_cpu_s=0.8)],
        "wget": [run_of(client_cpu_s=3.0)],
    }
    by_client = {
        name: summaries.summary(found, {n: runs[n] for n in ("crawler", "bare")}) for name, found in runs.items()
    }
    rows = [row.strip("| ").split(" | ") for row in summaries.table(by_client, {n: n for n in runs}).splitlines()]
    assert len({len(row) for row in (rows[0], *rows[2:])}) == 1
    table = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}
    assert table["crawler"]["with engine"] == "300.00"
    assert table["wget"]["with engine"].strip() == ""
    assert table["wget"]["CPU / ours"] == "3.00"
    assert table["wget"]["with engines"] == "2.50"
    assert table["wget"]["CPU / bare"] == "3.75"


def test_servers_without_time_left_are_reported() -> None:
    free, bound = (
        summaries.summary([run_of()], {}),
        summaries.summary([run_of(servers_cpu_s=1.4, engine_cpu_s=0.4)], {}),
    )
    assert summaries.too_busy({"free": free, "bound": bound}) == [
        "bound: servers and engine used 90 % of their core: its pages/s mean little."
    ]


def test_clients_that_got_other_pages_are_named() -> None:
    results = {"ours": [run_of("abc"), run_of("abc")], "peer": [run_of("abc"), run_of("abx")]}
    assert summaries.differences(results, pages_min=3, pages_max=0) == [
        "peer lacks 1 pages compared with ours, such as c",
        "peer also fetched 1 pages compared with ours, such as x",
    ]


def test_of_a_web_without_end_only_the_number_of_pages_is_compared() -> None:
    results = {"ours": [run_of("abc")], "peer": [run_of("xyz")], "short": [run_of("xy", duplicates=1)]}
    assert summaries.differences(results, pages_min=3, pages_max=3) == [
        "short fetched 1 pages twice",
        "short fetched only 2 pages of at least 3",
    ]


@pytest.mark.parametrize("name", [pytest.param("synthetic", marks=pytest.mark.slow), "endless", "cold"])
def test_the_links_of_a_synthetic_web_are_its_own_pages(name: str, tmp_path: Path) -> None:
    web = webs.web_of(name, 500)
    web.write(tmp_path, 80)
    pages = [path.read_text("utf-8") for path in sorted(tmp_path.glob("v*.html"))]
    assert len(pages) == webs.BODIES
    assert {page.count("@@PAGE@@") for page in pages} == {1}
    links = [re.findall('href="([^"]+)"', page) for page in pages]
    with_host = [link if link.startswith("http") else f"http://d0.test:80{link}" for each in links for link in each]
    wanted = re.compile(web.pattern(80, fragments=True))
    assert all(wanted.match(link) for link in with_host)
    assert {len(each) for each in links} == {0 if name == "cold" else 50}
    if name == "synthetic":
        away = {link.partition("#")[0] for link in with_host if not link.startswith("http://d0.test")}
        assert len(away) >= 499, "some page is led to from nowhere"
    assert all(re.match(web.pattern(80), seed) for seed in web.seeds(80))
    web.write(tmp_path, 80)
    assert pages == [path.read_text("utf-8") for path in sorted(tmp_path.glob("v*.html"))], "not the same twice"


@pytest.mark.slow
@pytest.mark.skipif(not corpus.nginx(), reason="needs nginx")
def test_the_comparison_runs_to_its_end_and_writes_its_results(tmp_path: Path) -> None:
    run = peers("--pages", "30", "--rounds", "1", "--only", "crawler,bare,wget", "--output", str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert "All runs fetched the same 30 pages, each once." in run.stdout
    assert re.findall("left out .*", run.stderr) == [
        "left out wget: it needs a hosts file, and the web 'cold' has too many names"
    ]
    record = json.loads((tmp_path / "cold.json").read_text("utf-8"))
    assert set(record["clients"]) == {"crawler", "bare"}
    assert record["clients"]["crawler"]["requests"]["median"] == 60
    assert record["versions"]["bare"]["aiohttp"]
    assert (tmp_path / "cold.md").read_text("utf-8").strip() == run.stdout.strip()


@pytest.mark.skipif(not corpus.nginx(), reason="needs nginx")
@pytest.mark.parametrize(("commit", "code"), [pytest.param("HEAD", 0, marks=pytest.mark.slow), ("0123abcd", 2)])
def test_an_earlier_commit_takes_part_in_the_comparison_when_it_can_be_had(
    commit: str, code: int, tmp_path: Path
) -> None:
    pages = ("--pages", "10", "--rounds", "2")
    run = peers(*pages, "--only", "crawler", "--against", commit, "--output", str(tmp_path))
    assert run.returncode == code, run.stderr
    order = re.findall(r"round \d (\w+)", run.stderr)
    if code:
        assert order == []
        assert run.stderr.splitlines()[-1].startswith("bench: commit 0123abcd is not available: ")
        return
    assert order == ["crawler", "before", "before", "crawler"]
    record = json.loads((tmp_path / "cold.json").read_text("utf-8"))
    assert record["clients"]["before"]["cpu_to"]["crawler"]["median"] > 0
    assert "| this crawler at HEAD |" in run.stdout


def peers(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BENCH, *words], capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)

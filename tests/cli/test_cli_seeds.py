"""`crawler seeds` on crawls with several seeds: every URL belongs to one, and the counts add up."""

import json
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, QUICK, in_process, page
from tests.support.processes import nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

WEB = {
    (HOST, "/a/"): page("/a/1", "/a/2", "/shared"),
    (HOST, "/a/1"): page("/a/2"),
    (HOST, "/a/2"): page("/gone"),
    (HOST, "/b/"): page("/b/1", "/private/x"),
    (HOST, "/b/1"): page("/b/"),
    (HOST, "/gone"): Resource(status=500),
    (HOST, "/shared"): page(),
    (HOST, "/robots.txt"): Resource(content_type="text/plain", body="User-agent: *\nDisallow: /private/\n"),
}
TRIES_ONCE = ("--set", "retry.server_error.attempts=1", "--set", "retry.backoff_s=0.05")


@pytest.mark.slow(ci=True)
def test_each_url_belongs_to_the_seed_it_was_found_from(tmp_path: Path) -> None:
    with nursery() as programs, serve_resources(WEB) as site:
        seeds = [f"http://{HOST}:{site.port}{path}" for path in ("/a/", "/b/")]
        done = in_process(programs, "crawl", *seeds, "-q", *QUICK, *TRIES_ONCE, cwd=tmp_path)
        assert done.code == 0, done.err
        again = in_process(programs, "crawl", *seeds, "-q", *QUICK, *TRIES_ONCE, cwd=tmp_path)
        assert again.code == 0, again.err
        told = in_process(programs, "seeds", "--json", cwd=tmp_path)
        found = {one["url"]: one for one in map(json.loads, told.out.splitlines())}
        assert list(found) == seeds
        a, b = (found[url] for url in seeds)
        assert (b["added"], b["done"], b["dead"], b["waiting"]) == (3, 3, 0, 0)
        assert (a["added"], a["done"], a["dead"], a["waiting"]) == (5, 4, 1, 0)
        table = in_process(programs, "seeds", cwd=tmp_path)
        assert table.out.startswith("2 seeds, 2 finished\n")
        retried = in_process(programs, "dead", "retry", "--all", cwd=tmp_path)
        assert retried.code == 0, retried.err
        waiting = in_process(programs, "seeds", "--waiting", "--json", cwd=tmp_path)
        assert [json.loads(line)["waiting"] for line in waiting.out.splitlines()] == [1]


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    with nursery() as programs:
        ran = in_process(programs, "seeds", "--limit", "0", cwd=tmp_path)
        assert (ran.code, ran.err) == (2, "crawler: --limit 0: expected a number of seeds\n")
        ran = in_process(programs, "seeds", cwd=tmp_path)
        assert ran.code == 2
        assert len(ran.err.splitlines()) == 1

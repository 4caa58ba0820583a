"""The support itself: guards that bite, real engines, webs that are what they say, programs that leave nothing."""

import asyncio
import contextlib
import http.client
import socket
import sys
import time
from hashlib import blake2b
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from tests.support.engine import Cluster, Engine
from tests.support.growth import LINEAR_MAX, growth
from tests.support.guards import NetworkUsedError, leaked_tasks
from tests.support.patience import PATIENCE_S
from tests.support.processes import nursery
from tests.support.reach import links_of, reach_of_folder, search
from tests.support.serving import Site, serve_directory, serve_resources, serve_traps, serve_web
from tests.support.slices import SLICES, Slow, left_out, slice_of
from tests.support.trap_sites import NAMES, trap_site
from tests.support.web import GeneratedWeb, Resource, Scope


@pytest.mark.parametrize("call", ["connect", "connect_ex"])
def test_a_connection_beyond_loopback_fails_the_test(call: str) -> None:
    with socket.socket() as sock, pytest.raises(NetworkUsedError, match=r"192\.0\.2\.1"):
        getattr(sock, call)(("192.0.2.1", 80))


def test_a_datagram_beyond_loopback_fails_the_test() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock, pytest.raises(NetworkUsedError):
        sock.sendto(b"x", ("2001:db8::1", 53))


async def test_a_connection_of_the_event_loop_beyond_loopback_fails_the_test() -> None:
    with pytest.raises(NetworkUsedError):
        await asyncio.open_connection("192.0.2.1", 80)


async def test_a_task_that_goes_on_is_seen_and_one_that_ends_is_not() -> None:
    before = asyncio.all_tasks()
    endless = asyncio.create_task(asyncio.sleep(60))
    ending = asyncio.create_task(asyncio.sleep(0.01))
    assert await leaked_tasks(before) == {endless}
    assert ending.done()
    endless.cancel()


@pytest.mark.parametrize("attempt", [1, 2])
def test_the_engine_is_empty_at_the_start_of_each_test(engine: Engine, attempt: int) -> None:
    with engine.client() as client:
        assert client.dbsize() == 0
        client.set("left", attempt)
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "no"}


@pytest.mark.cluster
def test_the_cluster_serves_every_slot_from_three_primaries(cluster: Cluster) -> None:
    served = 0
    for node in cluster.nodes:
        with node.client() as client:
            served += int(client.execute_command("CLUSTER INFO")["cluster_slots_ok"] == "16384")
    assert served == 3
    first = cluster.nodes[0]
    with redis.RedisCluster.from_url(first.url) as client:
        for number in range(50):
            client.set(f"key-{number}", number)
        assert len(client.get_primaries()) == 3
        assert {client.get(f"key-{number}") for number in range(50)} == {b"%d" % n for n in range(50)}


def fetch(site: Site, url: str) -> tuple[int, str, str]:
    """(status, body if it is HTML, Location) by a client that knows no crawler."""
    parts = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=5)) as connection:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Host": parts.netloc, "User-Agent": "test"})
        response = connection.getresponse()
        body = response.read().decode()
        is_html = (response.getheader("Content-Type") or "").startswith("text/html")
        return response.status, body if is_html else "", response.getheader("Location") or ""


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("scope", ["any", "domain", "host"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_links_in_the_generated_pages_lead_to_what_the_definition_expects(seed: int, scope: Scope) -> None:
    """The HTML is searched with regular expressions and urllib: neither the definition nor the crawler is asked."""
    with serve_web(seed, domains=3, pages=8, slow_s=0.0) as site:
        expected = site.web.expected(scope=scope)
        home = {"any": "", "domain": "d0.test", "host": f"//d0.test:{site.port}"}[scope]
        long_hops = tuple(f"/long/{step}" for step in range(11, 20))

        def answer(url: str) -> tuple[int, str, str]:
            netloc = urlsplit(url).netloc
            if home not in f"//{netloc}" or site.web.is_disallowed(url) or url.endswith(long_hops):
                return 0, "", ""
            for _ in range(3):
                status, html, location = fetch(site, url)
                if status < 500:
                    return status, html, location
            return -1, "", ""

        found = search(site.web.seeds, answer)
    assert {url: status for url, status in found.items() if status > 0} == expected.committed
    assert {url for url, status in found.items() if status < 0} == expected.dead
    assert {url for url, status in found.items() if status == 0} == expected.refused | expected.out_of_scope
    assert not any("/hidden/" in url for url in found)
    assert set(expected.committed.values()) == {200, 301, 302, 303, 307, 308, 404}


def test_the_generated_web_is_the_same_in_every_process_and_another_for_another_seed() -> None:
    shape = {"domains": 3, "pages": 8, "port": 80}
    first, again, other = GeneratedWeb(1, **shape), GeneratedWeb(1, **shape), GeneratedWeb(2, **shape)
    assert first.resources == again.resources
    assert first.resources != other.resources


def test_a_seeds_redirect_brings_its_targets_domain_into_the_scope() -> None:
    web = GeneratedWeb(1, domains=3, pages=8, port=80)
    assert web.url("d2.test", "/") not in web.expected(scope="domain").committed
    assert web.url("d2.test", "/") in web.expected([web.url("d0.test", "/away")], scope="domain").committed


def test_the_server_logs_each_request_with_who_when_and_what() -> None:
    resources = {("d1.test", "/heals"): Resource(fails=1, body="well"), ("d1.test", "/late"): Resource(delay_s=0.05)}
    with serve_resources(resources) as site:
        before = time.monotonic()
        statuses = [fetch(site, site.url("d1.test", target))[0] for target in ("/heals", "/heals", "/late", "/none")]
        after = time.monotonic()
        requests = site.requests()
    assert statuses == [500, 200, 200, 404]
    assert [(r.target, r.status) for r in requests] == list(
        zip(["/heals"] * 2 + ["/late", "/none"], statuses, strict=True)
    )
    assert {(r.host, r.agent) for r in requests} == {("d1.test", "test")}
    assert all(before <= r.start <= r.end <= after for r in requests)
    assert requests[2].end - requests[2].start >= 0.05


def test_the_server_answers_pipelined_requests_in_order() -> None:
    resources = {("h", "/a"): Resource(body="A", delay_s=0.05), ("h", "/b"): Resource(body="B")}
    with (
        serve_resources(resources) as site,
        socket.create_connection(("127.0.0.1", site.port), timeout=5) as client,
    ):
        client.sendall(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n")
        received = b""
        while not received.endswith(b"B"):
            received += client.recv(4096)
    assert received.index(b"\r\n\r\nA") < received.index(b"\r\n\r\nB")


def test_a_folder_is_served_as_its_files_and_not_beyond(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("no")
    site_folder = tmp_path / "site"
    (site_folder / "sub dir").mkdir(parents=True)
    (site_folder / "index.html").write_text("<a href='sub%20dir'>s</a><a href='gone.html'>g</a><a href='x.txt'>x</a>")
    (site_folder / "sub dir" / "index.html").write_text("<a href='../#top'>up</a><a href='http://other.test/'>o</a>")
    (site_folder / "x.txt").write_text("x")
    with serve_directory(site_folder) as site:
        found = search([site.url("docs.test")], lambda url: (0, "", "") if "other" in url else fetch(site, url))
        assert fetch(site, site.url("docs.test", "/../secret"))[0] == 404
        assert {u: s for u, s in found.items() if s} == reach_of_folder(site_folder, site.url("docs.test"))
    assert sorted(found.values()) == [0, 200, 200, 200, 301, 404]


@pytest.mark.slow(ci=True)
def test_traps_are_served_without_end_and_their_html_leads_where_the_definition_says() -> None:
    with serve_traps() as site:
        for name in NAMES:
            trap = trap_site(name, site.port)
            url = trap.url(trap.entrances[0])
            for _ in range(20):
                status, html, _ = fetch(site, url)
                targets = trap.answer(urlsplit(url).hostname or "", url[url.index("/", 8) :]).targets
                assert (status, links_of(url, html)) == (200, set(targets)), url
                url = targets[0]
            assert {fetch(site, real)[0] for real in sorted(trap.real)[:40]} == {200}
        assert fetch(site, site.url("path.test", "/robots.txt"))[0] == 404


def test_a_program_can_be_watched_paused_and_killed_and_leaves_nothing() -> None:
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    code += "print('ready', 7, flush=True); print('oops', file=sys.stderr, flush=True)\nwhile True: time.sleep(0.01)"
    with nursery({"CRAWLER_X": "1"}) as programs:
        program = programs.start(sys.executable, "-c", code)
        assert program.wait_for(r"ready (\d+)")[1] == "7"
        program.wait_for("oops")
        program.pause()
        assert program.process.poll() is None
        end = time.monotonic() + PATIENCE_S
        while len(programs.left()) < 2 and time.monotonic() < end:  # its environment comes a moment after its start
            time.sleep(0.01)
        assert len(programs.left()) == 2
        program.resume()
        assert program.kill() == -9
        assert (program.out, program.err) == ("ready 7", "oops")
        assert len(programs.left()) == 1
        with pytest.raises(TimeoutError, match="ready 7"):
            program.wait_for("never said")
    assert programs.left() == []


def test_an_embedded_engine_whose_crawler_was_killed_is_found_and_ended(tmp_path: Path) -> None:
    with nursery() as programs:
        program = programs.crawler("run", "--dir", str(tmp_path / "c"))
        program.wait_for("waits for work")
        program.kill()
        (engine,) = programs.left()
        assert b"engine.sock" in Path(f"/proc/{engine}/cmdline").read_bytes()
    assert programs.left() == []


def test_slices_have_each_test_once_and_take_about_the_same_time() -> None:
    seconds = {"a": 120.0, "b": 60.0, "c": 60.0} | {f"row {n}": 5.0 for n in range(300)}
    texts = {blake2b(text.encode()).digest()[0]: text for n in range(5000) if (text := f"commit {n}")}
    slices = {tuple(slice_of(list(seconds), seconds.__getitem__, text)) for text in texts.values()}
    assert len(slices) == SLICES
    assert sorted(test for one in slices for test in one) == sorted(seconds)
    totals = {one: sum(seconds[test] for test in one) for one in slices}
    assert max(total for one, total in totals.items() if len(one) > 1) - min(totals.values()) <= 5.0


def test_slow_tests_of_ci_run_with_every_second_commit_and_with_their_file() -> None:
    of_ci = {f"of CI {n}" for n in range(10)}
    slow = {f"row {n}": Slow() for n in range(600)} | {one: Slow(in_ci=True) for one in of_ci}
    assert left_out(slow, slice_text=None, has_file=False) == {*slow}
    assert left_out(slow, slice_text=None, has_file=True) == {*slow} - of_ci
    halves = set[frozenset[str]]()
    for n in range(20):
        chosen = {*slow} - left_out(slow, slice_text=f"commit {n}", has_file=False)
        halves.add(frozenset(chosen & of_ci))
        assert len(chosen - of_ci) in (2, 3), "of 600 in 256 slices"
    assert (len(halves), {len(half) for half in halves}, frozenset().union(*halves)) == (2, {5}, of_ci)


def test_growth_tells_linear_time_from_quadratic() -> None:
    def linear(n: int) -> None:
        sum(range(100 * n))

    def quadratic(n: int) -> None:
        for _ in range(n):
            sum(range(n))

    assert growth(linear, 100, 1000) < LINEAR_MAX < growth(quadratic, 100, 1000)

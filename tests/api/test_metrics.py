"""The metrics of a real crawl: their values, their format, and what they cost."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from crawler.api.metrics import OF_CRAWL, OF_DOMAIN, OF_INSTANCE, metrics_text
from crawler.crawl.opening import open_crawl
from crawler.engine.client import Engine
from crawler.errors import EngineDown
from crawler.frontier.members import Member
from crawler.frontier.operator import EVERYWHERE, OverrideKind
from crawler.frontier.stats import Stats, Totals
from crawler.rules.membership import DeclaredState
from tests.api.scraped_crawl import Scraped, scrape, scraped_crawl, values_of
from tests.crawl.harness import settings_of
from tests.support.engine import Engine as Server


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Scraped:
    return scraped_crawl(tmp_path_factory.mktemp("crawl"))


def test_counters_of_the_crawl_are_those_of_its_statistics(scraped: Scraped) -> None:
    values, totals = values_of(scraped.finished), scraped.totals
    assert totals.fetched >= 150
    assert {n: values["crawler_pages_total", f"{n}xx"] for n in "12345"} == {
        n: totals.status.get(n, 0) for n in "12345"
    }
    assert {"port_refused", "server_error"} <= totals.errors.keys()
    for reason, n in totals.errors.items():
        assert values["crawler_failed_attempts_total", reason] == n
    for reason, n in totals.refused.items():
        assert values["crawler_refused_total", reason] == n
    named = {
        "bytes_total": totals.bytes, "retries_total": totals.retries, "dead_letters": totals.dead,
        "urls_added_total": totals.added, "urls_done_total": totals.done, "urls_pending": totals.pending,
        "urls_deferred": totals.deferred, "urls_spilled": totals.spilled, "items_total": totals.items,
        "items_invalid_total": totals.items_invalid,
        "items_dropped_total": totals.lost.get("items_dropped", 0), "domains": scraped.domains, "partitions": 64,
    }  # fmt: skip
    assert {name: values[f"crawler_{name}",] for name in named} == named
    assert totals.dead >= 1


def test_the_engine_and_the_reading_itself_have_metrics(scraped: Scraped) -> None:
    values = values_of(scraped.finished)
    assert values["crawler_engine_up",] == 1
    assert 0 < values["crawler_engine_read_seconds",] < 60
    assert values["crawler_engine_memory_bytes",] > 1_000_000
    assert values["crawler_engine_cpu_seconds_total",] > 0


def test_a_running_instance_tells_what_it_does_and_how_it_is(scraped: Scraped) -> None:
    values = values_of(scraped.running)
    found = {key[0].removeprefix("crawler_instance_"): n for key, n in values.items() if key[-1] == "node-0"}
    assert values["crawler_instances", "alive"] == 1
    assert values["crawler_partitions_unowned",] == 0
    assert found["partitions"] == 64
    assert 1 <= found["heartbeats_total"] < 1000
    assert 0 < found["politeness_margin_seconds"] < 60
    assert 0 <= found["event_loop_delay_seconds"] < 60
    assert found["disk_free_bytes"] > 0
    assert found["resident_memory_bytes"] > 1 << 20
    assert found["cpu_seconds_total"] > 0
    assert found["start_time_seconds"] > 1_700_000_000
    assert [found[f"{name}_total"] for name in ("taken_over", "lease_losses", "fenced", "late")] == [0, 0, 0, 0]


def test_another_viewer_finds_the_same_numbers(scraped: Scraped) -> None:
    """None of them is a viewer's own, so its restart resets nothing."""
    measured = {"crawler_engine_read_seconds", "crawler_engine_memory_bytes", "crawler_engine_cpu_seconds_total"}
    moving = {"crawler_pages_per_second", "crawler_bytes_per_second"}  # over a time that goes on
    first, second = ({k: n for k, n in values_of(text).items() if k[0] not in measured | moving}
                     for text in (scraped.finished, scraped.again))  # fmt: skip
    assert first.items() <= second.items()


def test_each_metric_has_help_and_type_and_no_domain_is_a_label(scraped: Scraped) -> None:
    families = list(text_string_to_metric_families(scraped.finished))
    declared = [line.split()[2] for line in scraped.finished.splitlines() if line.startswith("# HELP ")]
    types = dict(line.split()[2:] for line in scraped.finished.splitlines() if line.startswith("# TYPE "))
    assert declared == list(types)
    assert len({*declared}) == len(declared)
    for family in families:
        assert family.documentation
        assert family.type in ("counter", "gauge")
        assert family.name.startswith("crawler_")
        assert all("domain" not in sample.labels for sample in family.samples)
    assert {*declared} >= {one.name for one in (*OF_CRAWL, *OF_INSTANCE)}


def test_domains_are_labels_only_if_they_are_asked_for(scraped: Scraped) -> None:
    values = values_of(scraped.again)
    names = {key[1] for key in values if key[0] == "crawler_domain_pages_total"}
    assert 1 <= len(names) <= 2, "the first by pages, and the first by rate"
    assert values["crawler_domains_truncated",] == 1
    assert {one.name for one in OF_DOMAIN} <= {key[0] for key in values}


async def test_all_domains_fit_when_enough_are_asked_for(scraped: Scraped) -> None:
    values = values_of(await scrape(scraped.settings, top_domains=100))
    pages = {key[1]: n for key, n in values.items() if key[0] == "crawler_domain_pages_total"}
    assert values["crawler_domains_truncated",] == 0
    assert len(pages) == scraped.domains
    assert sum(pages.values()) == scraped.totals.fetched


async def test_an_engine_that_does_not_answer_is_a_metric_and_no_error(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(_: Stats) -> Totals:
        raise EngineDown("no answer")

    monkeypatch.setattr(Stats, "totals", down)
    assert {key[0]: n for key, n in values_of(await scrape(scraped.settings)).items()} == {
        "crawler_engine_up": 0, "crawler_engine_read_seconds": pytest.approx(0, abs=60),
    }  # fmt: skip


async def test_members_count_by_state_and_a_node_has_its_last_session(tmp_path: Path, engine: Server) -> None:
    settings = settings_of(tmp_path, frontier__redis=engine.url)
    async with open_crawl(settings, create=True) as opened:
        assert values_of((await metrics_text(opened))[0].decode())["crawler_partitions_unowned",] == 64
        known = [
            Member(session="ann", node="a-0", counter=7, state="alive", started_at=20.0, fenced=3),
            Member(session="old", node="a-0", counter=9, state="alive", started_at=10.0, fenced=8),
            Member(session="bob", node="b-0", counter=1, state="leaving", margin_s=-0.25),
            Member(session="cyd", node="c-0", counter=2, state="seeding"),
        ]
        for member in known:
            await opened.engine.command("HSET", opened.keys.members, member.session, msgspec.json.encode(member))
        await opened.engine.command("HSET", opened.keys.meta(3), "session", "ann", "node", "a-0", "epoch", 1)
        await opened.engine.command("HSET", opened.keys.meta(4), "session", "gone", "node", "z-0", "epoch", 1)
        await opened.operator.book.give(OverrideKind.PAUSED, EVERYWHERE)
        values = values_of((await metrics_text(opened))[0].decode())
    states = {key[1]: n for key, n in values.items() if key[0] == "crawler_instances"}
    assert {state: n for state, n in states.items() if n} == {"alive": 2, "leaving": 1, "seeding": 1}
    assert states.keys() == {*DeclaredState, "dead"}
    assert (values["crawler_partitions_unowned",], values["crawler_paused",]) == (63, 1)
    fenced = {key[1]: n for key, n in values.items() if key[0] == "crawler_instance_fenced_total"}
    assert fenced == {"a-0": 3, "b-0": 0}
    margins = {key[1]: n for key, n in values.items() if key[0].endswith("margin_seconds")}
    assert margins == {"b-0": -0.25}, "those who do not know are left out"


async def test_a_scrape_costs_some_commands_a_partition_and_none_a_domain(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    pipeline = Engine._pipeline

    async def counted(engine: Engine, commands: Any) -> Any:
        sent.append(len(commands))
        return await pipeline(engine, commands)

    async with open_crawl(scraped.settings, create=False) as opened:
        monkeypatch.setattr(Engine, "_pipeline", counted)
        await metrics_text(opened)
    assert sum(sent) <= 6 * 64 + 8
    assert len(sent) <= 10, "each is a round trip"

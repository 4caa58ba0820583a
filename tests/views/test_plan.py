"""What a crawl needs, calculated: by hand for one case, and by what must hold for all."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.cli.main import main
from crawler.views.plan import (
    CLUSTER,
    IDLE_BYTES,
    SHARD_BYTES_MAX,
    Constants,
    Line,
    Wanted,
    constants,
    plan_of,
    plan_text,
)

KNOWN = Constants(
    date="today", commit="0", cpu="a CPU", crawler_cpu_s=Line(page=0.001, kb=0.00002), engine_cpu_s=0.0005,
    wire_bytes=Line(page=1000, kb=130), archive_bytes=Line(page=2000, kb=130), index_bytes=500, instance_mib=300,
    seen_bytes=10, path_bytes=45, pending_bytes=20, spilled_bytes=1, domain_bytes=200, short_pending_bytes=120,
)  # fmt: skip


def wanted(**changed: Any) -> Wanted:
    usual: dict[str, Any] = {
        "urls": 1e6, "pages": 5e5, "domains": 1000, "rate": 100, "page_kb": 100, "delay_s": 1.0, "replicas": 0,
        "vcpu_price": 0.036,
    }  # fmt: skip
    return Wanted(**(usual | changed))


def test_a_small_crawl_is_as_calculated_by_hand() -> None:
    plan = plan_of(wanted(), KNOWN)
    assert plan.days == 5e5 / 100 / 86_400
    assert plan.crawler_cores == pytest.approx(100 * 0.003 / 0.7)
    assert (plan.instances, plan.shards, plan.rate_max) == (1, 1, 1000)
    assert plan.seen_bytes == 1e7
    assert plan.domains_bytes == 1000 * 300  # with a URL or more
    assert plan.pending_bytes == 256_000 * 65 + 244_000
    assert plan.memory_bytes == pytest.approx(1.5 * (1e7 + 3e5 + 256_000 * 65 + 244_000) + IDLE_BYTES)
    assert plan.archive_bytes == 5e5 * 15_000
    assert plan.spill_bytes == 244_000 * 65
    assert plan.bits_per_s == 8 * 100 * (14_000 + 1080)
    assert plan.dollars_per_million == pytest.approx((100 * 0.003 / 0.7 + 0.1) / 100 * 1e6 / 3600 * 0.036)


def test_a_crawl_that_one_server_can_t_hold_gets_a_cluster() -> None:
    by_cpu = plan_of(wanted(rate=5000, domains=5000), KNOWN)
    assert by_cpu.shards == 7  # 5000 * 0.0005 / 0.5 * 1.4
    by_memory = plan_of(wanted(urls=1e10, pages=1e10, domains=1e6), KNOWN)
    assert by_memory.shards >= 1e10 * 10 / SHARD_BYTES_MAX
    assert "a cluster of 7 primaries" in plan_text(wanted(rate=5000), by_cpu, KNOWN)


def test_a_rate_that_the_delay_does_not_allow_is_not_planned_with() -> None:
    asked = wanted(rate=5000, domains=10)
    plan = plan_of(asked, KNOWN)
    assert (plan.rate, plan.days, plan.shards) == (10, 5e5 / 10 / 86_400, 1)
    assert plan.bits_per_s == 8 * 10 * (14_000 + 1080)
    text = plan_text(asked, plan, KNOWN)
    assert "13 h 53 m" in text
    assert "500,000 pages at 10/s" in text
    assert "allows at most 10 pages/s on 10 domains, while all of them have URLs: 5,000/s is not reached" in text


@given(
    urls=st.floats(1, 1e12), share=st.floats(0.001, 1), domains=st.floats(1, 1e9), rate=st.floats(0.01, 1e6),
    kb=st.floats(0.1, 1e4), replicas=st.integers(0, 2),
)  # fmt: skip
def test_more_of_anything_never_needs_less(
    urls: float, share: float, domains: float, rate: float, kb: float, replicas: int
) -> None:
    known = constants()
    small = wanted(urls=urls, pages=urls * share, domains=domains, rate=rate, page_kb=kb, replicas=replicas)
    plan = plan_of(small, known)
    for name in ("urls", "domains", "rate", "page_kb"):
        larger = plan_of(msgspec.structs.replace(small, **{name: 2 * getattr(small, name)}), known)
        for need in ("instances", "crawler_cores", "shards", "memory_bytes", "bits_per_s", "archive_bytes"):
            assert getattr(larger, need) >= getattr(plan, need) * (1 - 1e-9), (name, need)
    assert plan.shards == 1 or plan.shards >= 3
    assert plan.engine_cores * CLUSTER > 0
    assert plan_text(small, plan, known)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--urls", "1e9", "--domains", "5e7", "--rate", "5000/s"), 0, "1,000,000,000 pages at 5,000/s"),
        (("--urls", "3M", "--domains", "1k", "--rate", "200", "--delay", "0"), 0, "3,000,000 pages at 200/s"),
        (("--urls", "many", "--domains", "1k", "--rate", "200"), 2, "'many' is not a positive number"),
        (("--urls", "-1", "--domains", "1k", "--rate", "200"), 2, "is not a positive number"),
        (("--urls", "nan", "--domains", "1k", "--rate", "inf"), 2, "is not a positive number"),
        (("--urls", "10", "--pages", "20", "--domains", "1", "--rate", "1"), 2, "each page is a URL"),
        (("--urls", "100", "--domains", "1k", "--rate", "1"), 2, "each domain has a URL"),
        (("--urls", "1e30", "--domains", "1k", "--rate", "1"), 2, "'1e30' is too large (below 1e+15)"),
    ],
)
def test_the_command_takes_numbers_as_people_write_them(
    words: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("plan", *words) == code
    assert said in "".join(capsys.readouterr())


def run(*words: str) -> int:
    try:
        return main([*words])
    except SystemExit as ended:
        return int(ended.code or 0)


def test_programs_get_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "--urls", "1e6", "--domains", "10", "--rate", "5", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"wanted", "needed", "constants"}
    assert found["needed"]["instances"] == 1

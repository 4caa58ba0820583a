"""A limit of time while an answer hangs: the crawl ends soon after it, and the URL is kept."""

import asyncio
import logging
from pathlib import Path
from unittest.mock import patch

import pytest

from crawler.crawl import instance
from tests.cli.cli_lab import HOST, page
from tests.crawl.harness import crawl, settings_of
from tests.crawl.rebuild_lab import opened
from tests.support.serving import serve_resources

LONG_S = 100.0
WEB = {(HOST, "/"): page("/hangs", "/other"), (HOST, "/hangs"): page(delay_s=LONG_S), (HOST, "/other"): page()}


async def test_a_hanging_answer_holds_the_end_no_longer_than_a_moment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "crawler.crawl.instance")
    with serve_resources(WEB) as site, patch.object(instance, "PAST_TIME_S", 0.1):
        settings = settings_of(
            tmp_path / "c", crawl__time_max_s=1.0, membership__drain_timeout_s=LONG_S, fetch__idle_timeout_s=LONG_S,
            fetch__total_timeout_s=LONG_S,
        )  # fmt: skip
        async with asyncio.timeout(60):
            done = await crawl(settings, [site.url(HOST)])
        assert done.instances[0].stopped_because == "time"
        told = {record.getMessage(): record.__dict__.get("claims") for record in caplog.records}
        assert "1 requested" in (told["stop.claims"] or "")
        assert "claims.left" not in told
        assert done.instances[0].work.open_claims.by_place() == {}
        async with opened(settings) as found:
            totals = await found.stats.totals()
        assert totals.pending > 0
        assert (totals.retries, totals.errors) == (0, {})

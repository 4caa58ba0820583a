"""A file of a crawl folder, whichever, damaged at random: nothing changes, or it is named, and a rebuild mends it.

DAMAGE_TABLE=FILE: add lines with the kind of file, the damage, and what became of it.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.crawl.damage_lab import Case, base_crawl, judge, web
from tests.crawl.harness import lab_names
from tests.crawl.rebuild_lab import Lab
from tests.support.engine import Engine
from tests.support.serving import serve_resources

ALL, AT_ONCE = 1_000, 25
FAST, MENDED_EVERY = 20, 17


@pytest.mark.slow(ci=True)
async def test_whatever_file_is_damaged_exports_and_audit_are_right_or_name_it(tmp_path: Path, engine: Engine) -> None:
    """The first of the cases below, a few of them to their end."""
    await check(tmp_path, engine, range(FAST), mended_every=MENDED_EVERY)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, ALL, AT_ONCE))
async def test_whatever_file_is_damaged_the_results_are_exact_in_the_end(
    tmp_path: Path, engine: Engine, first: int
) -> None:
    await check(tmp_path, engine, range(first, first + AT_ONCE))


async def check(home: Path, engine: Engine, numbers: Iterable[int], *, mended_every: int = 1) -> None:
    failed, became = [], []
    with serve_resources(web()) as site:
        async with lab_names() as dns, base_crawl(Lab(site, dns, engine, home / "work")) as base:
            for case in (Case(base, number) for number in numbers):
                try:
                    outcome = await judge(case, mends=case.number % mended_every == 0)
                except Exception as error:  # noqa: BLE001 - all are shown
                    outcome = f"FAILED {type(error).__name__}: {error}"
                    failed.append(f"{case}: {outcome}")
                became.append(f"{case.kind}\t{case.how}\t{outcome.splitlines()[0]}\n")
    if table := os.environ.get("DAMAGE_TABLE"):
        with Path(table).open("a") as file:
            file.writelines(became)
    assert not failed, "\n".join(failed)

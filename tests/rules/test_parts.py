"""Some of a crawl's partitions: each is in exactly one part, and a sample says how sure it makes you."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.rules.parts import range_of, sample_of


@given(st.integers(1, 16384), st.data())
def test_ranges_that_follow_each_other_are_all_partitions_once(partitions: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, partitions - 1), max_size=5))) if partitions > 1 else []
    bounds = [0, *cuts, partitions]
    parts = [range_of(f"{a}-{b - 1}", partitions) for a, b in pairwise(bounds)]
    assert sorted(p for part in parts for p in part.chosen) == list(range(partitions))


@pytest.mark.parametrize("text", ["", "-", "-1", "1-", "5-4", "0-64", "64", "a-b", "0x1", "1-2-3"])
def test_what_is_no_range_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="partitions"):
        range_of(text, 64)


@given(st.floats(0.001, 100), st.integers(1, 16384))
def test_a_sample_has_its_share_and_is_never_surer_than_it_may_be(percent: float, partitions: int) -> None:
    part = sample_of(percent, partitions, random.Random(1).sample)
    n = len(part.chosen)
    assert n >= max(1, partitions * percent / 100 * 0.999)
    assert part.chosen <= set(range(partitions))
    # With so large a share of bad partitions, a sample without one is no likelier than 5 %.
    assert n == partitions or (1 - part.hidden_share) ** n == pytest.approx(0.05)


def test_the_rule_of_three() -> None:
    assert sample_of(1, 10_000, random.Random(1).sample).hidden_share == pytest.approx(0.0295, abs=0.0001)
    assert sample_of(100, 7, random.Random(1).sample).hidden_share == 0
    assert sample_of(2, 1024, random.Random(1).sample).text == "21 of 1,024 partitions (a sample of 21)"

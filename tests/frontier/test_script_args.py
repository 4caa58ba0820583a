"""Named arguments of scripts: positions in Lua, and tuples that are packed without the schema."""

import pytest

from crawler.frontier.arguments import AckItem, UrlItem, with_positions
from crawler.frontier.codec import item_of
from tests.frontier.door import found


def test_a_field_becomes_its_position_and_size_the_number_of_fields() -> None:
    read = with_positions("local t = one[AckItem.token], AckItem.size + 1")
    assert read == f"local t = one[2], {len(AckItem._fields)} + 1"


def test_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="AckItem has no field tokn: fingerprint, token"):
        with_positions("one[AckItem.tokn]")


def test_a_url_has_as_many_values_as_its_schema() -> None:
    assert len(item_of(found(1))) == len(UrlItem._fields)

"""What handlers may yield, and what is said of the rest."""

import dataclasses
import datetime as dt
import decimal
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.handlers.item_encoding import InvalidItem, InvalidItemError, Packer, pack, packer_of


class Tea(msgspec.Struct):
    name: str
    price: float = 0.0


@dataclasses.dataclass
class Cup:
    name: str
    price: float = 0.0


class Dish(TypedDict):
    name: str
    price: float


class Texts(TypedDict):
    a: str
    b: list[str]


class Model(pydantic.BaseModel):
    name: str
    price: float = 0.0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.slow(ci=True)
@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_a_dict_of_plain_values_comes_back_as_it_was_and_takes_one_line(item: dict[str, Any]) -> None:
    packed = pack(item)
    assert msgspec.json.decode(packed) == item
    assert b"\n" not in packed


@pytest.mark.parametrize("schema", [None, Tea, Cup, Dish, Model])
@pytest.mark.parametrize("item", [{"name": "Sencha", "price": 4.5}, Tea("Sencha", 4.5), Cup("Sencha", 4.5)])
def test_each_kind_of_item_gives_the_same_text_with_and_without_a_schema(schema: Any, item: Any) -> None:
    if schema is Model and not isinstance(item, dict):
        pytest.skip("pydantic takes no other kind of object")
    assert packer_of(schema)(item) == b'{"name":"Sencha","price":4.5}'
    assert packer_of(Model)(Model(name="Sencha", price=4.5)) == pack(Model(name="Sencha", price=4.5))


def test_dates_decimals_and_models_within_are_written_as_people_expect() -> None:
    item = {"at": dt.date(2024, 5, 1), "price": decimal.Decimal("4.50"), "of": [Model(name="a")], "set": {1}}
    assert pack(item) == b'{"at":"2024-05-01","price":"4.50","of":[{"name":"a","price":0.0}],"set":[1]}'


@pytest.mark.parametrize(
    ("schema", "item", "field", "reason"),
    [
        (None, [1], "", "got list: yield each of its parts"),
        (None, "text", "", "got str"),
        (None, None, "", "got NoneType"),
        (None, {"a": 1, "b": {"c": object()}}, "b.c", "object can't be written as JSON"),
        (None, {"a": "\ud800"}, "a", "surrogates"),
        (None, {("a", 1): 1}, "('a', 1)", "can't be written as JSON"),
        (Tea, {"price": 1.0}, "", "missing required field `name`"),
        (Tea, {"name": "a", "price": "1,299"}, "price", "Expected `float`, got `str`"),
        (Tea, Tea("a", "1,299"), "price", "Expected `float`, got `str`"),  # type: ignore[arg-type]
        (Cup, Cup("a", "1,299"), "price", "Expected `float`, got `str`"),  # type: ignore[arg-type]
        (Dish, {"name": 1, "price": 1.0}, "name", "Expected `str`, got `int`"),
        (Tea, [1], "", "Expected `object`"),
        (Model, {"name": "a", "price": "dear"}, "price", "should be a valid number"),
        (Model, {"price": "dear"}, "name", "(and 1 more)"),
        (Model, 5, "", "valid dictionary or instance of Model"),
    ],
)
def test_what_is_no_item_is_told_with_its_field(schema: Any, item: Any, field: str, reason: str) -> None:
    with pytest.raises(InvalidItemError) as raised:
        packer_of(schema)(item)
    assert raised.value.report.field == field
    assert reason in raised.value.report.reason
    assert "\n" not in raised.value.report.reason


def test_an_item_that_holds_itself_or_fails_when_it_is_written_is_one_report() -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless

    class Odd:
        def model_dump(self, mode: str = "") -> Any:
            raise OSError("no")

    for item in (endless, Odd(), {"odd": Odd()}):
        with pytest.raises(InvalidItemError) as raised:
            pack(item)
        assert isinstance(raised.value.report, InvalidItem)


# --- what outputs could not take ---


def nested(levels: int) -> Any:
    """That many lists and dicts in each other, by turns."""
    value: Any = "x"
    for number in range(levels):
        value = [value] if number % 2 else {"k": value}
    return value


def test_an_item_nested_too_deep_is_invalid_and_names_its_field() -> None:
    assert msgspec.json.decode(pack({"ok": 1, "deep": nested(63)})) == {"ok": 1, "deep": nested(63)}
    for levels in (64, 500, 987, 5000):
        with pytest.raises(InvalidItemError) as caught:
            pack({"ok": 1, "deep": nested(levels)})
        assert caught.value.report == InvalidItem("deep", "nested more than 64 deep")


def test_brackets_in_text_are_not_depth() -> None:
    item = {"text": "[{" * 1000, "flat": [[]] * 1000}
    assert msgspec.json.decode(pack(item)) == item


def test_an_item_that_is_too_large_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.handlers.item_encoding.BYTES_MAX", 1000)
    pack({"text": "x" * 900})
    with pytest.raises(InvalidItemError, match="an item may have 1,000"):
        pack({"text": "x" * 1000})


@pytest.mark.parametrize("raw", [b"}{", b"[1,", b"", b"NaN", b'"\\ud800"', b"1}\n{"])
def test_raw_json_that_is_none_is_invalid(raw: bytes) -> None:
    with pytest.raises(InvalidItemError, match="can't be read back"):
        pack({"a": msgspec.Raw(raw)})


def test_raw_json_with_line_ends_takes_one_line() -> None:
    assert pack({"a": msgspec.Raw(b'{\n"b":\r\n 1}')}) == b'{"a":{"b":1}}'


def test_keys_that_become_one_name_are_invalid() -> None:
    with pytest.raises(InvalidItemError, match="two fields have the same name"):
        pack({1: "a", "1": "b"})


@pytest.mark.parametrize("packer", [pack, packer_of(Texts)])
def test_texts_of_a_class_of_their_own_are_texts(packer: Packer) -> None:
    class Text(str):
        """As those of lxml and Beautiful Soup."""

        def __str__(self) -> str:
            return "other"

    assert packer({"a": Text("x"), "b": [Text("y")]}) == b'{"a":"x","b":["y"]}'

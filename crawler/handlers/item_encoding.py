"""What a handler yields becomes JSON text of an object, or a report of what is wrong with it.

Dicts, msgspec structs, dataclasses, attrs classes and pydantic models (known by their methods: none of it is needed
here). With a schema, dicts are converted to it, and objects are checked against it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from crawler.errors import UsageError
from crawler.rules.json_depth import DEPTH_MAX, is_deeper, is_nested_too_deep

REASON_CHARS_MAX = 300
_TOO_DEEP = f"nested more than {DEPTH_MAX} deep"
BYTES_MAX = 64 << 20  # of JSON text: PostgreSQL takes 256 MB of jsonb, SQLite 1 GB
_SCHEMAS = (msgspec.inspect.StructType, msgspec.inspect.DataclassType, msgspec.inspect.TypedDictType)


class InvalidItem(msgspec.Struct, frozen=True):
    """An item that was left out: the field at fault ("" for the whole), and why."""

    field: str
    reason: str


class InvalidItemError(Exception):
    """Raised with (field, reason) for an invalid item."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.report = InvalidItem(field, " ".join(reason.split())[:REASON_CHARS_MAX])


Packer = Callable[[Any], bytes]


def packer_of(schema: Any) -> Packer:
    """What turns an item into JSON text, and raises InvalidItemError. `schema`: None, or a class with fields.

    Raises UsageError for an invalid schema.
    """
    if schema is None:
        return pack
    if hasattr(schema, "model_validate"):
        return lambda item: pack(_modelled(item, schema))
    try:
        known = msgspec.inspect.type_info(schema)
    except TypeError as error:
        raise UsageError(f"item={schema!r}: {error}") from None
    if not isinstance(known, _SCHEMAS):
        raise UsageError(f"item={schema!r}: expected a msgspec.Struct, dataclass, TypedDict or pydantic model")
    return lambda item: pack(_converted(item, schema))


def pack(item: Any) -> bytes:
    """JSON text of an item. Raises InvalidItemError."""
    try:
        if hasattr(item, "model_dump"):
            item = item.model_dump(mode="json")
        packed = _encode(item)
    except RecursionError:
        raise InvalidItemError(_field_at_fault(item).partition(".")[0], _TOO_DEEP) from None
    except Exception as error:
        raise InvalidItemError(_field_at_fault(item), f"{type(error).__name__}: {error}") from None
    if not packed.startswith(b"{"):
        hint = ": yield each of its parts" if packed.startswith(b"[") else ""
        raise InvalidItemError("", f"expected a dict or an object with fields, got {type(item).__name__}{hint}")
    return _checked(packed, item)


def _checked(packed: bytes, item: Any) -> bytes:
    """The text, if every output can take it. Raises InvalidItemError."""
    if len(packed) > BYTES_MAX:
        raise InvalidItemError("", f"{len(packed):,} bytes; an item may have {BYTES_MAX:,}")
    try:
        found = _decode(packed)  # msgspec.Raw is not looked at when it is written
    except Exception as error:
        raise InvalidItemError("", f"can't be read back: {type(error).__name__}: {error}") from None
    if is_nested_too_deep(packed, found):
        raise InvalidItemError(
            next(name for name, value in found.items() if is_deeper(value, DEPTH_MAX - 1)), _TOO_DEEP
        )
    if isinstance(item, dict) and len(found) < len(item):
        raise InvalidItemError("", "two fields have the same name when they are written as JSON, like 1 and '1'")
    return packed if b"\n" not in packed else _encode(found)


def _plain(value: Any) -> Any:
    """What the encoder does not know by itself."""
    if isinstance(value, str):  # texts of parsers, which know where they come from
        return str.__str__(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} can't be written as JSON")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _converted(item: Any, schema: Any) -> Any:
    """Dicts as they are; of an object its fields, for nobody has looked at their types when it was made."""
    try:
        return msgspec.convert(item if isinstance(item, dict) else msgspec.to_builtins(item, enc_hook=_plain), schema)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise InvalidItemError(path.strip("`."), reason) from None
    except Exception as error:
        raise InvalidItemError(_field_at_fault(item), f"{type(error).__name__}: {error}") from None


def _modelled(item: Any, schema: Any) -> Any:
    try:
        return schema.model_validate(item.model_dump() if isinstance(item, schema) else item)
    except Exception as error:
        details: list[Any] = getattr(error, "errors", list)()
        if not details:
            raise InvalidItemError("", f"{type(error).__name__}: {error}") from None
        field = ".".join(str(step) for step in details[0]["loc"])
        more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
        raise InvalidItemError(field, f"{details[0]['msg']}{more}") from None


def _field_at_fault(item: Any, depth: int = 0) -> str:
    """The first field that alone can't be encoded, with what it is nested in."""
    if not isinstance(item, dict) or depth > 20:
        return ""
    for key, value in item.items():
        try:
            _encode({key: value})
        except Exception:
            inner = _field_at_fault(value, depth + 1)
            return f"{key}.{inner}" if inner else str(key)
    return ""

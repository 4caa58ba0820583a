"""How deeply JSON values are nested. Pure, and safe for values of any depth."""

from typing import Any

DEPTH_MAX = 64  # of an item: databases, CSV and Parquet accept no more than a few hundred


def is_nested_too_deep(text: bytes, value: Any) -> bool:
    """Does `value`, whose JSON text is given, nest lists and dicts more than DEPTH_MAX deep?"""
    # Brackets within strings count here too: that only costs an unneeded walk.
    return text.count(b"{") + text.count(b"[") > DEPTH_MAX and is_deeper(value, DEPTH_MAX)


def is_deeper(value: Any, levels: int) -> bool:
    """Are lists and dicts nested more than `levels` deep? Looks no deeper than that."""
    if isinstance(value, dict):
        return not levels or any(is_deeper(one, levels - 1) for one in value.values())
    if isinstance(value, list):
        return not levels or any(is_deeper(one, levels - 1) for one in value)
    return False

"""What the value of an input becomes by its type: the HTML standard's value sanitization, as browsers have it. Pure."""

from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal, InvalidOperation

from selectolax.lexbor import LexborNode

BLANKS = "\t\n\f\r "


def _in_one_line(value: str, _: LexborNode) -> str:
    return value.replace("\r", "").replace("\n", "")


def _trimmed(value: str, node: LexborNode) -> str:
    return _in_one_line(value, node).strip(BLANKS)


def _email(value: str, node: LexborNode) -> str:
    if "multiple" in node.attrs:
        return ",".join(part.strip(BLANKS) for part in _in_one_line(value, node).split(","))
    return _trimmed(value, node)


def _decimal(text: str) -> Decimal | None:
    """By the standard's "valid floating-point number"."""
    digits = text.removeprefix("-")
    if not digits or len(text) > 100 or not set(digits) <= set("0123456789.eE+-") or digits[0] not in "0123456789.":
        return None
    mantissa, _, exponent = digits.lower().partition("e")
    try:
        number = None if mantissa.endswith(".") or len(exponent) > 2 else Decimal(text)
    except InvalidOperation:
        return None
    return number


def _number(value: str, _: LexborNode) -> str:
    return "" if _decimal(value) is None else value


def _range(value: str, node: LexborNode) -> str:
    """A slider always has a value: its own within its bounds, else the middle, at the nearest step."""
    low, high, step = (_decimal(node.attrs.sget(name) or "") for name in ("min", "max", "step"))
    number = _decimal(value)
    least = Decimal(0) if low is None else low
    most = max(least, Decimal(100) if high is None else high)
    wanted = least + (most - least) / 2 if number is None else min(max(number, least), most)
    if (node.attrs.sget("step") or "").lower() != "any":
        step = step if step is not None and step > 0 else Decimal(1)
        first = number if low is None and number is not None else least  # steps are counted from here
        wanted = first + ((wanted - first) / step).to_integral_value("ROUND_HALF_UP") * step
        wanted -= step if wanted > most else 0
    return value if wanted == number else format(wanted.normalize(), "f")


def _color(value: str, _: LexborNode) -> str:
    is_color = len(value) == 7 and value[0] == "#" and set(value[1:]) <= set("0123456789abcdefABCDEF")
    return value.lower() if is_color else "#000000"


def _dated(read: Callable[[str], object]) -> Callable[[str, LexborNode], str]:
    def clean(value: str, _: LexborNode) -> str:
        try:
            read(value)
        except ValueError:
            return ""
        return value

    return clean


def _date(text: str) -> None:
    year, month, day = text.split("-")
    date(_number_of(year, 4), _number_of(month, 2), _number_of(day, 2))


def _month(text: str) -> None:
    _date(f"{text}-01")


def _week(text: str) -> None:
    year, week = text.split("-W")
    date.fromisocalendar(_number_of(year, 4), _number_of(week, 2), 1)


def _time(text: str) -> None:
    clock, dot, fraction = text.partition(".")
    parts = clock.split(":")
    hour, minute, second = parts if len(parts) == 3 else (*parts, "00")
    time(_number_of(hour, 2), _number_of(minute, 2), _number_of(second, 2))
    if dot and (len(parts) < 3 or not fraction.isascii() or not fraction.isdecimal() or len(fraction) > 3):
        raise ValueError


def _number_of(text: str, digits: int) -> int:
    """Raises ValueError for what does not have as many digits."""
    if len(text) != digits or not (text.isascii() and text.isdecimal()):
        raise ValueError
    return int(text)


def _local_time(value: str, _: LexborNode) -> str:
    day, mark, clock = value.replace(" ", "T", 1).partition("T")
    try:
        _date(day)
        _time(clock)
    except ValueError:
        return ""
    if clock.count(":") == 2:
        clock = (clock.rstrip("0").rstrip(".") if "." in clock else clock).removesuffix(":00")
    return f"{day}{mark}{clock}"


CLEANED: Mapping[str, Callable[[str, LexborNode], str]] = {
    **dict.fromkeys(("text", "search", "tel", "password"), _in_one_line),
    "url": _trimmed,
    "email": _email,
    "number": _number,
    "range": _range,
    "color": _color,
    "date": _dated(_date),
    "month": _dated(_month),
    "week": _dated(_week),
    "time": _dated(_time),
    "datetime-local": _local_time,
}

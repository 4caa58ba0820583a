"""What users' functions are, run in and raise: tasks and threads that end none of ours, and errors as text."""

import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

# What users' code raised, as text: one line and a traceback. Nothing that an exception does gets past this.
#
# An exception is a user's object: its `__str__` may raise, call itself, or return text that can't be stored.

TRACE_CHARS_MAX = 4000
TRACE_FRAMES_MAX = 12
LINE_CHARS_MAX = 300
NAME_CHARS_MAX = 100
READ_CHARS_MAX = 100_000  # of an exception's text, which may quote a whole page
_NAME_OF_CLASS: Callable[[type], str] = type.__dict__["__name__"].__get__
OURS = str(Path(__file__).parents[1])


class CodeFailure(msgspec.Struct, frozen=True):
    """Why users' code failed. `is_late`: its time was over, or it was not begun for want of time."""

    detail: str  # one line
    trace: str = ""
    is_late: bool = False


def failure_of(error: BaseException) -> CodeFailure:
    """One line, like "KeyError: 'price' (shop.py:12 in product)", and the traceback without our own part of it."""
    said = one_line_of(text_of(lambda: str(error)))
    line = f"{kind_of(error)}: {said}" if said else kind_of(error)
    try:
        place, trace = _place_and_trace(error)
    except BaseException as unread:  # its text comes from users' code, too
        return CodeFailure(line, f"(its traceback can't be read: {kind_of(unread)})")
    return CodeFailure(line + place, trace)


def kind_of(error: BaseException) -> str:
    """The name of its class, read without its metaclass."""
    return storable(_NAME_OF_CLASS(type(error)), NAME_CHARS_MAX)


def _place_and_trace(error: BaseException) -> tuple[str, str]:
    told = traceback.TracebackException.from_exception(error, limit=-200)
    frames = [frame for frame in told.stack if not frame.filename.startswith(OURS)]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    if frames:
        told.stack = traceback.StackSummary.from_list(frames[-TRACE_FRAMES_MAX:])
    trace = "".join(told.format()).rstrip()
    return storable(place), storable(trace[-TRACE_CHARS_MAX:])


def one_line_of(said: str) -> str:
    """Its words in one line, as many as fit."""
    return " ".join(said.split())[:LINE_CHARS_MAX]


def text_of(read: Callable[[], object], chars_max: int = READ_CHARS_MAX) -> str:
    """What a user's object says of itself; "" when it does not say anything, whatever it does instead."""
    try:
        said = read()
        return storable(said, chars_max) if isinstance(said, str) else ""
    except BaseException:
        return ""


def storable(said: str, chars_max: int = READ_CHARS_MAX) -> str:
    """A plain str of the same text: lone surrogates become question marks."""
    plain = str.__str__(said)[:chars_max]
    return plain if plain.isascii() else plain.encode("utf-8", "replace").decode()

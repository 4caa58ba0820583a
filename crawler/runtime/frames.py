"""The protocol between an instance and its worker processes: length-prefixed frames over pipes.

A worker writes a ready line, then reads requests from stdin and writes one answer for each to stdout, until stdin ends.
Kept apart from `worker_process`, which imports asyncio: the start of a worker is CPU time of the crawl.
"""

import struct
from collections.abc import Callable
from typing import BinaryIO

HEAD = struct.Struct(">I")
READY = b"ready\n"
FAILED = 0xFFFF_FFFF  # in place of a length: the error follows as a frame of text, and the worker ends
_ERROR_CHARS_MAX = 500


def framed(data: bytes) -> bytes:
    """`data` with its length before it."""
    return HEAD.pack(len(data)) + data


def serve(answer: Callable[[bytes], bytes], stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Report that the worker is ready, then answer requests until stdin ends, or until one fails.

    After a failure nobody knows how much memory is left to the next request.
    """
    stdout.write(READY)
    stdout.flush()
    while len(head := stdin.read(HEAD.size)) == HEAD.size:
        (length,) = HEAD.unpack(head)
        try:
            found = framed(answer(stdin.read(length)))
        except Exception as error:  # noqa: BLE001 - the instance logs it; here it would be on the user's terminal
            text = f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX]
            stdout.write(HEAD.pack(FAILED) + framed(text.encode("utf-8", "replace")))
            stdout.flush()
            return
        stdout.write(found)
        stdout.flush()

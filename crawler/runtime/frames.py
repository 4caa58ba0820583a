"""The protocol between an instance and its worker processes: length-prefixed frames over pipes.

A worker writes a ready line, then reads requests from stdin and writes one answer for each to stdout, until stdin ends.
Kept apart from `worker_process`, which imports asyncio: the start of a worker is CPU time of the crawl.
"""

import struct
from collections.abc import Callable
from typing import BinaryIO

HEAD = struct.Struct(">I")
READY = b"ready\n"


def framed(data: bytes) -> bytes:
    """`data` with its length before it."""
    return HEAD.pack(len(data)) + data


def serve(answer: Callable[[bytes], bytes], stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Report that the worker is ready, then answer requests until stdin ends."""
    stdout.write(READY)
    stdout.flush()
    while len(head := stdin.read(HEAD.size)) == HEAD.size:
        (length,) = HEAD.unpack(head)
        stdout.write(framed(answer(stdin.read(length))))
        stdout.flush()

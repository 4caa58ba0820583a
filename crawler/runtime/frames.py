"""What an instance and its worker processes say to each other: bytes with their length before them.

A worker says that it is ready, then reads requests from its standard input and writes an answer to each to its standard
output, until its input ends. Imports next to nothing: the start of a worker is CPU time of the crawl.
"""

import struct
from collections.abc import Callable
from typing import BinaryIO

HEAD = struct.Struct(">I")
READY = b"ready\n"


def framed(data: bytes) -> bytes:
    """`data` behind its length."""
    return HEAD.pack(len(data)) + data


def serve(answer: Callable[[bytes], bytes], stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Say that the worker is ready, and answer until the input ends."""
    stdout.write(READY)
    stdout.flush()
    while len(head := stdin.read(HEAD.size)) == HEAD.size:
        (length,) = HEAD.unpack(head)
        stdout.write(framed(answer(stdin.read(length))))
        stdout.flush()

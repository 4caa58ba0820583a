"""Hears what an embedded engine is asked, and when: MONITOR on a connection of its own. Its times are the engine's."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BEAT = re.compile(rb'^\+(\d+\.\d+) [^"]*"(?:FCALL|fcall)" "crawler_\w+_beat"', re.MULTILINE)


@dataclass
class Heard:
    """When heartbeats were carried out, in seconds of the engine's clock."""

    beats: list[float] = field(default_factory=list)


@contextlib.contextmanager
def of_engine(folder: Path) -> Iterator[Heard]:
    """Listens to the engine of a crawl folder from the moment it is there."""
    heard, over = Heard(), threading.Event()
    thread = threading.Thread(target=_listen, args=(folder / "engine" / "engine.sock", heard, over), daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        over.set()
        thread.join()


def _listen(path: Path, heard: Heard, over: threading.Event) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        while not over.is_set():
            try:
                connection.connect(str(path))
            except OSError:
                time.sleep(0.02)
            else:
                break
        connection.settimeout(0.2)
        connection.sendall(b"MONITOR\r\n")
        rest = b""
        while not over.is_set():
            try:
                data = connection.recv(1 << 20)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            lines, _, rest = (rest + data).rpartition(b"\n")
            heard.beats += beats_in(lines)


def beats_in(lines: bytes) -> list[float]:
    """Of whole lines of MONITOR."""
    return [float(found[1]) for found in _BEAT.finditer(lines)]

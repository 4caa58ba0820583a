"""Notes when an embedded engine runs heartbeats, by MONITOR on its own connection. Times are the engine's."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_BEAT = re.compile(rb'^\+(\d+\.\d+) [^"]*"(?:FCALL|fcall)" "crawler_\w+_(?:heart)?beat"', re.MULTILINE)


@contextlib.contextmanager
def heartbeats(folder: Path) -> Iterator[list[float]]:
    """Those of a crawl folder's engine from its start on, in seconds; the list grows."""
    beats, over = list[float](), threading.Event()
    thread = threading.Thread(target=_listen, args=(folder / "engine" / "engine.sock", beats, over), daemon=True)
    thread.start()
    try:
        yield beats
    finally:
        over.set()
        thread.join()


def _listen(path: Path, beats: list[float], over: threading.Event) -> None:
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
            beats += beats_in(lines)


def beats_in(lines: bytes) -> list[float]:
    """In whole lines of MONITOR."""
    return [float(found[1]) for found in _BEAT.finditer(lines)]

"""The counts behind `scripts/bench work`, in a process of its own: WHAT, the socket of an engine, a folder for logs.

`instructions` runs below valgrind, which counts a process. So each figure is the difference of two forks: one that does
something once, and one that does it twice.
"""

import contextlib
import gc
import json
import os
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from crawler.archive.index_writer import IndexWriter
from crawler.archive.warc_writer import WarcWriter
from crawler.frontier.owner import Frontier
from crawler.parsing import parse
from crawler.routing.router import Router
from scripts.bench_lib.peer_environments import ROOT
from scripts.bench_lib.work_pages import FixedWeb
from scripts.bench_lib.work_world import Traffic, crawled

PARTITIONS, FEW = 1024, 32
START, WHOLE = FixedWeb(pages_each=1), FixedWeb()
PART = FixedWeb(pages_each=8)  # below valgrind, which takes thirty times as long
WAITING = FixedWeb(hosts=1, pages_each=4)
DELAY_S = 10.0
# Python 3.12 makes no frames for these; the counts are to be compared between versions.
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")
_COUNTED = re.compile(r"\bI\s+refs:\s+([\d,]+)")
STAGES: dict[str, tuple[tuple[Any, str], ...]] = {  # what is called for each page, and where it is looked up
    "archive": ((WarcWriter, "add"), (IndexWriter, "add")),
    "commit": ((Frontier, "pack_ack"),),
    "cost": ((parse, "markup_of"), (parse, "cost_of")),
    "parse": ((parse, "parse_with_tree"),),
    "route": ((Router, "links"),),
}


class Calls:
    """Counts calls in all that runs in its context."""

    def __init__(self) -> None:
        self._counts: dict[CodeType, int] = {}
        self._builtins: dict[CodeType, int] = {}

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        gc.collect()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            counts = self._counts
        elif event == "c_call":
            counts = self._builtins
        else:
            return
        counts[frame.f_code] = counts.get(frame.f_code, 0) + 1

    def of_crawler(self) -> int:
        """Of its functions; those of coroutines count each time that they go on."""
        ours = str(ROOT / "crawler") + os.sep
        return sum(
            count for code, count in self._counts.items()
            if code.co_filename.startswith(ours) and code.co_name not in INLINED
        )  # fmt: skip

    def of_others(self) -> int:
        """Of functions of libraries and of builtins, without those of this bench."""
        bench = tuple(str(ROOT / folder) + os.sep for folder in ("scripts", "tests"))
        ours = self.of_crawler()
        return sum(
            count for counts in (self._counts, self._builtins) for code, count in counts.items()
            if not code.co_filename.startswith(bench)
        ) - ours  # fmt: skip


def _measured(web: FixedWeb, path: str, *, delay_s: float = 0.0) -> dict[str, int]:
    calls = Calls()
    traffic = crawled(web, path, partitions=PARTITIONS, delay_s=delay_s, counted=calls.counted)
    return {
        "calls": calls.of_crawler(),
        "calls of libraries": calls.of_others(),
        "engine bytes": traffic.bytes,
        "engine commands": sum(traffic.commands.values()),
        "engine operations": traffic.operations,
    }


def counts(path: str) -> dict[str, int]:
    """All but instructions. "a page" and "a minute" are without what a crawl of four pages, or of one, takes."""
    crawled(START, path, partitions=FEW)  # fills what is made once in a process
    found = {}
    start, whole = _measured(START, path), _measured(WHOLE, path)
    one, waiting = (
        _measured(FixedWeb(hosts=1, pages_each=1), path, delay_s=DELAY_S),
        _measured(WAITING, path, delay_s=DELAY_S),
    )
    minutes = DELAY_S * (WAITING.pages - 1) / 60
    for name, count in start.items():
        found[f"start and end: {name}"] = count
        found[f"100 pages: {name}"] = round(100 * (whole[name] - count) / (WHOLE.pages - START.pages))
        found[f"a minute of waiting: {name}"] = round((waiting[name] - one[name]) / minutes)
    found["200 pages: KiB allocated at most"] = round(_peak_bytes(path) / 1024)
    return found


def _peak_bytes(path: str) -> int:
    """Of Python's own allocations during a crawl, without what was there before."""

    @contextlib.contextmanager
    def traced() -> Iterator[None]:
        nonlocal peak
        gc.collect()
        tracemalloc.start()
        try:
            yield
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()

    peak = 0
    crawled(WHOLE, path, partitions=PARTITIONS, counted=traced)
    return peak


# --- below valgrind ---


class Recorder:
    """Calls of the stages during a crawl, which can be repeated."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Callable[[], Any]]] = {stage: [] for stage in STAGES}

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        before = []
        for stage, functions in STAGES.items():
            for owner, name in functions:
                before.append((owner, name, getattr(owner, name)))
                setattr(owner, name, self._noting(self.calls[stage], getattr(owner, name)))
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)

    def _noting(self, calls: list[Callable[[], Any]], function: Any) -> Any:
        def noted(*arguments: Any, **named: Any) -> Any:
            calls.append(lambda: function(*arguments, **named))
            return function(*arguments, **named)

        return noted


def instructions(path: str, folder: Path) -> dict[str, int]:
    """Of one page, by stage and of the whole crawl. `folder`: where valgrind logs, a file for each process."""
    recorder, found = Recorder(), dict[str, int]()
    START.answers()

    def repeat_stages() -> None:
        for stage, calls in recorder.calls.items():
            assert calls, f"nothing of the stage '{stage}' was called: {STAGES[stage]}"
            once, twice = (_forked(folder, partial(_repeated, calls, times)) for times in (1, 2))
            found[f"a page, {stage}: instructions"] = round((twice - once) / PART.pages)

    crawled(PART, path, partitions=FEW, counted=recorder.recorded, at_end=repeat_stages)
    few, many = (_forked(folder, partial(crawled, web, path, partitions=FEW)) for web in (START, PART))
    found["a page: instructions"] = round((many - few) / (PART.pages - START.pages))
    return found


def _repeated(calls: Sequence[Callable[[], Any]], times: int) -> None:
    for _ in range(times):
        for call in calls:
            call()


def _forked(folder: Path, act: Callable[[], Traffic | None]) -> int:
    """How many instructions a fork of this process executed at its end that did this."""
    gc.collect()
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - it must not go on as a second parent
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert status == 0, "a fork of the bench failed"
    text = (folder / f"{pid}.log").read_text()
    found = _COUNTED.search(text)
    assert found is not None, f"valgrind counted nothing:\n{text}"
    return int(found[1].replace(",", ""))


if __name__ == "__main__":
    what, engine, logs = sys.argv[1:]
    print(json.dumps(counts(engine) if what == "counts" else instructions(engine, Path(logs))))

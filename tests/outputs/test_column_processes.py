"""Processes that find columns, and die of a page: its other columns, the other pages and the counts at the end."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.index_writer import IndexWriter
from crawler.content.page_columns import PageBody
from crawler.outputs.export import export
from crawler.outputs.opening import targets_of
from crawler.outputs.records import Pages
from crawler.parsing import column_pool
from crawler.parsing.column_pool import TOO_EXPENSIVE, ColumnWorker, NoProcessError
from tests.archive.archive_samples import entry, folder_in, response, writer_in

# The process itself, in which one column of pages with the word "fatal" comes to a bad end.
FATAL = """
import os, signal
from crawler.parsing import column_worker as worker
find = worker.columns_of
def fatal():
    {end}
def columns_of(page, names, joins):
    if b"fatal" in page.body and "markdown" in names:
        fatal()
    return find(page, names, joins)
worker.columns_of, worker.CPU_S = columns_of, 1
worker.main()
"""
ENDS = {
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "out of memory": "bytearray(2 << 30)",
    "a bug": "raise SystemError",
    "half an answer": "os.write(3, b'\\0\\0'); os._exit(0)",  # where its answers go
    "ended": "os._exit(0)",
}
LOOP = "[0 for n in iter(int, 1)]"
NAMES = ("declared_language", "markdown", "text")


@contextlib.contextmanager
def working(end: str, timeout_s: float = 60.0) -> Iterator[ColumnWorker]:
    one = ColumnWorker((sys.executable, "-P", "-c", FATAL.format(end=end)), timeout_s)
    try:
        yield one
    finally:
        one.close()


def page_of(text: str) -> PageBody:
    return PageBody(url="http://h.test/", content_type="text/html", body=f"<html lang=en><p>{text}".encode())


def check(one: ColumnWorker) -> None:
    """A page that is fatal between two that are not."""
    for text in ("good", "fatal", "good again"):
        found = one.columns(page_of(text), NAMES)
        assert list(found.columns) == list(NAMES)
        is_fatal = text == "fatal"
        assert found.columns == {
            "declared_language": "en", "markdown": None if is_fatal else f"{text}\n", "text": text,
        }  # fmt: skip
        assert found.failed == ({"markdown": TOO_EXPENSIVE} if is_fatal else {})
        alone = one.columns(page_of(text), ("markdown",))
        assert alone.columns == {"markdown": found.columns["markdown"]}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", ENDS)
def test_a_process_that_dies_of_a_page_has_its_other_columns(name: str) -> None:
    with working(ENDS[name]) as one:
        check(one)


@pytest.mark.slow(ci=True)
def test_a_column_that_takes_too_much_cpu_time_is_ended_alone() -> None:
    with working(LOOP) as one:
        check(one)


def test_a_column_that_waits_for_ever_is_ended() -> None:
    with working("signal.pause()", timeout_s=0.5) as one:
        found = one.columns(page_of("fatal"), ("markdown",))
        assert (found.columns, found.failed) == ({"markdown": None}, {"markdown": TOO_EXPENSIVE})
        assert one._process is None


def test_a_process_that_does_not_start_is_an_error_and_not_the_page_s() -> None:
    for command, why in (
        ((sys.executable, "-c", ""), "it ended with code 0"),
        ((sys.executable, "-c", "import no_such_module"), "No module named 'no_such_module'"),
        ((sys.executable, "-c", "raise SystemExit(3)"), "it ended with code 3"),
        (("/no/such/program",), "No such file or directory"),
    ):
        with contextlib.closing(ColumnWorker(command)) as one, pytest.raises(NoProcessError, match=why):
            one.columns(page_of("good"), NAMES)


def test_a_library_that_cannot_be_imported_is_no_page_s_failure() -> None:
    broken = "import sys; sys.modules['resiliparse.extract.html2text'] = None\n"
    command = (sys.executable, "-P", "-c", f"{broken}from crawler.parsing.column_worker import main; main()")
    with contextlib.closing(ColumnWorker(command)) as one:
        assert one.columns(page_of("good"), ("text", "markdown")).failed == {}
        with pytest.raises(NoProcessError, match="resiliparse can't be imported: "):
            one.columns(page_of("good"), ("text", "main_text"))
        assert one.columns(page_of("good"), ("text",)).columns == {"text": "good"}


@pytest.mark.slow(ci=True)
def test_an_export_goes_on_and_counts_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_in(tmp_path)
    writer, index = writer_in(folder), IndexWriter(folder, "aa11")
    for number in range(12):
        text = "fatal" if number in (3, 4) else "good"
        url = f"http://h.test/{number}"
        body, headers = f"<p>{text} {number}".encode(), ((b"Content-Type", b"text/html"),)
        place, _ = writer.add(response(number, url=url, raw_body=body, headers=headers))
        index.add(entry(number, url=url, mime="text/html", warc=place))
    writer.close()
    index.close()
    command = (sys.executable, "-P", "-c", FATAL.format(end=ENDS["killed"]))
    started: list[ColumnWorker] = []

    def start() -> ColumnWorker:
        started.append(ColumnWorker(command))
        return started[-1]

    monkeypatch.setattr(column_pool, "ColumnWorker", start)
    target = tmp_path / "pages.jsonl"
    with contextlib.closing(Pages(folder, columns=("markdown", "text"))) as pages:
        summary = export(folder, targets_of([str(target)]), pages)
        remarks = pages.remarks()
    records: list[dict[str, Any]] = [json.loads(line) for line in target.read_text().splitlines()]
    fatal = [record for record in records if record["text"].startswith("fatal")]
    assert sorted(record["url"] for record in records) == sorted(f"http://h.test/{number}" for number in range(12))
    assert [(record["text"], record["markdown"]) for record in fatal] in (
        [("fatal 3", None), ("fatal 4", None)], [("fatal 4", None), ("fatal 3", None)],
    )  # fmt: skip
    assert all(record["markdown"] == f"{record['text']}\n" for record in records if record["text"].startswith("good"))
    assert (summary.records, summary.missing) == (12, [])
    assert remarks == [f"2 pages without markdown: {TOO_EXPENSIVE} (first: {fatal[0]['url']})"]
    assert [one._process for one in started] == [None] * column_pool.PROCESSES, "all are ended"

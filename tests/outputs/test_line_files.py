import csv
import gzip
import io
import json
import multiprocessing
import subprocess
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.errors import ArchiveError, ConflictError, OutputError
from crawler.outputs import files
from crawler.outputs.files import is_at
from crawler.outputs.lines import BLOCK_BYTES, packed
from crawler.outputs.opening import open_growing, open_whole, targets_of
from crawler.outputs.sink import COLUMNS_MAX, Mark
from tests.outputs.samples import AWKWARD, ITEMS, json_lines, rows, target

UNPACK = {
    "": lambda data: data,
    ".gz": gzip.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read(),
}


@pytest.mark.parametrize("packing", UNPACK)
def test_json_lines_come_back_as_they_went_packed_or_not(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"items.jsonl{packing}"
    sink = open_whole(target(path), ITEMS)
    sink.write(rows(AWKWARD))
    sink.write(rows([{"nested": {"a": [1, None, "x"]}}]))
    assert not path.exists()
    sink.commit()
    sink.close()
    found = [json.loads(line) for line in UNPACK[packing](path.read_bytes()).splitlines()]
    assert found == [*AWKWARD, {"nested": {"a": [1, None, "x"]}}]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("packing", UNPACK)
def test_a_file_that_grows_is_whole_after_every_commit_and_in_its_place(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"items.jsonl{packing}"
    sink = open_growing(target(path), ITEMS, None)
    for number in range(3):
        sink.write(rows([{"n": number}]))
        sink.commit()
        assert UNPACK[packing](path.read_bytes()).count(b"\n") == number + 1
    sink.close()


@pytest.mark.skipif(not Path("/usr/bin/zstd").exists(), reason="no zstd here")
def test_the_zstd_program_reads_a_file_of_many_frames(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl.zst"
    path.write_bytes(packed(b"one\n", ".zst") + packed(b"two\n", ".zst"))
    assert subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True).stdout == b"one\ntwo\n"


def test_packed_members_are_bounded_and_lose_nothing_at_their_seams() -> None:
    data = bytes(range(256)) * (BLOCK_BYTES // 100)
    assert gzip.decompress(packed(data, ".gz")) == data
    assert packed(data, ".gz").count(b"\x1f\x8b\x08") > 1


def read_csv(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


@pytest.mark.parametrize("packing", UNPACK)
@pytest.mark.parametrize("grows", [False, True])
def test_csv_gets_a_column_for_each_field_whenever_it_appears(tmp_path: Path, packing: str, grows: bool) -> None:
    path = tmp_path / f"items.csv{packing}"
    sink = open_growing(target(path), ITEMS, None) if grows else open_whole(target(path), ITEMS)
    batches = [AWKWARD[:2], [{"url": "http://x/", "tags": ["a", {"b": None}]}], [{"late": 7}], AWKWARD[2:]]
    for number, batch in enumerate(batches):
        sink.write(rows(batch, number * 10))
        if grows:
            sink.commit()
    if not grows:
        sink.commit()
    sink.close()
    found = read_csv(UNPACK[packing](path.read_bytes()))
    assert list(found[0]) == ["url", "title", "price", "stock", "new", "tags", "late"]
    assert [row["title"] for row in found] == [one.get("title", "") for batch in batches for one in batch]
    assert found[2]["tags"] == '["a",{"b":null}]'
    assert (found[3]["late"], found[3]["url"], found[0]["late"]) == ("7", "", "")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_csv_of_items_begins_with_a_header_once_however_often_it_is_opened(tmp_path: Path) -> None:
    path, mark = tmp_path / "items.csv", None
    for number in range(3):
        sink = open_growing(target(path), ITEMS, mark)
        sink.write(rows([{"a": number, "b": "x"}]))
        mark = sink.commit()
        sink.close()
    assert path.read_text() == "a,b\n0,x\n1,x\n2,x\n"


def test_more_fields_than_a_table_can_have_are_refused_in_one_line(tmp_path: Path) -> None:
    sink = open_growing(target(tmp_path / "items.csv"), ITEMS, None)
    sink.write(rows([{f"f{n}": n for n in range(COLUMNS_MAX + 1)}]))
    with pytest.raises(OutputError, match=r"more than 1,000 different fields: write them as \.jsonl"):
        sink.commit()
    sink.close()


# --- going on ---


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".jsonl.gz", ".csv.zst"])
def test_what_was_not_committed_is_cut_off_and_written_once(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"items{suffix}"
    sink = open_growing(target(path), ITEMS, None)
    sink.write(rows([{"n": 1}]))
    mark = sink.commit()
    assert mark is not None
    sink.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n": 2}\n{"n"')  # a crash between the bytes and the cursor
    assert is_at(path, mark)
    sink = open_growing(target(path), ITEMS, mark)
    sink.write(rows([{"n": 2}]))
    sink.commit()
    sink.close()
    text = UNPACK[packing_of(path)](path.read_bytes()).decode()
    assert [line.strip('{}"n:') for line in text.splitlines() if line != "n"] == ["1", "2"]


def packing_of(path: Path) -> str:
    return path.suffix if path.suffix in UNPACK else ""


@pytest.mark.parametrize("change", ["shorter", "other", "gone"])
def test_a_file_that_is_not_the_one_of_the_mark_is_known(tmp_path: Path, change: str) -> None:
    path = tmp_path / "items.jsonl"
    sink = open_growing(target(path), ITEMS, None)
    sink.write(rows([{"n": n} for n in range(9)]))
    mark = sink.commit()
    sink.close()
    assert mark == Mark(path.stat().st_size, mark.digest if mark else "")
    match change:
        case "shorter":
            path.write_bytes(path.read_bytes()[:-1])
        case "other":
            path.write_bytes(b"x" * 1000)
        case _:
            path.unlink()
    assert not is_at(path, mark)


def test_two_who_write_one_file_are_told(tmp_path: Path) -> None:
    sink = open_growing(target(tmp_path / "items.jsonl"), ITEMS, None)
    with pytest.raises(ConflictError, match="another process is writing"):
        open_growing(target(tmp_path / "items.jsonl"), ITEMS, None)
    sink.close()
    open_growing(target(tmp_path / "items.jsonl"), ITEMS, None).close()


def test_a_failed_commit_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "items.jsonl"
    sink = open_growing(target(path), ITEMS, None)
    sink.write(rows([{"n": 1}]))
    sink.commit()

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    sink.write(rows([{"n": 2}]))
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", fail)
        with pytest.raises(ArchiveError, match="free some space"):
            sink.commit()
    sink.close()
    assert json_lines(path) == [{"n": 1}]


def _write_for_ever(path: Path, said: Any) -> None:
    sink = open_growing(target(path), ITEMS, None)
    number = 0
    while True:
        sink.write(rows([{"n": n, "text": "x" * 500} for n in range(number, number + 50)]))
        mark = sink.commit()
        number += 50
        said.send((number, mark))


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_writer_killed_at_any_moment_leaves_what_it_had_committed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"items{suffix}"
    context = multiprocessing.get_context("spawn")
    said, says = context.Pipe(duplex=False)
    process = context.Process(target=_write_for_ever, args=(path, says), daemon=True)
    process.start()
    says.close()
    try:
        for _ in range(20):
            number, mark = said.recv()
    finally:
        process.kill()
        process.join()
    while said.poll():
        try:
            number, mark = said.recv()
        except EOFError:
            break
    assert is_at(path, mark)
    sink = open_growing(target(path), ITEMS, mark)
    sink.write(rows([{"n": number}]))
    sink.commit()
    sink.close()
    found = [json.loads(line)["n"] for line in UNPACK[packing_of(path)](path.read_bytes()).splitlines()]
    assert found == list(range(number + 1))


@pytest.mark.slow(ci=True)
@settings(max_examples=60)
@given(
    batches=st.lists(
        st.lists(st.dictionaries(st.sampled_from("abcd"), st.text(max_size=8) | st.integers() | st.none(), min_size=1))
    )
)
def test_csv_holds_the_same_cells_whatever_the_batches_and_reopenings(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "items.csv"
    mark = None
    for batch in batches:
        (to,) = targets_of([str(path)], csv_safe=False)
        sink = open_growing(to, ITEMS, mark)
        sink.write(rows(batch))
        mark = sink.commit()
        sink.close()
    records = [record for batch in batches for record in batch]
    names = list(dict.fromkeys(name for record in records for name in record))
    if not records:
        return
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.reader(file))
    cells = [["" if record.get(n) is None else str(record[n]) for n in names] for record in records]
    assert found == [names, *([] if names == [""] else cells)]

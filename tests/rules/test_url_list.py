"""Lists with a URL a line: the same lines mean the same in seed files, imports and text sitemaps."""

import asyncio
import gzip
from pathlib import Path

import pytest

from crawler.content.sitemap import parse_sitemap
from crawler.crawl.imports import known_in
from crawler.crawl.url_files import read_rows
from crawler.crawl.url_input import SeedReport, read_given
from crawler.errors import InvalidUrl, UsageError
from crawler.rules.url_list import LINE_MAX, NOT_TEXT, TWO_URLS, LineSplitter, ListedUrl, lines_in, listed
from crawler.rules.urls import canonicalize
from tests.support.growth import LINEAR_MAX, growth

A, B = "http://a.test/1", "http://b.test/2"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", None),
        (" \t ", None),
        ("\ufeff", None),
        ("# a comment", None),
        (A, ListedUrl(A)),
        (f"  {A}\r\n", ListedUrl(A)),
        (f"\ufeff {A}\u200b\u00a0", ListedUrl(A)),
        (f"{A} # of today", ListedUrl(A)),
        (f"{A}\t# of today", ListedUrl(A)),
        (f"{A}#x", ListedUrl(f"{A}#x")),
        (f"{A}\t", ListedUrl(A)),
        (f"{A}\t2026-01-02", ListedUrl(A, lastmod="2026-01-02", is_mended=True)),
        (f"{A}\t0.8\t2026-01-02T03:04:05+01:00", ListedUrl(A, "2026-01-02T03:04:05+01:00", "0.8", is_mended=True)),
        (f"{A}\t2026-01-02 03:04:05", ListedUrl(A, is_mended=True)),
        (f"{A} 2026-01-02", ListedUrl(A, lastmod="2026-01-02", is_mended=True)),
        (f"{A}  0.8  WEEKLY", ListedUrl(A, priority="0.8", is_mended=True)),
        (f"{A}\u00a00.8", ListedUrl(A, priority="0.8", is_mended=True)),
        (f"{A}\tscore=1\t0.5", ListedUrl(A, priority="0.5", is_mended=True, fields=("score=1",))),
        (f"{A} 0.8\tx", ListedUrl(A, priority="0.8", is_mended=True, fields=("x",))),
        (f"{A} 1", ListedUrl(f"{A} 1")),
        (f"{A} 2024", ListedUrl(f"{A} 2024")),
        (f"{A} file 0.8", ListedUrl(f"{A} file 0.8")),
        (f"{A} never ever", ListedUrl(f"{A} never ever")),
        (f"{A} {B}", ListedUrl(f"{A} {B}", flaw=TWO_URLS)),
        (f"{A}, {B}", ListedUrl(f"{A}, {B}", flaw=TWO_URLS)),
        (f"{A}\t{B.upper()}", ListedUrl(f"{A}\t{B.upper()}", flaw=TWO_URLS)),
        (f"{A}?to=http://b.test/", ListedUrl(f"{A}?to=http://b.test/")),
        (f"{A}\ufffd", ListedUrl(f"{A}\ufffd", flaw=NOT_TEXT)),
        (f"{A}\0", ListedUrl(f"{A}\0", flaw=NOT_TEXT)),
        (f'"{A}"', ListedUrl(A)),
        (f"'{A}',", ListedUrl(A)),
        (f'"{A}', ListedUrl(f'"{A}')),
        (f'"{A}" x', ListedUrl(f'"{A}" x')),
        (f'"{A}" 0.8', ListedUrl(A, priority="0.8", is_mended=True)),
        ('"http:\\/\\/a.test\\/1"', ListedUrl(A)),
        ('"http://a.test/\\n"', ListedUrl('"http://a.test/\\n"')),
        ('"http://a.test/\\u0000"', ListedUrl('"http://a.test/\\u0000"')),
        ('"http://a.test/\\x"', ListedUrl('"http://a.test/\\x"')),
        ("a.test", ListedUrl("a.test")),
        ("a.test 0.8", ListedUrl("a.test", priority="0.8", is_mended=True)),
        ("2026-01-02", ListedUrl("2026-01-02")),
        ("\t2026-01-02", ListedUrl("2026-01-02")),
    ],
)
def test_a_line_has_one_meaning(line: str, found: ListedUrl | None) -> None:
    assert listed(line) == found


def in_seeds(file: Path) -> tuple[list[str], int]:
    async def read() -> SeedReport:
        report = SeedReport()
        async for batch in read_given(str(file), quiet=True):
            urls.extend(filter(None, map(report.canonical, batch)))
        return report

    urls: list[str] = []
    return urls, asyncio.run(read()).invalid_count


def in_import(file: Path) -> tuple[list[str], int]:
    async def read() -> int:
        invalid = 0
        async for rows in read_rows(str(file), quiet=True):
            for row in rows:
                if (known := known_in(row.text, [])) is not None:
                    try:
                        urls.append(canonicalize("" if known.flaw else known.url))
                    except InvalidUrl:
                        invalid += 1
        return invalid

    urls: list[str] = []
    return urls, asyncio.run(read())


def in_sitemap(file: Path) -> tuple[list[str], int]:
    found = parse_sitemap(file.read_bytes(), "http://a.test/sitemap.txt")
    return [one.loc for one in found.urls], found.left_out


@pytest.mark.parametrize("read", [in_seeds, in_import, in_sitemap])
@pytest.mark.parametrize(
    ("data", "urls", "refused"),
    [
        (f"{A}\n{B}\n", [A, B], 0),
        (f"{A}\r\n{B}", [A, B], 0),
        (f"{A}\r{B}\r", [A, B], 0),
        (f"{A}\n\r{B}\r\r\n", [A, B], 0),
        (f"\ufeff{A}\n\ufeff{B}\n", [A, B], 0),
        (f"{A} 0.8\n{B} 2026-01-02\n", [A, B], 0),
        (f"{A}\t2026-01-02\n{B}\t0.5\r", [A, B], 0),
        (f"\u00a0{A}\u00a0\n\t{B}\u3000\n", [A, B], 0),
        (f"{A} {B}\n{A}\n", [A], 1),
        (f"{A} b\n", [f"{A}%20b"], 0),
        (f"# {A}\n\n{B} # b\n", [B], 0),
        (f"not one\n{A}\n", [A], 1),
        (f"{A}\u2028{B}\n{B}", [B], 1),
        (f"{A}é\n", [f"{A}%C3%A9"], 0),
    ],
)
@pytest.mark.parametrize("coding", ["utf-8", "utf-16"])
def test_readers_of_lists_agree(read, data: str, urls: list[str], refused: int, coding: str, tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_bytes(data.removeprefix("\ufeff").encode(coding) if coding == "utf-16" else data.encode())
    assert read(file) == (urls, refused)


def test_bytes_that_are_not_text_make_no_url(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_bytes(A.encode() + b"\xe9\n" + B.encode() + b"\n")
    assert in_seeds(file) == in_import(file) == ([B], 1)
    assert in_sitemap(file) == ([f"{A}%C3%A9", B], 0)  # of a site: its charset is guessed, as for pages
    file.write_bytes(gzip.compress(file.read_bytes()))
    assert in_import(file) == ([B], 1)
    file.write_bytes(A.encode() + b"\0\n")
    with pytest.raises(UsageError, match="is not a text file"):
        in_seeds(file)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("coding", ["utf-8", "utf-16"])
def test_blocks_may_end_anywhere(size: int, coding: str) -> None:
    data = "a\r\nbé\r\r\n\nc\rd".encode(coding)
    splitter = LineSplitter()
    size = max(size, 2) if coding == "utf-16" else size
    found = [line for at in range(0, len(data), size) for line in splitter.lines(data[at : at + size])]
    assert [line for line in found + splitter.last() if line] == ["a", "bé", "c", "d"]


def test_memory_for_a_line_without_end_is_bounded() -> None:
    splitter = LineSplitter()
    for _ in range(5):
        assert splitter.lines(b"x" * LINE_MAX) == []
    assert [len(line) for line in splitter.lines(b"\ny")] == [LINE_MAX]
    assert splitter.last() == ["y"]
    assert [len(line) for line in lines_in("x" * (2 * LINE_MAX) + "\ny")] == [LINE_MAX, 1]


@pytest.mark.parametrize("unit", [" ", "\t", "0.8 ", "x ", "\t0.8", " #", "2026-01-02 ", "\u200b", "http://a "])
def test_a_token_again_and_again_costs_linear_time(unit: str) -> None:
    small, large = [A + unit * (size // len(unit)) for size in (20_000, 200_000)]
    assert growth(listed, small, large) < LINEAR_MAX

"""Files of URLs as people have them: what is read of each form, however it is given, and what is said of it."""

import asyncio
import contextlib
import gzip
import os
import random
import sys
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest
import zstandard

from crawler.content.unpacking import PIECE_BYTES, Unpacker
from crawler.crawl import url_files
from crawler.crawl.url_files import STDIN, ListForm, ListReader, ListRow
from crawler.crawl.url_input import COMPLAINTS_MAX, GivenUrl, SeedReport, complaints, read_given
from crawler.errors import UsageError
from crawler.rules.url_list import LINE_MAX
from crawler.rules.url_table import ROW_LINES_MAX, UNCLOSED, cells_of, is_comment
from tests.support.growth import LINEAR_MAX, growth

A, B, C = "http://a.test/1", "http://b.test/2", "http://c.test/3"
BOTH = [A, B]
TABLE = "reading {} as CSV ({}), URLs in column {}"
LIKE = "look like CSV"


def seeds_of(file: str, form: ListForm = ListForm()) -> tuple[list[str], SeedReport]:  # noqa: B008
    async def read() -> None:
        async for batch in read_given(file, form):
            urls.extend(filter(None, map(report.canonical, batch)))

    urls, report = list[str](), SeedReport()
    asyncio.run(read())
    return urls, report


def lines(pattern: str, count: int) -> str:
    return "".join(pattern.format(n=n) + "\n" for n in range(count))


# Each form: its name, its text, what is read, how many are refused, and a part of what is said ("": nothing).
FORMS = [
    # a table by its first row
    ("u.txt", f"url,title\n{A},one\n{B},two\n", BOTH, 0, "(commas), URLs in column 1 'url'"),
    ("u.txt", f"Title;URL\n\"x; y\";{A}\nz;{B}\n", BOTH, 0, "(semicolons), URLs in column 2 'URL'"),
    ("u.txt", f"rank\tLink\n1\t{A}\n2\t{B}\n", BOTH, 0, "(tabs), URLs in column 2 'Link'"),
    ("u.txt", f"#|loc\n1|{A}\n2|{B}\n", BOTH, 0, "(pipes), URLs in column 2 'loc'"),
    ("u.txt", f"Seite,Klicks\n{A},7\n{B},8\n", BOTH, 0, "(commas), URLs in column 1 'Seite'"),
    ("u.txt", f'"Address","Status"\n"{A}","200"\n"{B}","404"\n', BOTH, 0, "column 1 'Address'"),
    ("u.txt", f"url\n{A}\n{B}\n", BOTH, 0, ""),
    ("u.txt", f"link,url\nhttp://c.test/,{A}\nhttp://c.test/,{B}\n", BOTH, 0, "column 2 'url'"),
    # by what is before the URLs, or behind them
    ("u.txt", "1,a.test\n2,b.test\n", ["https://a.test/", "https://b.test/"], 0, "URLs in column 2"),
    ("u.txt", f"1;{A}\n2;{B}\n", BOTH, 0, "URLs in column 2"),
    ("u.txt", f"{A}\tscore=1\n{B}\tscore=2\n", BOTH, 0, "(tabs), URLs in column 1"),
    ("u.txt", f"{A},The first page\n{B},\n", BOTH, 0, "URLs in column 1"),
    ("u.txt", f"{A},http://x.test/\n{B},http://y.test/\n", BOTH, 0, "URLs in column 1"),
    ("u.txt", lines("http://a.test/{n},,,,", 12), [f"http://a.test/{n}" for n in range(12)], 0, "URLs in column 1"),
    ("u.txt", lines("http://a.test/{n};word", 10), [f"http://a.test/{n}" for n in range(10)], 0, "URLs in column 1"),
    # lists, although they have separators
    ("u.txt", lines("http://a.test/{n};word", 9), [f"http://a.test/{n};word" for n in range(9)], 0, "9 lines look"),
    ("u.txt", lines("http://a.test/7,{n},12,a.html", 120), 120, 0, ""),
    ("u.txt", lines("http://a.test/{n},12.html", 120), 120, 0, ""),
    ("u.txt", lines("http://a.test/{n};jsessionid={n}", 120), 120, 0, ""),
    ("u.txt", lines("http://a.test/map/{n},2/3", 120), 120, 0, ""),
    ("u.txt", lines("http://a.test/same,{n}", 120), 120, 0, "120 lines look like CSV"),
    ("u.txt", f"{A},,,,\n{B}\n", [f"{A},,,,", B], 0, "1 line looks like CSV, and was taken as a URL"),
    ("u.txt", f"{A},\n{B};\n{C}\n", [f"{A},", f"{B};", C], 0, "2 lines look like CSV"),
    ("u.txt", f"{A}\tscore=1\n{B}\n", [B], 1, ""),
    ("u.txt", f"{A},b\n{B},c,d\n", [f"{A},b", f"{B},c,d"], 0, ""),
    # by name, or with what only tables have
    ("u.csv", f"{A},{B}\n", [A], 0, "(commas), URLs in column 1"),
    ("u.csv", f"{A}\n{B}\n", BOTH, 0, "URLs in column 1"),
    ("U.TSV", f"a,b\turl\n,\t{A}\n,\t{B}\n", BOTH, 0, "(tabs), URLs in column 2 'url'"),
    ("u.csv", f"sep=;\nname;url\nx;{A}\ny;{B}\n", BOTH, 0, "(semicolons), URLs in column 2 'url'"),
    ("u.csv", f"name,web\nx,{A}\ny,\nz\nw,{B}\n", BOTH, 0, "2 rows without a URL left out"),
    ("u.csv", f'name,url\n"two\nlines, and ""quotes""",{A}\n5" screen,{B}\n', BOTH, 0, "column 2 'url'"),
    ("u.csv", f'name,url\n"open,{A}\ny,{B}\n', [B], 1, "column 2 'url'"),
    ("u.csv", f"# made today\n\nurl,x\n{A},1\n# old\n{B},2\n", BOTH, 0, "column 1 'url'"),
    ("u.csv", f"url , x\n {A} , 1\n, 2\n \u200b{B}\ufeff,2\n", BOTH, 0, "1 row without a URL left out"),
    ("u.csv", f'{{"url": "{A}"}}\n{{"url": "{B}"}}\n', BOTH, 0, ""),
    # JSON a line, and quotes
    ("u.jsonl", f'"{A}"\n"{B}"\n', BOTH, 0, ""),
    ("u.jsonl", f'"{A}"\n"http:\\/\\/b.test\\u002f2"\n', BOTH, 0, ""),
    ("u.jsonl", f'{{"url": "{A}", "title": "x"}}\n{{"url": "{B}", "title": "y"}}\n', BOTH, 0, "without 'title'"),
    ("u.jsonl", f'{{"url": "{A}", "titel": 1, "label": "x"}}\n{{"url": "{B}"}}\n', [B], 1, ""),
    ("u.jsonl", f'{{"url": "{A}", "method": "NO WAY"}}\n{B}\n{{"link": "{A}"}}\n', [B], 2, ""),
    ("u.txt", f"'{A}',\n<{B}>\n", BOTH, 0, ""),
    ("u.txt", f'"{A}", # the first\n\u201c{B}\u201d\n', BOTH, 0, ""),
    ("u.txt", f'"{A}" 2026-01-02\n"{B}"\t0.5\n', BOTH, 0, "without the date"),
    ("u.txt", f'"{A}\n{B}\n', [B], 1, ""),
    # what can't be seen, comments
    ("u.txt", f"\u200b \u200b{A}\u00ad\u202c\n\u202a{B}\u200e \n", BOTH, 0, ""),
    ("u.txt", f"# all\n{A} # one\n   # none\n{B}\t# two\n", BOTH, 0, ""),
    ("u.txt", "", [], 0, ""),
    ("u.txt", "\n\n# nothing\n", [], 0, ""),
]  # fmt: skip
CODINGS = {
    "utf-8": lambda text: text.encode(),
    "mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "CR LF": lambda text: text.replace("\n", "\r\n").encode(),
    "CR": lambda text: text.replace("\n", "\r").encode(),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16-be, mark": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: text.encode("utf-16-be"),
    "utf-32": lambda text: text.encode("utf-32"),
}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "gzip members": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]) + b"\0" * 20,
    "zstd": lambda data: zstandard.compress(data),
    "zstd frames": lambda data: zstandard.compress(data[:9]) + zstandard.compress(data[9:]),
}


@pytest.fixture
def as_stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    opened = []

    def give(file: Path) -> None:
        opened.append(file.open("rb"))
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield give
    for one in opened:
        one.close()


@pytest.mark.parametrize(("name", "text", "urls", "refused", "said"), FORMS, ids=[str(n) for n in range(len(FORMS))])
def test_each_form_is_read_however_it_is_given(
    name: str, text: str, urls: list[str] | int, refused: int, said: str, tmp_path: Path,
    as_stdin: Callable[[Path], None], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    given = [(coding, "plain") for coding in CODINGS] + [("utf-8", packing) for packing in PACKINGS]
    for coding, packing in given:
        ascii_only = coding.startswith("utf-16-") and "mark" not in coding
        if ascii_only and (not text.isascii() or len(text) < 2):
            continue  # without a mark, it is told by the zeros of its first letters
        end = {"gzip": ".gz", "zstd": ".zst"}.get(packing.partition(" ")[0], "")
        file = tmp_path / f"{name}{end}"
        file.write_bytes(PACKINGS[packing](CODINGS[coding](text)))
        ways = [str(file)]
        if not name.lower().endswith((".csv", ".tsv")):
            as_stdin(file)
            ways.append(STDIN)
        for way in ways:
            found, report = seeds_of(way)
            err = capsys.readouterr().err
            case = (coding, packing, way, err)
            assert (found if isinstance(urls, list) else len(found)) == urls, case
            assert report.invalid_count == refused, case
            assert said in err if said else "CSV" not in err, case


@pytest.mark.parametrize(
    ("form", "text", "urls", "refused"),
    [
        (ListForm("lines"), f"url,x\n{A},1\n", [f"{A},1"], 1),
        (ListForm("csv"), f"{A},,,,\n", [A], 0),
        (ListForm("csv"), f"{A}\n", [A], 0),
        (ListForm("csv", "2"), f"{A},{B}\n", [B], 0),
        (ListForm("", "2"), f"x,site\n{A},b.test\n", ["https://b.test/"], 0),
        (ListForm("", "SITE"), f"x,Site\n{A},{B}\n{A},12\n", [B], 1),
        (ListForm("csv", "1"), f"1,x\n{A},2\n", [A], 0),
        (ListForm("", "link"), f'{{"link": "{A}", "url": "{B}"}}\n{{"link": 5}}\n{{}}\n{{"link": "{B}"\n', [A], 2),
        (ListForm("jsonl"), f'{{"url": "{A}", "headers": {{"x": 1}}}}\n"{B}"\n5\n[]\n', BOTH, 2),
        (ListForm("jsonl", "link"), f'{{"link": "{A}"}}\n\n{{"link": null}}\n', [A], 0),
    ],
)
def test_people_may_say_what_a_file_is(
    form: ListForm, text: str, urls: list[str], refused: int, tmp_path: Path
) -> None:
    file = tmp_path / "seeds"
    file.write_text(text)
    found, report = seeds_of(str(file), form)
    assert (found, report.invalid_count) == (urls, refused)


REFUSED = [
    ("u.csv", b"name,foo\n1,2\n", ListForm(), "no column of URLs in this CSV (commas): its first row has 'name'"),
    ("u.csv", b"name;url\n1;x\n", ListForm("", "zip"), "no column 'zip' in this CSV (semicolons)"),
    ("u.csv", b"url\nx\n", ListForm("", "2"), "no column '2'"),
    ("u.csv", b"url\nx\n", ListForm("", "0"), "no column '0'"),
    ("u.csv", b"url\nx\n", ListForm("", "9" * 5000), "no column '999"),
    ("u.csv", b",".join(b"name %d" % n for n in range(99)), ListForm(), "and 79 more; give --column NAME"),
    ("u.json", b'["http://a.test/"]', ListForm(), "is one list in JSON, not a value a line"),
    ("u.json", b'[\n  "http://a.test/"\n]', ListForm(), "is one list in JSON, not a value a line"),
    ("u.xlsx", b"PK\x03\x04" + bytes(100), ListForm(), "save the sheet as CSV"),
    ("u.txt.xz", b"\xfd7zXZ\x00" + bytes(100), ListForm(), "'xz -dc FILE | crawler ... -i -' reads it"),
    ("u.xml", b"\xef\xbb\xbf <?XML version='1.0'?><urlset>", ListForm(), "is given with --sitemap URL"),
    ("u.txt", b"<html><a href='http://a.test/'>", ListForm(), "is an HTML page"),
    ("u.txt", b"%PDF-1.7", ListForm(), "is a PDF"),
    ("u.txt", b"http://a.test/\0\n", ListForm(), "is not a text file (line 1 or later)"),
    ("u.gz", gzip.compress(gzip.compress(b"http://a.test/\n" * 99)), ListForm(), "is not a text file"),
    ("u.gz", gzip.compress(b"http://a.test/\n" * 99)[:-9], ListForm(), "beyond line 99: its gzip data is cut off"),
    ("u.gz", b"\x1f\x8b", ListForm(), "beyond line 0: its gzip data is cut off"),
    ("u.gz", b"\x1f\x8b" + bytes(50), ListForm(), "its gzip data is damaged"),
    ("u.gz", gzip.compress(b"http://a.test/\n") + b"more", ListForm(), "its gzip data is damaged"),
    ("u.zst", zstandard.compress(b"http://a.test/\n" * 99)[:-2], ListForm(), "its zstd data is cut off"),
    ("u.zst", b"\x28\xb5\x2f\xfd" + b"\xff" * 50, ListForm(), "its zstd data is damaged"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "form", "reason"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_what_can_not_be_read_is_one_line_with_what_to_do(
    name: str, data: bytes, form: ListForm, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(UsageError) as raised:
        seeds_of(str(file), form)
    assert reason in str(raised.value)
    assert name in str(raised.value)
    assert len(str(raised.value)) < 6000


def rows_of(blocks: list[bytes], name: str = "u.txt") -> tuple[list[ListRow], list[str]]:
    said = list[str]()
    reader = ListReader(name, say=said.append)
    found = [row for block in blocks for rows in reader.take(block) for row in rows]
    found += [row for rows in reader.end() for row in rows]
    return [row for row in found if not is_comment(row.text)], said


@pytest.mark.parametrize(("name", "text"), [one[:2] for one in FORMS], ids=[str(n) for n in range(len(FORMS))])
def test_blocks_may_end_anywhere(name: str, text: str) -> None:
    data = text.encode()[:400]
    whole = rows_of([data], name)
    assert rows_of([data[at : at + 1] for at in range(len(data))], name) == whole
    packed, random_ = gzip.compress(data), random.Random(7)
    cuts = sorted({0, len(packed), *random_.choices(range(len(packed)), k=9)})
    assert rows_of([packed[a:b] for a, b in pairwise(cuts)], name) == whole


def test_a_stream_is_taken_while_it_flows() -> None:
    reader = ListReader(STDIN)
    assert [row.text for rows in reader.take(f"{A}\n".encode()) for row in rows] == [A]
    reader = ListReader(STDIN)
    assert [row.text for rows in reader.take(b"rank,url\n") for row in rows] == []
    assert [row.text for rows in reader.take(f"1,{A}\n".encode()) for row in rows] == [A]
    reader = ListReader(STDIN, ListForm("csv"))
    assert [row.text for rows in reader.take(f"rank,url\n1,{A}\n".encode()) for row in rows] == [A]


@pytest.mark.parametrize(("pack", "cut"), [(gzip.compress, -9), (gzip.compress, -30), (zstandard.compress, -2)])
def test_whole_lines_before_a_cut_are_read_and_no_part_of_one(pack: Callable[[bytes], bytes], cut: int) -> None:
    urls = [f"http://a.test/{n}/{random.Random(n).random()}" for n in range(3)]
    reader, found = ListReader("u"), list[ListRow]()
    packed = chain(reader.take(pack("\n".join(urls).encode())[:cut]), reader.end())
    with pytest.raises(UsageError, match="is cut off"):
        found.extend(row for rows in packed for row in rows)
    assert [row.text for row in found] == urls[: len(found)]
    assert len(found) < 3


def test_memory_for_lines_that_have_nothing_is_bounded() -> None:
    reader = ListReader("u")
    for _ in range(20):
        assert [row for rows in reader.take(b"# nothing\n\n" * 1000) for row in rows] == []
    assert reader._held == []
    assert [(row.number, row.text) for rows in reader.take(f"{A}\n".encode()) for row in rows] == [(40_001, A)]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_memory_for_what_inflates_to_anything_is_bounded(pack: Callable[[bytes], bytes]) -> None:
    packed = pack(b"x" * 10_000_000)
    assert len(packed) < 60_000
    unpacker = Unpacker()
    pieces = [len(piece) for piece in unpacker.take(packed)]
    assert max(pieces) <= PIECE_BYTES
    assert sum(pieces) == 10_000_000
    found, _ = rows_of([packed])
    assert [(row.number, len(row.text)) for row in found] == [(1, LINE_MAX)]


def test_a_quote_that_is_not_closed_is_a_flaw_of_its_line_alone() -> None:
    text = f'name,url\n"open,{A}\n' + lines(f"x,{B}?{{n}}", 3 * ROW_LINES_MAX)
    found, _ = rows_of([text.encode()], "u.csv")
    assert [(row.number, row.flaw) for row in found if row.flaw] == [(2, UNCLOSED)]
    assert [row.number for row in found if not row.flaw] == list(range(3, 3 + 3 * ROW_LINES_MAX))


@pytest.mark.parametrize("unit", ['"', ',"', '","', '" ', '"a\n', '"a",\n', ",", ' "', "\n", "#,\n", '"",""\n'])
@pytest.mark.parametrize("name", ["u.csv", "u.txt"])
def test_a_token_again_and_again_costs_linear_time(unit: str, name: str) -> None:
    small, large = [(unit * (size // len(unit))).encode() for size in (10_000, 100_000)]
    assert growth(lambda data: rows_or_nothing(data, name), small, large) < LINEAR_MAX


def rows_or_nothing(data: bytes, name: str) -> None:
    with contextlib.suppress(UsageError):
        rows_of([data], name)


@pytest.mark.parametrize(
    ("line", "cells", "is_open"),
    [
        ("a,b", ["a", "b"], False),
        ('"a,b",c', ["a,b", "c"], False),
        ('"a""b",c', ['a"b', "c"], False),
        ('a"b,c"', ['a"b', 'c"'], False),
        ('a, "b,c"', ["a", "b,c"], False),
        ('"a"b,c', ["ab", "c"], False),
        ('"a', ["a"], True),
        ('x,"a""', ["x", 'a"'], True),
        ('""', [""], False),
        ('"",', ["", ""], False),
    ],
)
def test_cells_are_those_of_a_table(line: str, cells: list[str], is_open: bool) -> None:
    assert cells_of(line, ",") == (cells, is_open)


def test_the_first_complaints_are_lines_and_the_others_a_count(tmp_path: Path) -> None:
    file = tmp_path / "u.txt"
    file.write_text(f"{A}\n" + lines("no url {n}", 2 * COMPLAINTS_MAX) + f"{B}\n")
    urls, report = seeds_of(str(file))
    said = complaints(report)
    assert urls == BOTH
    assert said[0] == f"{file} line 2: 'no url 0': not a URL"
    assert said[COMPLAINTS_MAX:] == [f"... and {COMPLAINTS_MAX} more invalid URLs"]


def test_a_misspelt_field_is_refused_where_people_write_seeds(tmp_path: Path) -> None:
    seed = f'{{"url": "{A}", "lable": "shop"}}'
    assert "unknown field `lable`" in GivenUrl.of("argument 1", seed).flaw
    file = tmp_path / "u.jsonl"
    file.write_text(seed)
    (where, text, reason), *_ = seeds_of(str(file))[1].invalid
    assert (where, text) == (f"{file} line 1", "{...}")
    assert reason.endswith("unknown field `lable`; --column url takes the URL alone")
    assert seeds_of(str(file), ListForm("", "url"))[0] == [A]


def test_a_pipe_is_read_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as stdin, os.fdopen(theirs, "wb") as pipe:
        monkeypatch.setattr(sys, "stdin", stdin)
        pipe.write(gzip.compress(f"url;x\n{A};1\n{B};2\n".encode()))
        pipe.close()
        assert seeds_of(STDIN)[0] == BOTH
    assert url_files.bytes_of(["/nowhere"]) == 0

"""A folder of Markdown: names, front matter, what is there already, and an export that is killed."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_writer import IndexWriter
from crawler.errors import OutputError, UsageError
from crawler.outputs.export import ExportSummary, export
from crawler.outputs.markdown_files import DRAFT, MarkdownFolder, front_matter, path_of
from crawler.outputs.records import Pages
from crawler.outputs.sink import Key, Row
from crawler.outputs.target import folder_of
from tests.archive.archive_samples import entry, folder_in, response, writer_in


def crawled(tmp_path: Path, bodies: dict[str, bytes]) -> CrawlFolder:
    folder = folder_in(tmp_path)
    writer, index = writer_in(folder), IndexWriter(folder, "aa11")
    for number, (url, body) in enumerate(bodies.items()):
        kind = "image/png" if body.startswith(b"\x89") else "text/html"
        headers = ((b"Content-Type", kind.encode()),)
        place, _ = writer.add(response(number, url=url, raw_body=body, headers=headers))
        index.add(entry(number, url=url, mime=kind, warc=place))
    writer.close()
    index.close()
    return folder


def written(folder: CrawlFolder, out: Path, *columns: str) -> ExportSummary:
    with contextlib.closing(Pages(folder, columns=("markdown", *columns))) as pages:
        return export(folder, [folder_of(str(out))], pages)


def files_of(out: Path) -> dict[str, str]:
    return {str(path.relative_to(out)): path.read_text() for path in sorted(out.rglob("*.md"))}


def test_each_page_is_a_file_with_front_matter_again_and_again(tmp_path: Path) -> None:
    bodies = {
        "http://h.test/a": b"<title>t</title><h1>One</h1>", "http://h.test/a/b?c=d": b"<p>Two",
        "http://H2.test:8080/": b"<p>Three", "http://h.test/i.png": b"\x89PNG", "http://h.test/none": b"",
    }  # fmt: skip
    folder, out = crawled(tmp_path, bodies), tmp_path / "out"
    summary = written(folder, out, "declared_language")
    assert summary.said == ["3 files written; 2 pages have no text, and no file"]
    files = files_of(out)
    assert sorted(name.rpartition("-")[0] for name in files) == ["h.test/a", "h.test/a-b-c-d", "h2.test_8080/index"]
    head, _, text = next(text for text in files.values() if "# One" in text).removeprefix("---\n").partition("---\n")
    assert text == "\n# One\n"
    assert yaml.safe_load(head) | {"fetched": ""} == {"url": "http://h.test/a", "title": "Title 0", "fetched": ""}
    (out / "h.test" / "theirs.md").write_text("theirs")
    (out / "h.test" / DRAFT).write_text("of an export that was killed")
    assert written(folder, out).said == summary.said
    assert files_of(out) == files | {"h.test/theirs.md": "theirs"}
    assert not (out / "h.test" / DRAFT).exists()


def test_what_is_not_of_the_page_is_not_replaced(tmp_path: Path) -> None:
    folder, out = crawled(tmp_path, {"http://h.test/a": b"<p>One", "http://h.test/b": b"<p>Two"}), tmp_path / "out"
    written(folder, out)
    first, second = sorted((out / "h.test").iterdir())
    first.write_text("theirs")
    second.unlink()
    second.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match=r"2 files in .* were not replaced .*; 0 files written"):
        written(folder, out)
    assert first.read_text() == "theirs"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_host_is_no_file_and_no_link(tmp_path: Path, kind: str) -> None:
    folder, out = crawled(tmp_path, {"http://h.test/a": b"<p>One"}), tmp_path / "out"
    out.mkdir()
    if kind == "file":
        (out / "h.test").write_text("theirs")
    else:
        (out / "h.test").symlink_to(tmp_path)
    with pytest.raises(OutputError, match=r"is not a folder|is a symbolic link"):
        written(folder, out)


def test_a_folder_is_named_and_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, said in (
        ("-", "name a folder"),
        (str(tmp_path / "file"), "not a folder"),
        (str(tmp_path / "a" / "b"), "does not exist"),
    ):
        with pytest.raises(UsageError, match=said):
            folder_of(name)


@pytest.mark.parametrize(
    "url",
    [
        "http://con/", "http://aux.test/nul", "http://h.test/%2e%2e/%2e%2e/etc", "http://h.test/..%2f..%2fx", "http://[::1]:80/",
        "http://h.test/" + "x" * 4000, "http://h.test/?" + "%F0%9F%98%80" * 500, "http://xn--bcher-kva.test/%00", "http://h.test/a.md",
        "http://" + ".".join(["a" * 60] * 4) + "/", "http://h.test/ %7C*%3F%3C%3E%22:",
    ],
)  # fmt: skip
def test_a_name_is_one_on_every_file_system(url: str) -> None:
    host, name = path_of(url, -5, 1)
    for part in (host, name):
        assert 0 < len(part) <= 255
        assert part.strip(". ") == part
        assert not set(part) & set('/\\:*?"<>|\0 ')
        assert part.partition(".")[0].lower() not in ("con", "aux", "nul", "prn")
    assert name.endswith("fffffffffffffffb.md")


def test_names_differ_by_page_even_without_upper_case() -> None:
    names = {
        path_of(url, number, visit)
        for number, (url, visit) in enumerate([("http://h.test/A", 1), ("http://h.test/a", 1), ("http://h.test/a", 2)])
    }
    assert len({(host, name.lower()) for host, name in names}) == 3


@pytest.mark.parametrize(
    "title",
    [
        "---",
        "a: b # c",
        "x\n---\ny",
        "\x00\x07\x1b[0m",
        "no",
        "'\"\\",
        "\u2028\u2029\ufeff\x85",
        "😀",
        "- [x]",
        "null",
        "!!python/object:os.system",
        "\ud800",
    ],
)
def test_front_matter_is_what_was_meant(title: str) -> None:
    record = {"url": "http://h.test/", "title": title, "fetched_at": "2026-11-01T00:00:00.000Z", "language": "no"}
    text = front_matter(record)
    assert text.startswith("---\n")
    assert text.endswith("\n---\n\n")
    assert len(text.splitlines()) == 7
    found: dict[str, Any] = yaml.safe_load(text.split("---\n")[1]) if "\ud800" not in title else {"title": title}
    assert found["title"] == title
    assert found.get("language", "no") == "no"


def test_a_write_that_fails_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MarkdownFolder(folder_of(str(tmp_path / "out")), ["markdown"])
    row = Row(Key(1, 1, 0), {"url": "http://h.test/a", "title": "", "fetched_at": "", "markdown": "x\n"})
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(Exception, match="No space left"):
        sink.write([row])
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == []

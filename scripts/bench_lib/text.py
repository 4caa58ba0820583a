"""What it takes to find what a page says: CPU of main text, Markdown, language and fingerprint; and how good texts are.

CPU is of real pages (documentation of Debian packages), for each column alone and for the four together, as exports
find them; of what a column needs, too. Each page is done several times, each time all of these in turn, and the
least time of each counts, so that neighbours on the machine disturb little. Of other libraries, those that are
installed are measured: trafilatura and readability-lxml.

F1 is of shingles of four words, from the means of precision and recall of all pages. --set names a folder as the
article extraction benchmark has it (ground-truth.json, html/*.html.gz), or one of Readability's test pages
(*/source.html, */expected.html).
"""

import gzip
import importlib.util
import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from crawler.content.html import NO_EVENTS, extract_text
from crawler.content.main_text import main_text
from crawler.content.page_columns import PageBody, columns_of
from crawler.content.sniff import decode, detect_charset
from crawler.rules.urls import JoinCache
from scripts.bench_lib import arguments
from scripts.bench_lib.corpus import SOURCES

TOGETHER = ("main_text", "markdown", "language", "fingerprint")
SHINGLE = 4  # words
_ENDS_LINE = "p,div,li,h1,h2,h3,h4,h5,h6,pre,br,td,th,tr,blockquote"
_words = re.compile(r"\w+").findall
Work = Callable[[bytes], Any]


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("text", __doc__)
    parser.add_argument("--pages", type=arguments.positive_int, default=1_000, help="how many pages of the corpus")
    parser.add_argument("--times", type=arguments.positive_int, default=3, help="how often each is done")
    parser.add_argument(
        "--set", type=Path, action="append", default=[], dest="sets", metavar="DIR", help="measure F1 on these pages"
    )
    parser.add_argument("--others", action="store_true", help="also measure other libraries (some minutes)")
    arguments.add_json(parser)
    options = parser.parse_args(words)
    if importlib.util.find_spec("resiliparse") is None:
        parser.error("resiliparse is missing: .venv/bin/python -m pip install -c constraints.txt -e '.[text]'")
    sets = {str(folder): list(labelled(folder)) for folder in options.sets}
    if empty := [name for name, pages in sets.items() if not pages]:
        parser.error(f"no pages in {', '.join(empty)}")
    others = _others() if options.others else {}
    pages = real_pages(options.pages)
    if pages:
        print(f"{len(pages):,} pages, {sum(map(len, pages)) / len(pages) / 1000:,.1f} kB on average")
    else:
        print(f"no corpus: install {', '.join(source.package for source in SOURCES)}")
    cpu = cpu_s(_columns() | others, pages, options.times) if pages else {}
    for name, seconds in cpu.items():
        print(f"{name:<46}{seconds:8.2f} CPU-s for 1,000", flush=True)
    scores = {}
    texts: dict[str, Callable[[bytes], str]] = {"visible text": _visible, "main_text": _main_text} | others
    for folder, labels in sets.items():
        print(f"{folder}: {len(labels):,} pages")
        for name, find in texts.items():
            f1, precision, recall = scores[f"{name}, {folder}"] = score(labels, find)
            print(f"{name:<30} F1 {f1:.3f}, precision {precision:.3f}, recall {recall:.3f}", flush=True)
    arguments.write_json(options.json, {"pages": len(pages), "cpu_s": cpu, "f1_precision_recall": scores})
    return 0


def real_pages(count: int) -> list[bytes]:
    """So many of the corpus, the same in each run."""
    files = [file for source in SOURCES for file in sorted(source.folder.rglob("*.html"))]
    random.Random(1).shuffle(files)
    return [file.read_bytes() for file in files[:count]]


def labelled(folder: Path) -> Iterator[tuple[bytes, str]]:
    """Pages of a set, with the text that people took for the main one."""
    truth = folder / "ground-truth.json"
    if truth.is_file():
        for name, said in json.loads(truth.read_text(encoding="utf-8")).items():
            yield gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes()), said["articleBody"]
        return
    for source in sorted(folder.glob("*/source.html")):
        tree = LexborHTMLParser((source.parent / "expected.html").read_bytes())
        for node in tree.css(_ENDS_LINE):
            node.insert_before(" ")
        yield source.read_bytes(), tree.body.text() if tree.body else ""


def score(labels: list[tuple[bytes, str]], find: Callable[[bytes], str]) -> tuple[float, float, float]:
    """F1, precision and recall."""
    precisions, recalls = [], []
    for body, said in labels:
        wanted, found = _shingles(said), _shingles(find(body) or "")
        right = (wanted & found).total()
        precisions += [right / found.total()] if found else []
        recalls += [right / wanted.total()] if wanted else []
    precision, recall = statistics.mean(precisions or [0]), statistics.mean(recalls or [0])
    return 2 * precision * recall / (precision + recall or 1), precision, recall


def _shingles(text: str) -> Counter[tuple[str, ...]]:
    words = _words(text)
    if len(words) < SHINGLE:
        return Counter([tuple(words)] if words else [])
    return Counter(tuple(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1))


def cpu_s(works: dict[str, Work], pages: list[bytes], times: int) -> dict[str, float]:
    """Seconds for 1,000 pages, of the least time of each page."""
    totals = dict.fromkeys(works, 0.0)
    for body in pages:
        least = dict.fromkeys(works, float("inf"))
        for _ in range(times):
            for name, work in works.items():
                began = time.process_time()
                work(body)
                least[name] = min(least[name], time.process_time() - began)
        for name, seconds in least.items():
            totals[name] += seconds
    return {name: seconds * 1_000 / len(pages) for name, seconds in totals.items()}


def _columns() -> dict[str, Work]:
    joins = JoinCache()

    def finding(*names: str) -> Work:
        def find(body: bytes) -> None:
            page = PageBody(url="http://site.test/a/b.html", content_type="text/html", body=body)
            columns_of(page, names, joins)

        return find

    alone = {name: finding(name) for name in (*TOGETHER, "main_markdown")}
    pairs = {f"main_text, {name}": finding("main_text", name) for name in ("language", "fingerprint")}
    three = [name for name in TOGETHER if name != "markdown"]
    return {
        "a loop of 30,000 sums, for comparison": lambda _: sum(range(30_000)),
        "the tree alone": lambda body: LexborHTMLParser(body, options=NO_EVENTS),
        **alone,
        **pairs,
        ", ".join(three): finding(*three),
        ", ".join(TOGETHER): finding(*TOGETHER),
    }


def _main_text(body: bytes) -> str:
    try:
        return main_text(body, detect_charset(body, "text/html"))
    except ValueError:
        return ""


def _visible(body: bytes) -> str:
    return extract_text(body, detect_charset(body, "text/html"))


def _others() -> dict[str, Callable[[bytes], str]]:
    """Those that are installed."""
    found: dict[str, Callable[[bytes], str]] = {}
    if importlib.util.find_spec("trafilatura"):
        trafilatura: Any = importlib.import_module("trafilatura")
        found["trafilatura, fast"] = lambda body: (
            trafilatura.extract(_decoded(body), fast=True, include_comments=False) or ""
        )
    if importlib.util.find_spec("readability"):
        readability: Any = importlib.import_module("readability")
        found["readability-lxml"] = lambda body: _visible(readability.Document(_decoded(body)).summary().encode())
    return found


def _decoded(body: bytes) -> str:
    return decode(body, detect_charset(body, "text/html"))

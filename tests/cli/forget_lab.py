"""A crawl of three domains, one of which is to be forgotten, with a canary in each thing that a site can bring."""

import asyncio
import contextlib
import json
import os
import re
import textwrap
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crawler.archive.folder import open_existing
from crawler.archive.index_reader import IndexReader
from crawler.archive.items import ItemFiles
from crawler.crawl.opening import open_crawl
from crawler.model import CommitEntry
from crawler.outputs.follow import Outputs
from crawler.outputs.opening import targets_of
from crawler.outputs.records import Items, Pages
from crawler.recovery.copying import read_entries
from tests.cli.cli_lab import Ran, crawler, in_process
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.processes import Nursery
from tests.support.serving import Site
from tests.support.web import Resource

KEPT, OTHER, VICTIM = "keep.test", "other.test", "victim.test"
CANARIES = ("BODY", "TITLE", "HEAD", "COOKIE", "ITEM", "QUERY", "DEAD", "META", "LABEL", "WAIT", "SEED", "JOB", "LATER")
LINKED = "LINKCANARY"  # in a URL that a page of another site links to: it stays there, and nowhere else
APP = """
from crawler import Crawler
app = Crawler()

@app.page()
def page(page):
    yield {"name": page.title, "text": "ITEMCANARY" if "victim" in page.url else "kept"}
    if page.url.endswith("LINKCANARY"):
        page.follow("/meta", label="LABELCANARY", meta={"k": "METACANARY"})

@app.page(label="LABELCANARY")
def labelled(page):
    yield {"meta": page.meta}
"""


def page(title: str, *links: str, body: str = "", **headers: str) -> Resource:
    text = f"<title>{title}</title>{body}" + "".join(f'<a href="{link}">x</a>' for link in links)
    return Resource(headers=headers, body=text)


def web(port: int, *, kept: int = 12, victims: int = 12) -> dict[tuple[str, str], Resource]:
    """Pages of all three link to each other."""
    victim = f"http://{VICTIM}:{port}"
    names = [f"/p{n}" for n in range(kept)]
    made = {
        (KEPT, "/"): page("Kept", *names, f"{victim}/?c={LINKED}", f"http://{OTHER}:{port}/"),
        (OTHER, "/"): page("Other", f"http://{KEPT}:{port}/"),
        (OTHER, "/to"): Resource(status=302, headers={"Location": f"{victim}/r"}),
    }
    for n, name in enumerate(names):
        made[KEPT, name] = page(f"Kept {n}", "/", body="kept" * 20)
    inner = [f"/q{n}?x=QUERYCANARY" for n in range(victims)]
    made[VICTIM, f"/?c={LINKED}"] = page(
        "TITLECANARY", *inner, f"http://www.{VICTIM}:{port}/www", f"{victim[: -len(str(port))]}9/DEADCANARY", "/gone",
        body="BODYCANARY", **{"X-Head": "HEADCANARY", "Set-Cookie": "a=COOKIECANARY"},
    )  # fmt: skip
    made[VICTIM, "/meta"] = page("TITLECANARY")
    made[f"www.{VICTIM}", "/www"] = page("TITLECANARY", body="BODYCANARY")
    for name in inner:
        made[VICTIM, name] = page("TITLECANARY", body="BODYCANARY" * 50)
    return made


@dataclass
class ForgetLab:
    """The crawl, and commands on it. The engine is the folder's own, unless `redis` names another."""

    home: Path
    site: Site
    programs: Nursery
    redis: str = ""

    @property
    def folder(self) -> Path:
        return self.home / "c"

    def settings(self, **options: Any) -> Any:
        mine = {"frontier__redis": self.redis} if self.redis else {}
        return settings_of(self.folder, **{"scope__mode": "any", "crawl__partitions": 16} | mine | options)

    def crawl(self, *seeds: str, **options: Any) -> int:
        """From a page of each domain to the end; how many pages the folder has then."""
        app = self.home / "forgotten_shop.py"
        app.write_text(textwrap.dedent(APP))

        async def by_names() -> int:
            async with lab_names() as dns:
                given = {"dns__nameservers": [dns], "handlers__app": str(app)} | options
                done = await crawl(self.settings(**given), [*seeds])
                assert done.errors == []
                return len(done.entries)

        return asyncio.run(by_names())

    def where(self) -> tuple[str, ...]:
        return ("--dir", str(self.folder), *(("--redis", self.redis) if self.redis else ()))

    def run(self, *words: str) -> Ran:
        return in_process(self.programs, *words, *self.where(), cwd=self.home)

    def say(self, *words: str) -> str:
        ran = self.run(*words)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.out

    def losses(self) -> dict[str, int]:
        """What the crawl is without, by reason."""
        found = json.loads(self.say("stats", "--losses", "--json"))
        return {f"{one['kind']} {one['reason']}": one["count"] for one in found["losses"]}

    def program(self, *words: str, **environment: str) -> Ran:
        return crawler(self.programs, *words, *self.where(), cwd=self.home, **environment)

    # --- what is there ---

    def engine_has(self) -> dict[bytes, Any]:
        """All keys of the crawl, with their values."""

        async def read() -> dict[bytes, Any]:
            found: dict[bytes, Any] = {}
            async with open_crawl(self.settings(), create=False) as opened:
                keys = opened.keys
                names: dict[int, list[bytes]] = {}
                async for some in opened.engine.scan(keys.pattern):
                    for name in some:
                        tag, _, rest = name.partition(b"}:")
                        number = tag.rpartition(b":")[2]
                        names.setdefault(int(number) if b":" in tag else -1, []).append(rest)
                for group, some in names.items():
                    async for entries in read_entries(opened.engine, keys, group, sorted(set(some))):
                        found.update((b"%d %b" % (group, entry.name), entry.value) for entry in entries)
                raw = await opened.engine.command("HGET", keys.crawl, "record")
                found[b"record"] = raw
            return found

        return asyncio.run(read())

    def found(self, *needles: str) -> dict[str, list[str]]:
        """Which of these stand in any file of the crawl, its outputs and its engine, packed or not."""
        found: dict[str, list[str]] = {}
        texts = {str(path.relative_to(self.home)): whole(path) for path in files_in(self.home / "c", self.home / "out")}
        texts |= {f"engine {name!r}": repr((name, value)).encode() for name, value in self.engine_has().items()}
        for place, text in texts.items():
            for needle in needles:
                if needle.encode() in text:
                    found.setdefault(needle, []).append(place)
        return found

    def forgotten(self, *, has_link: bool = True) -> None:
        """Nothing of the domain is anywhere, but for the link."""
        found = self.found(VICTIM, *(f"{name}CANARY" for name in CANARIES), LINKED)
        links = found.pop(LINKED, [])
        names = found.pop(VICTIM, [])
        assert found == {}
        assert bool(links) == has_link, "a page of another site leads there"
        assert all(re.match("c/warc/", place) for place in links)
        assert all(re.match("c/warc/|c/index/|out/pages", place) for place in names), "where a page redirects to"
        for entry in entries(self.folder):
            assert VICTIM not in entry.url

    def kept(self) -> dict[str, tuple[bytes, bytes]]:
        """The records and items of each page of the other domains, byte by byte."""
        return {e.url: _bytes_of(self.folder, e) for e in entries(self.folder) if VICTIM not in e.url}


def entries(folder: Path) -> list[CommitEntry]:
    return list(IndexReader(open_existing(folder)).entries(pruned=True))


def _bytes_of(root: Path, entry: CommitEntry) -> tuple[bytes, bytes]:
    folder, record, lines = open_existing(root), b"", b""
    if entry.warc is not None:
        with (folder.warc / entry.warc.file).open("rb") as file:
            file.seek(entry.warc.offset)
            record = file.read(entry.warc.length)
    if entry.items is not None:
        with ItemFiles(folder) as files:
            lines = b"\n".join(files.items(entry.items))
    return record, lines


def files_in(*places: Path) -> Iterator[Path]:
    for place in places:
        for parent, _, names in os.walk(place):
            for name in names:
                path = Path(parent) / name
                if path.is_file():
                    yield path


def whole(path: Path) -> bytes:
    """Its bytes, and what they are unpacked; behind damage, too."""
    data = path.read_bytes()
    return data + b"".join(_unpacked(data)) if b"\x1f\x8b\x08" in data else data


def _unpacked(data: bytes) -> Iterator[bytes]:
    at = data.find(b"\x1f\x8b\x08")
    while at >= 0:
        inflater = zlib.decompressobj(31)
        with contextlib.suppress(zlib.error):
            yield inflater.decompress(data[at:])
            if inflater.eof:
                at = data.find(b"\x1f\x8b\x08", len(data) - len(inflater.unused_data))
                continue
        at = data.find(b"\x1f\x8b\x08", at + 1)


OUTPUTS = ("pages.jsonl", "pages.csv.gz", "pages.db", "items.jsonl", "items.db", "pages.parquet")


def outputs(lab: ForgetLab, *names: str) -> list[str]:
    """Keep these up to date, as -o of a crawl does, with an app (items...) and without; as options of a command."""
    (lab.home / "out").mkdir(exist_ok=True)
    folder, targets = open_existing(lab.folder), targets_of([str(lab.home / "out" / name) for name in names])
    for source in (Pages, Items):
        mine = [one for one in targets if ("items" in one.shown) == (source is Items)]
        kept = Outputs(folder, mine, partial(source, folder), warn=lambda _: None)
        kept.start()
        assert kept.finish() == []
    return [part for one in targets for part in ("-o", one.shown)]


def unlike(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [url for url in before.keys() | after.keys() if before.get(url) != after.get(url)]


def two_labs(tmp_path: Path, site: Site, programs: Nursery, engine: Engine) -> tuple[ForgetLab, ForgetLab]:
    """Two folders of one crawl."""
    labs = tuple(ForgetLab(tmp_path / name, site, programs, redis=engine.url) for name in ("one", "two"))
    for lab in labs:
        lab.home.mkdir()
    return labs[0], labs[1]

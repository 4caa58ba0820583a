"""A crawl folder with every kind of file, one of them damaged at random, and what people do then until all is well.

A crawl with handlers, outputs and a job runs once and ends; a second session is cut off while it handles a page, as by
kill -9, and goes on in another folder for the results that are to be. Each case gets a copy of what was cut off.
"""

import asyncio
import contextlib
import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawler.archive.folder import CrawlFolder, open_existing
from crawler.archive.history import attempts
from crawler.cli.main import main
from crawler.errors import CrawlerError
from crawler.outputs.export import export
from crawler.outputs.follow import Outputs
from crawler.outputs.opening import targets_of
from crawler.outputs.records import ITEMS, PAGES, Items, Pages, RecordSource
from crawler.recovery.replay import RebuildReport
from tests.crawl.harness import crawl
from tests.crawl.rebuild_lab import Lab, rebuild
from tests.support.web import Resource

A, B = "a.test", "b.test"
APP = """
from crawler import Crawler
from tests.crawl import damage_lab

app = Crawler()

@app.page()
async def any_page(page):
    await damage_lab.HANDLED(page.url)
    name = page.url.rpartition("/")[2]
    yield {"url": page.url, "nth": 1}
    yield {"url": page.url, "nth": 2}
    if len(name) == 1:
        page.follow(f"/hidden{name}")
"""
FIRST, SECOND = 6, 5  # pages of the first session; of the second, until it is cut off
OUTPUTS = {"pages.jsonl": PAGES.name, "pages.csv": PAGES.name, "pages.sqlite": PAGES.name, "items.jsonl": ITEMS.name}
OPTIONS: dict[str, Any] = {
    "crawl__partitions": 4,
    "scope__mode": "domain",
    "fetch__concurrency": 2,
    "membership__debounce_s": 0.0,
    "membership__beats": 200.0,
    "membership__reads": 400.0,
    "membership__flap_free": 1000,
    "frontier__call_timeout_s": 12.0,  # the machine may be busy
    "membership__dead_s": 20.0,
}
CHANGES = frozenset({"fetched_at", "warc_file", "warc_offset"})  # with a page that is fetched again

Records = Counter[str]
HANDLED: Callable[[str], Any]


async def _nothing(_: str) -> None:
    """The handler is not kept waiting."""


HANDLED = _nothing


def web() -> dict[tuple[str, str], Resource]:
    """Two hosts: a page with links, pages that lead on, and for each of these one that only its handler leads to."""
    pages: dict[tuple[str, str], Resource] = {}
    for host in (A, B):
        pages[host, "/"] = _page("home", *(f"/{n}" for n in range(5)))
        for n in range(5):
            pages[host, f"/{n}"] = _page(f"page {n}", f"/{n}/more")
            pages[host, f"/{n}/more"] = _page(f"more of {n}")
            pages[host, f"/hidden{n}"] = _page(f"hidden {n}")
    return pages


def _page(title: str, *links: str) -> Resource:
    return Resource(body=f"<title>{title}</title>" + "".join(f"<a href='{one}'>x</a>" for one in links))


# --- the crawl ---


@dataclass
class Base:
    """The folder, with the outputs next to it, and the keys of the engine, as the second session left them."""

    lab: Lab
    home: Path
    seeds: list[str]
    keys: dict[bytes, bytes] = field(default_factory=dict)
    committed: dict[str, Records] = field(default_factory=dict)  # by kind of record: what an export has now
    wanted: dict[str, Records] = field(default_factory=dict)  # by kind of record: of the whole crawl, as `plain`
    attempts: set[str] = field(default_factory=set)

    @property
    def files(self) -> list[Path]:
        """All of the folder, relative to it."""
        return sorted(path.relative_to(self.home / "c") for path in (self.home / "c").rglob("*") if path.is_file())


@contextlib.asynccontextmanager
async def base_crawl(lab: Lab) -> AsyncIterator[Base]:
    """Crawl in `lab.home`; what is cut off is copied next to it, and back for each case: an instance that died on this
    machine is known by the place of its lock.
    """
    global HANDLED
    lab.home.mkdir()
    (lab.home / "app.py").write_text(APP)
    base = Base(lab, lab.home.with_name("cut"), [lab.site.url(A), lab.site.url(B)])
    options = OPTIONS | {"handlers__app": str(lab.home / "app.py")}
    first = lab.settings(crawl__pages_max=FIRST, **options)
    await crawl(first, base.seeds)
    job = ["jobs", "add", "news", "--at", "2099-01-01", lab.site.url(A), "--dir", first.archive.dir]
    assert await asyncio.to_thread(main, [*job, "--redis", lab.engine.url]) == 0
    handled, is_cut = 0, asyncio.Event()

    async def gate(url: str) -> None:
        nonlocal handled
        handled += 1
        if handled > SECOND:
            await is_cut.wait()
        if handled == SECOND:
            await _has_open_files(lab.home / "c")
            _cut_off(base)
            is_cut.set()

    assert follow(lab.home) == []
    (lab.home / "c" / "log" / "crawl.log").write_text('{"event": "session.started"}\n')
    HANDLED = gate
    try:
        done = await crawl(lab.settings(**options), [])
    finally:
        HANDLED = _nothing
    assert not done.errors
    assert is_cut.is_set()
    base.wanted = {kind: plain(exported(lab.home, kind)[0]) for kind in (PAGES.name, ITEMS.name)}
    for kind in base.wanted:
        found, complaints = exported(base.home, kind)
        assert complaints == []
        assert 0 < found.total() < base.wanted[kind].total()
        base.committed[kind] = found
    base.attempts = history(base.home)
    yield base


async def _has_open_files(root: Path) -> None:
    """Wait until each kind of file of the archive has something that is on the disk."""
    for kind in ("warc", "index", "items", "history"):
        while not any(path.stat().st_size for path in _newest(root / kind)):
            await asyncio.sleep(0.005)


def _newest(folder: Path) -> Iterator[Path]:
    return folder.glob("*.jsonl" if folder.name == "history" else "*.open")


def _cut_off(base: Base) -> None:
    """As kill -9 leaves it: nothing of the engine changes while this runs, and it comes first."""
    with contextlib.closing(base.lab.engine.client()) as client:
        base.keys = {key: client.dump(key) for key in client.keys("*")}
    shutil.copytree(base.lab.home, base.home, ignore=shutil.ignore_patterns("__pycache__"))


# --- what is compared ---


def exported(home: Path, kind: str) -> tuple[Records, list[str]]:
    """All records of the folder as an export has them, and what it complains of."""
    folder, out = open_existing(home / "c"), home / f"export-{kind}.jsonl"
    source = _source(folder, kind)
    with contextlib.closing(source):
        summary = export(folder, targets_of([str(out)]), source)
    records = Counter(out.read_text().splitlines())
    out.unlink()
    return records, [f"{one.file}: {one.reason}" for one in summary.missing]


def plain(records: Records) -> Records:
    """Without what is another one when a page is fetched again."""
    found: Records = Counter()
    for line, n in records.items():
        record = {name: value for name, value in json.loads(line).items() if name not in CHANGES}
        found[json.dumps(record, sort_keys=True)] += n
    return found


def keys_of(records: Records) -> Counter[tuple[Any, ...]]:
    """What tells records from each other, in each format."""
    found: Counter[tuple[Any, ...]] = Counter()
    for line, n in records.items():
        record = json.loads(line)
        found[(record["url"], record.get("nth", record.get("title")))] += n
    return found


def output_keys(path: Path) -> Counter[tuple[Any, ...]]:
    """The same of an output."""
    if path.suffix == ".sqlite":
        with contextlib.closing(sqlite3.connect(path)) as base:
            return Counter(base.execute("SELECT url, title FROM pages").fetchall())
    if path.suffix == ".csv":
        import csv

        with path.open(newline="") as file:
            return Counter((row["url"], row["title"]) for row in csv.DictReader(file))
    return keys_of(Counter(path.read_text().splitlines()))


def history(home: Path) -> set[str]:
    """All attempts."""
    folder, found = open_existing(home / "c"), set[str]()
    for domain in (A, B):
        found |= {repr(one) for one in attempts([folder], domain=domain)}
    return found


def follow(home: Path) -> list[Exception]:
    """Bring the outputs up to date, as at the end of a crawl; what kept one from being complete."""
    folder, problems = open_existing(home / "c"), list[Exception]()
    for kind in (PAGES.name, ITEMS.name):
        targets = targets_of([str(home / name) for name, what in OUTPUTS.items() if what == kind], table=kind)
        outputs = Outputs(folder, targets, lambda kind=kind: _source(folder, kind), warn=lambda _: None)  # type: ignore[misc]
        outputs.start()
        problems += outputs.finish()
    return problems


def _source(folder: CrawlFolder, kind: str) -> RecordSource:
    return Pages(folder) if kind == PAGES.name else Items(folder)


# --- damage ---


def flip(data: bytes, at: int, chance: random.Random) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :] if data else data


def cut(data: bytes, at: int, _: random.Random) -> bytes:
    return data[:at]


def insert(data: bytes, at: int, chance: random.Random) -> bytes:
    return data[:at] + chance.randbytes(chance.choice([1, 20, 700])) + data[at:]


def splice(data: bytes, at: int, _: random.Random) -> bytes:
    return data[:at] + data[at + 500 :]


HOW: dict[str, Callable[[bytes, int, random.Random], bytes | None]] = {
    "flip": flip,
    "cut": cut,
    "insert": insert,
    "splice": splice,
    "empty": lambda *_: b"",
    "delete": lambda *_: None,
}


def kind_of(file: Path) -> str:
    """The kind of a file of the folder."""
    folder = f"{file.parts[0]}/" if len(file.parts) > 1 else ""
    name = file.name
    for prefix in ("seeds-", "jobs-"):
        if folder == "journal/" and name.startswith(prefix):
            return folder + prefix + "*" + "".join(file.suffixes)
    ends = (".warc.gz.open", ".warc.gz", ".cdxj.open", ".cdxj", ".items.gz.open", ".items.gz", ".cursor.read")
    end = next((end for end in ends if name.endswith(end)), file.suffix)
    return folder + "*" + end if folder else name


@dataclass
class Case:
    """One damage, by its number."""

    base: Base
    number: int
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = self.base.lab.home
        chance = random.Random(self.number)
        kinds: dict[str, list[Path]] = {}
        for path in self.base.files:
            kinds.setdefault(kind_of(path), []).append(path)
        self.is_kept = self.number % 2 == 0
        self.goes_on = self.number % 4 == 0  # before anybody looks at what the audit says
        self.kind = chance.choice(sorted(kinds))
        self.file = chance.choice(kinds[self.kind])
        self.how = chance.choice(sorted(HOW))
        self.is_torn = self.kind == "index/*.cdxj.open"  # what hit its end may be what the death of its session left
        self._chance = chance

    def __str__(self) -> str:
        engine = "kept" if self.is_kept else "lost"
        return f"case {self.number}: {self.how} {self.file}, the engine {engine}; said: {self.said}"

    def set_up(self) -> None:
        """A copy with the damage, and the engine."""
        shutil.rmtree(self.home)
        shutil.copytree(self.base.home, self.home)
        path, chance = self.home / "c" / self.file, self._chance
        data = path.read_bytes()
        hurt = HOW[self.how](data, int(chance.random() * len(data)), chance)
        if hurt is None:
            path.unlink()
        else:
            path.write_bytes(hurt)
        engine = self.base.lab.engine
        engine.flush()
        if self.is_kept:
            with contextlib.closing(engine.client()) as client:
                for key, value in self.base.keys.items():
                    client.restore(key, 0, value)

    def settings(self, **more: Any) -> Any:
        return self.base.lab.settings(**OPTIONS, handlers__app=str(self.home / "app.py"), **more)

    def restore(self) -> None:
        """Bring the file back from a copy."""
        shutil.copyfile(self.base.home / "c" / self.file, self.home / "c" / self.file)

    def blame(self, error: Exception | str) -> None:
        """An error must be one line with the file, and with a documented exit code."""
        self.said.append(f"{getattr(error, 'exit_code', 5)} {error!r}")
        assert isinstance(error, str | CrawlerError), "a bug"
        assert "\n" not in str(error), "more than one line"
        assert self.file.name.removesuffix(".open") in str(error), "the file is not named"
        assert getattr(error, "exit_code", 5) == 5 or self.file.name in IDENTITY, "another exit code"

    async def audit(self, *, outputs: bool = False) -> tuple[int, str]:
        """Exit code, and what it found."""
        import io

        words = ["audit", "--dir", str(self.home / "c"), "--redis", self.base.lab.engine.url, "--json"]
        if outputs:
            words += [word for name in OUTPUTS for word in ("-o", str(self.home / name))]
        text, errors = io.StringIO(), io.StringIO()

        def run() -> int:
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(errors):
                return main(words)

        code = await asyncio.to_thread(run)
        return code, text.getvalue() + errors.getvalue()


# --- what people do ---

RUNGS: dict[str, dict[str, Any]] = {
    "rebuild": {},
    "rebuild --refetch": {"refetch": True},
    "rebuild --refetch --accept-loss": {"refetch": True, "accept_loss": True},
}
IDENTITY = frozenset({"crawl.json", "bound.json"})  # to be restored from a copy


async def judge(case: Case, *, mends: bool = True) -> str:
    """What became of a case, in a few words; raises AssertionError for what must not be. Without `mends`: only whether
    exports and the audit are right.
    """
    case.set_up()
    outcome = "unchanged"
    try:
        flagged = look(case)
    except CrawlerError as error:
        case.blame(error)
        if case.file.name not in IDENTITY:
            raise
        case.restore()
        outcome, flagged = "restored", look(case)
    if case.is_kept:
        flagged |= await audited(case)
        if case.goes_on and mends:
            flagged |= await crawled(case)
    if not mends:
        return "named" if flagged else outcome
    if flagged or not case.is_kept:
        rung = await mended(case)
        if outcome == "unchanged" and (case.said or rung != "rebuild"):
            outcome = rung
    else:
        assert await is_clean(case), "damaged all the same"
    assert not look(case, is_whole=True), "not mended"
    if case.kind != "history/*.jsonl":
        assert history(case.home) >= case.base.attempts
    return outcome


def look(case: Case, *, is_whole: bool = False) -> bool:
    """Does an export name damage? If not, it is exact."""
    flagged = False
    for kind, committed in case.base.committed.items():
        found, complaints = exported(case.home, kind)
        if is_whole:
            assert plain(found) == case.base.wanted[kind], f"{kind} are not what they should be"
            for name, what in OUTPUTS.items():
                assert what != kind or output_keys(case.home / name) == keys_of(found), f"{name} is not like the export"
        elif not complaints and case.is_torn:
            assert found <= committed, f"{kind} changed in silence"
        elif not complaints:
            assert found == committed, f"{kind} changed in silence"
        for one in complaints:
            case.blame(one)
        flagged |= bool(complaints)
    return flagged


async def audited(case: Case, *, outputs: bool = False) -> bool:
    """Does the audit find anything?"""
    code, text = await case.audit(outputs=outputs)
    if code == 0:
        return False
    assert code == 8, text
    found = json.loads(text[: text.rindex("}") + 1])["findings"]
    bad = {name: one["examples"][:2] for name, one in found.items() if one and one["is_violation"] and one["count"]}
    case.said.append(f"audit: {bad}")
    assert case.is_torn or case.file.name.removesuffix(".open") in str(bad), "the audit does not name the file"
    return True


async def crawled(case: Case) -> bool:
    """Go on with the same outputs. Does anything keep it from being complete?"""
    done = await crawl(case.settings(), [])
    problems = [*done.errors, *follow(case.home)]
    for one in problems:
        case.blame(one)
    return bool(problems)


async def is_clean(case: Case) -> bool:
    """Does the crawl go on to its end, and has the audit nothing to say then?"""
    return not await crawled(case) and not await audited(case, outputs=True)


async def mended(case: Case) -> str:
    """Rebuild with as little as is enough; what that was."""
    for name, options in RUNGS.items():
        try:
            report = await _rebuilt(case, options)
        except CrawlerError as error:
            case.blame(error)
            if case.file.name not in IDENTITY:
                continue
            case.restore()
            report, name = await _rebuilt(case, options), "restored"
        case.said += report.flaws
        if await is_clean(case):
            return name
    raise AssertionError("no rebuild is enough")


async def _rebuilt(case: Case, options: dict[str, Any]) -> RebuildReport:
    return await rebuild(case.settings(), seeds=case.base.seeds if "accept_loss" in options else (), **options)

"""Archives to prune, prunes of them, and a judge of what they leave: every commit has its record, or was pruned."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import IndexReader
from crawler.archive.index_writer import IndexWriter
from crawler.archive.items import ItemFiles, ItemWriter
from crawler.archive.prune import Planner
from crawler.archive.prune_journal import Figures, Journal
from crawler.archive.prune_records import PruneRule
from crawler.archive.prune_steps import PruneWork, Step, no_step
from crawler.archive.repair import Flaw, IndexLine, walk_lines, walk_responses
from crawler.archive.warc_reader import read_record
from crawler.model import CommitEntry
from tests.archive.archive_samples import AT, entry, folder_in, response, writer_in

Key = tuple[str, int]


class Killed(BaseException):
    """The process ends here, as by `kill -9`."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """One fetch. `session` fetched it; `indexed_by`: sessions that wrote a line of it; without any it is an orphan."""

    number: int
    session: str = "aa11"
    indexed_by: tuple[str, ...] = ("aa11",)
    run: str = ""
    has_record: bool = True
    items: int = 0
    label: str = ""


@dataclass
class Archive:
    """A folder with pages; `commits` are those that have a line."""

    folder: CrawlFolder
    commits: dict[Key, CommitEntry] = field(default_factory=dict)

    @property
    def warc_names(self) -> list[str]:
        return sorted(path.name for path in self.folder.warc.iterdir())

    def left(self) -> dict[Key, CommitEntry]:
        """The pages that were not pruned, as readers see them."""
        reader = IndexReader(self.folder)
        found = {(one.fingerprint, one.visit): one for one in reader.entries()}
        assert reader.missing == []
        return found

    def pruned(self) -> set[Key]:
        every = {(one.fingerprint, one.visit) for one in IndexReader(self.folder).entries(pruned=True)}
        assert every == self.commits.keys(), "no commit is forgotten"
        return every - self.left().keys()


def archive(tmp_path: Path, pages: Iterable[Page], *, file_bytes: int = 2_000, lines_max: int = 8) -> Archive:
    """Files of a few records, segments of a few lines, all of them closed."""
    made, by_session = Archive(folder_in(tmp_path)), list(pages)
    for session in sorted({page.session for page in by_session}):
        warc = writer_in(made.folder, session, warc_bytes_max=file_bytes)
        items = ItemWriter(made.folder, session, file_bytes_max=file_bytes // 10)
        for page in (one for one in by_session if one.session == session):
            warc_place = warc.add(response(page.number))[0] if page.has_record else None
            lines = [b'{"page":%d,"n":%d}' % (page.number, n) for n in range(page.items)]
            item_place = items.add(lines) if page.items else None
            one = entry(page.number, session=session, run=page.run, label=page.label, warc=warc_place, items=item_place)
            if page.indexed_by:
                made.commits[one.fingerprint, one.visit] = one
        warc.close()
        items.close()
    for session in sorted({name for page in by_session for name in page.indexed_by}):
        index = IndexWriter(made.folder, session, lines_max=lines_max)
        for page in by_session:
            if session in page.indexed_by:
                index.add(made.commits[entry(page.number).fingerprint, 1])
        index.close()
    return made


def prune(
    folder: CrawlFolder,
    rule: PruneRule,
    *,
    committed: int = 0,
    alive: Sequence[str] = (),
    undrained: Sequence[CommitEntry] = (),
    step: Step = no_step,
    dry_run: bool = False,
    readers_timeout_s: float = 0.0,
) -> Figures:
    """As the command does it, without an engine. `committed`: by the whole crawl."""
    journal = Journal.found(folder)
    if journal is not None:
        with journal:
            work(folder, journal, step).run()
    planner = Planner(folder, rule, committed=committed, is_alive=lambda session: session in alive)
    with planner.plan(undrained) as planned:
        if dry_run or planned.is_empty:
            return planned.figures
        step("planned")
        journal = planned.keep()
    with journal:
        step("begun")
        work(folder, journal, step, readers_timeout_s).run()
    return planned.figures


def work(folder: CrawlFolder, journal: Journal, step: Step = no_step, readers_timeout_s: float = 0.0) -> PruneWork:
    return PruneWork(folder, journal, software="crawler/0", now_s=AT, step=step, readers_timeout_s=readers_timeout_s)


def judge(made: Archive) -> None:
    """What `crawler audit` finds wrong on disk, and that each page has its own content."""
    folder, known = made.folder, set[Key]()
    lost = list[CommitEntry]()
    settled = set[Key]()
    with ItemFiles(folder) as files:
        for line in walk_lines(folder):
            assert isinstance(line, IndexLine), line
            one = line.entry
            key = (one.fingerprint, one.visit)
            known.add(key)
            if one.pruned:
                settled.add(key)
                continue
            if one.warc and not (folder.warc / one.warc.file).exists():
                lost.append(one)
                continue
            if one.warc:
                assert read_record(folder, one.warc).uri == one.url
            if one.items:
                number = one.url.rpartition("/")[2].encode()
                assert files.items(one.items)[0].startswith(b'{"page":%b,' % number)
            settled.add(key)
    assert known == made.commits.keys(), "no commit is forgotten, and none is new"
    assert [one.url for one in lost if (one.fingerprint, one.visit) not in settled] == []
    assert [found for found in walk_responses(folder) if isinstance(found, Flaw)] == []


def leftovers(folder: CrawlFolder) -> list[str]:
    """Files that a prune that came to its end should not leave."""
    names = [path.name for where in (folder.root, folder.warc, folder.items, folder.tmp) for path in where.iterdir()]
    return [name for name in names if "prun" in name and not name.endswith(".lock")]


def records_on_disk(folder: CrawlFolder) -> int:
    return sum(not isinstance(found, Flaw) for found in walk_responses(folder))

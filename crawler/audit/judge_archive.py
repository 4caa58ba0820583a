"""Reads index and archive of all folders into the ledger, and judges what lies on disk: records that no commit names,
commits whose record is not there or is another, commits of one URL that differ.
"""

import contextlib
import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import index_bytes, unchecked_text
from crawler.archive.items import ItemFiles
from crawler.archive.job_journal import journals_in
from crawler.archive.repair import (
    ArchivedResponse,
    ArchiveSize,
    Flaw,
    IndexLine,
    walk_lines,
    walk_responses,
    warc_names,
)
from crawler.archive.seed_journal import SeedJournal, SeedLine
from crawler.archive.warc import payload_digest, safe_uri
from crawler.archive.warc_reader import StoredResponse, completed, read_any
from crawler.audit.findings import Report
from crawler.audit.judge_links import LinkReader
from crawler.audit.ledger import Commit, Ledger, page_of
from crawler.errors import ArchiveError
from crawler.model import NOT_MODIFIED, CommitEntry, Followed, WarcLocation
from crawler.parsing.parse import ParseKilledError
from crawler.rules.parts import Part
from crawler.rules.progress import Meter
from crawler.rules.urls import host_of
from crawler.terminal.words import counted

LATE = "fetch.late"
SEEDS_AT_ONCE = 1000


class ArchiveJudge:
    """What the crawl folders say. Call its methods in this order."""

    def __init__(
        self,
        folders: Sequence[CrawlFolder],
        ledger: Ledger,
        reader: LinkReader,
        report: Report,
        meter: Meter,
        part: Part | None = None,
    ) -> None:
        """`part`: only what is of these partitions."""
        self._part = part
        self._folders = folders
        self._ledger = ledger
        self._reader = reader
        self._report = report
        self._meter = meter
        self._many = len(folders) > 1
        self._forgotten_lines = self._forgotten_records = 0  # of domains that 'crawler forget' has not reached here

    def add_commit(self, entry: CommitEntry, *, is_late: bool) -> bool:
        """A commit, from an index or from the engine's log; False: it is not of this part."""
        if self._reader.rules.router.scope.forgets(entry.url):
            self._forgotten_lines += not is_late
            return False
        partition = self._reader.rules.router.placement.of(entry.url)[2]
        if self._part and not self._part.has(partition):
            return False
        self._ledger.add_commit(entry, partition, page_key(entry.url), is_late=is_late)
        return True

    def read_index(self, *, is_late: bool = False) -> None:
        """All lines of all segments. A second time, `is_late`, brings what was committed since."""
        segments = set()
        count = position = unchecked = 0
        total = sum(map(index_bytes, self._folders))
        self._meter.begin("reading index", "line", total)
        with contextlib.ExitStack() as stack:
            item_files = [stack.enter_context(ItemFiles(folder)) for folder in self._folders]
            for folder in self._folders:
                for line in walk_lines(folder):
                    if isinstance(line, IndexLine):
                        count, position = count + 1, position + line.length
                        self._meter.reached(count, position)
                        segments.add(line.segment)
                        unchecked += not line.has_checksum
                        if self.add_commit(line.entry, is_late=is_late) and not is_late:
                            self._items(line.entry, item_files)
                    elif not is_late:
                        self._flaw(folder, line)
        self._meter.reached(count, total)  # footers and damaged lines are no commits
        self._report.segments = len(segments)
        if unchecked and not is_late:
            self._report.notes.append(unchecked_text(unchecked))

    def _items(self, entry: CommitEntry, item_files: Sequence[ItemFiles]) -> None:
        """Whether what the page's handler yielded can be read in one of the folders, and where it led."""
        if entry.items is None:
            return
        reasons = []
        for files in item_files:
            try:
                files.items(entry.items)
                followed = files.followed(entry.items)
            except ArchiveError as error:
                reasons.append(str(error).partition(": ")[2])
            else:
                self._followed(entry, followed)
                return
        reason = next((one for one in reasons if one != "not found"), "the file is in no folder given")
        if self._report.lacking and not any(one != "not found" for one in reasons):
            self._report.elsewhere += 1
            return
        place = f"{entry.items.file} at {entry.items.offset}"
        self._report.findings.no_items.add(url=entry.url, items=place, reason=reason)

    def _followed(self, entry: CommitEntry, followed: Sequence[Followed]) -> None:
        """URLs to which the page's handler led, or its origin's robots.txt, must be in a known state, too."""
        commits = self._ledger.commits_at(entry.warc) if followed and entry.warc else []
        for commit in commits:
            links = tuple(one.url for one in followed if one.is_plain)
            self._ledger.add_links(self._reader.rules.required(commit, links, None, followed), commit)

    def read_journals(self) -> None:
        """What a rebuild needs besides the index and the archive. Raises ConflictError for those of a newer release."""
        for folder in self._folders:
            for journal in journals_in(folder):
                place = f"{folder.root}/" * self._many + f"journal/{journal.path.name}"
                for what in (*journal.damaged(), journal.missing()):
                    if what:
                        self._report.findings.damage.add(file=place, reason=str(what))

    def read_seeds(self) -> None:
        """What was given through these folders must be in a known state, and the scope have what it opened."""
        rules, record = self._reader.rules, self._reader.rules.router.record
        lines = partial(_seed_lines, self._folders, self._report.crawl, record.first_begun_at)
        roots = frozenset(line.root for line in lines() if rules.lacking(line.root))
        for root in sorted(roots):
            self._report.findings.lost.add(root=root, reason="seeds opened it, and the engine's scope lacks it")
        found = (seed for line in lines() if (seed := rules.seed(line, roots)) is not None)
        ours = (seed for seed in found if not self._part or self._part.has(seed.partition))
        while some := list(itertools.islice(ours, SEEDS_AT_ONCE)):
            self._ledger.add_seeds(some)
            self._report.seeds += len(some)

    async def read_archive(self) -> None:
        """Every response record: is it a commit's, is it what the commit says, and what must it have led to?"""
        if self._part:
            await self._read_committed()
            return
        report, size = self._report, ArchiveSize(self._folders)
        self._meter.begin("reading archive", "record", size.total)
        for folder in self._folders:
            report.warc_files += len(warc_names(folder))
            for found in walk_responses(folder):
                if isinstance(found, Flaw):
                    self._flaw(folder, found)
                    continue
                report.records += 1
                await self._record(found)
                self._meter.reached(report.records, size.position(found.location))

    async def _read_committed(self) -> None:
        """The records of this part's commits alone, wherever they are."""
        report, files = self._report, set[str]()
        report.findings.orphans.not_judged("needs the whole archive")
        self._meter.begin("reading archive", "record", self._ledger.number("SELECT count(*) FROM commits WHERE file"))
        for place in self._ledger.places():
            files.add(place.file)
            stored = self._read(place)
            if stored is not None:
                report.records += 1
                await self._record(ArchivedResponse(location=place, stored=stored))
                self._meter.reached(report.records, report.records)
        report.warc_files = len(files)

    def _read(self, place: WarcLocation) -> StoredResponse | None:
        """None for what is in no folder, or damaged: its commit has no record then."""
        for folder in self._folders:
            with contextlib.suppress(ArchiveError):
                return read_any(folder, place)
        return None

    async def _record(self, found: ArchivedResponse) -> None:
        commits = self._ledger.commits_at(found.location)
        uri = found.stored.uri
        if self._reader.rules.router.scope.forgets(uri):
            self._forgotten_records += 1
            return
        if not commits:
            self._ledger.add_orphan(found.location, uri, page_key(uri))
        for commit in commits:
            self._ledger.record_found(commit)
            if not self._is_same(found, commit):
                continue
            stored = self._completed(commit, found.stored) if commit.original else found.stored
            if stored is None:
                continue
            try:
                self._ledger.add_links(await self._reader.required(commit, stored), commit)
            except ParseKilledError as error:
                self._report.findings.unparsed.add(url=commit.url, reason=str(error))

    def _completed(self, commit: Commit, revisit: StoredResponse) -> StoredResponse | None:
        """The page of a commit whose body is in another record; None where that is not in the archive."""
        place, reasons = commit.original_place, list[str]()
        for folder in self._folders:
            try:
                return completed(folder, revisit, place)
            except ArchiveError as error:
                reasons.append(str(error))
        if self._report.lacking and not any(place.file in warc_names(folder) for folder in self._folders):
            self._report.elsewhere += 1
            return None
        record = f"{place.file} at {place.offset}, which it is unchanged from"
        self._report.findings.no_record.add(url=commit.url, record=record, reason=reasons[0])
        return None

    def _is_same(self, found: ArchivedResponse, commit: Commit) -> bool:
        """Whether the record is the one that the commit names."""
        is_revisit = found.stored.is_revisit
        digest = found.stored.digest if is_revisit else payload_digest(found.stored.payload)
        wrong = {
            "another URL": found.stored.uri != safe_uri(commit.url),
            "another digest": digest not in (commit.digest, found.stored.digest) or commit.digest != digest,
            "another type": is_revisit != bool(commit.original),
            "another length": found.location.length != commit.length,
            "another status": found.stored.status
            != (0 if is_revisit and commit.status == NOT_MODIFIED else commit.status),
        }
        reasons = [reason for reason, is_so in wrong.items() if is_so]
        if reasons:
            place = f"{found.location.file} at {found.location.offset}"
            self._report.findings.no_record.add(url=commit.url, record=place, reason=", ".join(reasons))
        return not reasons

    def judge(self, judged_runs: Collection[str]) -> None:
        """What can be said once everything was read. `judged_runs`: of which it is known where their links went."""
        self._commits_without_record()
        self._committed_twice()
        self._orphans()
        self._report.commits = self._ledger.number("SELECT count(*) FROM (SELECT DISTINCT fp, visit FROM commits)")
        if not self._report.commits:
            for finding in (self._report.findings.twice, self._report.findings.no_record):
                finding.not_judged("no page is committed")
        of_runs = self._ledger.db.execute("SELECT run, count(*) FROM commits WHERE run <> '' GROUP BY run")
        ended = sum(commits for run, commits in of_runs if run not in judged_runs)
        if ended:
            self._report.notes.append(
                f"{counted(ended, 'commit is', 'commits are')} of ended runs: where their links went can't be judged"
            )
        pruned = self._ledger.number("SELECT count(*) FROM (SELECT DISTINCT fp, visit FROM commits WHERE pruned)")
        if pruned:
            self._report.notes.append(
                f"{counted(pruned, 'commit was', 'commits were')} pruned: where their links went can't be judged"
            )
        if self._forgotten_lines or self._forgotten_records:
            lines, records = counted(self._forgotten_lines, "line"), counted(self._forgotten_records, "record")
            self._report.notes.append(
                f"{lines} of the index and {records} are of forgotten domains, and not judged: "
                "'crawler forget' has not reached them in these folders"
            )
        if number := len(self._reader.rules.router.record.forgotten_domains):
            self._report.notes.append(
                f"{counted(number, 'domain was', 'domains were')} forgotten: nothing is lost by that"
            )
        without = self._ledger.number("SELECT count(*) FROM commits WHERE file = 0 AND NOT pruned")
        if without:
            self._report.notes.append(
                f"{counted(without, 'commit has', 'commits have')} no record (archive.warc is off): "
                "where their links went can't be judged"
            )

    def _commits_without_record(self) -> None:
        rows = self._ledger.db.execute(
            "SELECT url, name, offset FROM commits JOIN files ON files.id = file "
            "WHERE NOT found AND NOT late AND NOT EXISTS ("  # another line of this commit may know better
            "SELECT 1 FROM commits AS same WHERE same.fp = commits.fp AND same.visit = commits.visit "
            "AND same.session = commits.session AND same.epoch = commits.epoch AND same.fetched = commits.fetched "
            "AND (same.found OR same.pruned)) ORDER BY name, offset"
        )
        present = {name for folder in self._folders for name in warc_names(folder)}
        for url, name, offset in rows:
            if name not in present and self._report.lacking:
                self._report.elsewhere += 1
                continue
            reason = "no whole record there" if name in present else "the file is in no folder given"
            self._report.findings.no_record.add(url=url, record=f"{name} at {offset}", reason=reason)
            if name not in present:
                self._unreachable(name)

    def _unreachable(self, name: str) -> None:
        damage = self._report.findings.damage
        if not any(one.get("file") == f"warc/{name}" for one in damage.examples[-1:]):  # rows come by name
            damage.add(file=f"warc/{name}", reason="an index names it, and it is in no folder given")

    def _committed_twice(self) -> None:
        """A commit may have several lines, which differ in where its record is: a prune moves and removes records."""
        rows = self._ledger.db.execute(
            "SELECT fp, visit, count(*) FROM (SELECT DISTINCT fp, visit, session, epoch, fetched FROM commits) "
            "GROUP BY fp, visit HAVING count(*) > 1"
        ).fetchall()
        for fp, visit, n in rows:
            commits = self._ledger.db.execute(
                "SELECT DISTINCT url, session, epoch, fetched FROM commits WHERE fp = ? AND visit = ? ORDER BY fetched",
                (fp, visit),
            ).fetchall()
            by = [
                f"session {session}, epoch {epoch}, fetched at {fetched:.3f}" for _, session, epoch, fetched in commits
            ]
            self._report.findings.twice.add(n - 1, url=commits[0][0], visit=visit, commits=by)

    def _orphans(self) -> None:
        rows = self._ledger.db.execute(
            "SELECT url, name, orphans.offset FROM orphans JOIN files ON files.id = orphans.file WHERE NOT EXISTS ("
            "SELECT 1 FROM commits WHERE commits.file = orphans.file AND commits.offset = orphans.offset)"
        )
        for url, name, offset in rows:
            self._report.findings.orphans.add(url=url, record=f"{name} at {offset}")

    def _flaw(self, folder: CrawlFolder, flaw: Flaw) -> None:
        finding = self._report.findings.torn if flaw.is_tail else self._report.findings.damage
        finding.add(file=f"{folder.root}/{flaw.file}" if self._many else flaw.file, reason=flaw.reason)


def _seed_lines(folders: Sequence[CrawlFolder], name: str, first_begun_at: float) -> Iterator[SeedLine]:
    """Of all folders, without damaged lines, which are a finding of their own."""
    for folder in folders:
        with contextlib.suppress(ArchiveError):  # it comes behind the last line
            yield from SeedJournal(folder, name, first_begun_at).read()


def late_pages(folders: Sequence[CrawlFolder]) -> frozenset[int]:
    """Pages that were answered when their instance had lost the lease, by the logs of the instances."""
    found: set[int] = set()
    for file in (file for folder in folders for file in sorted(folder.log.glob("*.log"))):
        with contextlib.suppress(OSError), file.open(encoding="utf-8", errors="replace") as lines:
            found.update(page_key(url) for line in lines if LATE in line and (url := _url_of(line)))
    return frozenset(found)


def _url_of(line: str) -> str:
    """The URL of an event that tells of a late request."""
    try:
        event = json.loads(line)
        return str(event["url"]) if event["event"] == LATE else ""
    except (ValueError, KeyError, TypeError):
        return ""


def page_key(url: str) -> int:
    """`page_of` for a canonical URL."""
    slash = url.find("/", url.find("//") + 2)
    return page_of(host_of(url), url[slash:] if slash > 0 else "/")

"""What names a domain goes from journals, history, logs, spill files and files of dead sessions; the rest stays."""

import struct
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from crawler.archive import told_log
from crawler.archive.folder import CrawlFolder
from crawler.archive.forget_rest import forget_rest, forget_spilled, seed_left
from crawler.archive.inflight_log import SLOT_BYTES
from crawler.archive.seed_journal import SeedJournal, SeedLine
from crawler.archive.spill_files import SpillFiles
from crawler.errors import ArchiveError
from crawler.rules.forgotten import Named
from tests.archive.archive_samples import folder_in

NAMED = Named("shop.example")
OURS, OTHER = "http://shop.example/x", "http://kept.example/x"


def forget(folder: CrawlFolder) -> list[tuple[str, str]]:
    _, unreached = forget_rest(folder, NAMED, lambda _: None)
    return [(Path(place).name, why) for place, why in unreached]


def test_a_journal_loses_seeds_and_roots_and_stays_whole(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    journal = SeedJournal(folder, "main", 1.0)
    journal.append([SeedLine(url=OURS, number=1), SeedLine(url=OTHER, number=2), SeedLine(root="domain:shop.example")])
    before = journal.path.read_bytes().splitlines()[1]
    assert forget(folder) == []
    assert [line.url for line in journal.read()] == [OTHER]
    assert (journal.missing(), journal.damaged()) == ("", [])
    assert journal.path.read_bytes().splitlines() == [before]
    journal.append([SeedLine(url="http://late.example/")])
    assert len(list(journal.read())) == 2


@pytest.mark.parametrize(
    ("root", "left"),
    [
        ("domain:shop.example", None),
        ("host:www.shop.example:80", None),
        ("prefix:https://shop.example/a/", None),
        (f"page:{OURS}", None),
        (f"page:{OURS} {OTHER}", None),
        (f"page:{OTHER} {OURS}", f"page:{OTHER}"),
        (f"page:{OTHER}", f"page:{OTHER}"),
        ("any:*", "any:*"),
    ],
)
def test_what_stays_of_a_root(root: str, left: str | None) -> None:
    found = seed_left(SeedLine(root=root), NAMED)
    assert (found.root if found else None) == left


def test_a_journal_with_damage_is_named(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    journal = SeedJournal(folder, "main", 1.0)
    journal.append([SeedLine(url=OURS), SeedLine(url=OTHER)])
    journal.path.write_bytes(journal.path.read_bytes().replace(b"kept", b"kopt"))
    ((name, why),) = forget(folder)
    assert name == journal.path.name
    assert "is damaged" in why


def test_logs_lose_lines_and_reports_go_as_a_whole(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    (folder.log / "a.log").write_text(f"1 {OURS}\n2 {OTHER}\n3 http://webshop.example/\n")
    (folder.log / "bug-1.txt").write_text(f"Traceback\n{OURS}\nlocals\n")
    (folder.log / "x.damaged").write_bytes(b"?")
    (folder.root / "notes.txt").write_text(OURS)
    (folder.root / "more.txt").write_text(OTHER)
    assert [name for name, _ in forget(folder)] == ["x.damaged", "notes.txt"]
    assert (folder.log / "a.log").read_text() == f"2 {OTHER}\n3 http://webshop.example/\n"
    assert not (folder.log / "bug-1.txt").exists()


def test_files_of_dead_sessions(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    slots = [url.encode().ljust(SLOT_BYTES, b"\0") for url in (OTHER, OURS, OTHER)]
    (folder.sessions / "aa.started").write_bytes(b"".join(slots))
    calls = [msgspec.msgpack.encode([1, [url]]) for url in (OURS, OTHER)]
    told = [struct.pack("<II", len(call), crc32(call)) + call for call in calls]
    (folder.sessions / f"aa-1{told_log.SUFFIX}").write_bytes(b"".join(told))
    (folder.sessions / "aa.stall").write_text(OURS)
    assert forget(folder) == []
    assert (folder.sessions / "aa.started").read_bytes() == slots[0] + bytes(SLOT_BYTES) + slots[2]
    assert (folder.sessions / f"aa-1{told_log.SUFFIX}").read_bytes() == told[1]
    assert not (folder.sessions / "aa.stall").exists()


def test_blocks_of_its_queues_are_blanked_and_those_beside_them_are_read(tmp_path: Path) -> None:
    files = SpillFiles(tmp_path / "spill", "aa11")
    queues = ("kept.example", "shop.example", "www.shop.example|@ann", "late.example")
    places = files.write(3, 1, [msgspec.msgpack.encode([queue, ["/secret", "1"]]) for queue in queues])
    assert [forget_spilled(files.root, 3, NAMED) for _ in range(2)] == [2, 0]
    assert b"shop" not in files.data(3, places[0][0])
    for place, queue in zip(places, queues, strict=True):
        if "shop" in queue:
            with pytest.raises(ArchiveError):
                files.read(3, [place])
        else:
            assert msgspec.msgpack.decode(files.read(3, [place])[0])[0] == queue
    assert forget_spilled(files.root, 4, NAMED) == 0

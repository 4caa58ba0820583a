"""A crawl moves between engines, or into a file and back: whole, once, whatever interrupts it."""

import dataclasses
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from crawler.archive.spill_files import SpillFiles
from crawler.engine.client import Engine
from crawler.errors import ArchiveError, ConflictError, EngineDown, NoCrawlError, UsageError
from crawler.frontier.crawls import CrawlList
from crawler.frontier.keys import CRAWLS, Keys
from crawler.frontier.members import Member, Members
from crawler.frontier.operator_log import OperatorLog
from crawler.frontier.record import Crawls
from crawler.recovery import backup, copying
from crawler.recovery.arrival import Arrival
from crawler.recovery.backup import back_up, restore
from crawler.recovery.copying import CRAWL_WIDE
from crawler.recovery.move import Departure, move, undo
from crawler.recovery.side import Side
from tests.frontier.moving_lab import ANN, MEMBERSHIP, NAME, PARTITIONS, Dying, Lab, dump, make, opened
from tests.support.heard_meter import HeardMeter

pytestmark = pytest.mark.cluster


@pytest.fixture
async def lab(engine: Any, cluster: Any, tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(engine.url, cluster.url, tmp_path)
    await make(lab.here)
    try:
        yield lab
    finally:
        await lab.close()


async def test_all_that_an_engine_has_of_a_crawl_arrives_and_nobody_opens_the_old_one(lab: Lab) -> None:
    was = await dump(lab.here)
    assert {kind for kind, _ in was.values()} == {"string", "hash", "list", "set", "zset", "stream"}
    copied = await lab.move()
    assert await dump(lab.there) == was
    assert copied.partitions == PARTITIONS
    assert copied.keys >= len(was)
    with pytest.raises(ConflictError, match="has moved to b: name that engine"):
        await Crawls(lab.here.engine, lab.here.keys).load()
    with pytest.raises(ConflictError, match="has moved to b"):
        await lab.move()
    assert await lab.there.engine.command("SMEMBERS", CRAWLS) == {NAME.encode()}
    # Its partitions have the mark that a wiped shard lacks, and the operator log goes on with its numbers.
    await Crawls(lab.there.engine, lab.there.keys).counts(PARTITIONS)
    await OperatorLog(lab.there.engine, lab.there.keys).add(ANN, "more")
    assert len(await lab.there.engine.command("XRANGE", lab.there.keys.operator_log, "-", "+")) == 4


async def test_a_move_tells_how_far_it_is(lab: Lab) -> None:
    """Comparing reads as much as copying does: minutes on a large crawl."""
    meter = HeardMeter()
    await move(*lab.ends(), meter)
    assert [part.what for part in meter.parts] == ["listing keys", "copying", "comparing", "reading back"]
    assert [part.share for part in meter.parts[1:]] == [1.0, 1.0, 1.0]


async def test_a_crawl_that_comes_back_leaves_nothing_of_the_time_before(lab: Lab) -> None:
    await lab.move()
    await lab.there.engine.command("UNLINK", lab.there.keys.takeovers, lab.there.keys.overrides)
    await lab.there.engine.command("HSET", lab.there.keys.of(2, "u"), "new", 1)
    await lab.here.engine.command("HSET", lab.here.keys.crawl, "budget_reached", "{}")
    was = await dump(lab.there)
    await lab.move(back=True)
    assert await dump(lab.here) == was
    with pytest.raises(ConflictError, match="has moved to a"):
        await Crawls(lab.there.engine, lab.there.keys).load()


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("is_new", [False, True], ids=["goes-on", "taken-back"])
@pytest.mark.parametrize("dies", ["a", "b"])
async def test_a_move_that_is_killed_anywhere(lab: Lab, dies: str, *, is_new: bool) -> None:
    """It goes on from where it was, or is taken back and begun again; never may both engines have the crawl."""
    was = await dump(lab.here)
    engine = cast("Dying", (lab.here if dies == "a" else lab.there).engine)
    for calls in itertools.count(1, 2 if is_new else 1):
        engine.left = calls
        try:
            await lab.move()
        except EngineDown:
            engine.left = 1_000_000
        except ConflictError:  # it was killed after its last word
            break
        else:
            break
        assert [await opened(lab.here), await opened(lab.there)].count(True) <= 1
        if is_new and not await opened(lab.here) and not await opened(lab.there):
            await undo(*lab.ends())
            assert await dump(lab.here) == was
    engine.left = 1_000_000
    assert calls > (30 if is_new else 10)
    assert await dump(lab.there) == was
    assert [await opened(lab.here), await opened(lab.there)] == [False, True]


async def test_what_a_command_writes_meanwhile_is_copied_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had the crawl open before the move began."""
    whole, left = copying.read_entries, iter([1])

    async def read(engine: Engine, keys: Keys, group: int, names: Sequence[bytes]) -> AsyncIterator[Any]:
        async for some in whole(engine, keys, group, names):
            yield some
        if group == 5 and next(left, None):
            await lab.here.engine.commands(
                [("HSET", keys.of(1, "u"), "late", 1), ("UNLINK", keys.of(1, "w:x")), ("HSET", keys.overrides, "x", 1)]
            )

    monkeypatch.setattr("crawler.recovery.move.read_entries", read)
    await lab.move()
    monkeypatch.undo()
    here, there = await dump(lab.here), await dump(lab.there)
    assert {key: value for key, value in here.items() if key != lab.here.keys.crawl.encode()} == {
        key: value for key, value in there.items() if key != lab.here.keys.crawl.encode()
    }
    assert (lab.here.keys.of(1, "u").encode()) in there


async def test_a_copy_that_differs_is_no_copy(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = copying._writes
    monkeypatch.setattr(copying, "_writes", lambda key, entry: list(whole(key, entry))[:1])
    with pytest.raises(Exception, match="the copy of what is crawl-wide differs"):
        await lab.move()
    with pytest.raises(ConflictError, match="on its way here from a"):
        await Crawls(lab.there.engine, lab.there.keys).load()


async def test_names_that_are_many_are_kept_in_files(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "NAMES_IN_MEMORY_BYTES", 300)
    was = await dump(lab.here)
    await lab.move()
    assert await dump(lab.there) == was
    assert not lab.here.work.exists()


async def test_a_crawl_with_an_instance_or_seeds_on_their_way_does_not_move(lab: Lab) -> None:
    for state in ("alive", "seeding"):
        member = Member(
            session="s1", node="n1", counter=1, weight=1.0, state=state, host="elsewhere", lock="/nowhere", pid=1,
            started_at=0.0,
        )  # fmt: skip
        beats = itertools.count(2)

        async def read(member: Member = member, beats: Any = beats) -> dict[str, Member]:
            return {"s1": msgspec.structs.replace(member, counter=next(beats))}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Members, "read", lambda _self: read())
            with pytest.raises(ConflictError, match="running on this crawl: n1"):
                await lab.move()
    assert await Crawls(lab.here.engine, lab.here.keys).load() is not None
    assert await lab.there.raw() is None


async def test_another_crawl_of_the_name_is_left_alone(lab: Lab) -> None:
    await make(lab.there)
    was = await dump(lab.here), await dump(lab.there)
    with pytest.raises(ConflictError, match="b has another crawl 'm'"):
        await lab.move()
    assert (await dump(lab.here), await dump(lab.there)) == was


async def test_one_engine_under_two_names_is_seen(lab: Lab) -> None:
    was = await dump(lab.here)
    same = dataclasses.replace(lab.here, place="the same", work=lab.folder / "other")
    with pytest.raises(UsageError, match="the same is the engine that the crawl is in"):
        await move(Departure(lab.here, "the same", MEMBERSHIP), Arrival(same, "a"))
    assert await dump(lab.here) == was


async def test_a_move_is_taken_back_until_it_has_ended(lab: Lab) -> None:
    was = await dump(lab.here)
    with pytest.raises(ConflictError, match="no move of the crawl 'm' to b is under way"):
        await undo(*lab.ends())
    cast("Dying", lab.there.engine).left = 20
    with pytest.raises(EngineDown):
        await lab.move()
    cast("Dying", lab.there.engine).left = 1_000_000
    with pytest.raises(ConflictError, match="is on its way to b"):
        await move(Departure(lab.here, "c", MEMBERSHIP), Arrival(lab.there, "a"))
    await undo(*lab.ends())
    assert await dump(lab.here) == was
    assert await dump(lab.there) == {}
    await lab.move()
    with pytest.raises(ConflictError, match="has arrived at b"):
        await undo(*lab.ends())


async def test_a_crawl_that_left_can_be_removed_and_is_listed_as_gone(lab: Lab) -> None:
    await lab.move()
    crawls = CrawlList(lab.here.engine)
    (listed,) = await crawls.read()
    assert listed.mark is not None
    assert (listed.record, listed.mark.place) == (None, "b")
    assert await crawls.mark(NAME)
    await crawls.erase(NAME)
    assert await lab.here.raw() is None
    with pytest.raises(NoCrawlError, match="a has no crawl 'm'"):
        await lab.move()


# URLs on disk.


async def spill(side: Side, data: bytes = b"blocks of URLs") -> SpillFiles:
    """A file that partition 1 names."""
    record = await Crawls(side.engine, side.keys).load()
    assert record is not None
    files = side.files(record)
    assert files is not None
    files.store(1, "1-s-1", data)
    await side.engine.command("HSET", side.keys.of(1, "files"), "1-s-1", 1)
    return files


async def test_urls_on_disk_move_along(lab: Lab) -> None:
    files = await spill(lab.here)
    copied = await lab.move()
    assert copied.spill_files == 1
    assert [path.read_bytes() for path in (lab.folder / "b").rglob("1-s-1")] == [b"blocks of URLs"]
    assert files.data(1, "1-s-1") == b"blocks of URLs"


async def test_urls_on_disk_are_found_where_they_were_before_a_folder_was_named(lab: Lab) -> None:
    """An embedded engine keeps them in the crawl folder; the setting is for the server that the crawl goes to."""
    await spill(lab.here)
    named = dataclasses.replace(lab.here, spill_folder=lab.folder / "new", spill_before=lab.here.spill_folder)
    target = dataclasses.replace(lab.there, spill_folder=lab.folder / "new")
    await move(Departure(named, "b", MEMBERSHIP), Arrival(target, "a"))
    assert [path.read_bytes() for path in (lab.folder / "new").rglob("1-s-1")] == [b"blocks of URLs"]


async def test_urls_on_disk_stay_where_no_folder_is_known(lab: Lab) -> None:
    await spill(lab.here)
    nowhere = dataclasses.replace(lab.there, spill_folder=None)
    was = await dump(lab.here)
    with pytest.raises(UsageError, match=r"frontier\.spill_folder=DIR"):
        await move(lab.ends()[0], Arrival(nowhere, "a"))
    assert await dump(lab.here) == was


# Backups.


async def test_a_backup_and_a_restore_tell_how_far_they_are(lab: Lab) -> None:
    meter, file = HeardMeter(), lab.folder / "m.backup"
    await back_up(lab.here, file, MEMBERSHIP, meter)
    await restore(file, Arrival(lab.there, "m.backup"), meter)
    whats = ["listing keys", "copying", "comparing", "restoring", "reading back"]
    assert [part.what for part in meter.parts] == whats
    assert [part.share for part in meter.parts[1:]] == [1.0, 1.0, 1.0, 1.0]


async def test_a_backup_brings_a_crawl_back_on_another_engine(lab: Lab) -> None:
    await spill(lab.here)
    was, file = await dump(lab.here), lab.folder / "m.backup"
    written = await back_up(lab.here, file, MEMBERSHIP)
    assert await dump(lab.here) == was
    assert file.stat().st_mode & 0o077 == 0  # tokens and cookies are in it
    read = await restore(file, Arrival(lab.there, "m.backup"))
    assert await dump(lab.there) == was
    assert (read.keys, read.spill_files) == (written.keys, 1)
    assert [path.read_bytes() for path in (lab.folder / "b").rglob("1-s-1")] == [b"blocks of URLs"]
    with pytest.raises(ConflictError, match="b has this crawl already"):
        await restore(file, Arrival(lab.there, "m.backup"))
    with pytest.raises(UsageError, match="exists: name another file"):
        await back_up(lab.here, file, MEMBERSHIP)


async def test_a_restore_that_is_killed_anywhere_goes_on(lab: Lab) -> None:
    was, file = await dump(lab.here), lab.folder / "m.backup"
    await back_up(lab.here, file, MEMBERSHIP)
    engine = cast("Dying", lab.there.engine)
    for calls in itertools.count(1):
        engine.left = calls
        try:
            await restore(file, Arrival(lab.there, "m.backup"))
        except EngineDown:
            continue
        except ConflictError:  # it was killed after its last word
            pass
        break
    engine.left = 1_000_000
    assert calls > 10
    assert await dump(lab.there) == was


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "other", "no end"])
async def test_a_damaged_backup_restores_nothing(lab: Lab, how: str) -> None:
    file = lab.folder / "m.backup"
    await back_up(lab.here, file, MEMBERSHIP)
    data = file.read_bytes()
    damaged = {
        "cut": data[: len(data) * 2 // 3], "empty": b"", "other": b"PK" + data,
        "flipped": data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
        "no end": data[: _last_frame(data)],
    }[how]  # fmt: skip
    file.write_bytes(damaged)
    with pytest.raises(UsageError, match=r"nothing is restored from it|is not a backup"):
        await restore(file, Arrival(lab.there, "m.backup"))
    assert await dump(lab.there) == {}


def _last_frame(data: bytes) -> int:
    at = last = len(backup.MAGIC)
    while at < len(data):
        last = at
        at += backup._HEAD.size + backup._HEAD.unpack_from(data, at)[0]
    return last


def test_a_full_disk_leaves_no_part_of_a_backup(tmp_path: Path) -> None:
    """What is buffered can't be written when the file is closed either."""

    class Full:
        def close(self) -> None:
            raise OSError("No space left on device")

        flush = close

    writer = backup.BackupWriter(tmp_path / "m.backup")
    writer._file.close()
    writer._file = cast("Any", Full())
    with pytest.raises(ArchiveError):
        writer.finish()
    writer.discard()
    assert [*tmp_path.iterdir()] == []


def test_two_backups_into_one_file_are_one_and_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "m.backup"
    (tmp_path / "m.backup.open").write_bytes(b"the part of one that was killed" * 100)
    first = backup.BackupWriter(path)
    with pytest.raises(UsageError, match="another backup is being written"):
        backup.BackupWriter(path)
    first.add("end", 0)
    first.finish()
    whole = path.read_bytes()
    with pytest.raises(UsageError, match="exists: name another file"):
        backup.BackupWriter(path)
    assert path.read_bytes() == whole
    assert whole.startswith(backup.MAGIC)
    assert b"killed" not in whole
    assert [one.name for one in tmp_path.iterdir()] == ["m.backup"]


@pytest.mark.parametrize("name", [".", "", "/"])
def test_a_folder_is_not_a_name_of_a_backup(name: str) -> None:
    with pytest.raises(UsageError, match="name another file"):
        backup.BackupWriter(Path(name))


async def test_a_backup_of_a_crawl_that_changes_meanwhile_is_none(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = backup.read_entries

    async def read(engine: Engine, keys: Keys, group: int, names: Sequence[bytes]) -> AsyncIterator[Any]:
        async for some in whole(engine, keys, group, names):
            yield some
        if group == CRAWL_WIDE:
            await engine.command("HSET", keys.of(1, "u"), "late", 1)

    monkeypatch.setattr(backup, "read_entries", read)
    with pytest.raises(ConflictError, match="changed while it was copied"):
        await back_up(lab.here, lab.folder / "m.backup", MEMBERSHIP)
    assert [path.name for path in lab.folder.glob("m.backup*")] == []

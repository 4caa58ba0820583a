"""The crawls of an engine: their list, and the removal of one, which a crash may interrupt anywhere.

Removal replaces the record by a mark, so that nobody opens the crawl any more. Then it deletes the keys, the record
last. While the mark is there, the same removal again finishes what an interrupted one has left.
"""

import msgspec

from crawler.engine.client import Engine
from crawler.errors import ConflictError
from crawler.frontier.arguments import ReplaceArgs
from crawler.frontier.keys import CRAWLS, LAYOUT, Keys
from crawler.frontier.record import REMOVED, CrawlRecord, Mark, encoded, mark_in, record_of


class ListedCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl of the list. `record` is None for one of another layout, and where a mark is stored in its place."""

    name: str
    layout: int
    begun_at: float  # wall clock, s; 0.0 where the record does not tell
    record: CrawlRecord | None = None
    mark: Mark | None = None


class CrawlList:
    """The crawls of one engine. A crawl of an earlier release is on the list once it was opened by this one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def read(self) -> list[ListedCrawl]:
        """All crawls on the list, by name."""
        names = sorted(name.decode() for name in await self._engine.command("SMEMBERS", CRAWLS))
        raw = await self._engine.commands([("HGET", Keys(name).crawl, "record") for name in names])
        return [_listed(name, record) for name, record in zip(names, raw, strict=True) if record is not None]

    async def find(self, name: str) -> ListedCrawl | None:
        """A crawl by its name, whether or not it is on the list."""
        raw = await self._record(name)
        return None if raw is None else _listed(name, raw)

    async def mark(self, name: str) -> bool:
        """From now on nobody can open the crawl, and instances that come to it stop. False: it is marked already.

        Raises ConflictError when its record changes at this moment.
        """
        raw = await self._record(name)
        if raw is None or _is_removal(raw):
            return False
        await self.replace(name, raw, encoded(Mark(layout=REMOVED, was=raw.decode())))
        return True

    async def unmark(self, name: str) -> None:
        """The crawl is as it was before `mark`. Only for the caller to whom that returned True, and before `erase`."""
        raw = await self._record(name)
        if raw is not None and _is_removal(raw):
            await self.replace(name, raw, msgspec.json.decode(raw, type=Mark).was.encode())

    async def erase(self, name: str) -> int:
        """Delete all keys of a marked crawl; how many those were. It ends early where another removal finished first.

        The keys are read again until there are none: a command that had the crawl open may have written meanwhile.
        """
        erased = 0
        while found := await self._erase_once(name):
            erased += found
        if await self._is_marked(name):
            await self._engine.command("SREM", CRAWLS, name)  # first: the mark keeps the name until all is done
            erased += int(await self._engine.command("UNLINK", Keys(name).crawl))
        return erased

    async def _erase_once(self, name: str) -> int:
        keys, erased = Keys(name), 0
        async for some in self._engine.scan(keys.pattern):
            if not await self._is_marked(name):
                break  # what is here now belongs to a new crawl
            others = [key for key in some if key != keys.crawl.encode()]
            erased += sum(await self._engine.commands([("UNLINK", key) for key in others]))
        return erased

    async def _is_marked(self, name: str) -> bool:
        raw = await self._record(name)
        return raw is not None and _is_removal(raw)

    async def _record(self, name: str) -> bytes | None:
        raw: bytes | None = await self._engine.command("HGET", Keys(name).crawl, "record")
        return raw

    async def replace(self, name: str, seen: bytes, record: bytes) -> None:
        """Raises ConflictError when what stands there is not what was seen."""
        (reply,) = await self._engine.run("replace_record", (Keys(name).crawl,), *ReplaceArgs(seen, record))
        if reply != b"COMMITTED":
            raise ConflictError(f"the record of crawl {name!r} was changed at this moment: try again")


def _is_removal(raw: bytes) -> bool:
    mark = mark_in(raw)
    return mark is not None and mark.layout == REMOVED


def _listed(name: str, raw: bytes) -> ListedCrawl:
    if mark := mark_in(raw):
        return msgspec.structs.replace(_listed(name, mark.was.encode()), layout=mark.layout, record=None, mark=mark)
    found = msgspec.json.decode(raw)
    layout = int(found["layout"])
    record = record_of(found) if layout == LAYOUT else None
    begun_at = float(found.get("origin") or found.get("begun_at") or 0.0)
    return ListedCrawl(name=name, layout=layout, begun_at=begun_at, record=record)

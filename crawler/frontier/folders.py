"""The crawl folders that took part in a crawl: who judges or rebuilds it can tell which one is missing."""

import socket

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys


class FolderNote(msgspec.Struct, frozen=True, kw_only=True):
    """Where a folder was when somebody last crawled or seeded with it."""

    path: str
    host: str

    @property
    def shown(self) -> str:
        return f"{self.path} on {self.host}"


class Folders:
    """Crawl-wide: id of a folder (that of its crawl.json) -> its note. All calls raise EngineError."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._key = keys.folders

    async def read(self) -> dict[str, FolderNote]:
        raw = await self._engine.command("HGETALL", self._key)
        return {key.decode(): msgspec.json.decode(blob, type=FolderNote) for key, blob in pairs_of(raw)}

    async def note(self, folder: str, path: str) -> None:
        """`folder`: its id; `path`: absolute."""
        made = FolderNote(path=path, host=socket.gethostname())
        await self._engine.command("HSET", self._key, folder, msgspec.json.encode(made))

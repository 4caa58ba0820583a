"""Every key of the engine, made in one place.

All keys of a partition share the hash tag {crawl:partition}, all crawl-wide keys the tag {crawl}: one script touches
one slot. The scripts build further keys from the meta key's prefix (lua/_partition.lua).
"""

from functools import lru_cache

LAYOUT = 9  # version of what is stored under these keys; another one is refused


CRAWLS = "crawler:crawls"  # the set of all crawls of the engine, by name; the one key that belongs to no crawl


class Keys:
    """The keys of one crawl."""

    def __init__(self, crawl: str) -> None:
        self.crawl_name = crawl
        self.tag = f"{{{crawl}}}:"
        self.crawl = f"{{{crawl}}}:crawl"
        self.members = f"{{{crawl}}}:members"
        self.nodes = f"{{{crawl}}}:nodes"
        self.returns = f"{{{crawl}}}:returns"
        self.evicted = f"{{{crawl}}}:evicted"
        self.takeovers = f"{{{crawl}}}:takeovers"
        self.pins = f"{{{crawl}}}:pins"
        self.overrides = f"{{{crawl}}}:overrides"
        self.operator_log = f"{{{crawl}}}:operator_log"
        self.api_tokens = f"{{{crawl}}}:tokens"
        self.api_answers = f"{{{crawl}}}:answers"
        self.supervisors = f"{{{crawl}}}:supervisors"
        self.wanted = f"{{{crawl}}}:wanted"
        self.scope = f"{{{crawl}}}:scope"
        self.seeds = f"{{{crawl}}}:seeds:"  # prefix; number of the seed // 256 follows
        self.series = f"{{{crawl}}}:series"
        self.history = f"{{{crawl}}}:history"
        self.folders = f"{{{crawl}}}:folders"
        self.jobs = f"{{{crawl}}}:jobs"
        self.moving = f"{{{crawl}}}:moving"
        self.hints = f"{{{crawl}}}:hints:"  # channel prefix; the owner's session follows
        self._prefix = f"{{{crawl}:"
        self.meta = lru_cache(maxsize=None)(self._meta)  # at most one entry per partition

    def _meta(self, partition: int) -> str:
        return f"{self._prefix}{partition}}}:m"

    def of(self, partition: int, name: str) -> str:
        """Key `name` of a partition, like u, x, ready or q:QUEUE (docs/internals/frontier-layout.md)."""
        return f"{self._prefix}{partition}}}:{name}"

    @property
    def pattern(self) -> str:
        """A glob pattern that all keys of this crawl match, and no key of another one."""
        literally = "".join(f"\\{c}" if c in "*?[]\\" else c for c in self.crawl_name)
        return f"{{{literally}[:}}]*"

    @staticmethod
    def partition_of_meta(key: str) -> int:
        """The partition that a meta key names (hints carry it)."""
        return int(key[key.rindex(":", 0, key.index("}")) + 1 : key.index("}")])

"""The job of a peer's program: its one argument, a JSON file. Standard library only: each peer has its own Python."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Job:
    """Crawl from `seeds` what `pattern` matches, `concurrency` requests at a time, and list the pages in `output`.

    With a `pages_max` above 0 the crawl ends after this many pages. `dns` is the name server (address:port). The
    program may leave other files in the folder of `output`.
    """

    seeds: list[str]
    pattern: str
    concurrency: int
    pages_max: int
    output: str
    dns: str
    variant: str

    def is_enough(self, pages: int) -> bool:
        return 0 < self.pages_max <= pages

    def write_pages(self, pages: Iterable[str]) -> None:
        Path(self.output).write_text("\n".join(pages), encoding="utf-8")


def read_job() -> Job:
    return Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))

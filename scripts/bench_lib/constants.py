"""What `crawler plan` calculates with: measured here, and written to crawler/views/plan.json.

CPU seconds of crawler and engine for a page of 20 and of 240 KB (the web of `scripts/bench heavy`), what such a page
takes on the wire, in the archive and in the index, and what URLs and domains take of the engine's memory (as
`scripts/bench memory`). The two sizes give a part for each page and a part for each KB.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.bench_lib import arguments, measure, servers
from scripts.bench_lib.frontier_session import embedded_engine
from scripts.bench_lib.heavy import HeavyWeb
from scripts.bench_lib.memory import ours
from scripts.bench_lib.peer_clients import all_clients
from scripts.bench_lib.peer_environments import ROOT

FILE = ROOT / "crawler" / "views" / "plan.json"
SIZES_KB = (20, 240)
URLS = 150_000
_QUEUED = re.compile(r"queued +([\d.]+): path ([\d.]+), seen-set ([\d.]+)")
_ON_DISK = re.compile(r"on disk +([\d.]+)")
_IDLE = re.compile(r"idle domain +([\d.]+)")


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("constants", __doc__)
    parser.add_argument("--hosts", type=arguments.positive_int, default=1500, help="of the web, with two pages each")
    parser.add_argument("--rounds", type=arguments.positive_int, default=3)
    parser.add_argument("--output", type=Path, default=FILE, metavar="FILE")
    options = parser.parse_args(words)
    if missing := servers.missing_packages(HeavyWeb()):
        print(f"bench: the web is incomplete; as root: apt install {' '.join(missing)}", file=sys.stderr)
        return 2
    servers.raise_file_limit()
    header = measure.header()
    cores = measure.take_cores(share=False)
    small, large = (_of_pages(options, kb, cores) for kb in SIZES_KB)
    found: dict[str, Any] = {
        "date": header["date"], "commit": header["commit"], "cpu": header["machine"]["cpu"],
        "crawler_cpu_s": _line(small["cpu"], large["cpu"]), "engine_cpu_s": large["engine"],
        "wire_bytes": _line(small["wire"], large["wire"]), "archive_bytes": _line(small["archive"], large["archive"]),
        "index_bytes": large["index"], "instance_mib": large["mib"], **_of_memory(),
    }  # fmt: skip
    options.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))
    return 0


def _line(small: float, large: float) -> dict[str, float]:
    """A part for each page, and one for each KB of HTML."""
    per_kb = (large - small) / (SIZES_KB[1] - SIZES_KB[0])
    return {"page": max(0.0, small - per_kb * SIZES_KB[0]), "kb": per_kb}


def _of_pages(options: argparse.Namespace, kb: int, cores: measure.Cores) -> dict[str, float]:
    """Medians of the rounds, for one page."""
    web, client = HeavyWeb(hosts_count=options.hosts, page_bytes=kb * 1000), all_clients(128)["crawler"]
    found = dict[str, float]()
    with servers.serving(web) as running, tempfile.TemporaryDirectory(prefix="bench-kept-") as kept:
        keeps = [None] * (options.rounds - 1) + [Path(kept)]
        runs = [measure.run_once(client, running, cores, 600, keep=keep) for keep in keeps]
        pages = len(runs[-1].pages)
        (crawl,) = (path for path in Path(kept).rglob("crawl") if path.is_dir())
        found["archive"] = _bytes_below(crawl / "warc") / pages
        found["index"] = _bytes_below(crawl / "index") / pages
        found["wire"] = _bytes_below(running.home / "f") / (web.hosts_count * 2)
    middle = sorted(runs, key=lambda run: run.all_per_thousand)[len(runs) // 2]
    return found | {
        "cpu": middle.cpu_per_thousand / 1000, "engine": middle.engine_per_thousand / 1000, "mib": middle.client_mib,
    }  # fmt: skip


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _of_memory() -> dict[str, float]:
    """Bytes of the engine's memory."""
    long = "\n".join(_lines(10_000))
    short = "\n".join(_lines(3))
    queued, path, seen = (float(part) for part in _must(_QUEUED, long))
    (on_disk,), (idle,) = _must(_ON_DISK, long), _must(_IDLE, short)
    short_queued, short_path, _ = (float(part) for part in _must(_QUEUED, short))
    return {
        "seen_bytes": seen, "path_bytes": path, "pending_bytes": queued - seen - path, "spilled_bytes": float(on_disk),
        "domain_bytes": float(idle), "short_pending_bytes": short_queued - seen - short_path,
    }  # fmt: skip


def _lines(of: int) -> list[str]:
    with embedded_engine() as url:
        return asyncio.run(ours(url, random.Random(1), URLS, of, None))


def _must(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = pattern.search(text)
    assert found is not None, text
    return found.groups()

"""A spider and its port side by side, as the page for people who come from Scrapy shows them, on the same web."""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import given
from environments import scrapy_environment

from crawler.testing import ExampleWeb, ServedWeb, serve

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-scrapy.md"
FILES = {"Scrapy": "quotes_spider.py", "this crawler": "quotes.py"}
OURS = "crawl http://quotes.test/ --scope any --app quotes.py --set scope.follow=handlers -o items.jsonl -q"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=given.count, default=300, help="of quotations")
    parser.add_argument("--authors", type=given.count, default=300, help="each on a site of its own")
    parser.add_argument("--runs", type=given.count, default=3)
    options = parser.parse_args()
    web = ExampleWeb(pages=options.pages, authors=options.authors)
    figures: dict[str, list[tuple[float, float, int]]] = {name: [] for name in FILES}
    items: dict[str, list[str]] = {}
    for _ in range(options.runs):
        for name in FILES:
            with tempfile.TemporaryDirectory(prefix="bench-port-") as home, serve(web.pages) as served:
                figures[name].append(run(name, Path(home), served))
                items[name] = sorted(Path(home, "items.jsonl").read_text("utf-8").splitlines())
    decoded = [[json.loads(line) for line in lines] for lines in items.values()]
    print(f"items: {len(decoded[0]):,}, {'the same' if same(*decoded) else 'NOT the same'}")
    print("| | lines | pages/s | CPU s per 1,000 pages |\n|---|---|---|---|")
    for name, runs in figures.items():
        speed = statistics.median(pages / wall for wall, _, pages in runs)
        cpu = statistics.median(1000 * cpu / pages for _, cpu, pages in runs)
        lines = sum(1 for line in block(FILES[name]).splitlines() if line.strip())
        print(f"| {name} | {lines} | {speed:.0f} | {cpu:.1f} |")


def same(one: list[dict[str, object]], other: list[dict[str, object]]) -> bool:
    return sorted(map(repr, map(sorted_fields, one))) == sorted(map(repr, map(sorted_fields, other)))


def sorted_fields(item: dict[str, object]) -> list[tuple[str, object]]:
    return sorted(item.items())


def block(file: str) -> str:
    """The code block of the page that goes by this name."""
    found = re.search(rf"^```python {re.escape(file)}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{PAGE} has no block {file}"
    return found[1]


def run(name: str, home: Path, served: ServedWeb) -> tuple[float, float, int]:
    """Seconds, CPU seconds of all its processes, and pages that it asked for."""
    (home / FILES[name]).write_text(block(FILES[name]), encoding="utf-8")
    environment: Mapping[str, str] = served.environment
    command = [sys.executable, "-m", "crawler", *OURS.split()]
    if name == "Scrapy":
        environment = {"http_proxy": f"http://{served.settings['fetch.gateway']}"}
        command = [
            str(scrapy_environment()),
            "-m",
            "scrapy",
            "runspider",
            FILES[name],
            "-O",
            "items.jsonl",
            "-L",
            "ERROR",
        ]
    before, began = cpu_s(), time.monotonic()
    subprocess.run(command, cwd=home, env=os.environ | environment, check=True, stdin=subprocess.DEVNULL)
    wall_s = time.monotonic() - began
    pages = sum(1 for url in served.asked if not url.endswith("/robots.txt"))
    return wall_s, cpu_s() - before, pages


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

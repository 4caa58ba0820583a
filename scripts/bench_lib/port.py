"""A Scrapy spider and the same app for this crawler, from the documentation's page for Scrapy users, on the same web.

Prints lines of code, pages a second and CPU, and whether both found the same items. Installs Scrapy when needed.
"""

import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from crawler.testing import ExampleWeb, ServedWeb, serve
from scripts.bench_lib import arguments
from scripts.bench_lib.peer_environments import CRAWLER, ROOT, scrapy_environment

FILES = {"Scrapy": "quotes_spider.py", "this crawler": "quotes.py"}
OURS = "crawl http://quotes.test/ --scope any --app quotes.py --set scope.follow=handlers -o items.jsonl -q"
SCRAPYS = "runspider quotes_spider.py -O items.jsonl -L ERROR"


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("port", __doc__)
    parser.add_argument("--pages", type=arguments.positive_int, default=300, help="pages of quotations")
    parser.add_argument("--authors", type=arguments.positive_int, default=300, help="authors, each on its own site")
    parser.add_argument("--runs", type=arguments.positive_int, default=3, help="runs of each program")
    options = parser.parse_args(words)
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
    return 0


def same(one: list[dict[str, object]], other: list[dict[str, object]]) -> bool:
    """In any order, with their fields in any order."""
    mine, theirs = (sorted(repr(sorted(item.items())) for item in items) for items in (one, other))
    return mine == theirs


def block(file: str) -> str:
    """The code block with this name in the documentation's page for Scrapy users: the page that has the spider."""
    pages = (page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))
    page = next(text for text in pages if f"```python {FILES['Scrapy']}\n" in text)
    return page.partition(f"```python {file}\n")[2].partition("\n```")[0] + "\n"


def run(name: str, home: Path, served: ServedWeb) -> tuple[float, float, int]:
    """Seconds, CPU seconds of all its processes, and requested pages."""
    (home / FILES[name]).write_text(block(FILES[name]), encoding="utf-8")
    environment: Mapping[str, str] = served.environment
    command = [*CRAWLER, *OURS.split()]
    if name == "Scrapy":
        environment = {"http_proxy": f"http://{served.settings['fetch.gateway']}"}
        command = [str(scrapy_environment()), "-m", "scrapy", *SCRAPYS.split()]
    before, began = cpu_s(), time.monotonic()
    subprocess.run(command, cwd=home, env=os.environ | environment, check=True, stdin=subprocess.DEVNULL)
    wall_s = time.monotonic() - began
    pages = sum(1 for url in served.asked if not url.endswith("/robots.txt"))
    return wall_s, cpu_s() - before, pages


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

"""A link checker: the crawl yields what each page links to; `python links.py pages.jsonl` lists the broken links."""

import json
import sys
from pathlib import Path

from crawler import Crawler

MISSING = (404, 410)

app = Crawler()


@app.page(statuses=(200, *MISSING))
async def every(page):
    """A page that exists, or a missing one."""
    yield {"url": page.url, "status": page.status, "links": page.links()}


def broken(pages):
    """Pairs of a missing page and a page that links to it."""
    missing = {page["url"] for page in pages if page["status"] in MISSING}
    return sorted((link, page["url"]) for page in pages for link in page["links"] if link in missing)


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text().splitlines()
    for link, source in broken([json.loads(line) for line in lines]):
        print(f"{link} is missing; {source} links to it")

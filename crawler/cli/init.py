"""`crawler init`: writes a settings file and an app to begin with, and overwrites nothing."""

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path

from crawler import given_path
from crawler.cli.parse_init import APP_FILE, SETTINGS_FILE
from crawler.errors import UsageError
from crawler.settings.described import file_of_defaults, sections
from crawler.terminal.output import out

USUAL = {  # what people change most, by section
    "crawl": ("name", "pages_max", "time_max_s"),
    "scope": ("mode", "include", "exclude", "depth_max"),
    "politeness": ("delay_s", "adaptive"),
    "fetch": ("concurrency", "contact", "total_timeout_s", "body_bytes_max"),
    "retry": ("attempts",),
    "frontier": ("redis", "order", "memory"),
    "budget": ("pages",),
    "archive": ("dir",),
    "handlers": ("app",),
    "log": ("level",),
}


HEAD = f"""\
# Settings of this crawl. A line that begins with "# " has the default: remove the "# " to change it.
# Options and variables (CRAWLER_POLITENESS_DELAY_S=2) override this file. Times end in _s and are seconds.
# Check it with:  crawler check {SETTINGS_FILE} {APP_FILE}
"""


APP = f'''\
"""What to take from which page. It is named in {SETTINGS_FILE}, so this crawls a site and stores the items:

    crawler crawl https://docs.example/ --config {SETTINGS_FILE} -o items.jsonl
"""

from crawler import Crawler

app = Crawler()


@app.page()  # for every page; for some of them: @app.page("docs.example/guide/*")
async def page(page):
    """One item for each page. Links are followed as [scope] tells."""
    yield {{"url": page.url, "title": page.title, "headings": [h.text(strip=True) for h in page.css("h1")]}}
'''


def run_init(arguments: argparse.Namespace) -> int:
    """Write both; nothing where one exists. Raises UsageError."""
    folder = Path(arguments.folder)
    settings, app = folder / SETTINGS_FILE, folder / APP_FILE
    for path in (settings, app):
        if given_path.exists(path) or path.is_symlink():
            raise UsageError(f"{path} exists: nothing was written; name another folder, or move the file away")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in ((settings, settings_text()), (app, APP)):
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror or error}") from None
    enter = [] if arguments.folder == "." else [f"  cd {shlex.quote(arguments.folder)}"]
    lines = [
        f"Created {settings} and {app}. Next:",
        *enter,
        f"  crawler check {SETTINGS_FILE} {APP_FILE}",
        f"  crawler crawl https://docs.example/ --config {SETTINGS_FILE} -o items.jsonl",
    ]
    out("\n".join(lines))
    return 0


def settings_text() -> str:
    """The settings file: usual keys with their defaults and comments, all but the app commented out."""
    return "\n\n".join([HEAD.rstrip(), *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for section in sections(file_of_defaults()):
        lines = [f"[{section.name}]" + (f"  # {section.about}" if section.about else "")]
        for key in section.keys:
            if key.name in USUAL.get(section.name, ()):
                is_app = (section.name, key.name) == ("handlers", "app")
                value = f'{key.name} = "{APP_FILE}"' if is_app else f"# {key.name} = {key.default}"
                lines.append(f"{value:<30}  # {key.about}")
        if len(lines) > 1:
            yield "\n".join(lines)

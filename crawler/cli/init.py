"""`crawler init`: writes a settings file and an app to begin with, and overwrites nothing."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler.cli.options import named_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS_FILE, APP_FILE = "crawler.toml", "app.py"

EPILOG = """\
examples:
  crawler init              crawler.toml and app.py in this folder
  crawler init shop         the same in the folder shop, which is created

A file that exists is never overwritten: then nothing is written.

exit codes: 0 written, 2 a file exists or can't be written
"""

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


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "init",
        help="write a settings file and an app to begin with",
        description=f"Write {SETTINGS_FILE}, with the settings that people change most, and {APP_FILE}, with a handler "
        "of pages.",
        epilog=EPILOG,
    )
    p.add_argument(
        "folder", nargs="?", default=".", metavar="DIR", type=named_type, help="folder of the files (default: this one)"
    )
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write both; nothing where one exists. Raises UsageError."""
    import shlex

    from crawler.terminal.text import out

    folder = Path(arguments.folder)
    settings, app = folder / SETTINGS_FILE, folder / APP_FILE
    for path in (settings, app):
        if path.exists() or path.is_symlink():
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


def _sections() -> "Iterator[str]":
    from crawler.settings.load import file_of_defaults, sections

    for section in sections(file_of_defaults()):
        lines = [f"[{section.name}]" + (f"  # {section.about}" if section.about else "")]
        for key in section.keys:
            if key.name in USUAL.get(section.name, ()):
                is_app = (section.name, key.name) == ("handlers", "app")
                value = f'{key.name} = "{APP_FILE}"' if is_app else f"# {key.name} = {key.default}"
                lines.append(f"{value:<30}  # {key.about}")
        if len(lines) > 1:
            yield "\n".join(lines)

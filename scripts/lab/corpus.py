"""The fixed web of the benchmark: documentation that Debian packages install, one virtual host each, and a portal."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

ROBOTS = "User-agent: *\nDisallow: /private/\nDisallow: /*?action=\nAllow: /\nCrawl-delay: 0\n"
PAGES_MIN = 5000


@dataclass(frozen=True)
class Source:
    """A folder of HTML, the host that serves it and the package that brings it."""

    host: str
    folder: Path
    package: str


SOURCES = (
    Source("python.test", Path("/usr/share/doc/python3.11/html"), "python3-doc"),
    Source("postgres.test", Path("/usr/share/doc/postgresql-doc-15/html"), "postgresql-doc-15"),
    Source("sqlite.test", Path("/usr/share/doc/sqlite3"), "sqlite3-doc"),
    Source("git.test", Path("/usr/share/doc/git-doc"), "git-doc"),
    Source("django.test", Path("/usr/share/doc/python-django-doc/html"), "python-django-doc"),
    Source("qt.test", Path("/usr/share/qt5/doc"), "qtbase5-doc-html"),
    Source("policy.test", Path("/usr/share/doc/debian-policy/policy.html"), "debian-policy"),
    Source("devref.test", Path("/usr/share/developers-reference"), "developers-reference"),
)
PORTAL = "portal.test"


def missing_packages() -> list[str]:
    """What `apt install` must bring before the web can be served."""
    packages = [source.package for source in SOURCES if not source.folder.is_dir()]
    return packages + ([] if nginx() else ["nginx-light"])


def nginx() -> str:
    """Path of the web server; '' when there is none. (Debian keeps it out of an ordinary user's PATH.)"""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") or ""


def seed(port: int) -> str:
    return f"http://{PORTAL}:{port}/s1.html"


def page_pattern(port: int, *, fragments: bool = False) -> str:
    """Which URLs belong to the crawl, as a regular expression: pages of the web, no queries, no empty folder names.

    (One page links to "//", which RFC 3986 and the URL standard read differently.) With `fragments` for clients that
    look at URLs before they cut the fragment off.
    """
    hosts = "|".join(re.escape(host) for host in sorted({PORTAL, *(source.host for source in SOURCES)}))
    page = rf"^http://(?:{hosts}):{port}/(?:[^?#/]+/)*(?:[^?#/]*\.html?)?"
    return page + ("(?:#.*)?$" if fragments else "$")


def write_portal(folder: Path, port: int) -> None:
    """The page that leads everywhere: s1.html, and robots.txt, which is the same on all hosts."""
    entries = [(source.host, path) for source in SOURCES for path in _entries(source)]
    items = "\n".join(f'<li><a href="http://{host}:{port}{path}">{host}{path}</a></li>' for host, path in entries)
    page = f"<!doctype html><html><head><title>Portal</title></head><body><ul>\n{items}\n</ul></body></html>\n"
    (folder / "s1.html").write_text(page, encoding="utf-8")
    (folder / "robots.txt").write_text(ROBOTS, encoding="utf-8")


def _entries(source: Source) -> list[str]:
    """A manual has its index at the root; a folder of manuals has one below each."""
    if (source.folder / "index.html").exists():
        return ["/"]
    found = []
    for folder in sorted(path for path in source.folder.iterdir() if path.is_dir()):
        names = ("index.html", f"{folder.name}-index.html", f"{folder.name.replace('-', '')}-index.html")
        found += [f"/{folder.name}/{name}" for name in names if (folder / name).exists()]
    return found

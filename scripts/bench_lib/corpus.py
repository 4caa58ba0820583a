"""The real web: documentation of Debian packages, one virtual host for each, and a portal that links to all."""

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


def nginx() -> str:
    """Path of the web server, or ''. (On Debian it is not in an ordinary user's PATH.)"""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") or ""


@dataclass(frozen=True)
class RealWeb:
    """Crawled to its end from the portal, without queries."""

    name: str = "real"
    hosts: tuple[str, ...] = (PORTAL, *(source.host for source in SOURCES))
    pages_max: int = 0
    pages_min: int = PAGES_MIN

    def missing(self) -> list[str]:
        return [source.package for source in SOURCES if not source.folder.is_dir()]

    def seeds(self, port: int) -> list[str]:
        return [f"http://{PORTAL}:{port}/s1.html"]

    def pattern(self, port: int, *, fragments: bool = False) -> str:
        """Pages of the web, no queries, no empty folder names.

        (One page links to "//", which RFC 3986 and the URL standard read differently.)
        """
        hosts = "|".join(re.escape(host) for host in sorted(self.hosts))
        page = rf"^http://(?:{hosts}):{port}/(?:[^?#/]+/)*(?:[^?#/]*\.html?)?"
        return page + ("(?:#.*)?$" if fragments else "$")

    def write(self, home: Path, port: int) -> None:
        """The portal's page s1.html, and robots.txt, which is the same on all hosts."""
        entries = [(source.host, path) for source in SOURCES for path in _entries(source)]
        items = "\n".join(f'<li><a href="http://{host}:{port}{path}">{host}{path}</a></li>' for host, path in entries)
        page = f"<!doctype html><html><head><title>Portal</title></head><body><ul>\n{items}\n</ul></body></html>\n"
        (home / "s1.html").write_text(page, encoding="utf-8")
        (home / "robots.txt").write_text(ROBOTS, encoding="utf-8")

    def servers(self, home: Path) -> list[str]:
        hosts = [(PORTAL, home), *((source.host, source.folder) for source in SOURCES)]
        return [
            f"server {{ {{listen}}; server_name {host}; root {folder}; index index.html;"
            f" location = /robots.txt {{ alias {home}/robots.txt; }} }}"
            for host, folder in hosts
        ]


def _entries(source: Source) -> list[str]:
    """A manual has its index at the root; a folder of manuals has one in each."""
    if (source.folder / "index.html").exists():
        return ["/"]
    found = []
    for folder in sorted(path for path in source.folder.iterdir() if path.is_dir()):
        names = ("index.html", f"{folder.name}-index.html", f"{folder.name.replace('-', '')}-index.html")
        found += [f"/{folder.name}/{name}" for name in names if (folder / name).exists()]
    return found

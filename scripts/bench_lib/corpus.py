"""Real webs: documentation of Debian packages, one virtual host for each."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench_lib.transport import PLAIN, Server, Transport

ROBOTS = "User-agent: *\nDisallow: /private/\nDisallow: /*?action=\nAllow: /\nCrawl-delay: 0\n"


@dataclass(frozen=True)
class Source:
    """A folder of HTML, the host that serves it and the package that brings it. `start`: the path of its first page."""

    host: str
    folder: Path
    package: str
    start: str = ""


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
ONE = (Source("cpp.test", Path("/usr/share/cppreference/doc/html"), "cppreference-doc-en-html", "/en/index.html"),)
THREE = (
    Source("boost.test", Path("/usr/share/doc/libboost1.81-doc/doc/html"), "libboost1.81-doc", "/index.html"),
    Source("scipy.test", Path("/usr/share/doc/python-scipy-doc/html"), "python-scipy-doc", "/index.html"),
    Source("erlang.test", Path("/usr/share/doc/erlang-doc"), "erlang-doc", "/doc/index.html"),
)
PORTAL = "portal.test"


def nginx() -> str:
    """Path of the web server, or ''. (On Debian it is not in an ordinary user's PATH.)"""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") or ""


@dataclass(frozen=True, kw_only=True)
class RealWeb:
    """Crawled to its end, without queries: from the first page of each source, or from a portal that links to all."""

    name: str
    sources: tuple[Source, ...]
    pages_min: int
    portal: str = ""
    file_name: str = "[^?#/]*"  # of its pages, without .html
    pages_max: int = 0
    transport: Transport = PLAIN

    @property
    def hosts(self) -> tuple[str, ...]:
        own = (self.portal,) if self.portal else ()
        return (*own, *(source.host for source in self.sources))

    def missing(self) -> list[str]:
        return [source.package for source in self.sources if not source.folder.is_dir()]

    def seeds(self, port: int) -> list[str]:
        begin = self.transport.scheme
        if self.portal:
            return [f"{begin}://{self.portal}:{port}/s1.html"]
        return [f"{begin}://{source.host}:{port}{source.start}" for source in self.sources]

    def pattern(self, port: int, *, fragments: bool = False) -> str:
        """Pages of the web, no queries, no empty folder names.

        (One page links to "//", which RFC 3986 and the URL standard read differently, and one to "operator%.html",
        which clients send in different ways.)
        """
        hosts = "|".join(re.escape(host) for host in sorted(self.hosts))
        page = rf"^{self.transport.scheme}://(?:{hosts}):{port}/(?:[^?#/]+/)*(?:{self.file_name}\.html?)?"
        return page + ("(?:#.*)?$" if fragments else "$")

    def write(self, home: Path, port: int) -> None:
        """robots.txt, which is the same on all hosts; the portal's page s1.html; compressed pages."""
        (home / "robots.txt").write_text(ROBOTS, encoding="utf-8")
        if self.portal:
            entries = [(source.host, path) for source in self.sources for path in _entries(source)]
            link = '<li><a href="{scheme}://{host}:{port}{path}">{host}{path}</a></li>'
            scheme = self.transport.scheme
            items = "\n".join(link.format(scheme=scheme, host=host, port=port, path=path) for host, path in entries)
            page = f"<!doctype html><html><head><title>Portal</title></head><body><ul>\n{items}\n</ul></body></html>\n"
            (home / "s1.html").write_text(page, encoding="utf-8")
        for source in self.sources if self.transport.encoding else ():
            self.transport.write_compressed(source.folder, home / source.host)

    def servers(self, home: Path) -> Iterator[Server]:
        for host, folder in self._folders(home):
            yield Server(
                (host,),
                f"root {folder}; index index.html; location = /robots.txt {{ alias {home}/robots.txt; }}",
            )

    def _folders(self, home: Path) -> Iterator[tuple[str, Path]]:
        if self.portal:
            yield self.portal, home
        for source in self.sources:
            yield source.host, home / source.host if self.transport.encoding else source.folder


def real_web(name: str, transport: Transport = PLAIN) -> RealWeb:
    """`real`: eight hosts; `three` and `one`: that many, with pages that have many links."""
    if name == "one":
        return RealWeb(name=name, sources=ONE, pages_min=4_300, transport=transport)
    if name == "three":
        return RealWeb(name=name, sources=THREE, pages_min=8_800, file_name="[^?#/%]+", transport=transport)
    return RealWeb(name=name, sources=SOURCES, pages_min=5_000, portal=PORTAL, transport=transport)


def _entries(source: Source) -> list[str]:
    """A manual has its index at the root; a folder of manuals has one in each."""
    if (source.folder / "index.html").exists():
        return ["/"]
    found = []
    for folder in sorted(path for path in source.folder.iterdir() if path.is_dir()):
        names = ("index.html", f"{folder.name}-index.html", f"{folder.name.replace('-', '')}-index.html")
        found += [f"/{folder.name}/{name}" for name in names if (folder / name).exists()]
    return found

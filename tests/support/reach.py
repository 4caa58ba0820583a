"""What the links of files lead to, found without any of the crawler's code: regular expressions and urllib.

Good for HTML as documentation tools and our own generator write it, not for hostile markup. The policy of which
elements are links is the one that docs and help promise: a, area, frame, iframe, some link relations, meta refresh.
"""

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit

# Relations of <link> that lead to pages, not to parts of this one (style sheets, icons) or another name of it.
PAGE_RELATIONS = {"next", "prev", "alternate"}

_NOT_MARKUP = re.compile(r"<!--.*?-->|<(script|style|title|textarea)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"""<(a|area|link|frame|iframe|base|meta)\b((?:[^>"']|"[^"]*"|'[^']*')*)>""", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([\w:-]+)\s*(?:=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?""")
_REFRESH = re.compile(r"\s*\d+\s*[;,]\s*url\s*=\s*(.*)", re.IGNORECASE | re.DOTALL)


def links_of(url: str, html: str) -> set[str]:
    """Absolute http(s) URLs without fragments that the page at `url` leads to; none if it says nofollow."""
    base = url
    found: set[str] = set()
    for name, attributes in _tags(html):
        href = attributes.get("src" if name in {"frame", "iframe"} else "href")
        relations = set(attributes.get("rel", "").lower().split())
        if name == "meta":
            if attributes.get("name", "").lower() == "robots" and "nofollow" in attributes.get("content", "").lower():
                return set()
            refresh = _REFRESH.fullmatch(attributes.get("content", ""))
            href = refresh[1] if refresh and attributes.get("http-equiv", "").lower() == "refresh" else None
        if name == "base":
            base = urljoin(url, href) if base == url and href else base
        elif href is not None and "nofollow" not in relations and (name != "link" or relations & PAGE_RELATIONS):
            found.add(href.partition("#")[0])
    return {target for href in found if (target := _absolute(base, href))}


def _tags(html: str) -> list[tuple[str, dict[str, str]]]:
    return [
        (name.lower(), {key.lower(): unescape(value.strip("\"'")) for key, value in _ATTRIBUTE.findall(attributes)})
        for name, attributes in _TAG.findall(_NOT_MARKUP.sub("", html))
    ]


def _absolute(base: str, href: str) -> str:
    try:
        target = urljoin(base, re.sub(r"[\t\r\n]", "", href.strip())).partition("#")[0]
        parts = urlsplit(target)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    return parts._replace(netloc=parts.hostname + (f":{port}" if port else ""), path=path).geturl()


def search(seeds: list[str], answer: Callable[[str], tuple[int, str, str]]) -> dict[str, int]:
    """Breadth first over `answer(url) -> (status, html or '', redirect target or '')`; status by URL."""
    known = dict.fromkeys(seeds, 0)
    queue = list(seeds)
    for url in queue:
        known[url], html, moved = answer(url)
        targets = {_absolute(url, moved)} if moved else links_of(url, html)
        fresh = [target for target in sorted(targets) if target not in known]
        known.update(dict.fromkeys(fresh, 0))
        queue += fresh
    return known


def reach_of_folder(folder: Path, root: str) -> dict[str, int]:
    """Status by URL of all that index.html of a folder served at `root` (http://host:port/) leads to on that host."""
    host = urlsplit(root).netloc
    root_folder = folder.resolve()

    def answer(url: str) -> tuple[int, str, str]:
        if urlsplit(url).netloc != host:
            return 0, "", ""
        path = unquote(urlsplit(url).path)
        file = (root_folder / path.lstrip("/")).resolve()
        if file.is_dir() and not path.endswith("/"):
            return 301, "", f"{path}/"
        file = file / "index.html" if file.is_dir() else file
        if not file.is_file() or not file.is_relative_to(root_folder):
            return 404, "", ""
        is_html = file.suffix in {".html", ".htm", ".xhtml"}
        return 200, file.read_text(encoding="utf-8", errors="replace") if is_html else "", ""

    return {url: status for url, status in search([root], answer).items() if status}

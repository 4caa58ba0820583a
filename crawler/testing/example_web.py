"""A small web to try things on: a site of quotations in pages, and a site for each of their authors.

Made from word lists, always the same. `quotes` and `authors` are what a program that reads it must find.
"""

import random
from html import escape
from typing import Any

from crawler.testing.generated_web import Resource

HOST = "quotes.test"
QUOTES_A_PAGE = 10
NOTES = 3  # further pages of each author

_FIRST = (
    "Ada",
    "Bruno",
    "Cora",
    "Dario",
    "Edda",
    "Felix",
    "Greta",
    "Hugo",
    "Ilse",
    "Jonas",
    "Kira",
    "Leon",
    "Mina",
    "Nils",
    "Olga",
    "Paul",
    "Rita",
    "Sven",
    "Tilda",
    "Ugo",
)
_LAST = (
    "Abend",
    "Birke",
    "Castor",
    "Dorn",
    "Esche",
    "Falke",
    "Garbe",
    "Hafen",
    "Iltis",
    "Jolle",
    "Kiesel",
    "Linde",
    "Moor",
    "Nebel",
    "Otter",
    "Pappel",
)
_WHO = [
    "A patient river",
    "The last lamp",
    "Every map",
    "An empty chair",
    "A borrowed clock",
    "The north wind",
    "A clean desk",
]
_DOES = ["forgets", "keeps", "answers", "outlives", "measures", "repeats", "forgives"]
_WHAT = ["the noise of the road", "what nobody asked", "its own maker", "a promise made at night", "the first snow"]
_TAGS = ["time", "travel", "work", "silence", "weather", "houses", "memory", "maps"]


class ExampleWeb:
    """`pages` by URL, `seeds`, and the truth: `quotes` (text, author, tags) and `authors` (name, born, url)."""

    def __init__(self, *, pages: int = 10, authors: int = 20) -> None:
        self._random = random.Random(f"{pages}/{authors}")  # noqa: S311 - a web, not a secret
        self.seeds = [f"http://{HOST}/"]
        self.pages: dict[str, Resource] = {}
        self.authors = [self._author(number) for number in range(authors)]
        self.quotes = [self._quote() for _ in range(pages * QUOTES_A_PAGE)]
        for number in range(pages):
            self._listing(number, pages)
        for author in self.authors:
            self._site(author)
        self.pages[f"http://{HOST}/robots.txt"] = Resource(
            body="User-agent: *\nDisallow: /login\n", content_type="text/plain"
        )
        self._put(f"http://{HOST}/login", "Login", "<p>Members only.</p>")

    def _author(self, number: int) -> dict[str, Any]:
        first = _FIRST[number % len(_FIRST)]
        last = _LAST[(number * 7 + number // len(_FIRST)) % len(_LAST)]
        round_ = number // (len(_FIRST) * len(_LAST))
        host = f"{first}-{last}{round_ or ''}.test".lower()
        return {"name": f"{first} {last}", "born": 1890 + self._random.randrange(90), "url": f"http://{host}/"}

    def _quote(self) -> dict[str, Any]:
        choose = self._random.choice
        text = f"{choose(_WHO)} {choose(_DOES)} {choose(_WHAT)}."
        author = choose(self.authors)["name"]
        return {"text": text, "author": author, "tags": sorted(self._random.sample(_TAGS, 2))}

    def _listing(self, number: int, pages: int) -> None:
        url_of = {author["name"]: author["url"] for author in self.authors}
        quotes = self.quotes[number * QUOTES_A_PAGE : (number + 1) * QUOTES_A_PAGE]
        blocks = "".join(
            f'<div class="quote"><span class="text">{escape(quote["text"])}</span>\n'
            f'<span>by <small class="author">{escape(quote["author"])}</small> '
            f'<a class="about" href="{url_of[quote["author"]]}">(about)</a></span>\n'
            + "".join(f'<span class="tag">{tag}</span> ' for tag in quote["tags"])
            + "</div>\n"
            for quote in quotes
        )
        following = f'<li class="next"><a href="/page/{number + 2}/">Next</a></li>' if number + 1 < pages else ""
        url = f"http://{HOST}/" if number == 0 else f"http://{HOST}/page/{number + 1}/"
        self._put(url, "Quotes", f'{blocks}<ul class="pager">{following}</ul><a href="/login">Login</a>')

    def _site(self, author: dict[str, Any]) -> None:
        name, url = escape(author["name"]), author["url"]
        notes = "".join(f'<li><a href="/notes/{n}.html">Note {n}</a></li>' for n in range(1, NOTES + 1))
        self._put(
            url, name, f'<p>Born in <span class="born">{author["born"]}</span>.</p><ul>{notes}</ul>'
            f'<a href="http://{HOST}/">All quotes</a>',
        )  # fmt: skip
        for n in range(1, NOTES + 1):
            self._put(f"{url}notes/{n}.html", f"Note {n} of {name}", '<p>Nothing yet.</p><a href="/">Home</a>')

    def _put(self, url: str, title: str, body: str) -> None:
        head = f"<!doctype html><html><head><title>{title}</title></head>"
        self.pages[url] = Resource(body=f"{head}<body><h1>{title}</h1>\n{body}</body></html>\n")

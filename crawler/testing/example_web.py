"""A small web to try things on: quotations in pages, a site for each of their authors, a shop, and news.

Some more sites want a login, a POST, a token or a cookie (example_sites.py).

Made from word lists, always the same. `quotes`, `authors`, `products` and `articles` are what a program that reads it
must find. No site but those of quotations and authors links to another.
"""

import random
from collections.abc import Collection
from datetime import date, timedelta
from html import escape
from typing import Any

from crawler.rules.urls import host_of
from crawler.testing.example_sites import ExampleSites
from crawler.testing.generated_web import Resource
from crawler.testing.web_server import Answer, Asked, Table

HOST, SHOP, NEWS = "quotes.test", "shop.test", "news.test"
QUOTES_A_PAGE = 10
PRODUCTS, PRODUCTS_A_PAGE = 24, 8
ARTICLES, ARTICLES_IN_FRONT = 12, 5
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
_TEAS = ["Assam", "Sencha", "Rooibos", "Oolong", "Matcha", "Darjeeling", "Peppermint", "Chamomile"]
_KINDS = ["loose", "in bags", "in a tin"]
_TAGS = ["time", "travel", "work", "silence", "weather", "houses", "memory", "maps"]


class ExampleWeb:
    """`pages` by URL, `seeds`, and the truth: `quotes` (text, author, tags), `authors` (name, born, url), `products`
    (name, price, in_stock, url) and `articles` (title, date, url; the newest first).
    """

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
        self.products = [self._product(number) for number in range(PRODUCTS)]
        self._shop()
        self.articles = [self._article(number) for number in range(ARTICLES)]
        self._news()
        self.sites = ExampleSites(self.quotes[:20], self.products)
        self._table = Table(self.pages)

    @property
    def hosts(self) -> Collection[str]:
        return {*self._table.hosts, *self.sites.hosts}

    def answer(self, url: str) -> Answer | None:
        """For a canonical URL that is fetched by GET, without headers."""
        return self.respond(Asked(method="GET", url=url, headers={}))

    def respond(self, asked: Asked) -> Answer | None:
        """For any request."""
        return self.sites.respond(asked) if host_of(asked.url) in self.sites.hosts else self._table.answer(asked.url)

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

    def _product(self, number: int) -> dict[str, Any]:
        name = f"{_TEAS[number % len(_TEAS)]}, {_KINDS[number // len(_TEAS)]}"
        price = (250 + self._random.randrange(90) * 10) / 100
        url, in_stock = f"http://{SHOP}/tea/{number + 1}/", number % 7 != 3
        stock = "in stock" if in_stock else "sold out"
        facts = f'<p class="price">{price:.2f} EUR</p><p class="stock">{stock}</p>'
        self._put(url, name, f'{facts}<a href="/">All teas</a>')
        return {"name": name, "price": price, "in_stock": in_stock, "url": url}

    def _shop(self) -> None:
        """Product pages by pages of a list; the last page also links to a tea that is gone."""
        starts = range(0, PRODUCTS, PRODUCTS_A_PAGE)
        for page, start in enumerate(starts, 1):
            shown = [(one["url"], one["name"]) for one in self.products[start : start + PRODUCTS_A_PAGE]]
            if page == len(starts):
                shown.append((f"http://{SHOP}/tea/{PRODUCTS + 1}/", "Tea of the month"))
            items = "".join(f'<li><a class="product" href="{url}">{name}</a></li>' for url, name in shown)
            following = f'<a class="next" href="/page/{page + 1}/">Next</a>' if page < len(starts) else ""
            self._put(f"http://{SHOP}/" + (f"page/{page}/" if page > 1 else ""), "Teas", f"<ul>{items}</ul>{following}")

    def _article(self, number: int) -> dict[str, Any]:
        day = date(2026, 11, 20) - timedelta(days=number)
        title = f"{self._random.choice(_WHO)} {self._random.choice(_DOES)} {self._random.choice(_WHAT)}"
        url = f"http://{NEWS}/{day:%Y/%m/%d}/"
        self._put(url, title, f'<time datetime="{day}">{day:%d %b %Y}</time><p>More tomorrow.</p><a href="/">News</a>')
        return {"title": title, "date": str(day), "url": url}

    def _news(self) -> None:
        """The front page has the newest articles, the archive all."""
        for path, title, shown in (("", "News", self.articles[:ARTICLES_IN_FRONT]), ("archive/", "All", self.articles)):
            items = "".join(f'<article><a href="{one["url"]}">{one["title"]}</a></article>' for one in shown)
            self._put(f"http://{NEWS}/{path}", title, f'{items}<a href="/archive/">All articles</a>')

    def _put(self, url: str, title: str, body: str) -> None:
        head = f"<!doctype html><html><head><title>{title}</title></head>"
        self.pages[url] = Resource(body=f"{head}<body><h1>{title}</h1>\n{body}</body></html>\n")

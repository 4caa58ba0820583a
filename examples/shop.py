"""Products of a shop: lists in pages, one item for each product page, checked against a class."""

import msgspec

from crawler import Crawler


class Product(msgspec.Struct):
    """What an item must have; one that does not fit is left out, counted and logged."""

    url: str
    name: str
    price: float
    in_stock: bool


app = Crawler()


@app.page()
async def lists(page):
    """The start page and its further pages."""
    page.follow("a.product", label="product")
    page.follow("a.next")


@app.page(label="product", item=Product)
async def product(page):
    """The page of one product."""
    amount, _, currency = page.css_first("p.price").text().partition(" ")
    if currency != "EUR":
        raise ValueError(f"price in {currency}")  # the page becomes a dead letter: nothing is lost unseen
    yield Product(
        url=page.url,
        name=page.css_first("h1").text(),
        price=float(amount),
        in_stock=page.css_first("p.stock").text() == "in stock",
    )

"""What a list says of a product, together with what its own page says: it travels with the request."""

from crawler import Crawler

app = Crawler()


@app.page()
async def lists(page):
    """The place of each product, counted over all pages of the list."""
    first = page.meta.get("first", 1)
    products = page.css("a.product")
    for place, link in enumerate(products, first):
        page.follow(link.attributes["href"], label="product", meta={"place": place})
    page.follow("a.next", meta={"first": first + len(products)})


@app.page(label="product")
async def product(page):
    """The page of one product."""
    price = float(page.css_first("p.price").text().partition(" ")[0])
    yield {"place": page.meta["place"], "name": page.title, "price": price}

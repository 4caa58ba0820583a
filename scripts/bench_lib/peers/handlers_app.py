"""A typical handler, which reads a title and five fields of each page: as an async and as a plain function."""

from typing import Any

from crawler import Crawler, Page

async_app, plain_app = Crawler(), Crawler()


def fields(page: Page) -> dict[str, Any]:
    tree = page.html
    heading, first, meta = tree.css_first("h1"), tree.css_first("p"), tree.css_first('meta[name="generator"]')
    return {
        "url": page.url,
        "title": page.title,
        "heading": heading.text(strip=True) if heading else None,
        "first": first.text(strip=True)[:200] if first else None,
        "generator": meta.attributes.get("content") if meta else None,
        "links": len(page.links()),
    }


@async_app.page()
async def asynchronous(page: Page) -> Any:
    yield fields(page)


@plain_app.page()
def threaded(page: Page) -> Any:
    yield fields(page)

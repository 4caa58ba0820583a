"""What the instances of every other chaos round run on their pages: one item for each, and labels along all links."""

from crawler import Crawler, Page

app = Crawler()


@app.page()
async def begin(page: Page) -> dict[str, str]:
    return await go_on(page)


@app.page(label="followed")
async def go_on(page: Page) -> dict[str, str]:
    for link in page.links():
        page.follow(link, label="followed", priority=len(link) % 7)
    return {"url": page.url}

"""The newest articles of a news site, for a job that runs again and again: each run follows the front page alone."""

from crawler import Crawler

app = Crawler()


@app.page("news.test/")
async def front(page):
    """The front page: its articles and no other link, given `scope.follow = "handlers"`."""
    page.follow("article a", label="article")


@app.page(label="article")
async def article(page):
    """Nothing in the item depends on the run: an unchanged article is the same line again."""
    yield {"url": page.url, "date": page.css_first("time").attributes["datetime"], "title": page.title}

"""A search by POST, page by page: each page of results is a request of its own to the same URL."""

from crawler import Crawler

app = Crawler()


@app.start
def start():
    yield "http://search.test/"


@app.page("search.test/")
async def front(page):
    """The form has the number of the page in a hidden field; searching twice does no harm."""
    for word in ("tin", "assam"):
        page.submit("#search", {"q": word}, label="results", meta={"word": word}, idempotent=True)


@app.page(label="results")
async def results(page):
    """The teas of one page, and the request for the next."""
    word = page.meta["word"]
    for tea in page.css("li.tea"):
        yield {"word": word, "tea": tea.text()}
    for following in page.css("b.next"):
        form = {"q": word, "page": following.text()}
        page.follow("/search", form=form, label="results", meta=page.meta, idempotent=True)

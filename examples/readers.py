"""A reading room that wants a card: its cookie is in a file as browsers export it (readers.toml names it)."""

from crawler import Crawler

app = Crawler()


@app.start
def start():
    yield "http://readers.test/"


@app.page("readers.test/*")
async def volume(page):
    """Each volume; the list of all has no heading."""
    for heading in page.css("h1"):
        yield {"title": heading.text()}

from crawler import Crawler

app = Crawler()


@app.page("quotes.test/*")
async def quotes(page):
    for quote in page.css("div.quote"):
        yield {
            "kind": "quote",
            "text": quote.css_first("span.text").text(),
            "author": quote.css_first("small.author").text(),
            "tags": [tag.text() for tag in quote.css("span.tag")],
        }
    page.follow("a.about", label="author")


@app.page(label="author")
async def author(page):
    yield {"kind": "author", "name": page.title, "born": int(page.css_first("span.born").text())}

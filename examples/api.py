"""An API that wants a token: it is added just before a request is sent, and stored nowhere."""

import os

from crawler import Crawler

app = Crawler()


@app.start
def start():
    yield app.request("http://api.test/teas", label="teas", headers={"Accept": "application/json"})


@app.before_request
def sign(request):
    """Of the API alone: nobody else may see it."""
    if request.url.startswith("http://api.test/"):
        request.headers["Authorization"] = f"Bearer {os.environ['TEA_TOKEN']}"


@app.page(label="teas", statuses=(200, 401))
async def teas(page):
    """One page of the list; the token may be renewed meanwhile."""
    if page.status == 401:
        page.retry(delay=10)
        return
    found = page.json()
    for tea in found["teas"]:
        yield tea
    if found["next"]:
        page.follow(found["next"], label="teas")

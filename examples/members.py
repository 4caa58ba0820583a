"""Quotations for members: a login before the first page, and again whenever the session ends."""

import os

from crawler import Crawler

app = Crawler()


@app.login("http://members.test/login")
def login(page):
    """Fill in the form; the page's own hidden token goes along."""
    page.submit("#in", {"user": "guest", "password": os.environ["MEMBERS_PASSWORD"]})


@app.logged_in
def logged_in(page):
    """Each page of a member has a way out."""
    return bool(page.css("a.logout"))


@app.start
def start():
    yield "http://members.test/"


@app.page()
async def quotation(page):
    """One quotation, and the way to the next."""
    yield {"text": page.css_first("p.text").text()}
    page.follow("a.next")

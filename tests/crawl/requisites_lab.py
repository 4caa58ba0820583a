"""A web whose pages show pictures, for tests of requisites."""

from tests.support.web import Resource

PICTURE = Resource(body="GIF89a" + "p" * 2000, content_type="image/gif")


def page(text: str, status: int = 200) -> Resource:
    return Resource(
        status=status, body=f"<title>page</title><link rel=icon href='data:,'>{text}", content_type="text/html"
    )


def sheet(text: str) -> Resource:
    return Resource(body=text, content_type="text/css")

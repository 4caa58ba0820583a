"""Set-Cookie lines that are slightly wrong, and what is sent after the response: the rows of odd_cookies.jsonl."""

import json
from pathlib import Path
from typing import Any

import pytest

from crawler.rules.cookies import Jar
from crawler.worker.cookie_walls import BYTES_MAX

NOW_S = 1_790_000_000.0
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("odd_cookies.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=[row["row"].replace(" ", "-") for row in ROWS])
def test_cookies_are_those_that_browsers_send(row: dict[str, Any]) -> None:
    jar = Jar(bytes_max=BYTES_MAX)
    jar.take(row["url"], [(b"Set-Cookie", line.encode("latin-1")) for line in row["lines"]], NOW_S)
    assert dict(jar.sent_to(row["url"], NOW_S)) == row["cookies"]


def test_a_response_removes_a_cookie_of_an_earlier_one() -> None:
    jar, url = Jar(), "http://a.test/"
    jar.take(url, [(b"Set-Cookie", b"a=1"), (b"Set-Cookie", b"z=9")], NOW_S)
    jar.take(url, [(b"set-cookie", b"a=; Max-Age=0"), (b"X-Other", b"c=3"), (b"SET-COOKIE", b"b=2")], NOW_S)
    assert jar.sent_to(url, NOW_S) == [("z", "9"), ("b", "2")]

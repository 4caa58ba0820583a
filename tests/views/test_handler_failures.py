"""Which handlers failed, for the end of a crawl: by dead letters and by the pages that each handler has taken."""

import pytest

from crawler.handlers.crawler import Crawler
from crawler.views.dead_letters import Letter
from crawler.views.handler_failures import SHOWN, judged


def app() -> Crawler:
    made = Crawler()
    made.page("*/p*")(product)
    made.page(label="cart")(cart)
    return made


def product(page: object) -> None: ...


def cart(page: object) -> None: ...


def letter(path: str, detail: str, label: str = "") -> Letter:
    return Letter(
        url=f"http://a.test{path}", queue="a.test", domain="a.test", depth=1, reason="handler", detail=detail,
        attempts=2, failed_at=0, label=label,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("handled", "failed", "known", "lines", "of_all"),
    [
        ({}, [], 0, [], ""),
        ({"product": 3}, [("/p1", "E: x", "")], 1, ["Handler product: failed on 1 of 4 pages: E: x"], ""),
        (
            {"product": 3},
            [("/p1", "E: x", ""), ("/p2", "E: y", ""), ("/p3", "E: y", "")],
            3,
            ["Handler product: failed on 3 of 6 pages: 2 times E: y"],
            "",
        ),
        ({"product": 3}, [("/p1", "E", "cart")], 1, ["Handler cart: failed on 1 page, all that it got: E"], "cart"),
        (
            {},
            [("/p1", "E", "cart"), ("/p2", "F", ""), ("/p3", "F", "")],
            3,
            [
                "Handler product: failed on 2 pages, all that it got: 2 times F",
                "Handler cart: failed on 1 page, all that it got: E",
            ],
            "product",
        ),
        # Of a hook, on a page that no handler is for.
        ({}, [("/other", "E", "")], 1, ["A function of the app: failed on 1 page, all that it got: E"], ""),
        (
            {"product": 3},
            [("/p1", "E", "")],
            5,
            ["Handler product: failed on 1 of 4 pages: E (1 of 5 failures)"],
            "",
        ),
        ({"product": 1}, [("/p1", "a\nb", "")], 1, ["Handler product: failed on 1 of 2 pages: a\\nb"], ""),
    ],
)
def test_each_handler_has_a_line_and_one_without_any_page_is_named(
    handled: dict[str, int], failed: list[tuple[str, str, str]], known: int, lines: list[str], of_all: str
) -> None:
    found = judged(app(), handled, [letter(*one) for one in failed], known)
    assert found.lines == lines
    assert found.of_all.partition(" failed")[0] == (f"handler {of_all}" if of_all else "")


def test_many_handlers_are_counted() -> None:
    made = Crawler()
    for n in range(SHOWN + 3):
        made.page(f"*/{n}/*")(type("F", (), {"__call__": lambda _, page: None, "__name__": f"h{n}"})())
    found = judged(made, {}, [letter(f"/{n}/", "E") for n in range(SHOWN + 3)], SHOWN + 3)
    assert len(found.lines) == SHOWN + 1
    assert found.lines[-1] == "3 more handlers failed: crawler dead list --reason handler"

"""The rows that tell of the robots.txt files of a domain."""

import pytest

from crawler.views.domains import RobotsView, robots_facts


def robots(origin: str, rules: int = 0, delay_s: float | None = None, *, forbids: bool = False) -> RobotsView:
    return RobotsView(
        origin=f"https://{origin}", read_at=0.0, rules=rules, crawl_delay_s=delay_s, allows_front_page=not forbids
    )


READ = "read at 1970-01-01 00:00:00 UTC"
ONE = [("robots.txt", f"https://a.example: 3 rules; {READ}")]
TABLE = [
    ([], []),
    ([robots("a.example", 3)], ONE),
    ([robots("a.example", 1, 0.0)], [("robots.txt", f"https://a.example: 1 rule, crawl-delay 0 s; {READ}")]),
    (
        [robots("a.example"), robots("b.example", delay_s=0.0)],
        [
            ("robots.txt, b.example", f"https://b.example: 0 rules, crawl-delay 0 s; {READ}"),
            ("robots.txt, a.example", f"https://a.example: 0 rules; {READ}"),
        ],
    ),
    (
        [robots(f"h{n}.example") for n in range(30)],
        [("robots.txt", f"https://h0.example, https://h1.example, https://h2.example and 27 more: 0 rules; {READ}")],
    ),
    (
        [robots("a.example"), robots("b.example", 2, 5.0), robots("c.example", 1, forbids=True), robots("d.example")],
        [
            ("robots.txt, c.example", f"https://c.example: 1 rule, forbids the front page; {READ}"),
            ("robots.txt, b.example", f"https://b.example: 2 rules, crawl-delay 5 s; {READ}"),
            ("robots.txt, 2 origins", f"https://a.example, https://d.example: 0 rules; {READ}"),
        ],
    ),
]


@pytest.mark.parametrize(("files", "rows"), TABLE)
def test_files_that_say_the_same_have_one_row(files: list[RobotsView], rows: list[tuple[str, str]]) -> None:
    assert robots_facts(files) == rows


def test_a_domain_of_many_hosts_has_few_rows() -> None:
    rows = robots_facts([robots(f"h{n}.example", n) for n in range(2000)])
    assert len(rows) == 6
    assert rows[0][0] == "robots.txt, h1999.example"
    assert rows[-1] == ("robots.txt, 1,995 more origins", "listed by 'crawler stats DOMAIN --json'")
    assert len({name for name, _ in rows}) == 6

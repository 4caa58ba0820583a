"""Files of cookies: which of them begin a session, and what is said of the others."""

from pathlib import Path

import pytest

from crawler.hosts.sessions import cookies_of_files
from crawler.rules.cookies import COOKIES_MAX
from crawler.settings import SiteSettings

NOW_S = 1_795_900_000.0


def table(tmp_path: Path, match: str, lines: list[str]) -> SiteSettings:
    path = tmp_path / "cookies.txt"
    path.write_text("\n".join(lines))
    return SiteSettings(match=match, cookies=str(path))


def line(host: str, name: str = "a", expires: str = "0", below: str = "FALSE") -> str:
    return f"{host}\t{below}\t/\tFALSE\t{expires}\t{name}\t1"


@pytest.mark.parametrize(
    ("match", "hosts"),
    [
        ("*.shop.test", ["shop.test", "www.shop.test"]),
        ("shop.test", ["shop.test", "www.shop.test"]),
        ("www.shop.test/cart/*", ["shop.test", "www.shop.test"]),
        ("http://img.shop.test:8080", ["shop.test", "www.shop.test"]),
        ("other.test", ["other.test"]),
        ("shop.example", []),
        ("*", ["shop.test", "www.shop.test", "other.test", "eshop.test"]),
    ],
)
def test_a_file_is_for_the_sites_that_its_table_matches(match: str, hosts: list[str], tmp_path: Path) -> None:
    """A session is of a whole site; cookies of others, as a browser's export has them, go nowhere."""
    lines = [line(host) for host in ("shop.test", "www.shop.test", "other.test", "eshop.test")]
    found = cookies_of_files([table(tmp_path, match, lines)], NOW_S)
    assert [one.host for cookies in found.by_site.values() for one in cookies] == hosts
    assert len(found.notes) == (len(hosts) < len(lines))


def test_all_that_is_left_out_is_counted_in_a_sentence(tmp_path: Path) -> None:
    lines = [
        *(line("shop.test", f"n{n}") for n in range(COOKIES_MAX + 5)),
        line("shop.test", "secret-name", "-1"),
        "secret text",
        line("shop.test", "old", "1000000000"),
        line("bank.test"),
        line("shop.test", f"n{COOKIES_MAX + 4}"),
    ]
    (note,) = cookies_of_files([table(tmp_path, "shop.test", lines)], NOW_S).notes
    said = note.removeprefix(f"sites[0].cookies: {tmp_path}/cookies.txt: ")
    assert said == (
        "100 cookies, without 2 unreadable lines (line 106: its time is not a number of seconds), "
        "1 cookie of other sites than shop.test, 1 expired cookie, 5 cookies beyond what a session keeps"
    )


def test_a_file_that_is_used_whole_needs_no_word(tmp_path: Path) -> None:
    assert cookies_of_files([table(tmp_path, "shop.test", [line("shop.test")])], NOW_S).notes == []

"""Which URLs are the login page, and where a password may go: whole tables."""

import itertools

import pytest

from crawler.rules.login_pace import FULL_HOURS_MAX, HOUR_MS, LOGINS_AN_HOUR, LoginRecord, paths_of
from crawler.rules.logins import is_login_page, why_no_password, why_no_redirect

SHOP = "https://a.test/index.php?route=account/login"
ONE_SITE = [  # login page, URL, is it the login page?
    ("http://a.test/login", "http://a.test/login", True),
    ("http://a.test/login", "http://a.test/login?next=/p/1", True),
    ("http://a.test/login", "https://a.test/login?next=/p/1", True),
    ("https://a.test/login", "http://a.test/login", True),
    ("https://a.test/login", "https://www.a.test/login", False),
    ("https://a.test/login", "https://a.test/login/", False),
    ("https://a.test/login", "https://a.test/logins", False),
    ("https://a.test/login", "https://a.test:8443/login", False),
    ("http://a.test:8080/login", "https://a.test/login", False),
    ("http://a.test:8080/login", "http://a.test:8080/login?x", True),
    ("http://[::1]/login", "http://[::1]/login", True),
    (SHOP, SHOP, True),
    (SHOP, "https://a.test/index.php?route=account%2Flogin", True),
    (SHOP, "https://a.test/index.php?next=1&route=account/login", True),
    (SHOP, "https://a.test/index.php?route=product", False),
    (SHOP, "https://a.test/index.php", False),
    ("https://a.test/w?title=Special:UserLogin", "https://a.test/w?title=Special%3AUserLogin&returnto=A", True),
    ("https://a.test/w?title=Special:UserLogin", "https://a.test/w?title=Main", False),
    ("https://a.test/ucp.php?mode=login", "https://a.test/ucp.php?mode=login&sid=1", True),
    ("https://a.test/ucp.php?mode=login", "https://a.test/ucp.php?mode=logout", False),
    ("https://a.test/ucp.php?mode=login", "https://a.test/ucp.php?MODE=login", False),
    ("https://a.test/?login", "https://a.test/?login", True),
    ("https://a.test/?login", "https://a.test/?login=", True),
    ("https://a.test/?login", "https://a.test/", False),
    ("https://a.test/?a=1&b=2", "https://a.test/?b=2&c=3&a=1", True),
    ("https://a.test/?a=1&b=2", "https://a.test/?b=2", False),
    ("https://a.test/?a=1&a=2", "https://a.test/?a=2&a=1", True),
    ("https://a.test/?q=x+y", "https://a.test/?q=x%20y", True),
]  # fmt: skip


@pytest.mark.parametrize(("login", "url", "wanted"), ONE_SITE)
def test_the_parameters_of_a_login_page_are_part_of_it(login: str, url: str, wanted: bool) -> None:
    assert is_login_page(url, login) is wanted


PAGES = {"http": "http://a.test/login", "http:8080": "http://a.test:8080/in", "https": "https://a.test/login",
         "https:8443": "https://a.test:8443/login"}  # fmt: skip
TARGETS = ("http://a.test/", "http://a.test:8080/", "http://a.test:8443/", "https://a.test/", "https://a.test:8443/",
           "https://a.test:8080/", "http://b.a.test/", "https://b.a.test/", "https://b.a.test:8443/", "https://evil.test/",
           "http://evil.test/", "https://xa.test/", "https://a.test.evil.test/")  # fmt: skip
NAMED = {"none": (), "host": ("b.a.test",), "port": ("b.a.test:8443",), "own": ("a.test:8443",)}
# The cells that are allowed, of all: same host, https or http as the page, same port or from 80 to 443; or named.
ALLOWED = {
    "http": {"http://a.test/", "https://a.test/"},
    "http:8080": {"http://a.test:8080/", "https://a.test:8080/"},
    "https": {"https://a.test/"},
    "https:8443": {"https://a.test:8443/"},
}
BY_NAME = {
    "none": set[str](),
    "host": {"http://b.a.test/", "https://b.a.test/"},
    "port": {"https://b.a.test:8443/"},
    "own": {"https://a.test:8443/", "http://a.test:8443/"},
}


@pytest.mark.parametrize(("page", "named", "target"), list(itertools.product(PAGES, NAMED, TARGETS)))
def test_a_password_goes_to_the_host_of_the_login_page_and_to_named_ones(page: str, named: str, target: str) -> None:
    wanted = target in ALLOWED[page] | BY_NAME[named]
    if page.startswith("https") and target.startswith("http:"):
        wanted = False
    why = why_no_password(PAGES[page], target, NAMED[named])
    assert (not why) is wanted, why


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("url", "target", "is_same"),
    [
        ("https://a.test/in", "https://a.test/x", True),
        ("http://a.test/in", "https://a.test/x", True),
        ("https://a.test/in", "https://b.a.test/x", False),
        ("https://a.test/in", "https://evil.test/x", False),
    ],
)
def test_no_redirect_takes_a_password_to_another_host(status: int, url: str, target: str, is_same: bool) -> None:
    assert bool(why_no_redirect(status, url, target)) is (status in (307, 308) and not is_same)


def test_so_many_logins_are_allowed_in_any_hour() -> None:
    record, now_ms, times = LoginRecord(), 1000, list[int]()
    while now_ms < 4 * HOUR_MS:
        if record.wait_ms(now_ms) == 0:
            record = record.counted(now_ms)
            times.append(now_ms)
        now_ms += 60_000
    assert record.logins == len(times)
    assert len(times) >= 4 * LOGINS_AN_HOUR - 1
    for begin in times:
        assert len([at for at in times if begin <= at < begin + HOUR_MS]) <= LOGINS_AN_HOUR


def test_three_full_hours_in_a_row_are_hopeless() -> None:
    record, now_ms, waited = LoginRecord(), 0, list[int]()
    while not record.is_hopeless:
        if record.wait_ms(now_ms):
            before, record = record, record.waited(now_ms)
            waited += [now_ms] if record is not before else []
        else:
            record = record.counted(now_ms)
        now_ms += 1000
    assert len(waited) == FULL_HOURS_MAX + 1
    assert FULL_HOURS_MAX * HOUR_MS <= now_ms <= (FULL_HOURS_MAX + 1) * HOUR_MS


def test_hours_that_are_full_now_and_then_are_not_hopeless() -> None:
    record = LoginRecord()
    for hour in range(0, 40, 2):  # full, and an hour and more without a login
        for n in range(LOGINS_AN_HOUR):
            record = record.counted(hour * HOUR_MS + n)
        record = record.waited(hour * HOUR_MS + 50)
    assert not record.is_hopeless
    assert record.logins == 20 * LOGINS_AN_HOUR


def test_a_clock_that_was_set_back_lets_nobody_wait() -> None:
    record = LoginRecord()
    for _ in range(LOGINS_AN_HOUR):
        record = record.counted(10 * HOUR_MS)
    assert record.wait_ms(10 * HOUR_MS) == HOUR_MS
    assert record.wait_ms(HOUR_MS) == 0


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://a.test/", ["a.test/"]),
        ("https://a.test/logout", ["a.test/logout"]),
        ("https://a.test/u/logout", ["a.test/u/logout", "a.test/u/*"]),
        ("https://a.test/u/out?t=1&x=2", ["a.test/u/out?t=1", "a.test/u/out", "a.test/u/*"]),
        ("https://a.test:8443/i.php?mode=logout&t=1", ["a.test/i.php?mode=logout", "a.test/i.php"]),
    ],
)
def test_what_urls_that_end_sessions_may_have_in_common(url: str, wanted: list[str]) -> None:
    assert paths_of(url) == wanted

"""`crawler check`: what is wrong with a settings file or an app, and which settings a URL gets."""

from pathlib import Path

import pytest

from crawler.cli.main import main
from tests.cli.cli_lab import forget_apps

APP = """
from crawler import Crawler
app = Crawler()

@app.page("*.shop.example/product/*")
async def product(page):
    yield {}

@app.page(label="cart")
async def cart(page):
    yield {}

@app.page()
async def rest(page):
    yield {}
"""
GOOD = """
[handlers]
app = "shop.py"

[[sites]]
match = "*.shop.example/cart/*"
headers = {X-Team = "search", X-Key = {env = "SHOP_KEY"}, Authorization = "hush"}
cookies = {session = "hush"}
label = "cart"
depth_max = 3
priority = 5

[[sites]]
match = "*.shop.example"
headers = {x-team = "other", X-All = "1"}
auth = "me:hush"
delay_s = 5
concurrency = 2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_KEY", "hush")
    forget_apps(monkeypatch)
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "shop.toml").write_text(GOOD)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["check", *words])
    out, err = capsys.readouterr()
    assert "hush" not in out + err
    return code, out, err


def rows(text: str) -> list[tuple[str, ...]]:
    return [tuple(part.strip() for part in line.split("  ") if part.strip()) for line in text.splitlines()]


def test_a_file_and_an_app_that_are_as_they_should_be(capsys: pytest.CaptureFixture[str]) -> None:
    of_app = (
        "shop.py: nothing is wrong, 3 handlers\n  product: *.shop.example/product/*\n  cart: label cart\n"
        "  rest: all pages without another handler\n"
    )
    http_too = "(begin match with http:// to send them over http)"
    of_file = (
        "shop.toml: nothing is wrong, 2 tables [[sites]]\n"
        "  sites[0] *.shop.example/cart/*: over https only: cookies, headers.X-Key, headers.Authorization "
        f"{http_too}\n  sites[1] *.shop.example: over https only: auth {http_too}\n"
    )
    assert check(capsys, "shop.toml") == (0, of_file + of_app, "")
    assert check(capsys, "shop.py") == (0, of_app, "")
    assert check(capsys, "shop:app")[1] == of_app.replace("shop.py", "shop:app")
    assert check(capsys, "--config", "shop.toml") == check(capsys, "shop.toml")


def test_a_url_is_told_which_table_each_setting_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = check(capsys, "shop.toml", "https://www.shop.example/cart/1", "https://other.example/")
    assert (code, err) == (0, "")
    shop, other = out.split("\n\n")
    cart, all_ = "sites[0] *.shop.example/cart/*", "sites[1] *.shop.example"
    assert rows(shop) == [
        ("https://www.shop.example/cart/1",),
        ("setting", "value", "from"),
        ("queue", "shop.example", "frontier.queue_by = domain"),
        ("delay_s", "5", all_),
        ("concurrency", "2", all_),
        ("header X-Team", "search", cart),
        ("header X-Key", "(not shown)", cart),
        ("header Authorization", "(not shown)", cart),
        ("cookie session", "(not shown)", cart),
        ("header X-All", "1", all_),
        ("label", "cart", cart),
        ("depth_max", "3", cart),
        ("priority", "+5", cart),
        ("handler", "cart", "@app.page(label='cart')"),
    ]
    assert ("delay_s", "1", "politeness.delay_s") in rows(other)
    assert ("handler", "rest", "@app.page(), for all pages without another handler") in rows(other)


def test_secrets_that_are_not_sent_over_http_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    out = check(capsys, "shop.toml", "http://www.shop.example/cart/1")[1]
    cart, all_ = "sites[0] *.shop.example/cart/*", "sites[1] *.shop.example"
    for key, table in (
        ("header X-Key", cart),
        ("header Authorization", cart),
        ("cookie session", cart),
        ("auth", all_),
    ):
        assert (key, "(not sent over http)", table) in rows(out)
    assert ("header X-Team", "search", cart) in rows(out)


def test_the_handler_of_a_pattern_is_told_with_the_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    out = check(capsys, "shop.py", "https://de.shop.example/product/7")[1]
    assert ("handler", "product", "@app.page('*.shop.example/product/*')") in rows(out)
    assert ("handler", "-", "no app") in rows(check(capsys, "https://de.shop.example.org/")[1])


def test_all_that_is_wrong_is_told_a_line_each_with_file_and_key(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "bad.toml").write_text(
        """
[politeness]
delay_s = 90
[[sites]]
match = "www.shop.example/cart/*"
delay_s = 5
[[sites]]
match = "a b"
auth = "hush"
[[sites]]
match = "shop.example"
cookies = {a = {env = "SHOP_GONE"}}
label = "card"
"""
    )
    code, out, err = check(capsys, "bad.toml", "shop.py")
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert all(line.startswith("crawler: bad.toml: ") for line in lines)
    for line, said in zip(
        lines,
        [
            "sites[0].delay_s = 5.0 is below politeness.delay_s = 90.0",
            "sites[1].auth is not of the form USER:PASSWORD",
            "politeness.delay_s = 90.0 is above politeness.delay_max_s = 60.0",
            "sites[0].delay_s applies to whole queues, whatever the path: put it in a table of its own with match =",
            "sites[1].match: pattern 'a b': expected HOST/PATH",
            "sites[2].cookies.a: the environment has no variable SHOP_GONE",
            "sites[2].label = 'card': no handler has this label (there are: cart)",
        ],
        strict=True,
    ):
        assert said in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone.toml",), "can't read settings file gone.toml"),
        (("broken.toml",), "broken.toml is not valid TOML"),
        (("unknown.toml",), "unknown.toml: unknown key fetch.speed"),
        (("gone.py",), "file gone.py does not exist"),
        (("broken.py",), "--app broken.py can't be imported"),
        (("shop.toml", "other.toml"), "one settings file and one app at a time"),
        (("shop.toml", "--config", "other.toml"), "one settings file and one app at a time"),
        (("http:///",), "invalid URL"),
        ((), "name a settings file, an app, or URLs"),
        (("shop.toml", "--set", "fetch.concurrency=0"), "fetch.concurrency=0"),
    ],
)
def test_what_can_not_be_read_is_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, words: tuple[str, ...], said: str
) -> None:
    for name, text in {"broken.toml": "[fetch", "unknown.toml": "[fetch]\nspeed = 1", "broken.py": "1 / 0"}.items():
        (folder / name).write_text(text)
    code, out, err = check(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("match = 'a.test'\nauth = {env = 'SHOP_GONE'}", "sites[0].auth: the environment has no variable SHOP_GONE"),
        ("match = 'a.test/x'\ndelay_s = 5", "own.toml: sites[0].delay_s applies to whole queues"),
        ("match = 'a.test'\nlabel = 'card'", "sites[0].label = 'card': no handler has this label"),
        ("match = 'a.test'\ncookies = 'gone.txt'", "sites[0].cookies: can't read gone.txt"),
        (
            "match = 'a.test'\nlogin = {url = 'http://a.test/in', user = 'me', password_env = 'SHOP_GONE'}",
            "sites[0].login: the environment has no variable SHOP_GONE",
        ),
        ("match = 'a.test'\n[cookies]\nkey_file = 'gone.key'", "cookies.key_file: can't read gone.key"),
    ],
)
def test_a_crawl_does_not_begin_with_tables_that_can_not_be_followed(
    capsys: pytest.CaptureFixture[str], folder: Path, text: str, said: str
) -> None:
    (folder / "own.toml").write_text(f"[[sites]]\n{text}\n")
    for command in (("crawl", "http://a.test/"), ("run",)):
        assert main([*command, "--config", "own.toml", "--app", "shop.py"]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1
    assert not (folder / "crawl-data").exists()


@pytest.mark.parametrize(
    ("call", "unknown"),
    [
        ("page.follow('a', label='chart')", ["chart"]),
        ("page.follow('a', label='cart')", []),
        ("page.follow('a', label='')", []),
        ("page.follow('a', label=page.url)", []),
        ("page.follow('a', label='chart' if page.url == 'cart' else 'card')", ["chart", "card"]),
        ("page.follow('a', label='cart' if page.url else 'card')", ["card"]),
        ("page.submit('form', label='chart')", ["chart"]),
        ("app.request('https://a.test/', label='chart')", ["chart"]),
        ("other(label='chart')", []),
    ],
)
def test_a_label_that_no_handler_has_is_told_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], call: str, unknown: list[str]
) -> None:
    (folder / "shop.py").write_text(APP.replace("def cart(page):\n", f"def cart(page):\n    {call}\n"))
    code, _, err = check(capsys, "shop.py")
    assert code == (2 if unknown else 0)
    line = APP.splitlines().index("async def cart(page):") + 2
    said = [
        f"crawler: {folder / 'shop.py'}:{line}: no handler has the label {one!r} (there are: cart)" for one in unknown
    ]
    assert err.splitlines() == said


def test_labels_are_found_in_the_modules_of_the_functions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "handlers_of_shop.py").write_text("def cart(page):\n    page.follow('a', label='chart')\n")
    (folder / "shop.py").write_text(
        "from crawler import Crawler\nimport handlers_of_shop\n\n"
        "app = Crawler()\napp.page(label='cart')(handlers_of_shop.cart)\n"
    )
    code, _, err = check(capsys, "shop.py")
    assert code == 2
    assert "handlers_of_shop.py:2: no handler has the label 'chart'" in err


def test_an_engine_that_can_not_be_one_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "engine.toml").write_text('[frontier]\nredis = "redis://:hush@h/x"\n')
    code, _, err = check(capsys, "engine.toml")
    assert code == 2
    assert "engine.toml: frontier.redis: bad engine URL 'redis://:***@h/x': its database is not a number" in err

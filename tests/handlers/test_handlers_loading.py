"""How an app is found, and what is said when it is not."""

from pathlib import Path

import pytest

from crawler.errors import UsageError
from crawler.handlers.load_app import load_app

GOOD = "from crawler import Crawler\napp = Crawler()\n@app.page()\ndef rest(page): ...\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    return tmp_path


def test_a_file_a_file_with_a_name_a_module_and_one_in_a_package(place: Path) -> None:
    (place / "shop_one.py").write_text(GOOD)
    (place / "web_pack" / "sub").mkdir(parents=True)
    (place / "web_pack" / "sub" / "shop_two.py").write_text(GOOD)
    for target in ("shop_one.py", "./shop_one.py:app", str(place / "shop_one.py"), "shop_one:app", "shop_one",
                   "web_pack.sub.shop_two:app"):  # fmt: skip
        assert [handler.name for handler in load_app(target).handlers] == ["rest"], target


def test_a_file_imports_what_lies_beside_it_and_may_have_the_name_of_a_module(place: Path) -> None:
    (place / "inner").mkdir()
    (place / "inner" / "helper_of_shop.py").write_text("NAME = 'helped'\n")
    (place / "inner" / "json.py").write_text(
        "import dataclasses, helper_of_shop\n" + GOOD + "@dataclasses.dataclass\nclass A:\n    x: 'int'\n"
        "@app.page(label=helper_of_shop.NAME, item=A)\ndef a(page): ...\n"
    )
    assert load_app("inner/json.py").labels == ["helped"]
    assert __import__("json").dumps([1]) == "[1]"


@pytest.mark.parametrize(
    ("text", "target", "said"),
    [
        (None, "none.py", "file none.py does not exist"),
        (None, "none.py:app", "file none.py does not exist"),
        (None, "no_such_module:app", "module no_such_module does not exist in"),
        (None, "no.such:app", "module no does not exist in"),
        (None, ":app", "expected FILE.py, FILE.py:OBJECT or MODULE:OBJECT"),
        (None, "a b:app", "expected FILE.py"),
        (None, "", "expected FILE.py"),
        ("import no_such_thing\n", "m.py", "m.py:1: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("\n\n1 / 0\n", "m.py", "m.py:3: ZeroDivisionError: division by zero"),
        ("def f(:\n", "m.py", "m.py:1: SyntaxError"),
        ("raise SystemExit(3)\n", "m.py", "m.py:1: SystemExit: 3"),
        ("class E(Exception):\n    def __str__(self): raise SystemExit(9)\nraise E\n", "m.py", "m.py:3: E"),
        ("raise ValueError('\\ud800\\n')\n", "m.py", "m.py:1: ValueError: ?"),
        ("raise SyntaxError('\\ud800')\n", "m.py", "SyntaxError: ?"),
        ("import asyncio\nraise asyncio.CancelledError\n", "m.py", "m.py:2: CancelledError"),
        (
            f"class L:\n    __class__ = property(lambda _: exit(4))\nx = L()\n{GOOD}other = Crawler()\n",
            "m.py",
            "several",
        ),
        ("class L:\n    __class__ = property(lambda _: exit(4))\nx = L()\n", "m.py:x", "x is a L, no Crawler"),
        ("x = 1\n", "m.py", "makes no Crawler: write app = Crawler()"),
        ("x = 1\n", "m.py:x", "x is a int, no Crawler"),
        ("x = 1\n", "m.py:y", "it has no y"),
        ("from crawler import Crawler\napp = Crawler()\n", "m.py", "no handler: write one with @app.page"),
        (GOOD + "other = Crawler()\n", "m.py", "has several apps: use --app m.py:app or m.py:other"),
        (GOOD + "@app.page('/x')\ndef x(page): ...\n", "m.py", "m.py:5: pattern '/x': expected HOST/PATH"),
        (GOOD + "same = app\n", "m.py:other", "it has no other"),
    ],
)
def test_each_way_of_not_finding_it_is_one_line(place: Path, text: str | None, target: str, said: str) -> None:
    if text is not None:
        (place / "m.py").write_text(text)
    with pytest.raises(UsageError) as raised:
        load_app(target)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_one_object_under_two_names_is_one(place: Path) -> None:
    (place / "twice.py").write_text(GOOD + "same = app\n")
    assert load_app("twice.py").handlers


def test_a_failed_import_can_be_tried_again(place: Path) -> None:
    (place / "mended.py").write_text("1 / 0\n")
    with pytest.raises(UsageError):
        load_app("mended.py")
    (place / "mended.py").write_text(GOOD)
    assert load_app("mended.py").handlers

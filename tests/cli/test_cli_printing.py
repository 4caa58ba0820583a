"""All that commands print leaves through terminal/output.py: no text of a site can control the terminal."""

import ast
from pathlib import Path

import pytest

import crawler
from crawler.terminal import output

ROOT = Path(crawler.__file__).parent
PARTS = ("cli", "tui", "views", "audit", "recovery", "crawl", "supervisor")
FILES = sorted(file for part in PARTS for file in (ROOT / part).glob("*.py"))
HARMLESS = {"isatty", "fileno", "flush", "close"}  # of a stream
MAY_HAVE_A_STREAM = {
    "flush",
    "view_for",
    "start_logging",
    "show_urls",
}  # which print by the helper, or clean themselves
# Cleans; draws with rich, of cleaned text; has no file left to import the helper from, and says nothing of others.
PRINTS_ITSELF = {
    ("shell.py", "_print"),
    ("live.py", "LiveView"),
    ("main.py", "_report_files"),
    ("main.py", "_report_full_disk"),
}


def past_the_helper(tree: ast.Module, file: str) -> list[str]:
    found, allowed = [], set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (file, node.name) in PRINTS_ITSELF:
            allowed |= set(ast.walk(node))
        if isinstance(node, ast.Call) and name_of(node.func) in MAY_HAVE_A_STREAM:
            allowed |= {child for argument in [*node.args, *node.keywords] for child in ast.walk(argument)}
        if isinstance(node, ast.Attribute) and node.attr in HARMLESS:
            allowed.add(node.value)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self._out":  # given to printing.out
            allowed |= set(ast.walk(node))
    for node in ast.walk(tree):
        if node in allowed:
            continue
        is_print = isinstance(node, ast.Call) and name_of(node.func) in ("print", "pprint", "Console", "print_exc")
        is_stream = isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr")
        if is_print or is_stream:
            found.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    return found


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@pytest.mark.slow(ci=True)
def test_nothing_is_printed_past_the_helper() -> None:
    assert {file.parent.name for file in FILES} == set(PARTS)
    assert [one for file in FILES for one in past_the_helper(ast.parse(file.read_text()), file.name)] == []


@pytest.mark.parametrize("line", ["print(x)", "sys.stdout.write(x)", "sys.stderr.writelines(x)", "Console().print(x)"])
def test_a_line_that_prints_past_the_helper_is_found(line: str) -> None:
    assert past_the_helper(ast.parse(line), "any.py")


def test_a_terminal_that_lacks_a_character_shows_an_escape(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as stream:
        output.out("ü 漢\x1b", stream=stream)
    assert (tmp_path / "out").read_text() == "\\xfc \\u6f22\\x1b\n"

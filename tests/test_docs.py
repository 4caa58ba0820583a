"""The pages for users do what they say: every block is written, typed and compared, in an empty folder."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from crawler.testing import Resource, serve
from tests.support.pages import Block, Command, Reader, blocks_of, commands_of, fits
from tests.support.processes import Nursery

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[1]
GUIDE, EXAMPLES = ROOT / "docs" / "guide", ROOT / "examples"
PAGES = ("from-scrapy.md", "handlers.md", "first-crawl.md", "testing-handlers.md")
LONG = PAGES[2:]
NOT_RUN_MAX = 6  # in all pages together; three are for Scrapy
SHOP = '<h1>Tea</h1><a class="product" href="/product/1">1</a><a class="next" href="/product/2">2</a>'
SHOP_PAGES: Mapping[str, Resource | str] = {
    f"https://shop.example{path}": f"<title>t</title>{SHOP}" for path in ("/", "/product/1", "/product/2")
}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if one in LONG else one for one in PAGES])
def test_each_block_of_a_page_does_what_the_page_says(name: str, programs: Nursery, tmp_path: Path) -> None:
    """One shell for the whole page, as a reader has: what an earlier block has made, later ones find."""
    with serve(SHOP_PAGES) as shop:
        web = shop.environment if name == "handlers.md" else {}
        reader = Reader(tmp_path, programs, web)
        try:
            for block in blocks_of(GUIDE / name):
                reader.follow(block, usual_name="shop.py" if name == "handlers.md" else "")
        finally:
            reader.close()


@pytest.mark.slow(seconds=30)
def test_the_commands_of_the_examples_do_what_their_page_says(programs: Nursery, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    reader = Reader(tmp_path / "examples", programs, {})
    try:
        for block in blocks_of(EXAMPLES / "README.md"):
            reader.follow(block)
    finally:
        reader.close()


def test_the_spiders_of_the_other_program_are_python() -> None:
    """The first is run by `scripts/bench port`, which needs Scrapy."""
    spiders = [block for block in blocks_of(GUIDE / "from-scrapy.md") if "Scrapy" in block.why]
    assert [block.name for block in spiders] == ["quotes_spider.py", "shop_spider.py", "", ""]
    for spider in spiders:
        compile(spider.text, spider.name, "exec")


def test_few_blocks_are_shown_without_being_run() -> None:
    blocks = [block for name in PAGES for block in blocks_of(GUIDE / name)]
    assert len([block for block in blocks if block.language in ("sh", "python")]) > 10
    assert len([block for block in blocks if block.why]) <= NOT_RUN_MAX
    unnamed = [b for b in blocks_of(GUIDE / "testing-handlers.md") if b.language == "python" and not (b.name or b.why)]
    assert unnamed == []


def test_the_reader_compares_and_stops_at_what_fails(programs: Nursery, tmp_path: Path) -> None:
    reader = Reader(tmp_path, programs, {})
    try:
        reader.follow(Block("text", "a.txt", "one\ntwo\n", "", 1))
        reader.follow(Block("sh", "", "cat a.txt\n", "", 1, "one\n...\n"))
        reader.follow(Block("sh", "", "X=5\necho $X \\\n  more\n", "", 1, "... more\n"))
        for text, output in (("cat a.txt\n", "two\n"), ("false\n", None), ("no-such-command\n", None)):
            with pytest.raises(AssertionError, match="line 7"):
                reader.follow(Block("sh", "", text, "", 7, output))
    finally:
        reader.close()


def test_outputs_fit_with_dots_for_what_differs() -> None:
    assert fits("a 1 b\nx\ny\nend\n", "a ... b\n...\nend")
    assert fits("a\n", "...\na\n...")
    assert not fits("a\nb\n", "a")
    assert not fits("a\n", "a\n...\nb")
    commands = list(commands_of(Block("sh", "", "a\nb \\\n  c\n", "", 1, "out\n")))
    assert commands == [Command("a", None), Command("b \\\n  c", "out\n")]


PROMPTS = ("$ ", "> ")


@pytest.mark.parametrize("page", [GUIDE.parents[1] / "README.md", *(GUIDE / name for name in PAGES)], ids=str)
def test_commands_can_be_pasted(page: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.language in ("sh", "console")]
    assert [line for block in blocks for line in block.text.splitlines() if line.startswith(PROMPTS)] == []

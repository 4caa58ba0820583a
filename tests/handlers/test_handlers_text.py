"""What a handler sees of a page's text and of what the page says of itself: each member, on pages of every kind."""

from collections.abc import Callable
from typing import Any

import pytest

from crawler.content import main_text as texts
from crawler.content.main_text import UnreadableTextError
from crawler.handlers.page import MARKDOWN_NODES_MAX, Page
from tests.handlers.test_handlers_page import page

STORY = "".join(f"<p>Sentence {n} of the story tells something that its readers want to know.</p>" for n in range(9))
HTML = (
    "<html lang=en_GB><title>T</title><link rel=canonical href=/c><meta name=Description content=' About\n it '>"
    "<meta name=robots content=noindex><meta property=og:image content=a><meta property=og:image content=b>"
    "<body><nav><a href=/>Home</a><a href=/about>About us</a></nav><main><article><h1>A story</h1>"
    f"{STORY}</article></main><footer>Copyright by nobody</footer>"
).encode()
MEMBERS: dict[str, Callable[[Page], Any]] = {
    "main_text": lambda seen: seen.main_text(),
    "markdown": lambda seen: seen.markdown(),
    "markdown(main)": lambda seen: seen.markdown(main=True),
    "language": lambda seen: seen.language,
    "declared_language": lambda seen: seen.declared_language,
    "canonical": lambda seen: seen.canonical,
    "noindex": lambda seen: seen.noindex,
    "description": lambda seen: seen.description,
    "metadata": lambda seen: seen.metadata(),
}
NOTHING: dict[str, Any] = {
    "main_text": "", "markdown": "", "markdown(main)": "", "language": "", "declared_language": "", "canonical": "",
    "noindex": False, "description": "", "metadata": {},
}  # fmt: skip
NEEDS_LIBRARY = ("main_text", "markdown(main)", "language")
OF_PARSING = ("canonical", "noindex")  # found when the page was parsed, wherever that was


def value(seen: Page, member: str) -> Any:
    if member in NEEDS_LIBRARY:
        pytest.importorskip("resiliparse")
    return MEMBERS[member](seen)


def test_the_main_text_is_without_what_is_around_it() -> None:
    lines = value(page(HTML), "main_text").splitlines()
    assert [line for line in lines if line.startswith("Sentence")] == [
        f"Sentence {n} of the story tells something that its readers want to know." for n in range(9)
    ]
    assert not {"Home", "About us", "Copyright by nobody"} & set(lines)


def test_markdown_has_the_whole_page_and_absolute_links() -> None:
    text = value(page(HTML), "markdown")
    assert text.startswith("[Home](https://shop.test/)[About us](https://shop.test/about)\n\n# A story\n\nSentence 0")
    assert text.endswith("Copyright by nobody\n")


def test_markdown_of_the_main_text_keeps_its_form() -> None:
    text = value(page(HTML), "markdown(main)")
    assert text.startswith("# A story\n\nSentence 0")
    assert text.count("Sentence") == 9
    assert "About us" not in text
    assert "Copyright" not in text


def test_the_language_is_detected_and_the_declared_one_read() -> None:
    german = "<p>Die Sprache eines Textes wird erkannt, wenn er lang genug ist, sonst sagt niemand etwas.</p>" * 5
    seen = page(f"<html lang=en-US><body><article>{german}</article>".encode())
    assert value(seen, "declared_language") == "en-us"
    assert value(seen, "language") == "de"


def test_the_declared_language_is_in_lower_case() -> None:
    assert value(page(HTML), "declared_language") == "en-gb"


def test_the_canonical_url_is_absolute() -> None:
    assert value(page(HTML), "canonical") == "https://shop.test/c"


def test_noindex_is_said() -> None:
    assert value(page(HTML), "noindex") is True
    assert value(page(), "noindex") is False


def test_the_description_is_the_page_s_own() -> None:
    assert value(page(HTML), "description") == "About it"
    assert value(page(b"<meta property=og:description content=Preview>"), "description") == "Preview"


def test_metadata_is_by_name_in_lower_case_and_a_list_of_several() -> None:
    expected = {"description": "About it", "robots": "noindex", "og:image": ["a", "b"]}
    assert value(page(HTML), "metadata") == expected


@pytest.mark.parametrize(
    "body", [b"", b" \n", b"<!-- -->", b"<html></html>", b"<title></title><body><script>x</script>"]
)
@pytest.mark.parametrize("member", MEMBERS)
def test_an_empty_page_has_nothing(member: str, body: bytes) -> None:
    assert value(page(body), member) == NOTHING[member]


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b'{"lang": "en"}', "application/json", '{"lang": "en"}'), ("Grüße".encode(), "text/plain", "Grüße"),
        (b"<p>no element", "text/plain", "<p>no element"), (b"", "application/pdf", ""),
    ],
)  # fmt: skip
def test_a_page_that_is_not_html_has_its_body_as_text_alone(
    member: str, body: bytes, content_type: str, text: str
) -> None:
    expected = NOTHING | {"main_text": text}
    assert value(page(body, content_type), member) == expected[member]


@pytest.mark.parametrize("member", MEMBERS)
def test_a_page_that_is_too_expensive_to_parse_here_says_so(member: str) -> None:
    seen = page(HTML, may_parse=False)
    if member in OF_PARSING:
        assert value(seen, member) == value(page(HTML), member)
        return
    with pytest.raises(RuntimeError, match="may take seconds to parse: only its handler sees its tree and text"):
        value(seen, member)


@pytest.mark.parametrize("member", NEEDS_LIBRARY)
def test_a_page_whose_main_text_would_take_too_long_says_so(member: str) -> None:
    seen = page(b"<div>" * 3_000 + b"x")
    with pytest.raises(ValueError, match="nested more than 400 deep"):
        value(seen, member)
    assert value(seen, "markdown") == "x\n", "what needs no main text is there"


def test_a_page_with_too_many_elements_has_no_markdown() -> None:
    seen = page(b"<br>" * (MARKDOWN_NODES_MAX + 1))
    with pytest.raises(UnreadableTextError, match="too many elements and texts"):
        value(seen, "markdown")


def test_the_main_text_is_found_once_and_not_kept_when_the_page_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def find(body: bytes, charset: str, tree: object) -> str:
        calls.append(tree)
        return "Sentence 1 of the story"

    monkeypatch.setattr(texts, "main_text", find)
    seen = page(HTML)
    assert seen.main_text() == seen.main_text() == "Sentence 1 of the story"
    seen.markdown(main=True)
    assert calls == [seen.html], "the tree that the page has is used"
    seen.close()
    assert not {"html", "_main"} & set(vars(seen))

"""The columns that can be found in the body of a page, besides what the index has of it."""

LIBRARY = "resiliparse"  # of the extra `text`
NEEDING_TEXT = frozenset(("main_text", "language", "main_markdown"))  # they need it
COLUMNS = {  # name: what it is
    "text": "all visible text, a line for each block",
    "main_text": "the main text alone, without menus and footers",
    "markdown": "the page as Markdown",
    "main_markdown": "the main text as Markdown",
    "links": "the URLs that it links to",
    "canonical": "the canonical URL that it names",
    "language": "the language of its main text, as detected",
    "declared_language": "the language that it declares",
    "description": "its own description",
    "metadata": "its metadata: OpenGraph, author, dates and so on",
    "jsonld": "the objects of its JSON-LD",
}

"""The main text of a page, without menus, sidebars and footers, and its language; by resiliparse, an optional library.

Its time grows with the square of how deep elements are nested, and of the options of a select element. So the tree of
lexbor, which is linear in both, is looked at first: a page beyond these bounds has no main text.
docs/internals/decisions/text.md has what was measured.
"""

from unicodedata import normalize

from selectolax.lexbor import LexborHTMLParser

from crawler.content.html import NO_EVENTS
from crawler.content.sniff import decode

BYTES_MAX = 8 * 1024 * 1024
DEPTH_MAX = 400  # of elements; real pages have 10 to 60
STEPS_MAX = 10_000_000  # the sum of the depths of all elements: 0.3 s
OPTIONS_MAX = 4_000  # of select elements: 0.15 s
LANGUAGE_CHARS = 4_000  # more of a text tell nothing new
LANGUAGE_CHARS_MIN = 100  # of shorter ones, one in five would be wrong
_RANK_MAX = 1_200  # of resiliparse: texts that are far from each language's profile have none


class UnreadableTextError(ValueError):
    """A page whose text would take too long to be found: why."""


def load_library(*, has_language: bool) -> None:
    """Import the parts of it that are used here. Raises ImportError."""
    import resiliparse.extract.html2text

    if has_language:
        import resiliparse.parse.lang  # noqa: F401


def main_text(body: bytes, charset: str, tree: LexborHTMLParser | None = None) -> str:
    """The main text of an HTML body: a line for each block, without comments; "" where there is none.

    `tree`: of the body, if the caller has it. Raises UnreadableTextError for a page that is beyond the bounds.
    """
    from resiliparse.extract.html2text import extract_plain_text  # an optional dependency

    if len(body) > BYTES_MAX:
        raise UnreadableTextError(f"longer than {BYTES_MAX >> 20} MiB")
    text = decode(body, charset)
    _check(tree or LexborHTMLParser(text, options=NO_EVENTS))
    found: str = extract_plain_text(
        text, preserve_formatting=True, main_content=True, list_bullets=False, alt_texts=False, comments=False,
        post_meta=False,
    )  # fmt: skip
    lines = (" ".join(line.split()) for line in found.split("\n"))
    return "\n".join(line for line in lines if line)


def _check(tree: LexborHTMLParser) -> None:
    root = tree.root
    if root is None:
        return
    depths = {root.mem_id: 0}
    steps = options = 0
    for node in root.traverse():
        parent = node.parent
        depth = depths.get(parent.mem_id, 0) + 1 if parent is not None else 0
        depths[node.mem_id] = depth
        steps += depth
        if depth > DEPTH_MAX:
            raise UnreadableTextError(f"elements are nested more than {DEPTH_MAX} deep")
        if node.tag == "option":
            options += 1
    if steps > STEPS_MAX:
        raise UnreadableTextError("too many elements, nested too deep")
    if options > OPTIONS_MAX:
        raise UnreadableTextError(f"more than {OPTIONS_MAX:,} options to select")


def language_of(text: str) -> str:
    """The language that a text is in (ISO 639-1, such as "en"); "" of a short one, and where it can't be told."""
    from resiliparse.parse.lang import detect_fast

    if len(text) < LANGUAGE_CHARS_MIN:
        return ""
    found, _ = detect_fast(normalize("NFC", text[:LANGUAGE_CHARS]), cutoff=_RANK_MAX)
    return "" if found == "unknown" else str(found)

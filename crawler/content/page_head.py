"""What a page says of itself: its canonical URL, language, description, and the metadata of its head. Pure."""

from typing import Any

from selectolax.lexbor import LexborHTMLParser

META_MAX = 200  # names of one page
VALUES_MAX = 20  # of one name: several images, several authors
VALUE_CHARS_MAX = 4_000
LANGUAGE_CHARS_MAX = 35  # of a tag of BCP 47
_DESCRIPTIONS = ("description", "og:description", "twitter:description", "dc.description", "dcterms.description")


def meta_of(tree: LexborHTMLParser) -> dict[str, Any]:
    """The content of all <meta>, by name or property in lower case: a text, or a list of several. Dates of <time> and
    the author of rel=author are under `time` and `author` where no <meta> has them. Bounded in number and length.
    """
    found: dict[str, list[str]] = {}
    for node in tree.css("meta[content]"):
        attrs = node.attrs
        name = attrs.sget("property") or attrs.sget("name") or attrs.sget("itemprop") or ""
        _add(found, name, attrs.sget("content") or "")
    if "author" not in found:
        for node in tree.css('[rel~="author"]')[:VALUES_MAX]:
            _add(found, "author", node.text()[: 2 * VALUE_CHARS_MAX])
    for node in tree.css("time[datetime]")[:VALUES_MAX]:
        _add(found, "time", node.attrs.sget("datetime") or "")
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _add(found: dict[str, list[str]], name: str, value: str) -> None:
    name = " ".join(name.lower().split())[:200]
    value = " ".join(value.split())[:VALUE_CHARS_MAX]
    if not name or not value:
        return
    values = found.get(name)
    if values is None:
        if len(found) < META_MAX:
            found[name] = [value]
    elif len(values) < VALUES_MAX and value not in values:
        values.append(value)


def description_of(meta: dict[str, Any]) -> str:
    """The page's own description, or the one for previews."""
    for name in _DESCRIPTIONS:
        if value := meta.get(name):
            return value if isinstance(value, str) else str(value[0])
    return ""


def declared_language_of(tree: LexborHTMLParser, content_language: str = "") -> str:
    """The language that the page declares: `lang` of <html>, else <meta>, else the Content-Language header; its tag
    as it was written, in lower case; "" where none is.
    """
    root = tree.css_first("html")
    declared = (root.attrs.sget("lang") or root.attrs.sget("xml:lang") or "") if root is not None else ""
    if not declared.strip():
        for node in tree.css("meta[http-equiv][content]"):
            if (node.attrs.sget("http-equiv") or "").strip().lower() == "content-language":
                declared = node.attrs.sget("content") or ""
                break
    tag = (declared.strip() or content_language).partition(",")[0].strip().lower().replace("_", "-")
    return tag if len(tag) <= LANGUAGE_CHARS_MAX and tag.replace("-", "").isalnum() and tag.isascii() else ""

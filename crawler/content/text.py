"""What a reader sees: the visible text of a page. For exports, not for the crawl itself."""

from selectolax.lexbor import LexborHTMLParser

from crawler.content.charset import decode

_UNSEEN = ["script", "style", "noscript", "template", "head", "iframe", "object", "svg", "textarea", "select"]
_BLOCKS = (
    "address,article,aside,blockquote,br,dd,details,div,dl,dt,figcaption,figure,footer,form,h1,h2,h3,h4,h5,h6,header,"
    "hr,li,main,nav,ol,p,pre,section,summary,table,td,th,tr,ul"
)
_BREAK = "\x1e"  # a control character that no page needs, and that counts as a blank otherwise
_NO_EVENTS = 1


def extract_text(body: bytes, charset: str) -> str:
    """Visible text of an HTML body: a line for each block, blanks folded, no empty lines."""
    tree = LexborHTMLParser(decode(body, charset), options=_NO_EVENTS)
    tree.strip_tags(_UNSEEN)
    root = tree.body
    if root is None:
        return ""
    for node in root.css(_BLOCKS):
        node.insert_before(_BREAK)
        node.insert_after(_BREAK)
    lines = (" ".join(line.split()) for line in root.text().split(_BREAK))
    return "\n".join(line for line in lines if line)


def main_text(body: bytes, charset: str) -> str:
    """The article of an HTML body without menus, side columns and footers, by trafilatura; "" where it finds none.

    Needs that library.
    """
    from trafilatura import extract  # heavy, and wanted by few

    return extract(decode(body, charset), include_comments=False) or ""

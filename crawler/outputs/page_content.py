"""The body of an archived page, as its columns are found in it: read from its WARC record.

How content codings are undone is handed in: that knowledge is of the web's side.
"""

from collections.abc import Callable

from crawler.archive.folder import CrawlFolder
from crawler.archive.warc_reader import read_content
from crawler.content.page_columns import PageBody
from crawler.media_type import declared_type
from crawler.model import CommitEntry


def page_body(
    folder: CrawlFolder, entry: CommitEntry, decode: Callable[[bytes, str], bytes], *, link_rules: int
) -> PageBody | tuple[str, ...]:
    """Raises ArchiveError when its record can't be read, and what `decode` raises. One whose body was withheld, because
    of its rights, has its links alone.
    """
    record = read_content(folder, entry)
    if record.is_withheld:
        return tuple(record.links)
    return PageBody(
        url=entry.url,
        content_type=declared_type(record),
        body=decode(record.payload, record.listed("content-encoding")),
        refresh=record.header("refresh"),
        content_language=record.header("content-language"),
        link_rules=link_rules,
    )

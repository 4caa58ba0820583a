"""What the first record of each WARC file tells of who archived it, and how (ISO 28500 6.3)."""

import socket
from hashlib import sha256

import msgspec

from crawler.settings import Settings
from crawler.settings.kept import kept_of


def about_archive(settings: Settings, *, user_agent: str, sender: str) -> dict[str, str]:
    """Fields by name, those that are known. `sender`: the From header of requests.

    `settings` are told by a digest: files with the same one were written under the same settings of the crawl. What has
    secrets is not among these.
    """
    kept = msgspec.json.encode(kept_of(settings), order="sorted")
    known = {
        "operator": settings.fetch.contact,
        "hostname": socket.gethostname(),
        "http-header-user-agent": user_agent,
        "http-header-from": sender,
        "robots": "obey" if settings.robots.obey else "ignore",  # the words of Heritrix
        "settings": f"sha256:{sha256(kept).hexdigest()}",
    }
    return {name: value for name, value in known.items() if value}

"""Directives to robots in X-Robots-Tag and in <meta>, like noindex. Pure."""

from collections.abc import Sequence

_AGENT = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_*-")
_VALUED = frozenset(("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"))
_DIRECTIVES = frozenset(("all", "follow", "index", "nofollow", "noindex", "none", "noai", "noimageai"))
_SEPARATORS = str.maketrans(",;/", "   ")


def directives_in(text: str) -> list[str]:
    """Directives in lower case, whatever separates them. Values behind a colon are none."""
    words = text.lower().translate(_SEPARATORS).replace(":", " : ").split()
    valued = {n + 2 for n, word in enumerate(words[:-2]) if word in _VALUED and words[n + 1] == ":"}
    return [word for n, word in enumerate(words) if n not in valued]


def our_directives(value: str, agent: str) -> list[str]:
    """Those of X-Robots-Tag lines that are for us: behind an agent's name and a colon they are for that agent."""
    found = []
    for line in value.lower().split("\n"):
        ours = True
        for part in line.replace(";", ",").split(","):
            directive = part
            name, colon, rest = part.partition(":")
            name = name.strip()
            if colon and name and name not in _VALUED and name not in _DIRECTIVES and _AGENT.issuperset(name):
                ours = name in (agent.lower(), "*")
                directive = rest
            if ours:
                found += directives_in(directive)
    return found


def no_index_no_follow(directives: Sequence[str]) -> tuple[bool, bool]:
    """Whether they forbid to index a page, and to follow its links."""
    has_none = "none" in directives
    return has_none or "noindex" in directives, has_none or "nofollow" in directives


def robots_header(value: str, agent: str) -> tuple[bool, bool]:
    """(noindex, nofollow) of X-Robots-Tag lines."""
    return no_index_no_follow(our_directives(value, agent)) if value else (False, False)

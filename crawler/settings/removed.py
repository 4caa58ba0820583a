"""Keys that are not settings: those of earlier releases with what became of them, and those that only tests set.

A key of an earlier release is refused with one line, so that nobody believes in a limit that does not hold any more.
An internal is a fixed value that tests replace, by its name below `internals.` in any source. No user needs one.
"""

# Fields of the sections of `Settings`, next to what users set.
INTERNALS = frozenset(
    {
        "dns.negative_ttl_s",
        "dns.ttl_min_s",
    }
)

# "section.key" as earlier releases had it -> what holds instead.
REMOVED: dict[str, str] = {
    "dns.negative_ttl_s": "it is fixed at 60 s",
    "dns.ttl_max_s": "it is fixed at 3600 s",
    "dns.ttl_min_s": "it is fixed at 60 s",
}


def removal_of(key: str) -> str:
    """What became of a key of an earlier release; "" for other keys."""
    return f"{key} is no longer a setting, remove it: {REMOVED[key]}" if key in REMOVED else ""

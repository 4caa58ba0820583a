"""Keys that are not settings: those of earlier releases with what became of them, and those that only tests set.

A key of an earlier release is refused with one line, so that nobody believes in a limit that does not hold any more.
An internal is a fixed value that tests replace, by its name below `internals.` in any source. No user needs one.
"""

# Fields of the sections of `Settings`, next to what users set.
INTERNALS = frozenset(
    {
        "archive.room_s",
        "archive.sync_pages",
        "archive.sync_s",
        "dns.negative_ttl_s",
        "dns.ttl_min_s",
        "frontier.claim_ahead_s",
        "frontier.log_entries_max",
        "frontier.visibility_timeout_s",
        "hosts.probe_max_s",
        "hosts.probe_s",
        "membership.beats",
        "membership.debounce_s",
        "membership.flap_free",
        "membership.flap_hold_max_s",
        "membership.flap_hold_s",
        "membership.reads",
        "membership.virtual_nodes",
        "robots.ttl_s",
        "traps.host_labels",
        "traps.long_bytes",
        "traps.parameters",
        "traps.path_segments",
        "traps.repeats",
    }
)

# "section.key" as earlier releases had it -> what holds instead.
_KINDS = (
    *("dns_not_found", "dns_error", "connect", "tls", "timeout", "disconnected", "protocol", "server_busy"),
    *("server_error", "robots_unreachable", "body", "handler"),
)
REMOVED = {
    "archive.sync_pages": "it is fixed at 128",
    "archive.sync_s": "it is fixed at 0.2 s",
    "dns.negative_ttl_s": "it is fixed at 60 s",
    "dns.ttl_max_s": "it is fixed at 3600 s",
    "dns.ttl_min_s": "it is fixed at 60 s",
    "fetch.headers_bytes_max": "it is fixed at 65536 bytes",
    "fetch.inflate_ratio_max": "it is fixed at 100",
    "frontier.claim_ahead_s": "it is fixed at 2 s",
    "frontier.log_entries_max": "it is fixed at 10000",
    "frontier.memory_mark": "it is fixed at 0.85",
    "frontier.visibility_timeout_s": "it is 300 s, or twice fetch.total_timeout_s",
    "handlers.bytes_max": "it is fixed at 64 MiB",
    "hosts.probe_factor": "it is fixed at 2",
    "hosts.probe_max_s": "it is fixed at 3600 s",
    "hosts.probe_s": "it is fixed at 60 s",
    "jobs.clock_offset_max_s": "it is fixed at 5 s",
    "membership.beat_s": "it follows membership.dead_s, as a 7th of it",
    "membership.debounce_s": "it is fixed at 0.5 s",
    "membership.flap_free": "it is fixed at 3",
    "membership.flap_hold_max_s": "it is fixed at 300 s",
    "membership.flap_hold_s": "it is fixed at 5 s",
    "membership.gap_s": "it follows membership.dead_s, as 2.5 7ths of it",
    "membership.load_bound": "it is fixed at 1.1",
    "membership.read_s": "it follows membership.dead_s, as a 14th of it",
    "membership.self_stop_s": "it follows membership.dead_s, as 5 7ths of it",
    "membership.steady_s": "it is fixed at 60 s, or twice membership.dead_s",
    "membership.stretch_members": "it is fixed at 100",
    "membership.suspect_s": "it follows membership.dead_s, as 3 7ths of it",
    "membership.virtual_nodes": "it is fixed at 150",
    "politeness.retry_after_max_s": "it is fixed at 3600 s",
    **{f"retry.{kind}.backoff_factor": "retry.backoff_factor holds for all kinds" for kind in _KINDS},
    **{f"retry.{kind}.backoff_max_s": "retry.backoff_max_s holds for all kinds" for kind in _KINDS},
    "robots.body_bytes_max": "it is fixed at 512000 bytes",
    "robots.redirects_max": "it is fixed at 5",
    "robots.ttl_s": "it is fixed at 86400 s",
    "scope.url_bytes_max": "it is fixed at 8192 bytes",
    "traps.host_labels": "it is fixed at 4; traps.off switches rules off",
    "traps.long_bytes": "it is fixed at 512; traps.off switches rules off",
    "traps.parameters": "it is fixed at 4; traps.off switches rules off",
    "traps.path_segments": "it is fixed at 10; traps.off switches rules off",
    "traps.penalty": "it is fixed at 1000",
    "traps.repeats": "it is fixed at 3; traps.off switches rules off",
    "traps.same_digest": "it is fixed at 50; traps.off switches rules off",
    "traps.years_ahead": "it is fixed at 2; traps.off switches rules off",
    "traps.years_back": "it is fixed at 40; traps.off switches rules off",
}


def removal_of(key: str) -> str:
    """What became of a key of an earlier release; "" for other keys."""
    return f"{key} is no longer a setting, remove it: {REMOVED[key]}" if key in REMOVED else ""

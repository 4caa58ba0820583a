"""Internals: fixed values that tests replace, by their names below `internals.` in any source. No user needs one."""

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
        "requisites.page_max",
        "robots.ttl_s",
        "traps.host_labels",
        "traps.long_bytes",
        "traps.parameters",
        "traps.path_segments",
        "traps.repeats",
    }
)

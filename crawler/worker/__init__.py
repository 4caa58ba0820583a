"""The life of a claim: claimed, scheduled, fetched, parsed, handled, archived, routed, acknowledged."""

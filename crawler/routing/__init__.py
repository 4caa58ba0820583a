"""Which URLs a page leads to, whose they are, and which of them are known, are traps, or belong to a run."""

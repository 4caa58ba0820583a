"""The HTTP API of a crawl, its dashboard and its metrics: what `crawler serve` runs."""

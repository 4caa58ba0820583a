"""Who takes part in a crawl, who is alive, and which partitions an instance owns."""

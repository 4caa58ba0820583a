"""Members of a crawl: which are alive, and which partitions each owns."""

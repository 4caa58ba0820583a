"""Text about a crawl for people."""

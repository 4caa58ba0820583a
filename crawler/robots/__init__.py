"""Whether a URL may be fetched: robots.txt is fetched, cached, and checked before each request."""

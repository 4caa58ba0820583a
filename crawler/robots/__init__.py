"""Whether a URL may be fetched: robots.txt, fetched, cached and asked before each request."""

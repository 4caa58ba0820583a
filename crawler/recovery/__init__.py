"""A crawl put back together from its folder."""

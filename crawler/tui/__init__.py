"""`crawler top`: a crawl in a terminal, live. The only package that imports Textual. Shows, and decides nothing."""

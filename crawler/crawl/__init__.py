"""The composition root: opens a crawl, builds an instance, runs and stops it."""
